-- SPDX-License-Identifier: MIT
--- reads: reads of a client that are repeated, without a limit, until they are answered or refused.
--
-- transport:poll drives them, so no task waits for a running read. A waiting read is sent as soon as there is a
-- connection. It is sent again if its connection ends, or if the server cannot answer now. After an attempt that took
-- too long the next one has twice its time, so that a large answer on a slow network succeeds in the end.
--
-- A read belongs to a watch, which is woken when the read is done. A read whose watch was collected is dropped.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local refusal = require "keywatch.client.refusal"
local sooner = require("keywatch.task.timers").sooner
local wake = require("keywatch.watch.watch").wake

local LEAST_SECONDS = 1 -- of the first attempt, whatever the client's timeout is

local reads_methods = {}
local reads_mt = { __index = reads_methods }

--- Returns an empty set of reads for a transport. metadata_of is that of transport.lua.
local function new(transport, metadata_of)
  return setmetatable({
    transport = transport,
    metadata_of = metadata_of,
    list = {}, -- reads that are not done, each at its index `at`
    mark = nil, -- function of path and bytes that returns header fields for a read, or nil; set by the testing kit
  }, reads_mt)
end

--- Removes a read from the list. Atomic: calls no function, since a finalizer may begin and cancel reads.
local function remove(self, read)
  local list, at = self.list, read.at
  if not at then return end
  local last = list[#list]
  list[at], last.at = last, at
  list[#list], read.at = nil, nil
end

--- Ends a read, with the bytes of its answer or an error, and wakes its watch.
local function finish(self, read, message, err)
  read.attempt, read.message, read.err, read.is_done = nil, message, err, true
  remove(self, read)
  local watch = read.owner[1]
  if watch then wake(watch) end
  if read.report then read.report:finish(err) end
end

--- Returns the report of a read that is sent, see call_hook.lua; or nil if there is no hook.
local function new_report(self, path)
  return self.transport.new_report and self.transport.new_report(path)
end

--- Takes the page of a read from the stream of its rest. Returns true if the read is done, or waits for the stream;
-- false if the page must be requested. A stream that is silent for too long is closed.
local function take_streamed(self, read, now)
  local rest, transport = read.rest, self.transport
  if not rest or not read.rest_bytes then return false end
  local page, is_last = rest:take(transport, read.rest_bytes, function() transport:look_again() end)
  if page then
    read.is_part = not is_last
    finish(self, read, page)
  elseif page == nil then
    read.until_ = read.until_ or now + read.seconds
    if now < read.until_ then return true end
    rest:close(core.new_error("deadline_exceeded"))
  end
  read.rest_bytes = nil
  if page then return true end
  read.report = new_report(self, read.path)
  return false
end

--- True if a read was sent, or waits for the stream of its rest.
local function is_under_way(read)
  return read.attempt ~= nil or read.rest_bytes ~= nil
end

--- Begins a read for a watch. Returns it: the field is_done is true once it has `message`, the bytes of its answer, or
-- `err`. A page of a range has a `rest`, see range_stream.lua, and, after the first page, the request of the rest.
function reads_methods:begin(path, bytes, watch, rest, rest_bytes)
  local read = {
    path = path,
    bytes = bytes,
    owner = setmetatable({ watch }, { __mode = "v" }),
    rest = rest,
    rest_bytes = rest_bytes, -- nil: the stream of the rest is not used
    until_ = nil,        -- the deadline of the page from the stream
    is_part = false,     -- the message is a part of a range stream: it has no header, and more follows
    at = nil,            -- the index in the list
    attempt = nil,       -- { connection =, number =, token =, until_ = } while an attempt is running
    seconds = math.max(LEAST_SECONDS, self.transport.opts.timeout), -- of the next attempt
    failures = 0,        -- attempts that have failed on a connection that stays open
    retry_at = 0,        -- the earliest time to send it again
    trouble = nil,       -- the error of the last attempt
    has_renewed = false, -- the user was authenticated again because of this read
    metadata = self.mark and self.mark(path, bytes), -- header fields of its own, or nil
    is_done = false,
    message = nil,
    err = nil,
    report = not rest_bytes and new_report(self, path) or nil,
  }
  local list = self.list
  read.at = #list + 1
  list[read.at] = read
  self.transport:update()
  if self.transport.is_closed then -- by a finalizer
    finish(self, read, nil, errors.closed("client"))
  elseif rest_bytes then
    take_streamed(self, read, driver.get().now())
  end
  return read
end

--- Cancels a read, and the stream of its rest, also after the read is done.
function reads_methods:cancel(read)
  local attempt, rest = read.attempt, read.rest
  read.attempt, read.rest_bytes = nil, nil
  if rest then rest:close() end
  remove(self, read)
  if attempt and attempt.number then attempt.connection:cancel(attempt.number) end
  self.transport:update()
end

--- Notes why an attempt has failed. The read is sent again: after a pause if its connection stays open, and otherwise
-- as soon as there is another connection. The leader probe suspects the server.
local function postpone(self, read, connection, status, text)
  local transport = self.transport
  read.trouble = refusal.trouble_of(status, text)
  transport.leader_probe:begin(connection)
  if transport.connection ~= connection then return end
  transport:turn_away(connection, read.trouble.message)
  read.failures = read.failures + 1
  read.retry_at = driver.get().now() + transport.backoff(read.failures)
end

--- True if a failed read is sent again.
local function is_temporary(status, text)
  return refusal.TEMPORARY[status] or core.error_of(status, text).code == "too_many_requests"
end

--- Takes the result of an attempt.
local function take(self, read, attempt, message, status, text, is_refused)
  if read.attempt ~= attempt then return end
  read.attempt = nil
  if status == grpc_status.OK then
    local err = not message and self.transport.error_without_message() or nil
    if message and read.rest then read.rest:note(attempt.connection, message) end
    finish(self, read, message, err)
  elseif not read.has_renewed and self.transport:renew(attempt.connection, attempt.token, status, text) then
    read.has_renewed = true
  elseif is_refused or is_temporary(status, text) then
    postpone(self, read, attempt.connection, status, text)
  else
    finish(self, read, nil, core.error_of(status, text))
  end
end

--- Sends a read on a connection.
local function send(self, read, connection, now)
  local attempt = {
    connection = connection, number = nil, token = connection.metadata.token, until_ = now + read.seconds,
  }
  local metadata = self.metadata_of(connection, attempt.until_, now, read.metadata)
  read.attempt = attempt
  local number = connection:ask(read.path, read.bytes, function(...) take(self, read, attempt, ...) end, metadata)
  attempt.number = number
  if not number then
    if read.attempt == attempt then read.attempt = nil end
    if self.transport.connection == connection then self.transport.connection = nil end
  elseif read.attempt ~= attempt then
    connection:cancel(number) -- a finalizer has cancelled the read
  elseif read.report then
    read.report:note(connection)
  end
end

--- Abandons an attempt that takes too long. The next one has twice the time.
local function give_up(self, read, attempt)
  read.attempt = nil
  read.seconds = read.seconds * 2
  if attempt.number then attempt.connection:cancel(attempt.number) end
  local err = core.new_error("deadline_exceeded")
  postpone(self, read, attempt.connection, err.grpc_status, err.message)
end

--- Abandons all attempts on a connection that is left, since its server is useless. They are sent again as soon as
-- there is another connection.
function reads_methods:leave(connection, text)
  local left = {}
  for _, read in ipairs(self.list) do
    if read.attempt and read.attempt.connection == connection then left[#left + 1] = read end
  end
  for _, read in ipairs(left) do
    local attempt = read.attempt
    read.attempt = nil
    if attempt and attempt.number then connection:cancel(attempt.number) end
    read.trouble = core.error_of(grpc_status.UNAVAILABLE, text)
  end
end

--- Does the due work of a read. Returns the seconds until more is due, or nil if the connection will notify the read.
local function step(self, read, now)
  local attempt, connection = read.attempt, self.transport.connection
  if take_streamed(self, read, now) then return read.until_ and not read.is_done and read.until_ - now or nil end
  if attempt and now >= attempt.until_ then give_up(self, read, attempt) end
  if not read.attempt and connection and now >= read.retry_at and not read.is_done then
    send(self, read, connection, now)
  end
  attempt = read.attempt
  if attempt then return attempt.until_ < math.huge and attempt.until_ - now or nil end
  return read.retry_at > now and read.retry_at - now or nil
end

--- Does the due work of all reads. Returns the seconds until more is due, or nil.
function reads_methods:poll(now)
  local list, i, wait = self.list, 1, nil
  while i <= #list do
    local read = list[i]
    if read.owner[1] then
      wait = sooner(wait, step(self, read, now))
      if list[i] == read then i = i + 1 end
    else
      self:cancel(read)
    end
  end
  return wait
end

--- True if there are reads that are not done.
function reads_methods:has_any()
  return self.list[1] ~= nil
end

--- Returns the number of waiting reads.
function reads_methods:count_waiting()
  local n = 0
  for _, read in ipairs(self.list) do
    if not is_under_way(read) then n = n + 1 end
  end
  return n
end

--- True if a connection is needed now.
function reads_methods:wants_connection(now)
  for _, read in ipairs(self.list) do
    if not is_under_way(read) and now >= read.retry_at then return true end
  end
  return false
end

--- Returns the error of the last attempt of any read that is not done, or nil.
function reads_methods:trouble()
  for _, read in ipairs(self.list) do
    if read.trouble then return read.trouble end
  end
end

--- Returns the error for a read that was not done in time.
function reads_methods:error(read)
  if not self.transport.connection then return self.transport.dialer:error() end
  return read.trouble or core.new_error("deadline_exceeded")
end

--- After a fork: makes all reads wait, so that they are sent again. The end of their calls does not count as a failure.
function reads_methods:restart()
  for _, read in ipairs(self.list) do
    read.attempt, read.failures, read.retry_at, read.trouble = nil, 0, 0, nil
  end
end

--- Fails the waiting reads: the server has refused the user.
function reads_methods:fail_waiting(err)
  local i = 1
  while i <= #self.list do
    local read = self.list[i]
    if not is_under_way(read) then finish(self, read, nil, err) end
    if self.list[i] == read then i = i + 1 end
  end
end

--- Fails all reads: the client is closed.
function reads_methods:close()
  while self.list[1] do finish(self, self.list[#self.list], nil, errors.closed("client")) end
end

return { new = new }
