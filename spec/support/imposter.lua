--- A server that says whatever a spec tells it to say, in a process of its own.
--
-- Behaviours are a table by paths; "*" is for all others, which are unknown methods without it, and "connection" for
-- what is done on every new connection, which is to send empty SETTINGS unless it is given. A behaviour is Lua text
-- with `stream` and `conn` in it, see spec/support/imposter_connection.lua, or a list of the name and the arguments of
-- a part, see spec/support/imposter_parts.lua:
--
--   imposter.start {
--     ["/etcdserverpb.KV/Range"] = { "reply", { count = 7 } },
--     ["/etcdserverpb.KV/Put"] = "stream:headers() stream:message('\\255') stream:reset('internal_error')",
--     connection = { "settings", { max_concurrent_streams = 1 } },
--   }
--
-- Beside that it is in order: it takes every request, acknowledges SETTINGS, answers PINGs and gives windows back. It
-- ends with process.end_all().

local remote = require "spec.support.remote"
local secure = require "spec.support.secure"

local imposter_methods = {}
local imposter_mt = { __index = imposter_methods }

--- Starts one. It has url, address and port.
local function start(behaviours)
  local self = setmetatable({ remote = remote.start("imposter_program") }, imposter_mt)
  self.port = self.remote:ask { "start", behaviours }
  self.address = "127.0.0.1:" .. self.port
  self.url = secure.url(self.address)
  return self
end

--- Replaces the behaviours that are given, for calls and connections to come.
function imposter_methods:behave(behaviours) self.remote:ask { "behave", behaviours } end

--- Tells a name: stream:wait(name) goes on, here and ever after.
function imposter_methods:tell(name) self.remote:ask { "tell", name } end

--- What has come so far: { connections, calls }, in the order in which they began. A connection is { is_open,
-- has_ended, failure, text (what came, if it was no HTTP/2), frames (counts by h2's names), settings (by number),
-- goaways, pings, pongs }; a call is { connection (its number), id, path, headers, messages (tables, or bytes that are
-- none), has_ended, reset (the code) }.
function imposter_methods:record() return self.remote:ask { "record" } end

--- The value of a Lua expression with `connections` and `calls` in it.
function imposter_methods:look(expression) return self.remote:ask({ "look", expression })[1] end

--- Waits until it is true, and returns its value; one that fails is not true yet. `turn`, if given, is called again and
-- again meanwhile; without it a client of the spec's own process does nothing.
function imposter_methods:await(expression, turn) return self.remote:ask({ "await", expression }, turn)[1] end

--- Runs Lua text with `conns`, a list of all connections, in it, between two turns of its loop: nothing may wait in it.
function imposter_methods:run(text) self.remote:ask { "run", text } end

function imposter_methods:close() self.remote:close() end

return { start = start }
