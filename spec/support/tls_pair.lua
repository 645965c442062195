--- A client's channel and a server's channel, wired in memory.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"

local pair = {}

--- Returns a server context with a certificate, by its name, and more options.
function pair.server(name, options)
  local cert, key = certificates.paths(name or "server")
  local all = { cert = cert, key = key }
  for option, value in pairs(options or {}) do all[option] = value end
  return assert(tls.server(all))
end

--- Returns a client context that trusts the specs' authority, with more options.
function pair.client(options)
  local all = { ca = certificates.paths("ca") }
  for option, value in pairs(options or {}) do all[option] = value end
  return assert(tls.client(all))
end

--- Works on a channel until there is nothing to do. Adds received bytes to the list `got`.
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

--- Moves pending bytes to the other channel, in pieces of `size` bytes. Returns true if there were any.
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

--- Returns a client's and a server's channel after the handshake, which may have failed.
function pair.shake(client_context, server_context, host, size)
  local client = assert(client_context:connect(host or "localhost"))
  local server = assert(server_context:accept())
  pair.pump(client, server, size, {}, {})
  return client, server
end

--- Expects a call to have failed with a kind, "option" or "file", and this text. Takes the results of the call.
function pair.expect_refused(wanted, words, made, text, kind)
  if made ~= nil or kind ~= wanted or not text:find(words) then error(tostring(text), 2) end
end

return pair
