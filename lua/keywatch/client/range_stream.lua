-- SPDX-License-Identifier: MIT
--- range_stream: the kvs that follow a page of a range, streamed by the server (KV.RangeStream, since etcd 3.7) in
-- place of more pages.
--
-- Between two pages, a reader keeps a *rest*: the part of the range that it has not read yet. The first page is a
-- separate request, whose answer has the revision and the cluster. Then the stream is opened on the same connection,
-- for the rest of the range. Each message of the stream replaces a page.
--
-- The rest also notes where the pages came from. A page from another cluster is an error. Pages from several
-- connections may have different histories, since a server can be restored from a backup: their reader starts over, or
-- compares.
--
-- A stream only saves requests. If it ends early, for any reason, the reader requests the next page, and gets the page
-- or the error. If a server does not have the method, its connection is not used for streams again.
--
-- The core bounds the received and unread bytes: the server then waits. The call is cancelled when the rest is
-- collected.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"

local PATH = "/etcdserverpb.KV/RangeStream"
local HEADER = 0x0a -- the tag that the last message begins with, and no other

local byte = string.byte

-- The receiver of the call. The connection references the receiver, so the receiver must not reference the rest.
local receiver_methods = {}
local receiver_mt = { __index = receiver_methods }

--- Called when the call has messages, or has ended.
function receiver_methods:on_ready()
  self.wake()
end

--- Called when another server is used from now on.
function receiver_methods:on_leave(connection, number)
  self.is_left = true
  connection:cancel(number)
  self.wake()
end

local rest_methods = {}
local rest_mt = { __index = rest_methods }

--- Returns the rest of a range of which no page was read.
local function new_rest()
  return setmetatable({
    connection = nil,   -- the connection that has answered the last requested page
    cluster = nil,      -- the cluster id of the first page
    is_of_other_cluster = false, -- the last requested page came from another cluster than the first
    message = nil,      -- the last page, encoded; nil once it was compared
    has_moved = false,  -- since take_move two pages in a row have arrived over different connections
    is_of_pages = false, -- the reader of `each` wants pages, and no stream
    receiver = nil,     -- the receiver of the stream; nil: there is none
    sentinel = nil,     -- cancels the stream when the rest is collected
    report = nil,       -- the report of the stream, see call_hook.lua
    is_new = false,     -- the stream has begun, and none of its messages with kvs has arrived
    has_failed = false, -- a stream has ended before its first message
    arrival = nil,      -- driver event for a reader that waits: set when a message may have arrived
  }, rest_mt)
end

--- Notes a requested page, and the connection that has answered it.
function rest_methods:note(connection, message)
  local cluster = core.header(message)
  self.cluster = self.cluster or cluster
  self.is_of_other_cluster = cluster ~= self.cluster
  self.has_moved = self.has_moved or self.connection ~= nil and self.connection ~= connection
  self.connection, self.message = connection, message
end

--- Returns true, once, if pages have arrived over several connections: the server may have been restored between them.
function rest_methods:take_move()
  local has_moved = self.has_moved
  self.has_moved = false
  return has_moved
end

--- Ends the stream. `err` is the error that it has failed with, if any. The stream may be closed before it has ended.
function rest_methods:close(err)
  local receiver, report = self.receiver, self.report
  if not receiver then return end
  self.receiver, self.sentinel, self.report = nil, nil, nil
  receiver.connection:cancel(receiver.number)
  if report then report:finish(err) end
end

--- Begins the stream. Returns false if that is not possible: no page was answered, the connection is no longer in use
-- or takes no calls, its server has no streams, or a stream has failed at its beginning.
local function begin(self, transport, bytes, wake)
  local connection = self.connection
  if not connection or self.has_failed or connection.lacks_range_stream or transport.connection ~= connection then
    return false
  end
  local receiver = setmetatable({ connection = connection, number = nil, wake = wake, is_left = false }, receiver_mt)
  local reads = transport.reads
  local metadata = reads.metadata_of(connection, nil, nil, reads.mark and reads.mark(PATH, bytes))
  local number = connection:begin(PATH, bytes, metadata, receiver, true)
  if not number then return false end
  receiver.number, self.receiver, self.is_new = number, receiver, true
  self.sentinel = connection:sentinel(number)
  self.report = transport.new_report and transport.new_report(PATH)
  if self.report then self.report:note(connection) end
  return true
end

--- Abandons a stream that has ended early, with or without an error.
local function give_up(self, err)
  self.has_failed = self.is_new
  self:close(err)
end

--- Abandons a stream that its server has ended with a status.
local function end_with(self, status, text)
  if status == grpc_status.UNIMPLEMENTED then self.connection.lacks_range_stream = true end
  give_up(self, status ~= grpc_status.OK and core.error_of(status, text) or nil)
end

--- Takes a message. Returns the page, and true if it is the last one. Returns nil if the message has no kvs; or if it
-- is malformed, and then abandons the stream.
local function take_message(self, page)
  if page == true then return give_up(self, core.new_error("malformed")) end
  if byte(page) == HEADER then
    self:close()
    return page, true
  end
  if page == "" then return nil end
  self.is_new = false
  return page, false
end

--- Returns the next page, encoded as a RangeResponse, and true if it is the last one. Only the last page has a header
-- and `more`. Returns nil if the page has not arrived yet: `wake` is then called when it may have arrived. Returns
-- false if there is no stream: the reader requests a page. `bytes` is the encoded RangeRequest of the rest, at the
-- revision of the first page.
function rest_methods:take(transport, bytes, wake)
  if not self.receiver and not begin(self, transport, bytes, wake) then return false end
  while self.receiver do
    local receiver = self.receiver
    if receiver.is_left then
      give_up(self, core.new_error("unavailable"))
    else
      local message, status, text = receiver.connection.core:receive(receiver.number, true)
      if message == nil then return nil end
      local page, is_last
      if message then page, is_last = take_message(self, message) else end_with(self, status, text) end
      if page then
        self.message = page
        return page, is_last
      end
    end
  end
  return false
end

--- Like `take`, but waits for the page. At the deadline closes the stream and returns false.
function rest_methods:await(transport, bytes, deadline)
  local d = driver.get()
  local arrival = self.arrival or d.event()
  local function wake() arrival:set() end
  self.arrival = arrival
  while true do
    local page, is_last = self:take(transport, bytes, wake)
    if page ~= nil then return page, is_last end
    transport:retain()
    local ok, came = driver.protect(transport.release, transport, arrival.wait, arrival,
      driver.time_left(deadline))
    transport:release()
    if not ok then error(came, 0) end
    if not came then
      self:close(core.new_error("deadline_exceeded"))
      return false
    end
  end
end

return { new_rest = new_rest }
