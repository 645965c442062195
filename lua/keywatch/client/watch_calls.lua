-- SPDX-License-Identifier: MIT
--- watch_calls: the Watch calls of a client, and which watch is attached to which call.
--
-- A watch is attached to at most one call. A detached watch is *idle*, and `poll` attaches it, or *full*: the queue of
-- a full watch has reached its bound, and the watch becomes idle when it is read.
--
-- All watches share one call; those with `require_leader` another one, whose header fields ask etcd to end it when the
-- member has no leader. With several endpoints all calls have these header fields. Two kinds of watches have a call of
-- their own. A slow watch that became full has left the shared call, so that the other watches need not wait for it;
-- when it is read again it gets its own call, with its own flow control, and stays there. A watch that starts at a
-- future revision has its own call, because servers send no progress on a call before the first revision of each of its
-- watches.
--
-- An answer larger than max_message ends its call, and does not show which watch it was for. Half of the watches then
-- move to another shared call, until that watch is alone, and the others are no longer affected.
--
-- A watch whose call has ended is attached to another call, and resumes after the last revision that it has received. A
-- call that is silent is asked for progress: the answer shows that the server lives, and keeps idle watches from
-- falling behind a compaction. A call that stays silent is replaced.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"
local order = require "keywatch.support.order"
local reason = require "keywatch.support.reason"
local refusal = require "keywatch.client.refusal"
local wake = require("keywatch.watch.watch").wake

local keys_by = order.keys_by

local NO_LEADER = require("keywatch.client.leader_probe").NO_LEADER
local STATUS = "/etcdserverpb.Maintenance/Status"
local RANGE = "/etcdserverpb.KV/Range"
local INSPECT_INTERVAL = 10 -- seconds
local MAX_SILENT = 3        -- inspections in a row without a message, after which a call is replaced
local MAX_TOO_LARGE = 3     -- answers in a row that are larger than max_message, after which their watch fails
local STABLE = 5            -- seconds: the end of a call that has lasted this long is not a failure

local watch_calls_methods = {}
local watch_calls_mt = { __index = watch_calls_methods }
local call_methods = {}
local call_mt = { __index = call_methods }

--- Returns a new set of watch calls for a transport.
local function new(transport)
  return setmetatable({
    transport = transport,
    watches = setmetatable({}, { __mode = "v" }), -- all open watches, by tag
    last_tag = 0,
    idle = setmetatable({}, { __mode = "k" }), -- as keys: watches to attach
    calls = {},       -- as keys: all calls
    shared = {},      -- the shared calls, by their field `share`
    last_share = 0,   -- the last group of watches that was separated from others
    failures = 0,     -- short calls in a row
    retry_at = 0,     -- the earliest time to attach watches
    trouble = nil,    -- the error of the last short call
    old_token = nil,  -- the token that was renewed, until a watch was created with another one
  }, watch_calls_mt)
end

-- {====== Watches ======

--- Returns a number that no other watch of the client has.
function watch_calls_methods:new_tag()
  self.last_tag = self.last_tag + 1
  return self.last_tag
end

--- Fails a watch because the client is closed.
local function fail_as_closed(watch)
  watch.core:fail("closed", "keywatch: the client is closed")
  wake(watch)
end

--- Adds a watch. It is idle, so `poll` will attach it. It fails at once if a finalizer has closed the transport.
function watch_calls_methods:add(watch)
  self.watches[watch.tag] = watch
  self.idle[watch] = true
  self.transport:update()
  if self.transport.is_closed then fail_as_closed(watch) end
end

--- True if any watch is open.
function watch_calls_methods:has_watches()
  return next(self.watches) ~= nil
end

--- True if `poll` may have work.
function watch_calls_methods:is_in_use()
  return next(self.watches) ~= nil or next(self.calls) ~= nil or next(self.idle) ~= nil
end

--- True if any watch must be attached, now or later.
function watch_calls_methods:has_idle()
  return next(self.idle) ~= nil
end

--- True if a watch is detached and not full.
local function is_waiting(watch)
  local state = watch.core:state()
  return (state == "idle" or state == "creating") and not watch.is_full
end

--- Returns how many watches there are, and how many of them wait for a server.
function watch_calls_methods:count()
  local open, waiting = 0, 0
  for _, watch in pairs(self.watches) do
    open = open + 1
    if is_waiting(watch) then waiting = waiting + 1 end
  end
  return open, waiting
end

--- Returns the error of the last short call, if a watch waits for another call; or nil.
function watch_calls_methods:trouble_of_waiting()
  local trouble = self.trouble
  if not trouble then return nil end
  for _, watch in pairs(self.watches) do
    if is_waiting(watch) then return trouble end
  end
  self.trouble = nil
end

--- True if a connection is needed now, for idle watches.
function watch_calls_methods:wants_connection(now)
  return now >= self.retry_at and next(self.idle) ~= nil
end

--- Removes a watch from its call. Returns the call, or nil if there was none.
local function leave(watch)
  local call = watch.call
  watch.call = nil
  if call then call.members[watch] = nil end
  return call
end

--- Removes a closed watch. Its own call, if it had one, ends.
function watch_calls_methods:forget(watch)
  self.watches[watch.tag] = nil
  self.idle[watch] = nil
  local call = leave(watch)
  if call and call.is_private then call:close() end
  self.transport:update()
end

--- Closes a shared call to other watches.
local function unshare(self, call)
  if self.shared[call.share] == call then self.shared[call.share] = nil end
end

--- Closes the call of this watch to other watches, because the call has not answered in time.
function watch_calls_methods:stop_sharing(watch)
  if watch.call then unshare(self, watch.call) end
end

--- Detaches a watch, which its call has not confirmed in time, so that it is attached again. Other servers are tried
-- first.
function watch_calls_methods:replace_call(watch)
  local call = watch.call
  if not call then return end -- it waits for a connection
  self:stop_sharing(watch)
  watch.core:detach()
  leave(watch)
  self.idle[watch] = true
  self.trouble = core.error_of(grpc_status.UNAVAILABLE, "keywatch: the server has not confirmed the watch in time")
  self.transport.leader_probe:begin(call.connection)
  self.transport:turn_away(call.connection, self.trouble.message)
end

--- Detaches a watch. It will be attached to a call of its own.
function watch_calls_methods:give_own_call(watch)
  watch.core:detach()
  leave(watch)
  watch.has_own_call = true
  self.idle[watch] = true
end

--- True if a watch has received nothing since it was attached, and starts after a revision.
local function begins_after(watch, revision)
  local _, next_revision = watch.core:state()
  return next_revision == watch.attached_at and next_revision > revision
end

--- Detaches the watches that may delay the progress on the call of `watch`: those that start after `revision`. They are
-- attached to another call, without loss, since they have received nothing yet.
function watch_calls_methods:move_others_away(watch, revision)
  local call, ahead = watch.call, {}
  for _, member in ipairs(keys_by(call and call.members or {}, "tag")) do
    if member ~= watch and begins_after(member, revision) then ahead[#ahead + 1] = member end
  end
  if #ahead > 0 then unshare(self, call) end
  for _, member in ipairs(ahead) do
    member.core:detach()
    leave(member)
    self.idle[member] = true
  end
end

--- True if flow control blocks the call of a watch until the watch is read.
function watch_calls_methods.is_held(_, watch)
  local call = watch.call
  if not call then return false end
  local _, _, is_held = call.connection.core:inspect(call.number)
  return is_held
end

--- Called after a full watch was read. Makes the watch idle if it has room, so that `poll` attaches it again.
function watch_calls_methods:resume(watch)
  local state, _, _, has_room = watch.core:state()
  if state ~= "idle" or not has_room then return end
  watch.is_full = false
  self.idle[watch] = true
  self.transport.poll_at = nil -- a callback of a host may have read the watch, outside of the loop's turns
end

-- }======

-- {====== Calls ======

--- True if a watch must be on a call that ends when the member has no leader.
local function requires_leader(connection, watch)
  return connection.metadata.hasleader ~= nil or watch.opts.require_leader == true
end

--- Returns the key of a watch's shared call: its group, with or without a leader.
local function share_of(watch, is_led)
  return 2 * (watch.group or 0) + (is_led and 1 or 0)
end

--- Begins a Watch call for a watch. Returns it, or nil if the connection takes no more calls.
local function open(self, connection, watch, is_private, is_led)
  local metadata = { token = connection.metadata.token, hasleader = is_led and "true" or nil }
  local now = driver.get().now()
  local call = setmetatable({
    owner = self,
    connection = connection,
    number = nil,
    is_private = is_private,   -- belongs to one watch
    share = share_of(watch, is_led),
    requires_leader = is_led,  -- the server ends it when it has no leader
    token = connection.metadata.token, -- a call keeps the token that it began with
    members = setmetatable({}, { __mode = "k" }), -- as keys: the attached watches
    since = now,
    inspect_at = now + INSPECT_INTERVAL,
    received = 0,  -- messages received until the last inspection
    silent = 0, -- inspections since the last message
    sent_at = nil, -- when the last request was sent, until its answer is noticed: see connection.lua
    received_before = nil, -- messages received before that request
  }, call_mt)
  local number = connection.core:watch(metadata, self.transport.opts.max_message)
  if not number then return nil end
  call.number, self.calls[call] = number, true
  connection:add(number, call)
  if connection.trusts_progress then connection.core:trust(number) end
  return call
end

--- Returns the call for a watch, or nil. A shared call that is blocked, because its only watch is not read, becomes
-- that watch's own, and another shared call is opened.
local function call_for(self, connection, watch)
  local is_led = requires_leader(connection, watch)
  if watch.has_own_call then return open(self, connection, watch, true, is_led) end
  local share = share_of(watch, is_led)
  local shared = self.shared[share]
  if shared and shared.connection == connection then
    local _, _, is_held = connection.core:inspect(shared.number)
    if not is_held then return shared end
    shared.is_private = true
    for member in pairs(shared.members) do member.has_own_call = true end
  end
  shared = open(self, connection, watch, false, is_led)
  self.shared[share] = shared
  return shared
end

--- True if a message has arrived since the last request on the call.
function call_methods:has_answered()
  return self.connection.core:inspect(self.number) ~= self.received_before
end

--- Notes a request on a call: a server that does not answer may hang.
local function expect_answer(call)
  if not call.requires_leader or call.sent_at and not call:has_answered() then return end
  call.received_before = call.connection.core:inspect(call.number)
  call.connection:expect(call)
end

--- Attaches an idle watch. It stays idle if there is no call for it.
local function attach(self, connection, watch, now)
  self.idle[watch], watch.attached_when = nil, now
  local state, next_revision = watch.core:state()
  if state ~= "idle" then return end
  watch.attached_at = next_revision
  local call = call_for(self, connection, watch)
  if call and watch.core:attach(connection.core, call.number) then
    call.members[watch] = true
    watch.call = call
    expect_answer(call)
  else
    self.idle[watch] = true
  end
end

--- Attaches all idle watches, except those in a pause. Returns the seconds until the first pause ends, or nil.
local function attach_all(self, connection, now)
  local wait = nil
  for _, watch in ipairs(keys_by(self.idle, "tag")) do
    local left = (watch.retry_at or 0) - now
    if left <= 0 then
      attach(self, connection, watch, now)
    elseif not wait or left < wait then
      wait = left
    end
  end
  return wait
end

--- Removes all watches from a call that has ended. Those with room become idle, the others are full. Received events
-- can still be read.
local function reassign_watches(self, call)
  for _, watch in ipairs(keys_by(call.members, "tag")) do
    local _, _, _, has_room = watch.core:state()
    watch.call = nil
    watch.is_full = not has_room
    self.idle[watch] = has_room or nil
    wake(watch)
  end
  call.members = {}
end

--- Fails all watches of a call that has ended.
local function fail_all(call, status, text)
  local err = core.error_of(status, text)
  for _, watch in ipairs(keys_by(call.members, "tag")) do
    watch.call = nil
    watch.core:fail(err.code, err.message)
    wake(watch)
  end
  call.members = {}
end

--- Delays the next call, longer after each failure.
local function back_off(self)
  self.failures = self.failures + 1
  self.retry_at = driver.get().now() + self.transport.backoff(self.failures)
end

--- Handles the end of a call. After a short call the next one is delayed, and opened to another server. A
-- server without a leader is left at once, with all watches and reads.
local function note_end(self, call, status, text)
  local has_lasted = driver.get().now() - call.since >= STABLE
  local has_no_leader = text == NO_LEADER -- proxies of etcd end the call with the status "unknown"
  if has_lasted then self.failures = 0 end
  if has_lasted and not has_no_leader then return end
  self.trouble = refusal.trouble_of(status, text)
  if not has_lasted then back_off(self) end
  if has_no_leader then
    self.transport:leave(call.connection, text)
  else
    self.transport:turn_away(call.connection, self.trouble.message)
  end
end

--- Removes a call that has ended.
local function remove(self, call)
  self.calls[call] = nil
  unshare(self, call)
end

--- Returns true if a call has failed because of its token, and the user is authenticated again. That happens once until
-- a watch was created with the new token.
local function renew(self, call, status, text)
  local token = call.token or ""
  if self.old_token and self.old_token ~= token then return false end
  if not self.transport:renew(call.connection, call.token, status, text) then return false end
  self.old_token = token
  unshare(self, call)
  return true
end

--- Delays the next attempt of a watch that the server has ended, longer each time until the watch lasts.
local function pause(self, watch, trouble)
  local now = driver.get().now()
  watch.ends = now - watch.attached_when >= STABLE and 1 or (watch.ends or 0) + 1
  watch.retry_at, self.trouble = now + self.transport.backoff(watch.ends), trouble
end

--- Handles the end of a call by an answer that is larger than max_message. A watch that is alone gets some attempts on
-- a call of its own: etcd sends the events before the confirmation of a watch in one message, and later ones in
-- fragments.
local function separate(self, call, err)
  local members = keys_by(call.members, "tag")
  if #members == 1 then
    members[1].has_own_call = true
    pause(self, members[1], err)
    if members[1].ends > MAX_TOO_LARGE then
      return fail_all(call, err.grpc_status, err.message .. ": raise this option of connect")
    end
  elseif #members > 1 then
    self.last_share = self.last_share + 1
    for i = math.ceil(#members / 2) + 1, #members do members[i].group = self.last_share end
  end
  reassign_watches(self, call)
end

--- Takes the end of the call. (Messages of a Watch call go to the watches in the core.)
function call_methods:on_ready(connection, number)
  local owner = self.owner
  local _, status, text, is_refused = connection.core:receive(number)
  if status == nil then return end
  connection:forget(number)
  remove(owner, self)
  local err = core.error_of(status, text)
  if err.code == "answer_too_large" then
    separate(owner, self, err)
  elseif refusal.is_refusal(status, text) and not is_refused and not renew(owner, self, status, text) then
    fail_all(self, status, text)
  else
    note_end(owner, self, status, text)
    reassign_watches(owner, self)
  end
end

--- Cancels the call.
function call_methods:close()
  remove(self.owner, self)
  self.connection:cancel(self.number)
end

--- Called when another server is used from now on. The watches are attached there.
function call_methods:on_leave(_, _, text)
  self:close()
  self.owner.trouble = core.error_of(grpc_status.UNAVAILABLE, text)
  reassign_watches(self.owner, self)
end

--- Moves all watches to calls that end when the member has no leader: there are several endpoints now.
function watch_calls_methods:require_leader()
  local calls = {}
  for _, call in ipairs(keys_by(self.calls, "number")) do
    if not call.requires_leader then calls[#calls + 1] = call end
  end
  for _, call in ipairs(calls) do
    call:close()
    reassign_watches(self, call)
  end
end

-- }======

-- {====== Progress ======

--- True if the progress messages of a server of this version can be trusted. Servers before 3.4.31 and 3.5.13 may send
-- progress ahead of the events that it covers.
local function is_trusted(version)
  local major, minor, patch = version:match("^(%d+)%.(%d+)%.(%d+)")
  major, minor, patch = tonumber(major), tonumber(minor), tonumber(patch)
  if not major then return false end
  if major ~= 3 then return major > 3 end
  if minor == 4 then return patch >= 31 end
  if minor == 5 then return patch >= 13 end
  return minor > 5
end

--- Notes whether the server of a connection is trusted. `bytes` is its StatusResponse, or nil if it has no Status
-- method.
local function set_trust(self, connection, bytes)
  local status = bytes and core.decode("StatusResponse", bytes)
  connection.trusts_progress = is_trusted(status and status.version or "")
  for call in pairs(self.calls) do
    if connection.trusts_progress and call.connection == connection then connection.core:trust(call.number) end
  end
end

--- Returns whether the progress of the server in use can be trusted; or nil and an error. Waits for its version, once
-- per connection.
function watch_calls_methods:await_trust(deadline)
  local connection, err = self.transport:await_connection(deadline)
  if not connection then return nil, err end
  if connection.trusts_progress == nil then
    local bytes, failure = self.transport:unary(STATUS, "", deadline, true)
    if not bytes and failure.code ~= "unimplemented" then return nil, failure end
    if connection.trusts_progress == nil then set_trust(self, connection, bytes) end
  end
  return connection.trusts_progress
end

--- Requests the version of the server, without waiting, unless it is known or already requested.
local function learn(self, connection)
  if connection.trusts_progress ~= nil or connection.status_call then return end
  connection.status_call = connection:ask(STATUS, "", function(bytes, status)
    connection.status_call = nil
    local is_answer = status == grpc_status.OK or status == grpc_status.UNIMPLEMENTED
    if connection.trusts_progress == nil and is_answer then set_trust(self, connection, bytes) end
  end)
end

--- Returns the error for a watch that was not created in time: of the connection, of the last call, or
-- "deadline_exceeded".
function watch_calls_methods:error()
  if not self.transport.connection then return self.transport.dialer:error() end
  return self.trouble or core.new_error("deadline_exceeded")
end

--- Asks the server for progress on the call of a watch, if the server's progress can be trusted.
function watch_calls_methods:request_progress(watch)
  local call = watch.call
  if not call or not call.connection.trusts_progress then return end
  call.connection.core:ask(call.number)
  expect_answer(call)
  if call.requires_leader then self.transport:look_at_all() end
end

--- Returns whether the progress on the call of a watch can be trusted; nil if that is not known yet, or if the watch
-- has no call. Asks for the server's version if it is not known, without waiting.
function watch_calls_methods:is_trusted(watch)
  local call = watch.call
  if not call then return nil end
  learn(self, call.connection)
  return call.connection.trusts_progress
end

-- }======

-- {====== Polling ======

--- True if a watch starts at a revision that the server has not reached. Servers then send no progress on its call.
local function starts_in_future(watch)
  local _, next_revision = watch.core:state()
  return next_revision > watch.core:seen() + 1
end

--- True if a watch of the call starts in the future.
local function has_future_watch(call)
  for watch in pairs(call.members) do
    if starts_in_future(watch) then return true end
  end
  return false
end

--- Inspects a call. Without watches it is ended. Without messages it is asked for progress, and replaced if it stays
-- silent.
local function inspect(self, call, now)
  local object, number = call.connection.core, call.number
  local received, count, is_held = object:inspect(number)
  call.inspect_at = now + INSPECT_INTERVAL
  if not received then return end
  if count == 0 then return call:close() end
  call.silent = (received == call.received and not is_held) and call.silent + 1 or 0
  call.received = received
  if not call.connection.trusts_progress then
    call.silent = 0
    learn(self, call.connection)
  elseif call.silent > MAX_SILENT and not has_future_watch(call) then
    call:close()
    reassign_watches(self, call)
  elseif not is_held then
    object:ask(number)
  end
end

--- Decides about a watch that knows a later revision than its server. `revision` is the result of a linearizable read.
-- If it is also lower than the watch's, the server was reset to an older state: the watch fails. Without a result the
-- watch is attached to another server.
local function judge(self, watch, revision)
  if not revision then
    watch.core:detach()
    leave(watch)
    self.idle[watch] = true
  elseif revision < watch.core:seen() then
    leave(watch)
    watch.core:fail("regressed")
  else
    watch.core:accept()
  end
  wake(watch)
end

--- True if a watch is still attached to a connection, and knows a later revision than its server. A watch that has
-- continued on another server may have a later revision than this server had at the request.
local function is_suspect_of(watch, connection)
  local _, _, _, _, is_suspect = watch.core:state()
  return is_suspect and watch.call ~= nil and watch.call.connection == connection
end

--- Ends the verification of a server: with the answer to the read, or without a message if the read has failed. In the
-- latter case other servers are tried.
local function conclude(self, connection, message, status)
  local suspects = connection.suspects
  local _, _, revision = core.header(message or "")
  if status ~= grpc_status.OK then revision = nil end
  connection.suspects, connection.verification = nil, nil
  if not revision then
    self.transport:turn_away(connection)
    back_off(self)
  end
  for _, watch in ipairs(suspects) do
    if is_suspect_of(watch, connection) then judge(self, watch, revision) end
  end
end

--- Begins to verify the server of a watch that knows a later revision than the server: the server may be behind, or it
-- was reset to an older state. One linearizable read decides that for all watches of the connection.
local function verify(self, connection, watch)
  connection.suspects = connection.suspects or {}
  connection.suspects[#connection.suspects + 1] = watch
  if #connection.suspects > 1 then return end
  local key = watch.key == "" and "\0" or watch.key
  local bytes = core.encode("RangeRequest", { key = key, keys_only = true, limit = 1 })
  local verification = {}
  connection.verification = verification
  connection.verify_until = driver.get().now() + self.transport.opts.timeout
  local number = connection:ask(RANGE, bytes, function(message, status)
    if connection.verification ~= verification then return end -- it took too long, and has ended without an answer
    conclude(self, connection, message, status)
  end)
  verification.number = number
  if not number then conclude(self, connection) end
end

--- Ends a verification that takes too long. Returns the seconds that it may still take; math.huge if there is none.
local function limit_verification(self, connection, now)
  local verification = connection.verification
  if not verification then return math.huge end
  if now >= connection.verify_until then
    conclude(self, connection)
    if verification.number then connection:cancel(verification.number) end
  end
  return math.max(0, connection.verify_until - now)
end

--- Cancels the requests on a connection that ask about its server. Called when the server is left and has no watches.
function watch_calls_methods.cancel_questions(_, connection)
  local status_call, verification = connection.status_call, connection.verification
  connection.status_call, connection.verification, connection.suspects = nil, nil, nil
  if status_call then connection:cancel(status_call) end
  if verification and verification.number then connection:cancel(verification.number) end
end

--- Returns true if the server has ended a watch for a temporary reason: because of the token, and then the user is
-- authenticated again; or with a status that is not a refusal, which is also returned as an error. The watch is then
-- idle.
local function revive(self, watch)
  local words = watch.core:refusal()
  if not words or not watch.call then return false end
  local status, text = reason.parse(words)
  local is_renewed = renew(self, watch.call, status, text)
  if not is_renewed and refusal.is_refusal(status, text) then return false end
  watch.core:revive()
  return true, not is_renewed and refusal.trouble_of(status, text) or nil
end

--- Handles a change of a watch that the core has announced.
local function attend(self, connection, watch)
  local state, _, is_lagging, has_room, is_suspect = watch.core:state()
  local trouble
  if state == "idle" and not is_lagging and watch.call then
    trouble = refusal.trouble_of(grpc_status.OK, "keywatch: the server has ended the watch without a reason")
  elseif state == "failed" then
    local is_revived
    is_revived, trouble = revive(self, watch)
    state = is_revived and "idle" or state
  end
  if state == "open" then self.trouble, self.old_token = nil, nil end
  if state == "open" and is_suspect then
    verify(self, connection, watch)
  elseif state == "idle" then
    leave(watch)
    watch.has_own_call = watch.has_own_call or is_lagging
    watch.is_full = is_lagging and not has_room
    if not watch.is_full then self.idle[watch] = true end
    if trouble then pause(self, watch, trouble) end
  elseif state == "failed" then
    leave(watch)
  elseif state == "open" and not watch.has_own_call and starts_in_future(watch) then
    self:give_own_call(watch)
  end
  wake(watch)
end

--- Wakes the watches of a connection with events, and handles the changes of their states. Returns
-- true if a state has changed.
function watch_calls_methods:poll_connection(connection)
  local object, watches = connection.core, self.watches
  local is_any_changed = false
  for tag, has_changed in object.next_watch, object do
    local watch = watches[tag]
    is_any_changed = is_any_changed or has_changed
    if not watch then
      is_any_changed = true -- it was collected
    elseif has_changed then
      attend(self, connection, watch)
    elseif watch.on_news then
      watch:on_news()
    else
      wake(watch)
    end
  end
  return is_any_changed
end

--- Attaches idle watches, ends verifications that take too long, and inspects calls that are due. Returns the seconds
-- until it must be called again, or nil.
function watch_calls_methods:poll(now)
  local wait = nil
  local current = self.transport.connection
  if current and next(self.idle) then
    if now >= self.retry_at then wait = attach_all(self, current, now) else wait = self.retry_at - now end
  elseif now < self.retry_at and next(self.idle) then
    wait = self.retry_at - now
  end
  for connection in pairs(self.transport.connections) do -- in any order: they are independent
    local left = limit_verification(self, connection, now)
    if left < (wait or math.huge) then wait = left end
  end
  local is_due = false
  for call in pairs(self.calls) do is_due = is_due or now >= call.inspect_at end
  if is_due then
    for _, call in ipairs(keys_by(self.calls, "number")) do
      if now >= call.inspect_at then inspect(self, call, now) end
    end
  end
  for call in pairs(self.calls) do
    if not wait or call.inspect_at - now < wait then wait = math.max(0, call.inspect_at - now) end
  end
  return wait
end

-- }======

--- Fails the idle watches: the server has refused the user.
function watch_calls_methods:fail_idle(err)
  local idle = self.idle
  self.idle = setmetatable({}, { __mode = "k" }) -- first, as a finalizer may make other watches idle
  for _, watch in ipairs(keys_by(idle, "tag")) do
    watch.core:fail(err.code, err.message)
    wake(watch)
  end
end

--- After a fork: forgets all calls, which are the parent's, and makes all watches idle. The end of the calls does not
-- count as a failure.
function watch_calls_methods:restart()
  self.calls, self.shared = {}, {}
  self.failures, self.retry_at, self.trouble = 0, 0, nil
  for _, watch in pairs(self.watches) do
    watch.core:detach()
    watch.call = nil
    self.idle[watch] = true
  end
end

--- Fails all watches, the oldest first: the client is closed.
function watch_calls_methods:close()
  for _, watch in ipairs(order.values_by(self.watches, "tag")) do fail_as_closed(watch) end
  self.calls, self.shared, self.idle = {}, {}, {}
end

return { new = new }
