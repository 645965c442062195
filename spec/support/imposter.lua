--- A scripted server, on the network of a world of virtual time (keywatch.testing), which must be open. The server ends
-- with the world.
--
-- Behaviours are a table by paths. "*" is the behaviour of all other paths, which are unknown methods without it.
-- "connection" is that of every new connection; by default it sends empty SETTINGS. A behaviour is Lua text that uses
-- `stream` and `conn`, see spec/support/imposter_connection.lua, and the globals in the imposter's `env`; or a list of
-- the name and the arguments of a part, see spec/support/imposter_parts.lua:
--
--   imposter.start {
--     ["/etcdserverpb.KV/Range"] = { "reply", { count = 7 } },
--     ["/etcdserverpb.KV/Put"] = "stream:headers() stream:message('\\255') stream:reset('internal_error')",
--     connection = { "settings", { max_concurrent_streams = 1 } },
--   }
--
-- In all other respects the server is correct: it accepts every request, acknowledges SETTINGS, answers PINGs and
-- updates windows.
--
-- `connections` and `calls` are records, in the order of their begin. A connection is { is_open, has_ended, text
-- (received bytes that are not HTTP/2), frames (counts by h2's names), settings (by number), goaways, pings, pongs }; a
-- call is { connection (its number), id, path, headers, messages (tables, or malformed bytes), has_ended, reset (the
-- code) }. `conns` are the connections themselves.

local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"

local connection = require "spec.support.imposter_connection"
local parts = require "spec.support.imposter_parts"

local PATIENCE = 120  -- seconds, in virtual time
local POLL = 0.001
local LATENCY = 0.001 -- seconds: so that time passes during a flood

local imposter_methods = {}
local imposter_mt = { __index = imposter_methods }

local function say_first(conn) conn:settings() end
local function refuse(stream) stream:status(12, "unknown method " .. stream.path) end

--- Starts an imposter, with the fields url, address and port. The network treats it like a server of the core.
local function start(behaviours)
  local network = driver.get().network or error("an imposter needs a world of virtual time", 2)
  local self = setmetatable({ connections = {}, calls = {}, conns = {}, behaviours = {}, tasks = {}, signals = {},
    env = setmetatable({}, { __index = _G }), network = network }, imposter_mt)
  self:behave(behaviours)
  self.port = assert(network:listen(self, { host = "127.0.0.1", port = 0 })):address().port
  self.address = "127.0.0.1:" .. self.port
  self:slow(LATENCY)
  self.url = "http://" .. self.address
  return self
end

--- Replaces the given behaviours, for later calls and connections.
function imposter_methods:behave(behaviours)
  for path, said in pairs(behaviours) do self.behaviours[path] = parts.make(said, self.env) end
end

--- Sets the latency in both directions, in seconds.
function imposter_methods:slow(seconds) self.latency, self.network:machine(self).latency = seconds, seconds end

--- Signals a name: stream:wait(name) returns, now and at any later call.
function imposter_methods:signal(name) self.signals[name] = true end

--- Waits until a Lua expression that uses `connections` and `calls` is true, and returns its value. An expression that
-- raises is not true yet. `turn`, if given, is called repeatedly during the wait.
function imposter_methods:await(expression, turn)
  local value_of = assert(load("local connections, calls = ... return " .. expression))
  local deadline = keywatch.now() + PATIENCE
  repeat
    local ok, value = pcall(value_of, self.connections, self.calls)
    if ok and value then return value end
    keywatch.sleep(POLL)
    if turn then turn() end
  until keywatch.now() > deadline
  error("timeout: the awaited condition is not true: " .. expression, 2)
end

--- Waits until the first connection has ended.
function imposter_methods:await_end() self:await("connections[1].has_ended or not connections[1].is_open") end

--- Returns the calls of a path.
function imposter_methods:calls_of(path)
  local list = {}
  for _, call in ipairs(self.calls) do list[#list + 1] = call.path == path and call or nil end
  return list
end

function imposter_methods:close() self.network:release(self) end

-- {====== Methods for the network ======

--- Returns the server's side of a new connection.
function imposter_methods:accept()
  local conn = connection.new {
    number = #self.conns + 1,
    owner = self,
    behaviour = self.behaviours.connection or say_first,
    behaviour_of = function(path) return self.behaviours[path] or self.behaviours["*"] or refuse end,
  }
  table.insert(self.conns, conn)
  table.insert(self.connections, conn.record)
  return conn
end

--- Resumes all behaviours that can continue. Returns the time of the next one that waits for a time, or nil.
function imposter_methods:step() return connection.turn(self.tasks) end

-- }======

return { start = start }
