--- A program: opens a given number of idle connections, in a separate process.
--
--   lua5.4 spec/support/crowd.lua PORT CONNECTIONS [AUTHORITY]
--
-- With the file of an authority the connections use TLS. The program prints "open" when the server has acknowledged
-- the settings of all. For a line "ask N" it makes a request on N connections, and prints "answered" after all
-- answers. The program ends at the end of its input, and with it all connections.

local frame = require "spec.support.frame"
local uv = require "spec.support.luv"
local raw = require "spec.support.raw"
local tls_handle = require "spec.support.tls_handle"

local AT_ONCE = 200 -- connections that are being opened

local port, n = tonumber(arg[1]), tonumber(arg[2])
local clients = {}
local context = arg[3] and assert(require("keywatch.tls").client { ca = arg[3] })

local function connect() return raw.connect(port, { handle = context and tls_handle.new(context) }) end

--- True if the server has sent its settings, and acknowledged the client's.
local function is_open(client)
  if client.failure then error("cannot connect: " .. client.failure) end
  return (client.counts[raw.SETTINGS] or 0) >= 2
end

local function open_all()
  for i = 1, n do
    clients[i] = connect()
    local early = clients[i - AT_ONCE]
    if early then raw.turn_until(function() return is_open(early) end, "an early connection") end
  end
  for _, client in ipairs(clients) do
    raw.turn_until(function() return is_open(client) end, "a connection")
  end
end

--- Makes requests on `some` connections, spread over all, and waits for the answers.
local function ask(some)
  local step = math.floor(n / some)
  for i = 1, some do clients[i * step]:start(raw.RANGE, frame.range("witness")) end
  for i = 1, some do
    local client = clients[i * step]
    client:await(function() return client:has_ended_stream(client.last) end, "an answer")
    assert(client:body(client.last):find("witness", 1, true), "an answer without the key")
  end
end

local function say(word)
  io.write(word, "\n")
  io.flush()
end

open_all()
say("open")

local input, text, has_ended = uv.new_pipe(false), "", false
input:open(0)
input:read_start(function(_, chunk)
  text = text .. (chunk or "")
  has_ended = chunk == nil
end)
while not has_ended do
  uv.run("once")
  local some, rest = text:match("^ask (%d+)\n(.*)$")
  if some then
    text = rest
    ask(tonumber(some))
    say("answered")
  end
end
