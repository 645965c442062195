--- A luv TCP handle with TLS: it has the methods of a handle that raw.connect calls, and `tcp` and `channel`, for
-- tests that send bytes that are not TLS.

local luv = require "spec.support.luv"

local tls_handle = {}

local methods = {}
local mt = { __index = methods }

--- Returns an unconnected handle with a client context.
function tls_handle.new(context, host)
  return setmetatable({
    tcp = luv.new_tcp(),
    channel = assert(context:connect(host or "localhost")),
    text = "",         -- bytes to send after the handshake
    is_open = false,
    failure = nil,     -- of TLS
    on_open = nil,
    on_read = nil,
    on_flush = nil,    -- called with ciphertext; returns the bytes to write instead
  }, mt)
end

--- Writes the pending ciphertext.
function methods:flush(callback)
  local bytes = self.channel:pending()
  if self.on_flush then bytes = self.on_flush(bytes) end
  if bytes ~= "" and not self.tcp:is_closing() then
    self.tcp:write(bytes, callback)
  elseif callback then
    callback()
  end
end

local function encrypt(self, callback)
  local text = self.text
  self.text = ""
  repeat
    local n = self.channel:write(text)
    text = text:sub(n + 1)
    if text ~= "" then self:flush() end
  until text == "" or self.channel:state().is_done
  self:flush(callback)
end

--- Handles the end or the failure of the handshake.
local function note_state(self)
  local state = self.channel:state()
  if state.is_open and not self.is_open then
    self.is_open = true
    if not self.on_read then self.tcp:read_stop() end
    if self.on_open then self.on_open() end
    encrypt(self)
  end
  if state.is_done and not self.failure then
    self.failure = self.channel:error() or "finished"
    local notify = self.on_read or self.on_open
    if notify then notify(self.failure) end
  end
end

--- Works on the channel until it waits for bytes.
function methods:work()
  local state = self.channel:state()
  while (state.has_work or (state.may_read and self.on_read)) and not self.tcp:is_closing() do
    if state.has_work then self.channel:step() end
    local text = state.may_read and self.channel:read() or ""
    if text ~= "" then self.on_read(nil, text) end
    note_state(self)
    state = self.channel:state()
  end
  self:flush()
end

function methods:begin_reading()
  self.tcp:read_start(function(err, bytes)
    if err then return self.on_read and self.on_read(err) end
    local at = 1
    repeat
      local n = self.channel:feed(bytes and bytes:sub(at) or "")
      at = at + n
      self:work()
      if self.tcp:is_closing() then return end
    until not bytes or at > #bytes or n == 0
    if not bytes and self.on_read then self.on_read(nil, nil) end
  end)
end

function methods:connect(host, port, callback)
  self.on_open = callback
  self.tcp:connect(host, port, function(err)
    if err then return callback(err) end
    self.tcp:nodelay(true)
    self:begin_reading()
    self:work()
  end)
end

function methods:read_start(callback)
  local is_first = not self.on_read
  self.on_read = callback
  if not self.is_open or not is_first then return end
  self:begin_reading()
  self:work()
end

function methods:read_stop() self.tcp:read_stop() end

function methods:write(bytes, callback)
  self.text = self.text .. bytes
  if self.is_open then encrypt(self, callback) end
end

function methods:shutdown()
  self.channel:finish()
  self:flush()
  self.tcp:shutdown()
end

--- Closes the connection, but not the channel, whose state a test can still read.
function methods:close() self.tcp:close() end
function methods:close_reset() self.tcp:close_reset() end

function methods:is_closing() return self.tcp:is_closing() end
function methods:nodelay(on) self.tcp:nodelay(on) end
function methods:get_write_queue_size() return self.tcp:get_write_queue_size() end

return tls_handle
