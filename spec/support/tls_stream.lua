--- TLS on sockets of luv, with the methods of these: who speaks by hand over a socket speaks inside of TLS over one of
-- these, and says and hears the same bytes.
--
--   tls_stream.server(handle)   of a socket that was accepted
--   tls_stream.client(handle)   of one that connects
--
-- What is written before the end of the handshake waits for it. A connection is connected when the handshake is over;
-- one whose handshake fails has an error. `shutdown` says close_notify before the FIN, and is the end of reading too;
-- `close_reset` says nothing. An end without close_notify is an end.

local secure = require "spec.support.secure"

local methods = {}
local mt = { __index = methods }

local contexts = {} -- by kind

--- They are made late: a process that uses none does not load keywatch.tls.
local function context_of(kind)
  local tls = require "keywatch.tls"
  if not contexts[kind] then
    local cert, key = secure.pair()
    contexts[kind] = assert(kind == "server" and tls.server { cert = cert, key = key }
      or tls.client { ca = secure.ca() })
  end
  return contexts[kind]
end

local function new(handle, channel)
  return setmetatable({
    handle = handle,
    channel = channel,
    unsent = {},         -- plaintext that waits for the handshake: { bytes, callback }
    size = 0,            -- of that
    on_connect = nil,    -- until the handshake is over
    on_read = nil,       -- while it is read
    on_shutdown = nil,   -- while a shutdown waits for the handshake; true if nobody is to be told
    has_ended = false,   -- the reader was told
    write_error = nil,   -- of the first write that has failed
    is_working = false,
  }, mt)
end

-- {====== Ciphertext that goes ======

--- Whoever meets a reset first is told of it: a write that does leaves an end in order to the read.
local function write_pending(self, callback)
  local bytes = self.channel:pending()
  while bytes ~= "" do
    local more = self.channel:pending()
    local is_last = more == ""
    self.handle:write(bytes, function(err)
      self.write_error = self.write_error or err
      if is_last and callback then callback(err) end
    end)
    bytes = more
  end
end

local function encrypt(self, bytes, callback)
  repeat
    bytes = bytes:sub(self.channel:write(bytes) + 1)
    write_pending(self, bytes == "" and callback or nil)
  until bytes == "" or self.channel:state().is_done
end

local function shut_down(self)
  local callback = self.on_shutdown
  self.on_shutdown = nil
  self.channel:finish()
  write_pending(self)
  return self.handle:shutdown(callback ~= true and callback or nil)
end

--- Says what is to be said: of the handshake, and then what has waited for it.
local function flush(self)
  write_pending(self)
  if not self.channel:state().is_open then return end
  local list = self.unsent
  self.unsent, self.size = {}, 0
  for _, one in ipairs(list) do encrypt(self, one[1], one[2]) end
  if self.on_shutdown then shut_down(self) end
end

-- }======

-- {====== Ciphertext that comes ======

local function tell_end(self, err)
  local on_connect, on_read = self.on_connect, self.on_read
  self.on_connect = nil
  if on_connect then return on_connect(err or self.write_error or "EOF") end
  if self.has_ended or not on_read then return end
  self.has_ended = true
  on_read(err, nil)
end

--- True once there is nothing more to read; why, if that is no end in order.
local function ended(self)
  local state = self.channel:state()
  local text, kind = self.channel:error()
  if state.is_done then return true, kind ~= "cut" and text or nil end
  return state.got_end
end

local function read_record(self)
  local text = self.channel:read()
  if text ~= "" then self.on_read(nil, text) end
end

local function tell_connected(self)
  local on_connect = self.on_connect
  self.on_connect = nil
  on_connect()
end

--- Goes on for as long as it can. The callbacks may do anything, also close the stream.
local function work(self)
  if self.is_working then return end
  self.is_working = true
  while not self.is_closed do
    local state = self.channel:state()
    local reads = state.may_read and self.on_read
    if state.has_work then
      self.channel:step()
      flush(self)
    elseif state.is_open and self.on_connect then
      tell_connected(self)
    elseif reads then
      read_record(self)
    else
      break
    end
  end
  self.is_working = false
  if self.is_closed then return end
  flush(self)
  local is_over, why = ended(self)
  if is_over then tell_end(self, why) end
end

--- Reads the socket during the handshake, and while there is a reader.
local function set_reading(self)
  if self.is_closed or self.handle:is_closing() then return end
  local is_wanted = self.on_read or not self.channel:state().is_open
  if not is_wanted then return self.handle:read_stop() end
  self.handle:read_start(function(err, bytes)
    if self.is_closed then return end -- luv tells of an end once more
    if err then return tell_end(self, err) end
    self.channel:feed(bytes or "") -- it has room for one read
    work(self)
    if not self.is_closed and self.channel:state().is_open and not self.on_read then self.handle:read_stop() end
  end)
end

-- }======

-- {====== The methods of a stream ======

function methods:connect(host, port, callback)
  self.on_connect = callback
  return self.handle:connect(host, port, function(err)
    if self.is_closed then return end
    if err then return tell_end(self, err) end
    set_reading(self)
    work(self)
  end)
end

function methods:read_start(callback)
  self.on_read = callback
  set_reading(self)
  work(self)
end

function methods:read_stop()
  self.on_read = nil
  set_reading(self)
end

function methods:write(bytes, callback)
  if not self.channel:state().is_open then
    self.size = self.size + #bytes
    table.insert(self.unsent, { bytes, callback })
  elseif bytes ~= "" then
    encrypt(self, bytes, callback)
  end
  return true
end

function methods:write_queue_size()
  return self.size + self.handle:write_queue_size()
end

function methods:shutdown(callback)
  self.on_shutdown = callback or true
  if not self.channel:state().is_open then return true end
  return shut_down(self)
end

function methods:is_closing()
  return self.is_closed or self.handle:is_closing()
end

local function end_channel(self)
  self.is_closed = true
  self.channel:close()
end

function methods:close()
  end_channel(self)
  self.handle:close()
end

function methods:close_reset()
  end_channel(self)
  return self.handle:close_reset()
end

-- }======

--- Loads what a server needs, so that the first connection does not wait for that.
local function prepare()
  if secure.is_on then context_of("server") end
end

--- The same handle in other passes than tls.
local function server(handle)
  if not secure.is_on then return handle end
  return new(handle, assert(context_of("server"):accept()))
end

local function client(handle)
  if not secure.is_on then return handle end
  return new(handle, assert(context_of("client"):connect("127.0.0.1")))
end

return { prepare = prepare, server = server, client = client }
