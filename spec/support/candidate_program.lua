--- A program: a candidate of spec/controller/leader_kill_spec.lua, which writes as fast as it can while it leads.
--
--   candidate_program.lua URL ID TTL
--
-- In each term the key `term` gets values "REVISION N ID", by the fence of the term, and the key `process` the value
-- "ID N", by the elector's fence. Every failure is printed: "failed CODE", "certain" or "maybe".
--
-- SIGUSR1 has the elector be stopped, and started again. SIGUSR2 has the next write to `process` stop the whole
-- process, by SIGSTOP, after this process was found to lead and before the request is sent: only the server can refuse
-- it then. What becomes of it is printed: "woken refused", "woken done" or "woken CODE".

local controller = require "keywatch.controller"
local keywatch = require "keywatch"
require("keywatch.support.log").set_level("error")

local URL, ID, TTL = arg[1], arg[2], tonumber(arg[3])

io.stdout:setvbuf("line")

local client = keywatch.connect(URL, { timeout = 5 })
local before         -- the fence of the term before
local is_tired = false -- the next write to `process` stops the process

local txn = client.txn
function client:txn(given, opts)
  local op = given.success and given.success[1]
  if not is_tired or not op or op.put ~= "process" then return txn(self, given, opts) end
  is_tired = false
  print "sleeps"
  os.execute("kill -STOP $PPID")
  local result, err = txn(self, given, opts)
  print("woken " .. (not result and err.code or result.succeeded and "done" or "refused"))
  return result, err
end

local function tell(err)
  print("failed " .. tostring(err.code) .. (err.maybe_done and " maybe" or " certain"))
end

local function write_while(is_wanted, fence, revision)
  local n = 0
  while is_wanted() do
    n = n + 1
    local ok, err = fence:put("term", ("%d %d %s"):format(revision, n, ID))
    if not ok then
      tell(err)
      if err.code == "lost" then return end
    end
  end
end

local elector
elector = controller.elector {
  store = client, name = "e", id = ID, ttl = TTL,
  on_lead = function(fence, leadership)
    print("leads " .. leadership.revision)
    if before then
      local ok, err = before:put("term", "late") -- a write of an old term, though this process leads again
      if ok then print("late") else tell(err) end
    end
    before = fence
    pcall(write_while, function() return true end, fence, leadership.revision)
    local ok, err = fence:put("term", ("%d %d %s"):format(leadership.revision, 1e9, ID)) -- though it was cancelled
    if not ok then tell(err) end
  end,
}

keywatch.run(function()
  local signals = assert(keywatch.signals { "USR1", "USR2" })
  elector:start()
  keywatch.spawn(function()
    local n, fence = 0, elector:fence()
    while true do
      n = n + 1
      if elector:is_leader() then
        local ok, err = fence:put("process", ("%s %d"):format(ID, n))
        if not ok then tell(err) end
      else
        keywatch.sleep(0.01)
      end
    end
  end)
  print "started"
  while true do
    if signals:wait() == "USR2" then
      is_tired = true
    else
      print("stopped " .. tostring(elector:stop()))
      elector:start()
    end
  end
end)
