--- A server in virtual time that sends any bytes: it is called with what its clients send.

local raw_server = {}

local peer_methods = {}
local peer_mt = { __index = peer_methods }

function peer_methods:feed(bytes, _)
  if self.is_over then return end
  self.received, self.has_end = self.received .. bytes, self.has_end or bytes == ""
  self.on_bytes(self)
end

function peer_methods:pending(max)
  local bytes = self.out:sub(1, max)
  self.out = self.out:sub(#bytes + 1)
  self.n_sent = self.n_sent + #bytes
  if self.refill and self.out == "" then self.out = self.refill() or "" end
  return bytes
end

function peer_methods:state() return not self.is_deaf, self.is_over and self.out == "" end
function peer_methods.deadline() end
function peer_methods.step() end
function peer_methods:close() self.is_closed = true end

--- Sends bytes.
function peer_methods:say(bytes) self.out = self.out .. bytes end

--- Closes the connection, after all bytes were sent.
function peer_methods:finish(bytes)
  self:say(bytes or "")
  self.is_over = true
end

--- Listens in a world on a port of 127.0.0.1. on_bytes(peer) is called when bytes, or the end, have arrived:
-- peer.received has all bytes so far. Returns the URL, and the list of peers.
function raw_server.listen(world, port, on_bytes)
  local peers, object = {}, {}
  function object.step() end
  function object.accept(_, _, _, remote)
    local peer = setmetatable({
      on_bytes = on_bytes, remote = remote, number = #peers + 1, received = "", out = "", n_sent = 0, has_end = false,
      is_over = false, is_deaf = false, refill = nil,
    }, peer_mt)
    peers[#peers + 1] = peer
    return peer
  end
  assert(world.network:listen(object, { host = "127.0.0.1", port = port }))
  return "http://127.0.0.1:" .. port, peers
end

return raw_server
