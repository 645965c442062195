--- A program: many TLS handshakes at once, in a separate process.
--
--   lua5.4 spec/support/tls_burst.lua PORT CONNECTIONS AUTHORITY KIND
--
-- The program connects, and prints "ready". After a line of input all connections send, depending on KIND:
--
--   whole     whole handshakes. The program prints "done" when all are complete
--   half      only half of a first flight. The program prints "done" when the kernel has taken the bytes
--   nothing   nothing. The program prints "done" at once
--   garbage   64 KB of records without an end. The program prints "done" when the kernel has taken the bytes, or the
--             server has closed the connections
--
-- The program ends at the end of its input, and with it all connections.

local uv = require "spec.support.luv"

local AT_ONCE = 200 -- connections that are being opened

local port, n, authority, kind = tonumber(arg[1]), tonumber(arg[2]), arg[3], arg[4]
local context = assert(require("keywatch.tls").client { ca = authority })
local connections, n_connected, n_done = {}, 0, 0

local function turn_until(is_so)
  while not is_so() do uv.run("once") end
end

local function say(word)
  io.write(word, "\n")
  io.flush()
end

local function note_done(connection)
  if connection.is_done then return end
  connection.is_done = true
  n_done = n_done + 1
end

--- Returns the first bytes of a connection.
local function first_bytes(connection)
  if kind == "nothing" then return "" end
  if kind == "garbage" then return ("\22\3\1\64\0\1\0\63\0" .. ("x"):rep(16375)):rep(4):sub(1, 65536) end
  connection.channel = assert(context:connect("localhost"))
  connection.channel:step()
  local flight = connection.channel:pending()
  return kind == "half" and flight:sub(1, math.floor(#flight / 2)) or flight
end

--- Reads bytes, and continues the handshake.
local function step(connection)
  connection.handle:read_start(function(err, bytes)
    local channel = connection.channel
    if err or not bytes then
      if kind == "whole" and not connection.is_done then error("a handshake was refused: " .. (err or "closed")) end
      return note_done(connection)
    end
    if kind ~= "whole" or connection.is_done then return end
    channel:feed(bytes)
    channel:step()
    if channel:error() then error("a handshake has failed: " .. channel:error()) end
    local answer = channel:pending()
    if answer ~= "" then connection.handle:write(answer) end
    if channel:state().is_open then note_done(connection) end
  end)
end

for i = 1, n do
  local connection = { handle = uv.new_tcp(), is_done = false }
  connection.bytes = first_bytes(connection)
  connections[i] = connection
  connection.handle:connect("127.0.0.1", port, function(err)
    if err then error("cannot connect: " .. err) end
    n_connected = n_connected + 1
  end)
  if i > AT_ONCE then turn_until(function() return n_connected >= i - AT_ONCE end) end
end
turn_until(function() return n_connected == n end)
say("ready")

local input, is_asked, has_ended = uv.new_pipe(false), false, false
input:open(0)
input:read_start(function(_, chunk)
  is_asked = true
  has_ended = chunk == nil
end)
turn_until(function() return is_asked end)
for _, connection in ipairs(connections) do
  step(connection)
  if connection.bytes == "" then
    note_done(connection)
  else
    connection.handle:write(connection.bytes, function()
      if kind ~= "whole" then note_done(connection) end
    end)
  end
end
turn_until(function() return n_done == n end)
say("done")
turn_until(function() return has_ended end)
