--- HTTP/2 by hand: frames as bytes, and a client that sends any given bytes.
--
-- Sent bytes are not checked. Received frames are recorded by stream and by kind. Header blocks are not decoded; since
-- the client has asked for no dynamic table, numbers are readable in them.

local frame = require "spec.support.frame"
local h2 = require "spec.support.h2"
local process = require "spec.support.process"
local uv = require "spec.support.luv"

local POLL_MS = 10 -- between two checks of conditions without events
local MAX_WINDOW = 2 ^ 31 - 1
local DEFAULT_WINDOW = 65535

local raw = {
  DATA = 0, HEADERS = 1, PRIORITY = 2, RST_STREAM = 3, SETTINGS = 4, PUSH_PROMISE = 5, PING = 6, GOAWAY = 7,
  WINDOW_UPDATE = 8, CONTINUATION = 9,
  END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8,
  HEADER_TABLE_SIZE = 1, ENABLE_PUSH = 2, INITIAL_WINDOW_SIZE = 4, MAX_FRAME_SIZE = 5,
  NO_ERROR = 0, PROTOCOL_ERROR = 1, INTERNAL_ERROR = 2, FLOW_CONTROL_ERROR = 3, STREAM_CLOSED = 5,
  FRAME_SIZE_ERROR = 6, REFUSED_STREAM = 7, CANCEL = 8, COMPRESSION_ERROR = 9, ENHANCE_YOUR_CALM = 11,
  PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  RANGE = "/etcdserverpb.KV/Range", PUT = "/etcdserverpb.KV/Put", WATCH = "/etcdserverpb.Watch/Watch",
}

-- {====== Bytes ======

raw.number, raw.frame, raw.line = h2.pack, h2.frame, h2.line
raw.window_update, raw.reset = h2.window, h2.reset

function raw.number_of(text) return h2.unpack_at(text, 1, #text) end

local number, number_of = raw.number, raw.number_of

--- Returns the header block of a gRPC request, with more lines.
function raw.block(path, more) return h2.block(h2.request_lines(path)) .. (more or "") end

--- Returns the frames of a request with a message; without a message, only open HEADERS.
function raw.request(stream, path, message)
  local head = raw.frame(raw.HEADERS, raw.END_HEADERS, stream, raw.block(path))
  return message and head .. raw.data(stream, message, true) or head
end

--- Returns DATA, in frames of a size that every server accepts.
function raw.data(stream, bytes, ends) return h2.data_in_parts(stream, bytes, 16384, { ends = ends }) end

--- Returns SETTINGS; `list` has { name, value }.
function raw.settings(list)
  local payload = ""
  for _, setting in ipairs(list) do payload = payload .. number(setting[1], 2) .. number(setting[2], 4) end
  return raw.frame(raw.SETTINGS, 0, 0, payload)
end

-- }======

--- Turns the loop until is_so() is true.
function raw.turn_until(is_so, what)
  if process.turn_until(is_so, nil, POLL_MS) then return end
  error("timeout: the awaited condition is not true: " .. (what or "?"), 2)
end

local turn_until = raw.turn_until

-- {====== A client ======

local client = {}
client.__index = client

--- Passes every complete message to on_message, and keeps the rest.
local function take_messages(self, stream, payload)
  local rest = table.concat(stream.data) .. payload
  local messages, at = h2.read_messages(rest)
  stream.data = { rest:sub(at) }
  for _, message in ipairs(messages) do self.on_message(message) end
end

local function take_stream(self, kind, flags, id, payload)
  local stream = self.streams[id] or { data = {}, size = 0, headers = {}, has_ended = false, reset = nil }
  self.streams[id] = stream
  if kind == raw.DATA and self.on_message then
    take_messages(self, stream, payload)
  elseif kind == raw.DATA then
    stream.data[#stream.data + 1] = payload
    stream.size = stream.size + #payload
  elseif kind == raw.HEADERS then
    stream.headers[#stream.headers + 1] = payload
  elseif kind == raw.RST_STREAM then
    stream.reset = number_of(payload)
  end
  if kind <= raw.HEADERS and flags % 2 == raw.END_STREAM then stream.has_ended = true end
end

local function take(self, kind, flags, id, payload)
  self.counts[kind] = (self.counts[kind] or 0) + 1
  if id > 0 and kind ~= raw.WINDOW_UPDATE then
    take_stream(self, kind, flags, id, payload)
  elseif kind == raw.SETTINGS and flags == 0 then
    self:send(raw.frame(raw.SETTINGS, raw.ACK, 0, ""))
  elseif kind == raw.PING and flags == 0 and self.answers_pings then
    self:send(raw.frame(raw.PING, raw.ACK, 0, payload))
  elseif kind == raw.GOAWAY then
    self.goaway = { code = number_of(payload:sub(5, 8)), text = payload:sub(9) }
  end
  if self.on_frame then self.on_frame(kind, flags, id, payload) end
end

local function parse(self, chunk)
  local frames
  frames, self.rest = h2.frames(self.rest .. chunk)
  for _, one in ipairs(frames) do take(self, h2.types[one.type] or one.type, one.flags, one.id, one.payload) end
end

--- Begins to connect. Options: is_silent, to send no preface; is_stuck, to read nothing; window, that of streams; text,
-- to keep received bytes in `rest` as they are; handle, an unconnected one, such as that of spec.support.tls_handle.
function raw.connect(port, options)
  options = options or {}
  local self = setmetatable({
    handle = options.handle or uv.new_tcp(),
    rest = "",          -- bytes of an incomplete frame
    streams = {},       -- by their ids: { data, size, headers, has_ended, reset }
    counts = {},        -- of frames, by their kinds
    goaway = nil,       -- { code, text }
    last = -1,          -- stream
    is_connected = false,
    has_ended = false,  -- the server has closed
    failure = nil,
    is_text = options.text,
    answers_pings = true,
    on_frame = nil,     -- called for every frame
    on_message = nil,   -- called for every message, which is then not kept
  }, client)
  self.handle:connect("127.0.0.1", port, function(err)
    self.failure = err
    if err then return end
    self.is_connected = true
    if not options.is_stuck then self:read() end
  end)
  if not options.is_silent then
    self:send(raw.PREFACE .. raw.settings { { raw.HEADER_TABLE_SIZE, 0 },
      { raw.INITIAL_WINDOW_SIZE, options.window or MAX_WINDOW } } .. raw.window_update(0, MAX_WINDOW - DEFAULT_WINDOW))
  end
  return self
end

function client:read()
  self.handle:read_start(function(err, chunk)
    self.failure = self.failure or err
    if not chunk then
      self.has_ended = true
    elseif self.is_text then
      self.rest = self.rest .. chunk
    else
      parse(self, chunk)
    end
  end)
end

function client:stop_reading() self.handle:read_stop() end

--- Sends bytes. Only the first call after a reset returns the error: if that is a write, the read sees a normal end.
function client:send(bytes)
  if self.handle:is_closing() then return end
  self.handle:write(bytes, function(err)
    if err == "ECONNRESET" then self.failure = self.failure or err end
  end)
end

--- Sends a FIN: the client sends nothing more.
function client:finish() self.handle:shutdown() end

function client:close()
  if not self.handle:is_closing() then self.handle:close() end
end

--- Sends a RST: the server gets an error.
function client:reset()
  if not self.handle:is_closing() then self.handle:close_reset() end
end

--- Waits until is_so() is true. Fails if the server ends the connection first.
function client:await(is_so, what)
  turn_until(function() return is_so() or self.has_ended or self.failure end, what)
  if not is_so() then
    error(("the connection has ended (%s) before %s came"):format(self.failure or "in order", what or "what"), 2)
  end
end

--- Waits until the server has ended the connection.
function client:await_end()
  turn_until(function() return self.has_ended or self.failure end, "the end of the connection")
end

--- Returns the id of the next stream.
function client:next_stream()
  self.last = self.last + 2
  return self.last
end

--- Begins a call. Returns its stream's id.
function client:start(path, message)
  local id = self:next_stream()
  self:send(raw.request(id, path, message))
  return id
end

function client:has_ended_stream(id)
  local stream = self.streams[id]
  return stream ~= nil and (stream.has_ended or stream.reset ~= nil)
end

--- Returns all bytes that were received on a stream.
function client:body(id) return table.concat(self.streams[id].data) end

--- Makes a unary call. Returns the message of the answer, without its prefix, or nil and the last header block.
function client:call(path, message)
  local id = self:start(path, message)
  self:await(function() return self:has_ended_stream(id) end, "the answer")
  local stream = self.streams[id]
  self.streams[id] = nil
  if stream.size == 0 then return nil, stream.headers[#stream.headers] end
  return table.concat(stream.data):sub(6)
end

-- }======

-- {====== A witness ======

local witness = {}
witness.__index = witness

--- Connects a well-behaved client.
function raw.witness(port, options)
  return setmetatable({ client = raw.connect(port, options), n = 0 }, witness)
end

--- Fails unless a put and a get are answered correctly.
function witness:ask()
  self.n = self.n + 1
  local value = ("value %d."):format(self.n)
  assert(self.client:call(raw.PUT, frame.put("witness", value)), "the put of a witness has failed")
  local found = self.client:call(raw.RANGE, frame.range("witness"))
  assert(found and found:find(value, 1, true), "the get of a witness has failed")
end

function witness:close() self.client:close() end

-- }======

return raw
