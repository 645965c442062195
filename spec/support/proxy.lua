--- A proxy between a client and a server, in a separate process, for specs with a bad network.
--
-- Each method has taken effect when it returns. Directions are "to_server", "to_client" and "both", the default. A
-- connection whose server cannot be reached is reset. The proxy ends with process.end_all(), unless it was started
-- with the option is_lasting.

local remote = require "spec.support.remote"

local proxy_methods = {}
local proxy_mt = { __index = proxy_methods }

--- Starts a proxy to a server's URL: http or https, with an address, or unix. It has the fields url, address and port.
-- The proxy treats TLS like other bytes, and its URL has the scheme of the server's URL.
local function start(url, options)
  local self = setmetatable({ remote = remote.start("proxy_program", options) }, proxy_mt)
  self.port = self.remote:ask { "start", url }
  self.address = "127.0.0.1:" .. self.port
  self.url = (url:match("^https://") or "http://") .. self.address
  return self
end

-- What there is -----------------------------------------------------------------------------------------------------

--- Returns the number of all accepted connections.
function proxy_methods:accepted() return self.remote:ask { "accepted" } end

--- bytes() returns the number of delivered bytes, held() that of held bytes.
function proxy_methods:bytes(direction) return self.remote:ask { "bytes", direction or "both" } end
function proxy_methods:held(direction) return self.remote:ask { "held", direction or "both" } end

--- wait_connections waits until exactly n connections are open, wait_accepted until n were accepted. `turn`, if given,
-- is called repeatedly during the wait; without it a client in the spec's process does nothing.
function proxy_methods:wait_connections(n, turn) self.remote:ask({ "wait_connections", n }, turn) end
function proxy_methods:wait_accepted(n, turn) self.remote:ask({ "wait_accepted", n }, turn) end

--- Waits until n bytes were delivered or are held.
function proxy_methods:wait_bytes(n, direction, turn)
  self.remote:ask({ "wait_bytes", n, direction or "both" }, turn)
end

function proxy_methods:wait_held(n, direction, turn)
  self.remote:ask({ "wait_held", n, direction or "both" }, turn)
end

-- Connections that end ----------------------------------------------------------------------------------------------

--- Ends every connection. Options: how, "close" (a FIN, the default), "reset" (a RST), or "shutdown" (a FIN after the
-- held bytes, and the other direction stays open); direction, "to_client" or "to_server" to end the connection only at
-- that side. The other side then has a connection that is open and silent.
function proxy_methods:cut(options)
  options = options or {}
  self.remote:ask { "cut", options.direction or "both", options.how or "close" }
end

--- Resets the next connection when n bytes have passed in a direction; n = 0 is at once. Without n this is off. `how`
-- may be "close"; or "swallow": the connection stays open, and nothing passes any more. Bytes that the receiver's
-- kernel has no room for yet are lost with a reset.
function proxy_methods:cut_once(n, direction, how)
  self.remote:ask { "cut_once", n or false, direction or "both", how or "reset" }
end

--- Refuses connections, as without a listener, or accepts them again. Open ones stay.
function proxy_methods:refuse() self.remote:ask { "refuse" } end
function proxy_methods:accept_again() self.remote:ask { "accept_again" } end

-- Bytes that come late, or never ------------------------------------------------------------------------------------

--- stall holds all bytes and the ends of connections, resume delivers them; nothing is lost.
function proxy_methods:stall(direction) self.remote:ask { "stall", direction or "both" } end
function proxy_methods:resume(direction) self.remote:ask { "resume", direction or "both" } end

--- Accepts connections, and discards all bytes of new and old connections.
function proxy_methods:blackhole() self.remote:ask { "blackhole" } end

--- Delivers everything at once again: undoes blackhole, stall, delay, split, throttle and cut_once. A connection
-- that has lost bytes stays silent.
function proxy_methods:restore() self.remote:ask { "restore" } end

--- Delays bytes that arrive from now on by so many milliseconds.
function proxy_methods:delay(ms, direction) self.remote:ask { "delay", ms or false, direction or "both" } end

--- Delivers bytes in pieces of n, each in a packet of its own.
function proxy_methods:split(n, direction) self.remote:ask { "split", n or false, direction or "both" } end

--- Delivers at most so many bytes of each connection per second.
function proxy_methods:throttle(rate, direction) self.remote:ask { "throttle", rate or false, direction or "both" } end

function proxy_methods:close() self.remote:close() end

return { start = start }
