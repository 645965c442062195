--- HTTP/2 frames for gRPC, made and parsed by hand, for a spec that sends what no real client sends.
--
-- Sent header blocks use literals without indexing. Received ones must not use a dynamic table: h2.hello asks for a
-- size of 0.

local hpack = require "spec.support.hpack"

local h2 = {}

h2.types = { data = 0, headers = 1, priority = 2, reset = 3, settings = 4, push = 5, ping = 6, goaway = 7, window = 8,
  continuation = 9 }

h2.flags = { ends = 1, ack = 1, end_headers = 4, padded = 8, priority = 32 }

h2.codes = { no_error = 0, protocol_error = 1, internal_error = 2, flow_control_error = 3, stream_closed = 5,
  frame_size_error = 6, refused_stream = 7, cancel = 8, compression_error = 9, enhance_your_calm = 11 }

h2.settings_ids = { header_table_size = 1, enable_push = 2, max_concurrent_streams = 3, initial_window_size = 4,
  max_frame_size = 5, max_header_list_size = 6 }

h2.MAGIC = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

-- Numbers ----------------------------------------------------------------------------------------------------

--- Returns a number in `n` bytes, big-endian. unpack_at reads it.
local function pack(v, n)
  local bytes = {}
  for i = n, 1, -1 do
    bytes[i] = string.char(v % 256)
    v = math.floor(v / 256)
  end
  return table.concat(bytes)
end

local function unpack_at(bytes, at, n)
  local v = 0
  for i = at, at + n - 1 do v = v * 256 + bytes:byte(i) end
  return v
end

h2.pack, h2.unpack_at = pack, unpack_at

-- Frames that are sent ---------------------------------------------------------------------------------------

function h2.frame(type, flags, id, payload)
  return pack(#payload, 3) .. pack(h2.types[type] or type, 1) .. pack(flags, 1) .. pack(id, 4) .. payload
end

--- Returns SETTINGS: h2.settings { initial_window_size = 1 }, or h2.settings("ack").
function h2.settings(values)
  if values == "ack" then return h2.frame("settings", h2.flags.ack, 0, "") end
  local list = {}
  for name, v in pairs(values or {}) do list[#list + 1] = pack(h2.settings_ids[name], 2) .. pack(v, 4) end
  return h2.frame("settings", 0, 0, table.concat(list))
end

--- Returns the preface of a client, with its SETTINGS.
function h2.hello(values)
  local all = { header_table_size = 0 }
  for name, v in pairs(values or {}) do all[name] = v end
  return h2.MAGIC .. h2.settings(all)
end

local function hpack_int(v, bits, first)
  local max = 2 ^ bits - 1
  if v < max then return string.char(first + v) end
  local bytes = { string.char(first + max) }
  v = v - max
  while v >= 128 do
    bytes[#bytes + 1] = string.char(v % 128 + 128)
    v = math.floor(v / 128)
  end
  bytes[#bytes + 1] = string.char(v)
  return table.concat(bytes)
end

--- Returns a line of a header block; `first` is the byte with the kind of indexing: by default none.
function h2.line(name, value, first)
  return (first or "\0") .. hpack_int(#name, 7, 0) .. name .. hpack_int(#value, 7, 0) .. value
end

--- Returns a header block: lines are { name, value }, in order.
function h2.block(lines)
  local bytes = {}
  for i, line in ipairs(lines) do bytes[i] = h2.line(line[1], line[2]) end
  return table.concat(bytes)
end

--- Returns the header lines of a request. `changes` replaces lines by name, removes those that are false, and adds
-- others.
function h2.request_lines(path, changes)
  local lines, seen = {}, {}
  local ordinary = { { ":method", "POST" }, { ":scheme", "http" }, { ":path", path }, { ":authority", "spec" },
    { "content-type", "application/grpc" }, { "te", "trailers" } }
  changes = changes or {}
  for _, line in ipairs(ordinary) do
    local v = changes[line[1]]
    seen[line[1]] = true
    if v == nil then v = line[2] end
    if v then lines[#lines + 1] = { line[1], v } end
  end
  local names = {}
  for name in pairs(changes) do if not seen[name] then names[#names + 1] = name end end
  table.sort(names)
  for _, name in ipairs(names) do lines[#lines + 1] = { name, changes[name] } end
  return lines
end

--- Returns HEADERS with a list of lines. opts: ends, pad (bytes), split (the block continues in CONTINUATION frames of
-- that size), priority.
function h2.headers(id, lines, opts)
  opts = opts or {}
  local block = type(lines) == "string" and lines or h2.block(lines)
  local flags, before, after, rest = 0, "", "", {}
  if opts.ends then flags = flags + h2.flags.ends end
  if opts.split then
    for at = opts.split + 1, #block, opts.split do rest[#rest + 1] = block:sub(at, at + opts.split - 1) end
    block = block:sub(1, opts.split)
  end
  if #rest == 0 then flags = flags + h2.flags.end_headers end
  if opts.priority then
    flags = flags + h2.flags.priority
    before = pack(0, 4) .. "\15"
  end
  if opts.pad then
    flags = flags + h2.flags.padded
    before, after = pack(opts.pad, 1) .. before, ("\0"):rep(opts.pad)
  end
  local frames = { h2.frame("headers", flags, id, before .. block .. after) }
  for i, part in ipairs(rest) do
    frames[#frames + 1] = h2.frame("continuation", i == #rest and h2.flags.end_headers or 0, id, part)
  end
  return table.concat(frames)
end

function h2.request(id, path, changes, opts) return h2.headers(id, h2.request_lines(path, changes), opts) end

--- Returns DATA in one frame. opts: ends, pad.
function h2.data(id, bytes, opts)
  opts = opts or {}
  local flags = opts.ends and h2.flags.ends or 0
  if opts.pad then
    flags = flags + h2.flags.padded
    bytes = pack(opts.pad, 1) .. bytes .. ("\0"):rep(opts.pad)
  end
  return h2.frame("data", flags, id, bytes)
end

--- Returns DATA in frames of `size` bytes.
function h2.data_in_parts(id, bytes, size, opts)
  local frames = {}
  for at = 1, math.max(#bytes, 1), size do
    local is_last = at + size > #bytes
    frames[#frames + 1] = h2.data(id, bytes:sub(at, at + size - 1), is_last and opts or nil)
  end
  return table.concat(frames)
end

function h2.window(id, n) return h2.frame("window", 0, id, pack(n, 4)) end
function h2.reset(id, code) return h2.frame("reset", 0, id, pack(h2.codes[code or "cancel"] or code, 4)) end
function h2.ping(payload) return h2.frame("ping", 0, 0, payload or "12345678") end
function h2.pong(payload) return h2.frame("ping", h2.flags.ack, 0, payload) end
function h2.goaway(last, code) return h2.frame("goaway", 0, 0, pack(last, 4) .. pack(h2.codes[code], 4)) end

--- Returns a gRPC message.
function h2.message(bytes, flag) return string.char(flag or 0) .. pack(#bytes, 4) .. bytes end

--- Returns the frames of a unary call.
function h2.call(id, path, bytes, changes)
  return h2.request(id, path, changes) .. h2.data(id, h2.message(bytes), { ends = true })
end

-- Header blocks that come ------------------------------------------------------------------------------------

local known = setmetatable({}, { __mode = "v" }) -- without a dynamic table, equal blocks have equal lines

--- Returns the lines of a header block, by name.
function h2.read_block(bytes)
  local lines = known[bytes] or hpack.new(0):read(bytes)
  known[bytes] = lines
  return lines
end

-- Frames that come -------------------------------------------------------------------------------------------

local names = {}
for name, v in pairs(h2.types) do names[v] = name end
local code_names = {}
for name, v in pairs(h2.codes) do code_names[v] = name end

--- Returns a list of frames, { type, flags, id, payload }, and the rest of the bytes.
function h2.frames(bytes)
  local frames, at = {}, 1
  while #bytes - at + 1 >= 9 do
    local n = unpack_at(bytes, at, 3)
    if #bytes - at + 1 < 9 + n then break end
    frames[#frames + 1] = { type = names[bytes:byte(at + 3)] or bytes:byte(at + 3), flags = bytes:byte(at + 4),
      id = unpack_at(bytes, at + 5, 4), payload = bytes:sub(at + 9, at + 8 + n) }
    at = at + 9 + n
  end
  return frames, bytes:sub(at)
end

local reader = {}
local reader_mt = { __index = reader }

--- Returns a reader that collects the frames of a server: streams[id] = { headers, trailers, parts, is_ended, reset },
-- and settings, acks, pongs, pings, goaways and windows of the connection.
function h2.reader()
  return setmetatable({ rest = "", streams = {}, settings = nil, acks = 0, pongs = {}, pings = {}, goaways = {},
    windows = {} }, reader_mt)
end

function reader:stream(id)
  local stream = self.streams[id]
  if not stream then
    stream = { parts = {}, is_ended = false }
    self.streams[id] = stream
  end
  return stream
end

local on = {}

function on.data(self, frame)
  local stream = self:stream(frame.id)
  stream.parts[#stream.parts + 1] = frame.payload
  stream.is_ended = frame.flags % 2 == 1
end

function on.headers(self, frame)
  local stream = self:stream(frame.id)
  local lines = h2.read_block(frame.payload)
  assert(math.floor(frame.flags / 4) % 2 == 1, "a header block in parts")
  if stream.headers then
    assert(not stream.trailers, "headers a third time")
    stream.trailers = lines
  else
    stream.headers = lines
  end
  stream.is_ended = frame.flags % 2 == 1
  if stream.is_ended and not stream.trailers then stream.trailers, stream.is_trailers_only = lines, true end
end

function on.reset(self, frame)
  local code = unpack_at(frame.payload, 1, 4)
  self:stream(frame.id).reset = code_names[code] or code
end

function on.settings(self, frame)
  if frame.flags % 2 == 1 then
    self.acks = self.acks + 1
  else
    self.settings = {}
    for at = 1, #frame.payload, 6 do
      self.settings[unpack_at(frame.payload, at, 2)] = unpack_at(frame.payload, at + 2, 4)
    end
  end
end

function on.ping(self, frame)
  local list = frame.flags % 2 == 1 and self.pongs or self.pings
  list[#list + 1] = frame.payload
end

function on.goaway(self, frame)
  local code = unpack_at(frame.payload, 5, 4)
  self.goaways[#self.goaways + 1] = { last = unpack_at(frame.payload, 1, 4) % 2 ^ 31, code = code_names[code] or code,
    text = frame.payload:sub(9) }
end

function on.window(self, frame)
  self.windows[frame.id] = (self.windows[frame.id] or 0) + unpack_at(frame.payload, 1, 4)
end

function reader:feed(bytes)
  local frames
  frames, self.rest = h2.frames(self.rest .. bytes)
  for _, frame in ipairs(frames) do
    if on[frame.type] then on[frame.type](self, frame) end
  end
  return self
end

--- Returns the complete messages in some bytes, and the position of the rest.
function h2.read_messages(bytes)
  local list, at = {}, 1
  while #bytes - at + 1 >= 5 do
    local n = unpack_at(bytes, at + 1, 4)
    if #bytes - at + 1 < 5 + n then break end
    assert(bytes:byte(at) == 0, "a compressed message")
    list[#list + 1] = bytes:sub(at + 5, at + 4 + n)
    at = at + 5 + n
  end
  return list, at
end

--- Returns the messages of a stream, and true if they are all its bytes.
function reader:messages(id)
  local bytes = table.concat(self:stream(id).parts)
  local list, at = h2.read_messages(bytes)
  return list, at == #bytes + 1
end

--- Returns the messages of a stream since the last call.
function reader:take(id)
  local stream = self:stream(id)
  local bytes = table.concat(stream.parts)
  local list, at = h2.read_messages(bytes)
  stream.parts = { bytes:sub(at) }
  return list
end

--- Returns the status and text with which a stream has ended; nothing if it is open.
function reader:status(id)
  local trailers = self:stream(id).trailers
  if trailers and self:stream(id).is_ended then return tonumber(trailers["grpc-status"]), trailers["grpc-message"] end
end

return h2
