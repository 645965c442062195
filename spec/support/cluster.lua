--- A cluster of three etcd members on this machine, each behind its own proxy.
--
-- Members can be killed and restarted, stopped and continued; and clients, which know only the proxies, can be
-- disconnected from one member at a time. Members communicate directly with each other. They advertise the proxies to
-- clients, so a client that reads the list of members still does not get their real addresses. Ports are reserved
-- while no member listens on them. `stop` may be called in any state, and leaves nothing behind.
--
-- Methods that wait turn the luv loop, not that of keywatch: if a task calls them, no other task runs until they
-- return.
-- The methods that are called while clients work (kill, launch, pause, resume, cut, mend, is_ready, leader) take only
-- milliseconds.

local uv = require "spec.support.luv"

local directory = require "spec.support.directory"
local http = require "spec.support.http"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local secure = require "spec.support.secure"

local SIZE = 3
local HEARTBEAT_MS, ELECTION_MS = 50, 500
local READY_SECONDS = 60  -- after which the start of a cluster has failed
local ANSWER_SECONDS = 2  -- that a member has for an answer
local POLL_MS = 10        -- between two checks

local methods = {}
local meta = { __index = methods }

-- {====== Asking members ======

--- Sends an HTTP request, and returns the body of the answer; nil if the member does not answer.
local function ask(port, path, body)
  local one = http.connect(port)
  one:send(path, body)
  local ok, answer = pcall(one.wait, one, ANSWER_SECONDS)
  one:close()
  return ok and answer and answer.body or nil
end

--- Returns the status of a member: { member, leader }, two ids; 0: none.
local function status_of(member)
  local answer = ask(member.port, "/v3/maintenance/status", "{}")
  if not answer then return nil end
  return { member = answer:match('"member_id":"(%d+)"'), leader = answer:match('"leader":"(%d+)"') or "0" }
end

--- True if a member serves linearizable reads.
local function is_healthy(member)
  local answer = ask(member.port, "/health")
  return answer ~= nil and answer:find('"health":"true"', 1, true) ~= nil
end

local function pass(milliseconds) process.turn_until(function() return false end, milliseconds / 1000) end

-- }======

-- {====== One member ======

--- Reserves a port: returns a socket that is bound, and does not listen, and the port.
local function keep_port()
  local keeper = uv.new_tcp()
  assert(keeper:bind("127.0.0.1", 0))
  return keeper, keeper:getsockname().port
end

local function plain_url_of(port) return "http://127.0.0.1:" .. port end

--- Gives a member its client ports: `port`, for the requests of this file, and the port of `url`. They are the same,
-- unless clients use TLS, which this file does not.
local function keep_client_ports(member)
  member.keeper, member.port = keep_port()
  member.url, member.listen_urls = plain_url_of(member.port), plain_url_of(member.port)
  if not secure.is_on then return end
  local port
  member.secure_keeper, port = keep_port()
  member.url = secure.url("127.0.0.1:" .. port)
  member.listen_urls = member.listen_urls .. "," .. member.url
end

local function new_member(i)
  local member = {
    name = "member" .. i,
    path = directory.new(),
    process = nil,     -- while it runs
    is_paused = false,
    proxy = nil,
  }
  keep_client_ports(member)
  member.peer_keeper, member.peer_port = keep_port()
  member.peer_url = plain_url_of(member.peer_port)
  member.proxy = proxy.start(member.url, { is_lasting = true })
  return member
end

local function log_of(member)
  local file = io.open(member.path .. "/log")
  if not file then return "no log" end
  local text = file:read("*a")
  file:close()
  return ("%s: %s"):format(member.name, text:sub(-4000))
end

--- Returns the states of a process's threads, as the letters of /proc.
local function states_of(pid)
  local letters, path = {}, ("/proc/%d/task"):format(pid)
  for name in uv.fs_scandir_next, assert(uv.fs_scandir(path)) do
    local file = io.open(("%s/%s/stat"):format(path, name))
    local text = file and file:read("*a")
    if file then file:close() end
    letters[#letters + 1] = text and text:match("%) (%a)") or ""
  end
  return table.concat(letters)
end

-- }======

local function member_of(self, i) return self.members[i] or error("no such member: " .. tostring(i), 3) end

--- Starts a member, for the first time or again, and does not wait for it.
function methods:launch(i)
  local member = member_of(self, i)
  if member.process then error(member.name .. " lives", 2) end
  local argv = {
    "etcd", "--name", member.name, "--data-dir", member.path .. "/data",
    "--listen-client-urls", member.listen_urls, "--advertise-client-urls", member.proxy.url,
    "--listen-peer-urls", member.peer_url, "--initial-advertise-peer-urls", member.peer_url,
    "--initial-cluster", self.initial, "--initial-cluster-token", self.token,
    "--heartbeat-interval", tostring(HEARTBEAT_MS), "--election-timeout", tostring(ELECTION_MS),
    "--grpc-keepalive-min-time", "1ms", "--logger", "zap", "--log-outputs", member.path .. "/log",
  }
  for _, flag in ipairs(secure.flags()) do argv[#argv + 1] = flag end
  for _, flag in ipairs(self.flags) do argv[#argv + 1] = flag end
  member.process = process.start(argv, {
    is_lasting = true,
    env = { ETCD_UNSUPPORTED_ARCH = uv.os_uname().machine == "aarch64" and "arm64" or nil },
  })
end

--- True if a member runs, is not paused, and serves linearizable reads.
function methods:is_ready(i)
  local member = member_of(self, i)
  if not member.process or member.is_paused then return false end
  if member.process.status then error(member.name .. " has ended by itself. " .. log_of(member), 2) end
  return is_healthy(member)
end

--- Waits until the given members are ready; without arguments, until all members are.
function methods:wait_ready(...)
  local wanted = { ... }
  if #wanted == 0 then
    for i = 1, #self.members do wanted[i] = i end
  end
  local deadline = uv.hrtime() + READY_SECONDS * 1e9
  for _, i in ipairs(wanted) do
    while not self:is_ready(i) do
      if uv.hrtime() > deadline then error("the cluster is not ready. " .. log_of(self.members[i]), 2) end
      pass(POLL_MS)
    end
  end
end

--- Kills a member by SIGKILL. Its data stays.
function methods:kill(i)
  local member = member_of(self, i)
  if not member.process then error(member.name .. " does not live", 2) end
  member.process:signal("sigkill")
  member.process:wait()
  member.process, member.is_paused = nil, false
end

--- Starts a member that was killed, and waits until it serves.
function methods:restart(i)
  self:launch(i)
  self:wait_ready(i)
end

--- Stops a member by SIGSTOP: its connections stay open, and it reads and writes nothing.
function methods:pause(i)
  local member = member_of(self, i)
  member.process:signal("sigstop")
  member.is_paused = true
  local is_stopped = process.turn_until(function()
    if states_of(member.process.pid):find("[^T]") == nil then return true end
    pass(1)
  end, ANSWER_SECONDS)
  if not is_stopped then error(member.name .. " does not stop", 2) end
end

--- Continues a member that was paused.
function methods:resume(i)
  local member = member_of(self, i)
  member.process:signal("sigcont")
  member.is_paused = false
end

--- Cuts clients off from a member. "refuse", the default, resets their connections and refuses new ones. "blackhole"
-- accepts connections, and discards all bytes of new and old connections.
function methods:cut(i, how)
  local one = member_of(self, i).proxy
  if how == "blackhole" then return one:blackhole() end
  if how and how ~= "refuse" then error("no such way: " .. how, 2) end
  one:refuse()
  one:cut { how = "reset" }
end

--- Lets clients reach the member again. Connections that have lost bytes are reset.
function methods:mend(i)
  local one = member_of(self, i).proxy
  one:restore()
  one:accept_again()
  one:cut { how = "reset" }
end

--- Returns the number of the member that a majority of members names as the leader; nil if there is none.
function methods:leader()
  local votes, numbers = {}, {}
  for i, member in ipairs(self.members) do
    local status = member.process and not member.is_paused and status_of(member)
    if status then
      numbers[status.member] = i
      votes[status.leader] = (votes[status.leader] or 0) + 1
    end
  end
  for id, n in pairs(votes) do
    if id ~= "0" and n > #self.members / 2 then return numbers[id] end
  end
end

--- Stops all members and proxies, and removes all data.
function methods:stop()
  for i, member in ipairs(self.members) do
    if member.process then self:kill(i) end
    member.proxy:close()
    if not member.keeper:is_closing() then
      member.keeper:close()
      member.peer_keeper:close()
      if member.secure_keeper then member.secure_keeper:close() end
      directory.remove(member.path)
    end
  end
  uv.run("nowait")
end

--- Starts a cluster, and waits until all members serve. `flags` is a list of further flags of etcd. The cluster has the
-- fields urls, of the proxies, and members, each with its own url.
local function start(flags)
  local self = setmetatable({ members = {}, urls = {}, flags = flags or {}, initial = nil, token = nil }, meta)
  local peers = {}
  for i = 1, SIZE do
    local member = new_member(i)
    self.members[i], self.urls[i] = member, member.proxy.url
    peers[i] = member.name .. "=" .. member.peer_url
  end
  self.initial, self.token = table.concat(peers, ","), "keywatch-" .. self.members[1].peer_port
  local ok, err = pcall(function()
    for i = 1, SIZE do self:launch(i) end
    self:wait_ready()
  end)
  if not ok then
    self:stop()
    error(err, 0)
  end
  return self
end

return { start = start }
