--- A client's channel and a server's channel, wired in memory.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"

local pair = {}

--- A context of servers with the certificate of that name, and what else is given.
function pair.server(name, options)
  local cert, key = certificates.paths(name or "server")
  local all = { cert = cert, key = key }
  for option, value in pairs(options or {}) do all[option] = value end
  return assert(tls.server(all))
end

--- A context of clients that trusts our authority, and what else is given.
function pair.client(options)
  local all = { ca = certificates.paths("ca") }
  for option, value in pairs(options or {}) do all[option] = value end
  return assert(tls.client(all))
end

--- Works on a channel until there is nothing to do. What was read is added to the list `got`.
function pair.work(channel, got)
  local state = channel:state()
  while state.has_work or state.may_read do
    if state.has_work then channel:step() end
    if state.may_read and got then
      local text = channel:read()
      if text ~= "" then got[#got + 1] = text end
    elseif state.may_read then
      return
    end
    state = channel:state()
  end
end

--- Moves what is pending to the other channel, in pieces of `size` bytes. Returns whether there was something.
function pair.move(from, to, size, got)
  local bytes = from:pending()
  size = size or math.max(#bytes, 1)
  for at = 1, #bytes, size do
    local piece = bytes:sub(at, at + size - 1)
    assert(to:feed(piece) == #piece)
    pair.work(to, got)
  end
  return bytes ~= ""
end

--- Moves bytes both ways until there are no more.
function pair.pump(client, server, size, from_server, from_client)
  pair.work(client, from_server)
  repeat
    local forth = pair.move(client, server, size, from_client)
    local back = pair.move(server, client, size, from_server)
  until not forth and not back
end

--- A client's and a server's channel after the handshake, be it good or bad.
function pair.shake(client_context, server_context, host, size)
  local client = assert(client_context:connect(host or "localhost"))
  local server = assert(server_context:accept())
  pair.pump(client, server, size, {}, {})
  return client, server
end

--- Expects that a call has failed with a kind, "option" or "file", in these words. Takes what the call has returned.
function pair.expect_refused(wanted, words, made, text, kind)
  if made ~= nil or kind ~= wanted or not text:find(words) then error(tostring(text), 2) end
end

return pair
