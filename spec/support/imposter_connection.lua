--- A connection of the imposter, and its streams, which are the objects for behaviours. For the network of the world it
-- is the server's side of a link: it has the methods of a peer of the core that the network calls.
--
-- A behaviour is a function that runs as a task, so it may wait. Its frames are sent unchanged; only messages and data
-- wait until the client's windows have space for them. Everything that is received is recorded.
--
--   conn:settings(values)   conn:ping(payload)   conn:goaway(code, last, text)   conn:raw(bytes)   conn:close(how)
--   conn:wait(is_so)   conn:sleep(ms)   conn:drain()
--   conn.answers_pings, conn.answers_calls, conn.acks_settings, conn.gives_windows: true unless a behaviour says no
--   stream:receive()   stream:headers(lines)   stream:message(message)   stream:data(bytes, ends)
--   stream:trailers(lines)   stream:status(code, text)   stream:reset(code)   stream:wait(name)
--   stream.conn, stream.id, stream.path, stream.request (the lines of its header block, by name)

local core = require "keywatch.core"
local keywatch = require "keywatch"

local h2 = require "spec.support.h2"
local hpack = require "spec.support.hpack"
local stem = require "spec.support.stem"

local FRAME = 16384        -- bytes of a frame that every client accepts
local WINDOW = 65535       -- the default of HTTP/2
local MAX_STREAM = 2 ^ 31 - 1
local UNSENT = 2 ^ 20      -- bytes in a full queue

-- {====== Tasks ======

local function resume(task)
  local ok, is_ready, at = coroutine.resume(task.thread)
  if not ok then error(debug.traceback(task.thread, tostring(is_ready)), 0) end
  task.is_ready, task.at = is_ready, at
  if is_ready then table.insert(task.conn.owner.tasks, task) end
end

local function is_ready_at_once() return true end

--- Starts a behaviour in the next turn.
local function start_task(conn, behave, it)
  local task = { conn = conn, is_ready = is_ready_at_once, thread = coroutine.create(function() behave(it) end) }
  table.insert(conn.owner.tasks, task)
end

local function resume_some(tasks)
  local list, has_resumed = {}, false
  for i = 1, #tasks do list[i], tasks[i] = tasks[i], nil end
  for _, task in ipairs(list) do
    if task.conn.record.is_open and not task.is_ready() then
      table.insert(tasks, task)
    else
      has_resumed = true
      if task.conn.record.is_open then resume(task) end
    end
  end
  return has_resumed
end

--- Resumes all tasks that can continue, and drops those of ended connections. Returns the earliest time at which
-- another task can continue; nil if none waits for a time.
local function turn(tasks)
  while resume_some(tasks) do end -- luacheck: ignore 542
  local earliest
  for _, task in ipairs(tasks) do
    if task.at and task.at < (earliest or math.huge) then earliest = task.at end
  end
  return earliest
end

-- }======

-- {====== Sending on a connection ======

local conn_methods = {}
local conn_mt = { __index = conn_methods }

local function code_of(code) return type(code) == "number" and code or h2.codes[code or "no_error"] end

function conn_methods:raw(bytes)
  if not self.record.is_open or bytes == "" then return end
  self.last_unsent = self.last_unsent + 1
  self.unsent[self.last_unsent], self.unsent_size = bytes, self.unsent_size + #bytes
  self.n_said = self.n_said + #bytes
end

--- Sends SETTINGS, by the names of h2.settings.
function conn_methods:settings(values) self:raw(h2.settings(values or {})) end

function conn_methods:ping(payload) self:raw(h2.ping(payload)) end

--- Sends GOAWAY. `last` is by default the largest stream id.
function conn_methods:goaway(code, last, text)
  self:raw(h2.frame("goaway", 0, 0, h2.pack(last or MAX_STREAM, 4) .. h2.pack(code_of(code), 4) .. (text or "")))
end

--- Ends the connection, after the unsent bytes: `how` is "close" for a FIN, the default, or "reset" for a RST.
function conn_methods:close(how)
  if self.record.is_open then self.record.is_open, self.is_reset = false, how == "reset" end
end

--- Waits until is_so() is true.
function conn_methods.wait(_, is_so) coroutine.yield(is_so) end

function conn_methods.sleep(_, ms)
  local at = keywatch.now() + ms / 1000
  coroutine.yield(function() return keywatch.now() >= at end, at)
end

--- Waits until the network has taken nearly all unsent bytes.
function conn_methods:drain()
  local function is_so() return self.unsent_size < UNSENT end
  if not is_so() then self:wait(is_so) end
end

-- }======

-- {====== Sending on a stream ======

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
    rest = "",           -- bytes of an incomplete message
    taken = 0,           -- messages of the record that receive has returned
    window = conn.initial_window,
    has_headers = false, -- the headers were sent
  }, stream_mt)
end

--- Returns a list of { name, value }: `lines`, if it is one; or `ordinary`, changed by name. False removes a line.
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

--- Sends the headers of an answer, with changes.
function stream_methods:headers(lines, ends) send_block(self, list_of(lines, HEADERS), ends) end

--- Sends trailers, and ends the stream. If nothing was sent before, one block has headers and trailers.
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

local function room(self) return math.min(self.window, self.conn.window, FRAME) end

--- Sends bytes, as far as the client's windows allow, and waits for them.
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

--- Encodes an answer that is a table; returns bytes unchanged.
function stream_methods:encode(message)
  return type(message) == "table" and core.encode(stem(self.path) .. "Response", message) or message
end

--- Sends a message, and before it the headers, if they were not sent. `flag` is the compression flag.
function stream_methods:message(message, flag)
  if not self.has_headers then self:headers() end
  self:data(h2.message(self:encode(message), flag))
end

-- }======

-- {====== Receiving on a stream ======

--- Returns the next request: a table, or bytes if they are malformed. Nil if the client has ended the stream.
function stream_methods:receive()
  local record = self.record
  local function is_so() return #record.messages > self.taken or record.has_ended or record.reset end
  if not is_so() then self.conn:wait(is_so) end
  if #record.messages == self.taken then return nil end
  self.taken = self.taken + 1
  return record.messages[self.taken]
end

--- Waits until the spec has signalled a name.
function stream_methods:wait(name)
  local signals = self.conn.owner.signals
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

-- {====== Receiving on a connection ======

local function has(flags, flag) return math.floor(flags / h2.flags[flag]) % 2 == 1 end

--- Returns the payload of a frame without padding and priority.
local function content(frame)
  local payload = frame.payload
  if has(frame.flags, "padded") then payload = payload:sub(2, -1 - payload:byte(1)) end
  if frame.type == "headers" and has(frame.flags, "priority") then payload = payload:sub(6) end
  return payload
end

local function begin_stream(self, id, request)
  local stream = new_stream(self, id, request)
  self.streams[id] = stream
  table.insert(self.owner.calls, stream.record)
  return stream
end

--- Handles a complete header block. The behaviour starts after the frame is recorded.
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

--- Takes the preface. Bytes that are not HTTP/2 are kept as text.
local function take_magic(self)
  local bytes = self.rest
  if bytes:sub(1, #h2.MAGIC) == h2.MAGIC then
    self.rest, self.has_magic = bytes:sub(#h2.MAGIC + 1), true
  elseif bytes ~= h2.MAGIC:sub(1, #bytes) then
    self.record.text = bytes
  end
  return self.has_magic
end

local function take_bytes(self, bytes)
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

-- {====== Methods for the network ======

function conn_methods:feed(bytes)
  if not self.record.is_open then return end
  if bytes ~= "" then return take_bytes(self, bytes) end
  self.record.has_ended = true
  self:close()
end

--- Returns at most `n` unsent bytes.
function conn_methods:pending(n)
  local list = {}
  while n > 0 and self.last_sent < self.last_unsent do
    local first = self.last_sent + 1
    local bytes = self.unsent[first]
    list[#list + 1] = bytes:sub(1, n)
    self.unsent[first] = #bytes > n and bytes:sub(n + 1) or nil
    if #bytes <= n then self.last_sent = first end
    n = n - #list[#list]
  end
  local bytes = table.concat(list)
  self.unsent_size = self.unsent_size - #bytes
  return bytes
end

--- Returns whether the connection takes bytes, and whether it has ended.
function conn_methods:state()
  return true, not self.record.is_open and not self.is_reset and self.unsent_size == 0
end

--- Returns the time of a reset; nil if there is none.
function conn_methods:deadline()
  if not self.is_reset or self.unsent_size > 0 then return nil end
  self.reset_at = self.reset_at or keywatch.now() + 2 * self.owner.latency
  return self.reset_at
end

function conn_methods:step() self.owner.network:cut(function(link) return link.peer == self end) end

-- }======

--- Returns an accepted connection. Options: number; owner, the imposter; behaviour, that of the connection;
-- behaviour_of, a function of a path.
local function new(options)
  local self = setmetatable({
    number = options.number,
    owner = options.owner,
    record = { is_open = true, has_ended = false, text = nil, frames = {}, settings = {}, goaways = {}, pings = 0,
      pongs = 0 },
    behaviour_of = options.behaviour_of,

    answers_pings = true,
    answers_calls = true,
    acks_settings = true,
    gives_windows = true,

    unsent = {},    -- by number: bytes
    last_sent = 0,
    last_unsent = 0,
    unsent_size = 0,
    n_said = 0,     -- bytes
    is_reset = false,
    reset_at = nil,
    rest = "",      -- bytes of an incomplete frame
    has_magic = false,
    hpack = hpack.new(),
    block = nil,    -- an incomplete header block
    streams = {},   -- by their ids
    window = WINDOW,
    initial_window = WINDOW,
  }, conn_mt)
  start_task(self, options.behaviour, self)
  return self
end

return { new = new, turn = turn }
