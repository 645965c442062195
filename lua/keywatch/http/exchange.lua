-- SPDX-License-Identifier: MIT
--- exchange: one request of an HTTP client, and its answer.
--
-- An exchange has a connection of the pool until both messages are complete, or one has failed. If the exchange is
-- closed earlier, or is collected as garbage, its stream is reset, or its HTTP/1.1 connection closed.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local sooner = require("keywatch.task.timers").sooner

local COMPRESSED = { gzip = true, ["x-gzip"] = true, deflate = true } -- values of content-encoding

local exchange_methods, exchange_mt = check.class "keywatch.exchange"

--- Returns the method and the URL, and " over" once the exchange has ended.
function exchange_mt:__tostring()
  return ("keywatch.exchange<%s %s%s>"):format(self.request.method, self.request.url, self.is_over and " over" or "")
end

--- Returns fields by name in lower case. Several values of one name are joined.
local function by_name(list)
  local fields = {}
  for i = 1, #(list or {}), 2 do
    local name = list[i]:lower()
    fields[name] = fields[name] and fields[name] .. ", " .. list[i + 1] or list[i + 1]
  end
  return fields
end

--- Returns an error of an exchange.
local function new_error(self, code, text)
  return errors.new(code, ("keywatch: %s %s: %s"):format(self.request.method, self.request.url, text))
end

--- Sets maybe_done of the error of an exchange. Returns the error.
local function mark(self, err)
  if not self.request.is_idempotent and self.fate ~= "unprocessed" then err.maybe_done = true end
  return err
end

--- Releases the connection. `is_complete`: another exchange may use it.
local function release(self, is_complete)
  if self.is_over then return end
  self.is_over = true
  local connection = self.connection
  connection.arrivals[self.id] = nil
  if not is_complete then
    connection.is_retired = connection.is_retired or not connection.is_shared
    connection.core:drop(self.id)
  end
  self.pool:release(connection)
  self.arrival:set()
end

--- Ends the exchange with an error, and returns the error.
local function fail(self, code, text)
  self.failure = self.failure or mark(self, new_error(self, code, text))
  release(self, false)
  return self.failure
end

--- Begins an exchange on a connection, and returns the exchange. request: method, url, location, list (of fields),
-- length, host (or nil). limits: deadline, stall. Returns nil if the connection takes no more exchanges.
local function begin(pool, connection, request, limits)
  local location = request.location
  local id = connection.core:fetch(request.method, request.host or location.authority, location.path, request.list,
    request.length)
  if not id then return nil end
  local arrival = driver.get().event()
  connection.arrivals[id] = arrival
  return setmetatable({
    pool = pool,
    connection = connection,
    id = id,
    request = request,
    arrival = arrival,
    began_at = connection:progress(),
    deadline = limits.deadline,
    stall = limits.stall,
    is_repeatable = connection.was_used, -- the server may have closed the connection before the request arrived
    sentinel = compat.sentinel(function()
      driver.forget { close = function()
        if not connection.arrivals[id] then return end
        connection.arrivals[id], connection.is_retired = nil, connection.is_retired or not connection.is_shared
        connection.core:drop(id)
        pool:release(connection)
      end }
    end),
    head = nil,          -- the answer: { status =, headers = }
    trailers_by_name = nil,
    has_end = false,     -- all of the body was taken
    is_finished = false, -- the request is complete
    left = request.length >= 0 and request.length or math.huge, -- bytes of the request's body that were not written
    is_over = false,     -- the connection was released
    failure = nil,       -- the error that the exchange has ended with
    fate = nil,          -- of a failed exchange: see take in csrc/bind/lua_fetch.h
    is_streamed = false, -- the deadline is that of the head
    decompresses = false, -- a compressed body is decompressed
    inflater = nil,      -- of the core, while the body is compressed
    compressed = nil,    -- bytes of the body that are being decompressed
    compressed_at = 1,   -- the index of the next of these bytes
    is_decompressed = true, -- the compressed data is complete
    collected = nil,     -- parts of the body that arrived while the request was sent; nil: they stay in the core
    room = 0,            -- for more bytes in `collected`; less than 0: the body is larger than max_body
  }, exchange_mt)
end

-- {====== Receiving ======

local function on_closed(self, why, fate)
  if why and not self.has_end then
    self.fate = fate
    self.failure = mark(self, self.pool.is_closed and errors.closed("client")
      or new_error(self, fate == "malformed" and "malformed" or "unavailable", why))
  end
  release(self, why == nil)
end

--- Prepares to decompress the body, if it is compressed. Removes the header content-length, which counts compressed
-- bytes.
local function begin_decompression(self)
  local headers = self.head.headers
  local is_compressed = COMPRESSED[(headers["content-encoding"] or ""):lower()]
  if not is_compressed or not self.decompresses or self.request.method == "HEAD" then return end
  self.inflater = core.inflater()
  if not self.inflater then return end
  headers["content-encoding"], headers["content-length"] = nil, nil
end

--- Takes the next part of the answer from the core. Returns "head", "body" and its bytes, "end", or "closed"; or nil if
-- nothing has arrived.
local function take(self)
  if self.is_over then return nil end
  local kind, one, two = self.connection.core:take(self.id)
  if kind == "head" then
    self.head = { status = one, headers = by_name(two) }
    if self.is_streamed then self.deadline = nil end
    begin_decompression(self)
  elseif kind == "end" then
    self.has_end, self.trailers_by_name = true, by_name(one)
  elseif kind == "closed" then
    on_closed(self, one, two)
  end
  return kind, one
end

--- Takes the parts of the body that have arrived, so that the server can continue to read.
local function collect(self)
  local kind, bytes
  repeat
    kind, bytes = take(self)
    if kind == "body" then
      table.insert(self.collected, bytes)
      self.room = self.room - #bytes
    end
  until not kind or self.room < 0
end

--- Waits until something has arrived. `own` is the deadline of the caller, after which the exchange stays open.
-- has_stall: the exchange fails if no byte moves for `stall` seconds. Returns true; or nil and an error.
local function await(self, own, has_stall, stage)
  local d, stall = driver.get(), has_stall and self.stall or math.huge
  while true do
    local now, before = d.now(), has_stall and self.connection:progress(self.id)
    local limit = sooner(sooner(own, self.deadline), stall < math.huge and now + stall or nil)
    if self.arrival:wait(limit and math.max(0, limit - now)) then return true end
    now = d.now()
    if limit and now < limit then return nil, core.new_error("timeout") end -- driver.expire has ended the wait
    if self.is_streamed and not self.head and take(self) then return true end
    if self.deadline and now >= self.deadline then
      if self.connection:progress() == self.began_at then self.connection.is_retired = true end -- it may be dead
      return nil, fail(self, "timeout", stage .. " took too long")
    elseif own and now >= own then
      return nil, core.new_error("timeout")
    elseif self.is_over or self.connection:progress(self.id) == before then
      return nil, self.failure or fail(self, "timeout", ("%s: no byte has moved for %g s"):format(stage, stall))
    end
  end
end

-- }======

-- {====== Writing ======

--- Waits while too many bytes are unsent. Returns true; or nil and an error.
local function await_room(self)
  while not self.is_over do
    if self.collected then collect(self) end
    local has_room = self.is_over or self.has_end or self.room < 0 or self.connection.core:write(self.id, "")
    if has_room or has_room == nil then return true end
    local ok, err = await(self, nil, true, "sending the body")
    if not ok then return nil, err end
  end
  return true
end

--- Sends a part of the body, and waits while the server does not read. Returns true; or nil and an error.
function exchange_methods:write(bytes)
  check.argument(type(bytes) == "string", 1, "write", "string", bytes)
  if self.is_finished then check.misuse("write: the request is complete") end
  if #bytes > self.left then check.misuse("write: the body is longer than its length") end
  self.left = self.left - #bytes
  if not self.is_over and not self.has_end and self.room >= 0 then
    local has_room = self.connection.core:write(self.id, bytes)
    if has_room then return true end
    if has_room == false then return await_room(self) end
  end
  return nil, self.failure
    or new_error(self, "closed", "the exchange has ended before the request: call answer() for the reason")
end

--- Ends the request, if it has not ended.
local function finish(self)
  if self.is_finished then return end
  self.is_finished = true
  if not self.is_over then self.connection.core:finish(self.id) end
end

--- Ends the request. Does nothing if it has ended.
function exchange_methods:finish()
  local is_short = self.left > 0 and self.left < math.huge and not self.is_over and not self.has_end
  if is_short then check.misuse("finish: the body is shorter than its length") end
  finish(self)
end

-- }======

-- {====== Reading ======

--- Waits for the head of the answer. Returns { status =, headers = }; or nil and an error, of code "timeout" after
-- `timeout` seconds: the exchange then stays open.
function exchange_methods:answer(timeout)
  check.timeout(timeout, "answer")
  local own = timeout and driver.get().now() + timeout
  while not self.head do
    if not self.is_over and not take(self) then
      local ok, err = await(self, own, false, "the answer")
      if not ok then return nil, err end
    elseif self.is_over and not self.head then
      return nil, self.failure or errors.closed("exchange")
    end
  end
  return self.head
end

--- Takes the rest from the core after the end of an answer, and ends the request, so that the connection is free at
-- once.
local function conclude(self)
  while take(self) do end
  if not self.is_over then finish(self) end
end

--- Waits for the next part of the body, and returns it as it was sent; nil after the last one; or nil and an error.
local function read_sent(self, own)
  while not self.has_end do
    if self.collected and self.collected[1] then return table.remove(self.collected, 1) end
    local kind, bytes = take(self)
    if kind == "body" then return bytes end
    if self.is_over and not self.has_end then return nil, self.failure or errors.closed("exchange") end
    if not kind then
      local ok, err = await(self, own, self.head ~= nil, self.head and "the body of the answer" or "the answer")
      if not ok then return nil, err end
    end
  end
  if self.collected and self.collected[1] then return table.remove(self.collected, 1) end
  conclude(self)
  return nil
end

--- Returns the next decompressed piece of the body, "" if more bytes are needed; or nil and an error.
local function decompress_more(self)
  local piece, at, is_decompressed = self.inflater:step(self.compressed, self.compressed_at)
  if not piece then return nil, fail(self, "malformed", at) end
  self.compressed_at, self.is_decompressed = at, is_decompressed
  if at > #self.compressed and piece == "" then self.compressed = nil end
  return piece
end

--- Does what read_sent does, and decompresses the body.
local function read_decompressed(self, own)
  while true do
    if not self.compressed then
      local bytes, err = read_sent(self, own)
      if err then return nil, err end
      if not bytes and not self.is_decompressed then
        return nil, fail(self, "malformed", "the compressed body is not complete")
      end
      if not bytes then return nil end
      self.compressed, self.compressed_at, self.is_decompressed = bytes, 1, false
    end
    local piece, err = decompress_more(self)
    if piece ~= "" then return piece, err end
  end
end

--- Waits for the next part of the body, and returns it; nil after the last one; or nil and an error, of code "timeout"
-- after `timeout` seconds: the exchange then stays open.
function exchange_methods:read(timeout)
  check.timeout(timeout, "read")
  local own = timeout and driver.get().now() + timeout
  if self.failure then return nil, self.failure end
  if not self.head then
    local head, err = self:answer(timeout)
    if not head then return nil, err end
  end
  return (self.inflater and read_decompressed or read_sent)(self, own)
end

--- Returns an iterator over the parts of the body. If the exchange fails, the iterator raises the error.
function exchange_methods:parts()
  return function()
    local part, err = self:read()
    if err then errors.raise(err) end
    return part
  end
end

--- Returns the fields after the body, by name; nil before its end.
function exchange_methods:trailers()
  return self.trailers_by_name
end

-- }======

--- Ends the exchange. If it is not complete, its stream is reset, or its HTTP/1.1 connection closed.
function exchange_methods:close()
  release(self, false)
end

exchange_mt.__close = exchange_methods.close

return { begin = begin, fail = fail, mark = mark, methods = exchange_methods }
