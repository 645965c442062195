-- SPDX-License-Identifier: MIT
--- streams: the Watch calls of a channel, and which watch is on which.
--
-- All watches of a channel share one call. A watch that is not read, until it holds as much as it may, has left that
-- call, so that the others need not wait for it; when it is read again it gets a call of its own, where flow control
-- alone holds it back. It stays there: to come back would cost as much as to go. One that begins in the future has a
-- call of its own, too: until then its call would be told no progress.
--
-- A watch whose call has ended is attached to another one, where it was. What is heard of a call is a sign of life: of
-- those that are silent, progress is asked for; it also keeps idle watches from falling behind what is compacted.

local core = require "keywatch.core"
local dialer = require "keywatch.client.dialer"
local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"
local reason = require "keywatch.support.reason"
local wake = require("keywatch.watch.watch").wake

local STATUS = "/etcdserverpb.Maintenance/Status"
local RANGE = "/etcdserverpb.KV/Range"
local LOOK = 10   -- seconds, between two looks at a call
local SILENT = 3  -- looks without an answer, after which a call is made anew
local STABLE = 5  -- seconds, after which a call that ends was a good one

-- Of a Watch call: what ends it for all of its watches, if the server says so. Others go on elsewhere.
local FATAL = {
  [grpc_status.INVALID_ARGUMENT] = true,
  [grpc_status.NOT_FOUND] = true,
  [grpc_status.PERMISSION_DENIED] = true,
  [grpc_status.RESOURCE_EXHAUSTED] = true,
  [grpc_status.FAILED_PRECONDITION] = true,
  [grpc_status.OUT_OF_RANGE] = true,
  [grpc_status.UNIMPLEMENTED] = true,
  [grpc_status.DATA_LOSS] = true,
  [grpc_status.UNAUTHENTICATED] = true,
}

local streams_methods = {}
local streams_mt = { __index = streams_methods }
local stream_methods = {}
local stream_mt = { __index = stream_methods }

local function new(channel)
  return setmetatable({
    channel = channel,
    watches = setmetatable({}, { __mode = "v" }), -- by tag
    last_tag = 0,
    idle = setmetatable({}, { __mode = "k" }),    -- watches that are to be attached
    list = {},
    shared = nil,
    failures = 0,
    retry_at = 0,
    trouble = nil, -- an error: how a call that did not last has ended
    stale = nil,   -- the token that was renewed, until a watch was created with another one
  }, streams_mt)
end

-- {====== Watches ======

function streams_methods:new_tag()
  self.last_tag = self.last_tag + 1
  return self.last_tag
end

local function fail_closed(watch)
  watch.core:fail("closed", "keywatch: the client is closed")
  wake(watch)
end

--- From here on the watch is attached, now and whenever its call has ended. It fails if a finalizer has closed the
-- channel since the channel was looked at.
function streams_methods:add(watch)
  self.watches[watch.tag] = watch
  self.idle[watch] = true
  self.channel:update()
  if self.channel.is_closed then fail_closed(watch) end
end

function streams_methods:has_watches()
  return next(self.watches) ~= nil
end

function streams_methods:wants_line(now)
  return now >= self.retry_at and next(self.idle) ~= nil
end

local function leave(watch)
  local stream = watch.stream
  watch.stream = nil
  if stream then stream.members[watch] = nil end
  return stream
end

--- Those of its own end with it.
function streams_methods:forget(watch)
  self.watches[watch.tag] = nil
  self.idle[watch] = nil
  local stream = leave(watch)
  if stream and stream.is_apart then stream:close() end
  self.channel:update()
end

--- The call of a watch has not answered: others do not join it.
function streams_methods:shun(watch)
  if watch.stream and watch.stream == self.shared then self.shared = nil end
end

--- The watch is to have a call of its own.
function streams_methods:part(watch)
  watch.core:detach()
  leave(watch)
  watch.is_apart = true
  self.idle[watch] = true
end

--- Whether a watch was told nothing since it was attached, and begins after a revision.
local function begins_after(watch, revision)
  local _, next_revision = watch.core:state()
  return next_revision == watch.attached_at and next_revision > revision
end

--- Others may hold back the progress of a watch's call: servers tell none before the first revision of each of its
-- watches has come. They go to another call, by which they lose nothing.
function streams_methods:leave_alone(watch, revision)
  local stream, ahead = watch.stream, {}
  for member in pairs(stream and stream.members or {}) do
    if member ~= watch and begins_after(member, revision) then ahead[#ahead + 1] = member end
  end
  if #ahead > 0 and self.shared == stream then self.shared = nil end
  for _, member in ipairs(ahead) do
    member.core:detach()
    leave(member)
    self.idle[member] = true
  end
end

--- Whether its call waits for it to be read.
function streams_methods.is_held(_, watch)
  local stream = watch.stream
  if not stream then return false end
  local _, _, is_held = stream.line.core:inspect(stream.number)
  return is_held
end

--- It was full, and has been read: it may go on.
function streams_methods:relieve(watch)
  local state, _, _, has_room = watch.core:state()
  if state ~= "idle" or not has_room then return end
  watch.is_full = false
  self.idle[watch] = true
end

-- }======

-- {====== Calls ======

local function open(self, line, is_apart)
  local number = line.core:watch(line.metadata, self.channel.opts.max_message)
  if not number then return nil end
  local now = driver.get().now()
  local stream = setmetatable({
    owner = self,
    line = line,
    number = number,
    is_apart = is_apart,
    token = line.metadata.token,
    members = setmetatable({}, { __mode = "k" }),
    since = now,
    look_at = now + LOOK,
    heard = 0,
    silent = 0,
  }, stream_mt)
  line:add(number, stream)
  self.list[stream] = true
  if line.trusts then line.core:trust(number) end
  return stream
end

--- The call that the watch goes to. One that is held back, because its only watch is not read, is that watch's own.
local function call_for(self, line, watch)
  if watch.is_apart then return open(self, line, true) end
  local shared = self.shared
  if shared and shared.line == line then
    local _, _, is_held = line.core:inspect(shared.number)
    if not is_held then return shared end
    shared.is_apart = true
    for member in pairs(shared.members) do member.is_apart = true end
  end
  self.shared = open(self, line, false)
  return self.shared
end

local function attach(self, line, watch)
  self.idle[watch] = nil
  local state, next_revision = watch.core:state()
  if state ~= "idle" then return end
  watch.attached_at = next_revision
  local stream = call_for(self, line, watch)
  if stream and watch.core:attach(line.core, stream.number) then
    stream.members[watch] = true
    watch.stream = stream
  else
    self.idle[watch] = true
  end
end

local function attach_all(self, line)
  local all = {}
  for watch in pairs(self.idle) do all[#all + 1] = watch end
  for _, watch in ipairs(all) do attach(self, line, watch) end
end

--- Its watches go elsewhere, those that have room. What has come for them can be taken meanwhile.
local function scatter(self, stream)
  for watch in pairs(stream.members) do
    local _, _, _, has_room = watch.core:state()
    watch.stream = nil
    watch.is_full = not has_room
    self.idle[watch] = has_room or nil
    wake(watch)
  end
  stream.members = {}
end

local function fail_all(stream, status, text)
  local err = core.error_of(status, text)
  for watch in pairs(stream.members) do
    watch.stream = nil
    watch.core:fail(err.code, err.message)
    wake(watch)
  end
  stream.members = {}
end

local function back_off(self)
  self.failures = self.failures + 1
  self.retry_at = driver.get().now() + dialer.backoff(self.failures)
end

--- After a call that did not last, the next one waits a little, and is made elsewhere.
local function note_end(self, stream, status, text)
  if driver.get().now() - stream.since >= STABLE then
    self.failures = 0
    return
  end
  -- The server's CANCELLED must not look like the cancellation of a task.
  if status == grpc_status.OK or status == grpc_status.CANCELLED then status = grpc_status.UNAVAILABLE end
  self.trouble = core.error_of(status, text or "keywatch: the server has ended the call")
  self.channel:turn_away(stream.line)
  back_off(self)
end

local function remove(self, stream)
  self.list[stream] = nil
  if self.shared == stream then self.shared = nil end
end

--- Whether a failure may be one of the user's token, of which there will be another. It is renewed but once. A call
-- keeps the one that it began with.
local function renew(self, stream, status, text)
  local token = stream.token or ""
  if self.stale and self.stale ~= token then return false end
  if not self.channel:renew(stream.line, stream.token, status, text) then return false end
  self.stale = token
  if self.shared == stream then self.shared = nil end
  return true
end

--- The call has ended.
function stream_methods:on_ready(line, number)
  local owner = self.owner
  local _, status, text, is_refused = line.core:receive(number)
  if status == nil then return end
  line:forget(number)
  remove(owner, self)
  if FATAL[status] and not is_refused and not renew(owner, self, status, text) then
    fail_all(self, status, text)
  else
    note_end(owner, self, status, text)
    scatter(owner, self)
  end
end

--- Ends it, from this side.
function stream_methods:close()
  remove(self.owner, self)
  self.line:cancel(self.number)
end

-- }======

-- {====== Trust ======

--- Servers before these send progress ahead of the events that it covers.
local function is_trusted(version)
  local major, minor, patch = version:match("^(%d+)%.(%d+)%.(%d+)")
  major, minor, patch = tonumber(major), tonumber(minor), tonumber(patch)
  if not major then return false end
  if major ~= 3 then return major > 3 end
  if minor == 4 then return patch >= 31 end
  if minor == 5 then return patch >= 13 end
  return minor > 5
end

--- What a Status says about it.
local function set_trust(self, line, bytes)
  local status = bytes and core.decode("StatusResponse", bytes)
  line.trusts = is_trusted(status and status.version or "")
  for stream in pairs(self.list) do
    if line.trusts and stream.line == line then line.core:trust(stream.number) end
  end
end

--- Whether the progress of the server that is in use can be trusted, which it is asked for once; or nil and an error.
function streams_methods:trusts(deadline)
  local line, err = self.channel:await_line(deadline)
  if not line then return nil, err end
  if line.trusts == nil then
    local bytes, failure = self.channel:unary(STATUS, "", deadline, true)
    if not bytes and failure.code ~= "unimplemented" then return nil, failure end
    if line.trusts == nil then set_trust(self, line, bytes) end
  end
  return line.trusts
end

local function learn(self, line)
  if line.trusts ~= nil or line.is_learning then return end
  line.is_learning = line:ask(STATUS, "", function(bytes, status)
    line.is_learning = nil
    local is_answer = status == grpc_status.OK or status == grpc_status.UNIMPLEMENTED
    if line.trusts == nil and is_answer then set_trust(self, line, bytes) end
  end)
end

--- Why a watch could not be created in time, as an error.
function streams_methods:error()
  if not self.channel.line then return self.channel.dialer:error() end
  return self.trouble or core.new_error("deadline_exceeded")
end

--- Asks for progress of the call of a watch.
function streams_methods.ask(_, watch)
  local stream = watch.stream
  if stream and stream.line.trusts then stream.line.core:ask(stream.number) end
end

--- Whether what its call tells of progress can be trusted; nil if that is not known yet.
function streams_methods:is_trusted(watch)
  local stream = watch.stream
  if not stream then return nil end
  learn(self, stream.line)
  return stream.line.trusts
end

-- }======

-- {====== Looking ======

--- Whether a watch begins at a revision that has not come: then no progress is told to its call.
local function is_early(watch)
  local _, next_revision = watch.core:state()
  return next_revision > watch.core:seen() + 1
end

local function has_early(stream)
  for watch in pairs(stream.members) do
    if is_early(watch) then return true end
  end
  return false
end

local function look(self, stream, now)
  local object, number = stream.line.core, stream.number
  local heard, count, is_held = object:inspect(number)
  stream.look_at = now + LOOK
  if not heard then return end
  if count == 0 then return stream:close() end
  stream.silent = (heard == stream.heard and not is_held) and stream.silent + 1 or 0
  stream.heard = heard
  if not stream.line.trusts then
    stream.silent = 0
    learn(self, stream.line)
  elseif stream.silent > SILENT and not has_early(stream) then
    stream:close()
    scatter(self, stream)
  elseif not is_held then
    object:ask(number)
  end
end

--- A watch that knows more than its server has to know whether the server is only behind, or another history begins.
-- One linearizable read tells it for all.
local function verify(self, line, watch)
  line.suspects = line.suspects or {}
  line.suspects[#line.suspects + 1] = watch
  if #line.suspects > 1 then return end
  local key = watch.key == "" and "\0" or watch.key
  local bytes = core.encode("RangeRequest", { key = key, keys_only = true, limit = 1 })
  local settle
  function settle(message, status)
    if line.settle ~= settle then return end -- it took too long, and others are asked, or asked again
    local suspects = line.suspects
    local _, _, revision = core.header(message or "")
    local is_told = status == grpc_status.OK and revision ~= nil
    line.suspects, line.settle = nil, nil
    if not is_told then
      self.channel:turn_away(line)
      back_off(self)
    end
    for _, suspect in ipairs(suspects) do
      if not is_told then
        suspect.core:detach()
        leave(suspect)
        self.idle[suspect] = true
      elseif revision < suspect.core:seen() then
        leave(suspect)
        suspect.core:fail("regressed")
      else
        suspect.core:accept()
      end
      wake(suspect)
    end
  end
  line.settle, line.settle_until = settle, driver.get().now() + self.channel.opts.timeout
  if not line:ask(RANGE, bytes, settle) then settle(nil, -1) end
end

--- The seconds until doubts about a server last too long; if they do, other servers are tried.
local function limit_doubt(line, now)
  if not line.settle then return math.huge end
  if now >= line.settle_until then line.settle(nil, -1) end
  return math.max(0, line.settle_until - now)
end

--- What a server says of a watch that it refuses may be about the token.
local function revive(self, watch)
  local status, text = reason.parse(watch.core:refusal() or "")
  if not watch.stream or not renew(self, watch.stream, status, text) then return false end
  watch.core:revive()
  return true
end

local function attend(self, line, watch)
  local state, _, is_lagging, has_room, is_suspect = watch.core:state()
  if state == "failed" and revive(self, watch) then state = "idle" end
  if state == "open" then self.trouble, self.stale = nil, nil end
  if state == "open" and is_suspect then
    verify(self, line, watch)
  elseif state == "idle" then
    leave(watch)
    watch.is_apart = watch.is_apart or is_lagging
    watch.is_full = is_lagging and not has_room
    if not watch.is_full then self.idle[watch] = true end
  elseif state == "failed" then
    leave(watch)
  elseif state == "open" and not watch.is_apart and is_early(watch) then
    self:part(watch)
  end
  wake(watch)
end

--- Looks after those watches of a connection that something has come for.
function streams_methods:poll_line(line)
  local object = line.core
  for tag in object.next_watch, object do
    local watch = self.watches[tag]
    if watch then attend(self, line, watch) end
  end
end

--- Attaches those who are to be, and looks at calls from time to time. The seconds until it wants to be called again.
function streams_methods:poll(now)
  local wait = nil
  local line = self.channel.line
  if line and next(self.idle) then
    if now >= self.retry_at then attach_all(self, line) else wait = self.retry_at - now end
  elseif now < self.retry_at and next(self.idle) then
    wait = self.retry_at - now
  end
  for one in pairs(self.channel.lines) do
    local left = limit_doubt(one, now)
    if left < (wait or math.huge) then wait = left end
  end
  for stream in pairs(self.list) do
    if now >= stream.look_at then look(self, stream, now) end
    if not wait or stream.look_at - now < wait then wait = math.max(0, stream.look_at - now) end
  end
  return wait
end

-- }======

--- No server takes those that are not attached.
function streams_methods:fail_idle(err)
  for watch in pairs(self.idle) do
    watch.core:fail(err.code, err.message)
    wake(watch)
  end
  self.idle = setmetatable({}, { __mode = "k" })
end

--- Another process: nothing is attached to anything.
function streams_methods:restart()
  self.list, self.shared = {}, nil
  for _, watch in pairs(self.watches) do
    watch.core:detach()
    watch.stream = nil
    self.idle[watch] = true
  end
end

--- The channel is closed: watches fail.
function streams_methods:close()
  for _, watch in pairs(self.watches) do fail_closed(watch) end
  self.list, self.shared, self.idle = {}, nil, {}
end

return { new = new }
