--- A connection of the imposter, and its streams: what a behaviour has to work with.
--
-- A behaviour is a function that runs as a task, so it may wait in the middle. What it says goes out as it is; only
-- messages and data wait until the client's windows have room for them. All that comes is kept in a record.
--
--   conn:settings(values)   conn:ping(payload)   conn:goaway(code, last, text)   conn:raw(bytes)   conn:close(how)
--   conn:wait(is_so)   conn:sleep(ms)   conn:drain()
--   conn.answers_pings, conn.answers_calls, conn.acks_settings, conn.gives_windows: true unless a behaviour says no
--   stream:receive()   stream:headers(lines)   stream:message(message)   stream:data(bytes, ends)
--   stream:trailers(lines)   stream:status(code, text)   stream:reset(code)   stream:wait(name)
--   stream.conn, stream.id, stream.path, stream.request (the lines of its header block, by name)

local uv = require "spec.support.luv"

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local hpack = require "spec.support.hpack"
local stem = require "spec.support.stem"

local FRAME = 16384        -- bytes that every client takes
local WINDOW = 65535       -- unless the client says otherwise
local MAX_STREAM = 2 ^ 31 - 1
local UNSENT = 2 ^ 20      -- bytes in a queue that is full

local tasks = {}           -- { thread, is_ready, conn }
local signals = {}         -- names that the spec has told

-- {====== Tasks ======

local function go_on(task, ...)
  local ok, is_ready = coroutine.resume(task.thread, ...)
  if not ok then error(debug.traceback(task.thread, tostring(is_ready)), 0) end
  task.is_ready = is_ready
  if is_ready then tasks[#tasks + 1] = task end
end

local function start_task(conn, fn, ...)
  go_on({ thread = coroutine.create(fn), conn = conn }, ...)
end

local function resume_some()
  local list, n = tasks, 0
  tasks = {}
  for _, task in ipairs(list) do
    if not task.conn.record.is_open then
      n = n + 1
    elseif task.is_ready() then
      n = n + 1
      go_on(task)
    else
      tasks[#tasks + 1] = task
    end
  end
  return n > 0
end

--- Lets all go on that can. Those of connections that have ended are forgotten.
local function turn()
  while resume_some() do end
end

-- }======

-- {====== What a connection says ======

local conn_methods = {}
local conn_mt = { __index = conn_methods }

local function code_of(code)
  return type(code) == "number" and code or h2.codes[code or "no_error"]
end

function conn_methods:raw(bytes)
  if self.record.is_open then self.handle:write(bytes) end
end

--- By their names, as of h2.settings.
function conn_methods:settings(values)
  self:raw(h2.settings(values or {}))
end

function conn_methods:ping(payload)
  self:raw(h2.ping(payload))
end

--- The last stream is the last that there may be, unless it is given.
function conn_methods:goaway(code, last, text)
  self:raw(h2.frame("goaway", 0, 0, h2.pack(last or MAX_STREAM, 4) .. h2.pack(code_of(code), 4) .. (text or "")))
end

--- "close": a FIN after what was said, unless it is given; "reset": a RST.
function conn_methods:close(how)
  if not self.record.is_open then return end
  self.record.is_open = false
  local handle = self.handle
  if how == "reset" then return handle:close_reset() end
  if not handle:shutdown(function() handle:close() end) then handle:close() end
end

--- Waits until something is so.
function conn_methods.wait(_, is_so)
  coroutine.yield(is_so)
end

function conn_methods.sleep(_, ms)
  local timer, is_over = uv.new_timer(), false
  timer:start(ms, 0, function()
    timer:close()
    is_over = true
  end)
  coroutine.yield(function() return is_over end)
end

--- Waits until the kernel has taken nearly all of what was said.
function conn_methods:drain()
  if self.handle:write_queue_size() < UNSENT then return end
  self:wait(function() return self.handle:write_queue_size() < UNSENT end)
end

-- }======

-- {====== What a stream says ======

local stream_methods = {}
local stream_mt = { __index = stream_methods }

local function new_stream(conn, id, request)
  return setmetatable({
    conn = conn,
    id = id,
    path = request[":path"],
    request = request,
    record = { connection = conn.number, id = id, path = request[":path"], headers = request, messages = {},
      has_ended = false, reset = nil },
    rest = "",           -- what came and is no whole message
    taken = 0,           -- messages of the record that receive has given
    window = conn.initial_window,
    has_headers = false, -- they were sent
  }, stream_mt)
end

--- Lines by their names in the order of these, or a list of { name, value } as it is; false leaves one out.
local function list_of(lines, ordinary)
  if lines and lines[1] then return lines end
  local all, names, list = {}, {}, {}
  for name, value in pairs(ordinary) do all[name] = value end
  for name, value in pairs(lines or {}) do all[name] = value end
  for name in pairs(all) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    if all[name] then list[#list + 1] = { name, tostring(all[name]) } end
  end
  return list
end

local function send_block(self, lines, ends)
  self.has_headers = true
  self.conn:raw(h2.headers(self.id, lines, { ends = ends, split = FRAME }))
end

local HEADERS = { [":status"] = "200", ["content-type"] = "application/grpc" }

--- Those of an answer, and what changes them.
function stream_methods:headers(lines, ends)
  send_block(self, list_of(lines, HEADERS), ends)
end

--- At the end; if nothing was said before, with the headers in one block.
function stream_methods:trailers(lines)
  send_block(self, list_of(lines, self.has_headers and {} or HEADERS), true)
end

local function percent(text)
  return (text:gsub("[^ -$&-~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

function stream_methods:status(code, text)
  self:trailers { ["grpc-status"] = code, ["grpc-message"] = text and percent(text) }
end

function stream_methods:reset(code)
  self.conn:raw(h2.frame("reset", 0, self.id, h2.pack(code_of(code or "cancel"), 4)))
end

local function room(self)
  return math.min(self.window, self.conn.window, FRAME)
end

--- Waits for the client's windows, as a server that is in order does.
function stream_methods:data(bytes, ends)
  local at = 1
  repeat
    if at <= #bytes and room(self) <= 0 then self.conn:wait(function() return room(self) > 0 end) end
    local part = bytes:sub(at, at + math.max(room(self), 0) - 1)
    at = at + #part
    self.window, self.conn.window = self.window - #part, self.conn.window - #part
    self.conn:raw(h2.data(self.id, part, { ends = ends and at > #bytes }))
  until at > #bytes
end

--- The bytes of an answer that is a table; bytes as they are.
function stream_methods:encode(message)
  return type(message) == "table" and core.encode(stem(self.path) .. "Response", message) or message
end

--- A message, after the headers if they were not sent. The flag is that of the compressed ones.
function stream_methods:message(message, flag)
  if not self.has_headers then self:headers() end
  self:data(h2.message(self:encode(message), flag))
end

-- }======

-- {====== What a stream hears ======

--- The next request: a table, or bytes if they are none of the path's. Nil when the client has ended the stream.
function stream_methods:receive()
  local record = self.record
  local function is_so() return #record.messages > self.taken or record.has_ended or record.reset end
  if not is_so() then self.conn:wait(is_so) end
  if #record.messages == self.taken then return nil end
  self.taken = self.taken + 1
  return record.messages[self.taken]
end

--- Waits until the spec has told a name.
function stream_methods:wait(name)
  if not signals[name] then self.conn:wait(function() return signals[name] end) end
end

local function decode(path, bytes)
  local ok, message = pcall(core.decode, stem(path) .. "Request", bytes)
  return ok and message or bytes
end

local function take_data(stream, payload)
  local rest, at = stream.rest .. payload, 1
  while #rest >= at + 4 do
    local size = h2.unpack_at(rest, at + 1, 4)
    if #rest < at + 4 + size then break end
    table.insert(stream.record.messages, decode(stream.path, rest:sub(at + 5, at + 4 + size)))
    at = at + 5 + size
  end
  stream.rest = rest:sub(at)
end

-- }======

-- {====== What a connection hears ======

local function has(flags, flag)
  return math.floor(flags / h2.flags[flag]) % 2 == 1
end

--- What is in a frame beside padding and priority.
local function content(frame)
  local payload = frame.payload
  if has(frame.flags, "padded") then payload = payload:sub(2, -1 - payload:byte(1)) end
  if frame.type == "headers" and has(frame.flags, "priority") then payload = payload:sub(6) end
  return payload
end

local function begin_stream(self, id, request)
  local stream = new_stream(self, id, request)
  self.streams[id] = stream
  self.on_call(stream.record)
  return stream
end

--- The behaviour begins when all of the frame is in the record.
local function take_block(self)
  local block = self.block
  self.block = nil
  local lines = self.hpack:read(table.concat(block.parts))
  local stream = self.streams[block.id]
  local is_new = not stream
  stream = stream or begin_stream(self, block.id, lines)
  stream.record.has_ended = stream.record.has_ended or block.ends
  if is_new and self.answers_calls then start_task(self, self.behaviour_of(stream.path), stream) end
end

local on = {}

function on.headers(self, frame)
  self.block = { id = frame.id, parts = { content(frame) }, ends = has(frame.flags, "ends") }
  if has(frame.flags, "end_headers") then take_block(self) end
end

function on.continuation(self, frame)
  table.insert(self.block.parts, frame.payload)
  if has(frame.flags, "end_headers") then take_block(self) end
end

function on.data(self, frame)
  local stream = self.streams[frame.id]
  take_data(stream, content(frame))
  stream.record.has_ended = has(frame.flags, "ends")
  if self.gives_windows and #frame.payload > 0 then
    self:raw(h2.window(0, #frame.payload) .. h2.window(frame.id, #frame.payload))
  end
end

function on.reset(self, frame)
  local stream = self.streams[frame.id]
  if stream then stream.record.reset = h2.unpack_at(frame.payload, 1, 4) end
end

local function set_initial_window(self, size)
  for _, stream in pairs(self.streams) do stream.window = stream.window + size - self.initial_window end
  self.initial_window = size
end

function on.settings(self, frame)
  if has(frame.flags, "ack") then return end
  for at = 1, #frame.payload, 6 do
    local id, value = h2.unpack_at(frame.payload, at, 2), h2.unpack_at(frame.payload, at + 2, 4)
    self.record.settings[id] = value
    if id == h2.settings_ids.initial_window_size then set_initial_window(self, value) end
  end
  if self.acks_settings then self:raw(h2.settings("ack")) end
end

function on.ping(self, frame)
  local is_ack = has(frame.flags, "ack")
  local name = is_ack and "pongs" or "pings"
  self.record[name] = self.record[name] + 1
  if not is_ack and self.answers_pings then self:raw(h2.pong(frame.payload)) end
end

function on.goaway(self, frame)
  table.insert(self.record.goaways, { last = h2.unpack_at(frame.payload, 1, 4),
    code = h2.unpack_at(frame.payload, 5, 4), text = frame.payload:sub(9) })
end

function on.window(self, frame)
  local n = h2.unpack_at(frame.payload, 1, 4)
  local stream = self.streams[frame.id]
  if frame.id == 0 then
    self.window = self.window + n
  elseif stream then
    stream.window = stream.window + n
  end
end

--- What is no HTTP/2 is kept as text.
local function take_magic(self)
  local bytes = self.rest
  if bytes:sub(1, #h2.MAGIC) == h2.MAGIC then
    self.rest, self.has_magic = bytes:sub(#h2.MAGIC + 1), true
  elseif bytes ~= h2.MAGIC:sub(1, #bytes) then
    self.record.text = bytes
  end
  return self.has_magic
end

local function feed(self, bytes)
  self.rest = self.rest .. bytes
  if not (self.has_magic or take_magic(self)) then return end
  local frames
  frames, self.rest = h2.frames(self.rest)
  local counts = self.record.frames
  for _, frame in ipairs(frames) do
    counts[frame.type] = (counts[frame.type] or 0) + 1
    if on[frame.type] then on[frame.type](self, frame) end
  end
end

-- }======

--- A connection on a handle that was accepted. Options: number; behaviour, its own; behaviour_of, a function of a path;
-- on_call, which is given the record of a new call.
local function new(handle, options)
  local self = setmetatable({
    handle = handle,
    number = options.number,
    record = { is_open = true, has_ended = false, failure = nil, text = nil, frames = {}, settings = {}, goaways = {},
      pings = 0, pongs = 0 },
    behaviour_of = options.behaviour_of,
    on_call = options.on_call,

    answers_pings = true,
    answers_calls = true,
    acks_settings = true,
    gives_windows = true,

    rest = "",      -- what came and is no whole frame
    has_magic = false,
    hpack = hpack.new(),
    block = nil,    -- one that is not whole
    streams = {},   -- by their ids
    window = WINDOW,
    initial_window = WINDOW,
  }, conn_mt)
  start_task(self, options.behaviour, self)
  handle:read_start(function(err, bytes)
    if bytes then return feed(self, bytes) end
    self.record.has_ended, self.record.failure = true, err
    self:close()
  end)
  return self
end

return { new = new, turn = turn, signals = signals }
