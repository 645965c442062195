--- A gRPC client in as few lines as will do: unary calls on one connection, by hand. It reads no headers: a call has
-- a message or it has failed.

local core = require "keywatch.core"

local socket = require "spec.support.socket"

local DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
local END_STREAM, END_HEADERS, ACK = 1, 4, 1

local function be(n, bytes)
  local s = ""
  for _ = 1, bytes do
    s = string.char(n % 256) .. s
    n = math.floor(n / 256)
  end
  return s
end

local function from_be(s)
  local n = 0
  for i = 1, #s do n = n * 256 + s:byte(i) end
  return n
end

local function frame(kind, flags, stream, payload)
  return be(#payload, 3) .. string.char(kind, flags) .. be(stream, 4) .. payload
end

--- Literals that nobody has to remember.
local function header_block(headers)
  local s = ""
  for _, header in ipairs(headers) do
    s = s .. "\0" .. string.char(#header[1]) .. header[1] .. string.char(#header[2]) .. header[2]
  end
  return s
end

local client_methods = {}
local client_mt = { __index = client_methods }

--- A client of a URL, http or unix.
local function connect(url)
  local host, port = url:match("^http://([%d.]+):(%d+)$")
  local address = host and { host = host, port = tonumber(port) } or { path = url:match("^unix://(.*)$") }
  local self = setmetatable({
    socket = socket.connect(address),
    at = 1, -- the first byte that was not looked at
    last = -1, -- the last stream
    calls = {}, -- { name of the response, bytes, has_ended } by stream
    settings = {}, -- the server's, by their numbers
    pongs = 0, -- pings of ours that were answered
    answers_pings = true,
    is_told_to_go = false,
    last_words = nil, -- why: { code, text }
  }, client_mt)
  self.socket:write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" .. frame(SETTINGS, 0, 0, ""))
  return self
end

--- Begins a call: core.decode gives what has come when it has ended.
function client_methods:call(path, request_name, request, response_name)
  self.last = self.last + 2
  local bytes = core.encode(request_name, request)
  self.socket:write(frame(HEADERS, END_HEADERS, self.last, header_block {
    { ":method", "POST" }, { ":scheme", "http" }, { ":path", path }, { ":authority", "localhost" },
    { "content-type", "application/grpc" }, { "te", "trailers" },
  }) .. frame(DATA, END_STREAM, self.last, "\0" .. be(#bytes, 4) .. bytes))
  local call = { name = response_name, bytes = "", has_ended = false }
  self.calls[self.last] = call
  return call
end

local function answer_of(call)
  if #call.bytes < 5 then return nil end
  return core.decode(call.name, call.bytes:sub(6))
end

--- Looks at what has come. Returns whether a call has ended, and its response, if it has one; nothing without a call.
function client_methods:look(call)
  local received = self.socket.received
  while #received >= self.at + 8 do
    local len = from_be(received:sub(self.at, self.at + 2))
    if #received < self.at + 8 + len then break end
    local kind, flags = received:byte(self.at + 3, self.at + 4)
    local stream = from_be(received:sub(self.at + 5, self.at + 8))
    self:take(kind, flags, self.calls[stream], received:sub(self.at + 9, self.at + 8 + len))
    self.at = self.at + 9 + len
  end
  if not call then return end
  if not call.has_ended then return false end
  return true, answer_of(call)
end

--- `pongs` counts the answers.
function client_methods:ping()
  self.socket:write(frame(PING, 0, 0, "keywatch"))
end

local function take_settings(self, payload)
  for at = 1, #payload, 6 do
    self.settings[from_be(payload:sub(at, at + 1))] = from_be(payload:sub(at + 2, at + 5))
  end
  self.socket:write(frame(SETTINGS, ACK, 0, ""))
end

local function take_ping(self, is_ack, payload)
  if is_ack then
    self.pongs = self.pongs + 1
  elseif self.answers_pings then
    self.socket:write(frame(PING, ACK, 0, payload))
  end
end

function client_methods:take(kind, flags, call, payload)
  if kind == SETTINGS and flags % 2 == 0 then
    take_settings(self, payload)
  elseif kind == PING then
    take_ping(self, flags % 2 == ACK, payload)
  elseif kind == GOAWAY then
    self.is_told_to_go = true
    self.last_words = { code = from_be(payload:sub(5, 8)), text = payload:sub(9) }
  elseif call and kind == DATA then
    call.bytes = call.bytes .. payload
  end
  if call and (kind == DATA or kind == HEADERS) and flags % 2 == END_STREAM then call.has_ended = true end
end

function client_methods:close()
  self.socket:close()
end

return { connect = connect }
