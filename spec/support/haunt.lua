--- Finalizers that act in the middle of calls: at a chosen allocation of one call, or throughout a program.
--
-- For separate programs, with the probe: garbage is collected only at the allocation that the probe was given, in a
-- whole cycle. Each collection runs a finalizer. The program counts the finalizer's action for the binding in which it
-- ran: the function of the core, of keywatch.uv or of keywatch.tls that was allocating memory.

local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local tls = require "keywatch.tls"
local uv = require "keywatch.uv"

require "spec.support.inner"

local probe = core.probe

local haunt = {}

-- {====== Bindings ======

local OBJECTS = {
  ["keywatch.store"] = "store", ["keywatch.core.watch"] = "watch", ["keywatch.core.subscription"] = "subscription",
  ["keywatch.core.server"] = "server", ["keywatch.core.peer"] = "peer", ["keywatch.core.client"] = "client",
  ["keywatch.core.snapshot"] = "snapshot", ["keywatch.core.read"] = "read",
  ["keywatch.core.write"] = "write", ["keywatch.core.feed_state"] = "feed_state",
  ["keywatch.core.content_writer"] = "content_writer",
  ["keywatch.core.broadcast"] = "broadcast", ["keywatch.core.text"] = "text",
  ["keywatch.core.hashing"] = "hashing", ["keywatch.core.inflater"] = "inflater",
  ["keywatch.uv.loop"] = "loop", ["keywatch.uv.listener"] = "listener",
  ["keywatch.uv.lookup"] = "lookup", ["keywatch.uv.catcher"] = "catcher",
  ["keywatch.uv.thread"] = "thread", ["keywatch.uv.this_thread"] = "this_thread",
  ["keywatch.tls.context"] = "context", ["keywatch.tls.channel"] = "channel",
}

local names, functions = {}, {} -- of bindings: by function, and the functions by name

local function add_all(prefix, list)
  for name, value in pairs(list) do
    if type(value) == "function" and debug.getinfo(value, "S").what == "C" then
      names[value], functions[prefix .. name] = prefix .. name, value
    end
  end
end

add_all("core.", core)
add_all("requests.", core.requests)
add_all("answers.", core.answers)
add_all("durable:", core.durable_methods)
add_all("uv.", uv)
add_all("tls.", tls)
for class, name in pairs(OBJECTS) do
  local meta = debug.getregistry()[class]
  add_all(name .. ":", meta.__index)
  add_all(name .. ":", { tostring = meta.__tostring })
end

haunt.functions = functions

--- Returns the name of the binding in which the finalizer runs; nil if it runs between bindings.
local function interrupted()
  for level = 3, 12 do
    local info = debug.getinfo(level, "fS")
    if not info or info.what ~= "C" then return nil end
    if names[info.func] then return names[info.func] end
  end
end

-- }======

-- {====== Finalizers ======

local act            -- called by the next finalizer, with the name of the binding
local acting = false

local function leave_one()
  local function finalize()
    leave_one()
    if acting or not act then return end
    acting = true
    act(interrupted())
    acting = false
  end
  compat.sentinel(finalize)
end

--- From now on garbage is collected only when the probe does so. LuaJIT's compiler is off: some versions hang in a
-- compiled loop over pairs inside of a finalizer.
function haunt.begin()
  if jit then
    jit.off()
    collectgarbage("setpause", 1000)
    collectgarbage("setstepmul", 0)
  else
    collectgarbage("incremental", 1000, 400, 63)
  end
  collectgarbage()
  leave_one()
end

--- Calls a function, and has a finalizer call `what` once, at the n-th allocation. Returns true if there was such an
-- allocation; the name of the binding in which it was; and the error of the call, if it has raised.
function haunt.at(n, what, call, ...)
  local where
  act = function(binding)
    act, where = nil, binding
    what(binding)
  end
  probe.collect_at(n)
  local ok, err = pcall(call, ...)
  local is_missed = probe.collect_never()
  act = nil
  return not is_missed, where, not ok and err or nil
end

--- Calls a function, while finalizers call what(name of the binding) at every `every`-th allocation. Returns as pcall
-- does.
function haunt.all_along(every, what, call, ...)
  act = function(binding)
    probe.collect_at(every, every) -- not during `what`
    what(binding)
  end
  probe.collect_at(every, every)
  local ok, result, err = pcall(call, ...)
  probe.collect_never()
  act = nil
  return ok, result, err
end

-- }======

-- {====== Counts of actions ======

local tally_methods = {}

--- Returns counters of actions by name, inside of bindings and between them. `never` and `unclean` are lists of texts
-- about failures.
function haunt.tally()
  return setmetatable({ fired = {}, between = {}, never = {}, unclean = {} }, { __index = tally_methods })
end

function tally_methods:count(action, binding)
  if not binding then
    self.between[action] = (self.between[action] or 0) + 1
    return
  end
  self.fired[action] = self.fired[action] or {}
  self.fired[action][binding] = (self.fired[action][binding] or 0) + 1
end

--- Prints the counters and the failures. Ends the program if there are failures.
function tally_methods:finish(actions)
  print("", "actions, the bindings where they happened, and how often; and how often between")
  for _, action in ipairs(actions) do
    local bindings, times = 0, 0
    for _, n in pairs(self.fired[action.name] or {}) do bindings, times = bindings + 1, times + n end
    print(action.name, bindings, times, self.between[action.name] or 0)
  end
  for what, list in pairs { NEVER = self.never, UNCLEAN = self.unclean } do
    table.sort(list)
    for _, words in ipairs(list) do print(what, words) end
  end
  if #self.never + #self.unclean > 0 then os.exit(1) end
  print "well"
end

-- }======

-- {====== Errors ======

local CLEAN = { "closed", "a finalizer has to wait", "not enough memory", "was finalized", "not ready", "has ended" }

--- True if a finalizer may have caused the raised error.
function haunt.is_clean(err)
  if type(err) == "table" then return err.code ~= nil end
  for _, words in ipairs(CLEAN) do
    if tostring(err):find(words, 1, true) then return true end
  end
  return false
end

-- }======

return haunt
