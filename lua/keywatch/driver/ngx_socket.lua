-- SPDX-License-Identifier: MIT
--- ngx_socket: a connection of a client on an nginx cosocket, plain or with TLS.
--
-- A cosocket belongs to the handler that has made it. Two light threads of that handler work for a connection: one
-- reads, and the other one, its parent, connects, writes and closes. All other threads only notify the writer, by its
-- semaphore, that there is something to do.
--
-- TLS comes from keywatch.tls over the plain cosocket, since nginx's own TLS offers no HTTP/2.
--
--   DIALED ---- connected, and TLS agreed on ----> OPEN ---- the client is done, or the peer is gone ----> GONE

local new_semaphore = require("ngx.semaphore").new

local ngx = ngx
local spawn, kill = ngx.thread.spawn, ngx.thread.kill
local max, min = math.max, math.min

local WRITE = 128 * 1024  -- maximum bytes of one write
local READ = 64 * 1024    -- maximum bytes of one read
local RECORD = 16384      -- bytes of one TLS record
local IDLE_MS = 2 ^ 31 - 1 -- the timeout of a read, which is then repeated
local SEND_MS = 60000
local CONNECT_MS = 60000
local LINGER = 1          -- seconds in which the reader reads what the peer has sent before a write failed
local REST = 3600         -- seconds after which a writer checks again without a notice

local socket_methods = {}
local socket_mt = { __index = socket_methods }

--- Returns a connection of a client of the core, which has not begun. opts: address; channel, of keywatch.tls, or nil;
-- now, a function; on_news, called when pollers have something to take; on_end, called when the connection is gone.
local function new(client, opts)
  return setmetatable({
    client = client,
    address = opts.address,
    channel = opts.channel,
    now = opts.now,
    on_news = opts.on_news,
    on_end = opts.on_end,
    signal = new_semaphore(0), -- wakes the writer
    is_notified = false,       -- the writer was notified, and has not checked yet
    is_waiting = false,        -- the writer waits for a notice
    wants_room = false,        -- semaphore: the reader waits until the client takes bytes; or false
    held = nil,                -- bytes that were taken from the client, and are to be written first
    socket = nil,
    is_open = false,           -- the client knows that it is connected
    is_cut = false,            -- the connection must end, with or without pending bytes
    is_gone = false,
    has_read_end = false,      -- the client has got the end of the bytes
    has_lost = false,          -- the reader has ended: the peer has closed, or reading has failed
    why = nil,                 -- why the connection has ended, if not in order
  }, socket_mt)
end

--- Makes the writer check for work.
function socket_methods:notify()
  if self.is_notified or self.is_gone then return end
  self.is_notified = true
  self.signal:post(1)
end

--- Ends the connection, with or without pending bytes.
function socket_methods:cut(why)
  if self.is_gone or self.is_cut then return end
  self.is_cut, self.why = true, why or self.why
  self:notify()
end

-- {====== TLS ======

--- Does the work of TLS without new bytes. Notifies the client when the handshake has ended.
local function step_channel(self)
  local channel = self.channel
  local state = channel:state()
  while state.has_work do
    channel:step()
    state = channel:state()
  end
  if state.is_open and not self.is_open then
    self.is_open = true
    self.client:opened(self.now(), channel:info().has_h2)
  end
  return state
end

--- Gives decrypted bytes to the client, as long as it takes them.
local function decrypt(self)
  local channel, client = self.channel, self.client
  local state = step_channel(self)
  while self.is_open and state.may_read and client:state() do
    local text = channel:read()
    if text ~= "" then client:feed(text, self.now()) end
    state = channel:state()
  end
  local _, fault = channel:error()
  if self.is_open and not self.has_read_end and (state.got_end or fault == "cut") then
    self.has_read_end = true
    if state.got_end then client:feed("", self.now()) else client:cut(self.now()) end
  end
  return state
end

--- Encrypts the client's pending bytes. Returns the bytes for the socket.
local function encrypt(self)
  local channel, client = self.channel, self.client
  local state = step_channel(self)
  while self.is_open and state.wants_text do
    local text = client:pending(RECORD)
    if text == "" then
      local _, is_done = client:state()
      if is_done then channel:finish() end
      break
    end
    channel:write(text)
    state = channel:state()
  end
  return channel:pending()
end

--- Returns why TLS has failed, or nil.
local function fault_of_channel(self)
  if not self.channel then return nil end
  local text, fault = self.channel:error()
  if not text or self.is_open and fault == "cut" then return nil end
  return text
end

-- }======

-- {====== Reading ======

--- True if the client, or TLS, takes bytes.
local function takes_bytes(self)
  if not self.channel then return (self.client:state()) end
  local state = self.channel:state()
  if state.is_done then return true end -- the end must still be read
  return state.wants_bytes and not state.may_read and (not self.is_open or (self.client:state()))
end

--- Gives bytes of the socket to the client. "" is the end; has_failed: the end of a socket that has failed.
local function take(self, bytes, has_failed)
  local channel = self.channel
  if not channel then
    if bytes == "" then self.has_read_end = true end
    if has_failed then return self.client:cut(self.now()) end
    return self.client:feed(bytes, self.now())
  end
  local used = channel:feed(bytes)
  decrypt(self)
  while used < #bytes and not self.is_cut do
    local more = channel:feed(bytes:sub(used + 1))
    if more == 0 then return self:cut("TLS takes no more bytes") end
    used = used + more
    decrypt(self)
  end
end

--- Reads until the connection ends. The function of the reader.
local function read_all(self)
  local socket = self.socket
  while not self.is_cut do
    while not takes_bytes(self) do
      self.wants_room = new_semaphore(0)
      self.wants_room:wait(REST)
      self.wants_room = false
      if self.is_cut then return end
    end
    local bytes, text, partial = socket:receiveany(READ)
    if self.is_cut then return end
    if not bytes and text == "timeout" then
      bytes = partial
    elseif not bytes then
      if text ~= "closed" then self.why = self.why or text end
      take(self, "", text ~= "closed")
      self.has_lost = true
      self:notify()
      return self.on_news()
    end
    if bytes and bytes ~= "" then
      take(self, bytes)
      self:notify_if_needed()
      if self.client:has_news() then self.on_news() end
    end
  end
end

--- True if the writer has work. Takes pending bytes from the client, and keeps them for the writer.
local function has_work(self)
  if self.channel or not self.is_open or self.is_cut or self.has_lost then return true end
  if self.held then return true end
  local bytes = self.client:pending(WRITE)
  if bytes ~= "" then
    self.held = bytes
    return true
  end
  local _, is_done = self.client:state()
  return is_done
end

--- Wakes the reader if the client takes bytes again, and the writer if there is something to write. Waking the writer
-- without work would cost as much as reading an event.
function socket_methods:notify_if_needed()
  if self.wants_room and takes_bytes(self) then self.wants_room:post(1) end
  if self.is_notified or self.is_gone then return end
  if has_work(self) then self:notify() end
end

-- }======

-- {====== Writing ======

--- Returns bytes to write, "" if there are none.
local function gather(self)
  if self.channel then return encrypt(self) end
  local held = self.held
  if not held then return self.client:pending(WRITE) end
  self.held = nil
  return held .. self.client:pending(WRITE)
end

--- True if the connection must end: it was cut, the client is done, the reader has ended, or TLS is done or has failed.
local function must_end(self)
  if self.is_cut or self.has_lost then return true end
  local _, is_done = self.client:state()
  if not self.channel then return is_done end
  return is_done or self.channel:state().is_done
end

--- Waits for a notice, at most so many seconds.
local function rest(self, seconds)
  self.is_waiting = true
  self.signal:wait(seconds)
  self.is_waiting = false
end

--- Waits until the reader has ended, because a peer that takes no more bytes may have sent an answer.
local function await_reader(self)
  local deadline = self.now() + LINGER
  while not self.has_lost and not self.is_cut and self.now() < deadline do
    self.is_notified = false
    rest(self, deadline - self.now())
  end
end

--- Writes until the connection must end. Returns nil, or the reason of a failure.
local function write_all(self)
  local socket = self.socket
  while true do
    self.is_notified = false
    if self.channel then decrypt(self) end
    local bytes = gather(self)
    if bytes ~= "" then
      local ok, text = socket:send(bytes)
      if not ok then
        await_reader(self)
        return text
      end
    elseif must_end(self) then
      return self.why or fault_of_channel(self)
    elseif not self.is_notified then
      rest(self, REST)
    end
  end
end

--- Connects. Returns true, or nil and the text of the error.
local function connect(self)
  local socket, text = ngx.socket.tcp()
  if not socket then return nil, text end
  local address = self.address
  local deadline = self.client:deadline() -- of the handshake
  local ms = deadline and max(1, (deadline - self.now()) * 1000) or CONNECT_MS
  socket:settimeouts(min(ms, CONNECT_MS), SEND_MS, IDLE_MS)
  local ok
  if address.path then
    ok, text = socket:connect("unix:" .. address.path)
  else
    local host = address.host
    ok, text = socket:connect(host:find(":", 1, true) and "[" .. host .. "]" or host, address.port)
  end
  if not ok then return nil, text end
  self.socket = socket
  return true
end

--- Connects, and moves bytes until the connection must end. A function for a light thread. Never raises.
function socket_methods:work()
  local ok, why = pcall(function()
    if self.is_cut then return self.why end
    local is_connected, text = connect(self)
    if not is_connected then return text end
    if not self.channel then
      self.is_open = true
      self.client:opened(self.now())
    end
    self.on_news()
    local reader = spawn(function()
      local fine, err = pcall(read_all, self)
      if not fine then self:cut(tostring(err)) end
    end)
    local is_fine, fault = pcall(write_all, self)
    self.is_cut = true
    kill(reader)
    return is_fine and fault or not is_fine and tostring(fault) or nil
  end)
  if self.socket then pcall(self.socket.close, self.socket) end
  self:finish(ok and why or not ok and tostring(why) or nil)
end

--- Marks the connection as gone, and notifies the client and the home.
function socket_methods:finish(why)
  self.is_cut, self.is_gone = true, true
  if self.channel then self.channel:close() end
  self.client:closed(why)
  self.on_end(self)
end

--- True if nginx has ended the writer: its semaphore has no waiter.
function socket_methods:is_dead()
  return self.is_waiting and not self.is_gone and self.signal:count() >= (self.is_notified and 1 or 0)
end

-- }======

--- Does the client's due work. Returns the time of its next work, or nil if it has none without new bytes.
function socket_methods:step(now)
  if self.is_gone then return nil end
  local client = self.client
  local deadline = client:deadline()
  if deadline and deadline <= now then
    client:step(now)
    self:notify()
    deadline = client:deadline()
    if deadline and deadline <= now then deadline = now end
  end
  return deadline and min(deadline, now + REST)
end

return { new = new }
