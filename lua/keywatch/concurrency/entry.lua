-- SPDX-License-Identifier: MIT
--- entry: the place of a session in the queue for a lock or an election. All sessions that want the lock, or want to
-- lead, are in this queue, in the order of their keys' create revisions. The key of an entry is made of the name and
-- the lease (names.lua), so a lease has at most one entry in each queue: the calls of a session, and of all sessions
-- that share its lease, use the entry one after the other.
--
-- The states of an entry:
--   taken      a call of the session uses the entry, or a lock or leadership that such a call has returned
--   sweeping   the key is being deleted in the background: see sweeper.lua
--   free       no call uses the entry, but an earlier request, which has failed, may still create the key
--   gone       the session no longer has the entry
--
-- The call that uses the entry creates the key, and reads in the same request whether an older key exists. If so, the
-- call waits until the next older key is deleted, and checks again: each deletion wakes one session, not all.
--
-- Names: `owner` is the object on which the lock was requested, and `root` the store or client below it. Only the
-- creation of the key goes through the owner, since a fence may refuse it; all other requests go to the root.

local lock_requests = require "keywatch.concurrency.lock_requests"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local bases = require "keywatch.concurrency.base"
local lease = require "keywatch.store.lease"
local names = require "keywatch.concurrency.names"
local request = require "keywatch.concurrency.request"
local sweeper = require "keywatch.concurrency.sweeper"
local timers = require "keywatch.task.timers"

local GRACE = 0.25   -- seconds that a call whose timeout has expired waits for the deletion of its key
local FIRST_PAUSE = 0.05 -- seconds before a failed read is repeated, doubled each time
local LONGEST_PAUSE = 1

local entry_methods = {}
local entry_mt = { __index = entry_methods }

-- Defaults of fields, so that the entry of a free lock is a small table:
entry_methods.queue = nil       -- the tickets of the waiting calls, in a timer queue in which all timers are due
entry_methods.late_creates = 0  -- failed requests that may still create the key, see sweeper.lua
entry_methods.late_until = 0    -- the time after which none of these requests is executed
entry_methods.is_listed = false -- the entry is in the list of the sweeper
entry_methods.swept = nil       -- driver event: set when the key was deleted

-- {====== Time ======

--- True if a deadline has passed.
local function is_over(deadline)
  return deadline ~= nil and driver.get().now() >= deadline
end

-- }======

-- {====== The queue within the session ======

-- A ticket represents a call that waits for the entry. A select can wait for the ticket, which is ready when the call
-- has the entry. Its fields: has_turn, true if the call has the entry; turned, the driver event for that; timer; and
-- entry.
local ticket_mt = {}

ticket_mt.__select = {
  is_ready = function(ticket) return ticket.has_turn end,
  begin = function(ticket) return ticket.turned end,
  finish = function() end,
  take = function() return true end,
}

--- Gives the entry to the call that has waited longest. If no call waits, the entry becomes free, or is removed from
-- its session.
local function leave(entry)
  local ticket = entry.queue and entry.queue:due(0)
  if ticket then -- atomic
    entry.state, ticket.has_turn = "taken", true
    ticket.turned:set()
  elseif sweeper.may_be_created(entry) then
    entry.state = "free"
    if not entry.is_listed then entry.session.sweeper:add(entry) end
  else
    entry.state = "gone"
    entry.session.entries[entry.key] = nil
  end
end

--- Ends the wait of a ticket. If the ticket's call already has the entry, the next call gets it.
local function end_wait(ticket)
  local entry = ticket.entry
  if ticket.has_turn then leave(entry) else entry.queue:remove(ticket.timer) end
end

--- Waits until the ticket's call has the entry. Returns true, or nil and an error.
local function await_entry(session, ticket, deadline)
  local d = driver.get()
  while not ticket.has_turn do
    local err = session:error()
    if err then return nil, err end
    local found, why = d.select { ticket, session.lease, timeout = driver.time_left(deadline) }
    if not found then return nil, why end
  end
  return true
end

--- Adds a ticket to the queue of the entry, and waits. Returns true, or nil and an error.
local function queue_up(entry, ticket, session, deadline)
  ticket.entry = entry
  entry.queue:insert(ticket.timer)
  local ok, has_turn, err = driver.protect(end_wait, ticket, await_entry, session, ticket, deadline)
  if ok and has_turn then return true end
  end_wait(ticket)
  if not ok then error(has_turn, 0) end
  return nil, err
end

--- Returns a new ticket.
local function new_ticket()
  local ticket = setmetatable({ has_turn = false, turned = driver.get().event(), timer = nil, entry = nil }, ticket_mt)
  ticket.timer = timers.new_timer(0, ticket)
  return ticket
end

--- Returns a new entry, which the caller uses.
local function new_entry(session, prefix, key)
  return setmetatable({
    session = session,   -- of the call that uses the entry, or used it last: one of the sessions of the lease
    prefix = prefix,     -- in the root's names
    key = key,           -- in the root's names
    state = "taken",
    has_key = false,     -- the key exists, or may exist
    is_known = false,    -- a response has confirmed that the key exists
  }, entry_mt)
end

--- Takes the entry of a session for a key. Returns the entry; and, if another call uses the entry or its key is being
-- deleted, a ticket with which the caller must wait. With is_try returns nil instead if the entry is taken. Allocates
-- all objects before the last check of the entry, since a finalizer may release or take the entry during an allocation.
local function take_or_find(session, prefix, key, is_try)
  local fresh, ticket
  while true do
    local entry = session.entries[key]
    if not entry and fresh then
      session.entries[key] = fresh
      return fresh
    elseif not entry then
      fresh = new_entry(session, prefix, key)
    elseif entry.state == "free" then
      entry.state, entry.session = "taken", session
      return entry
    elseif is_try and entry.state == "taken" then
      return nil
    elseif ticket and entry.queue then
      return entry, ticket
    else
      entry.queue = entry.queue or timers.new()
      ticket = ticket or new_ticket()
    end
  end
end

--- Takes the entry of a session for a lock or an election. Returns the entry, or nil and an error. Waits until earlier
-- calls of the session no longer use the entry; with is_try only until its key is deleted.
local function enter(session, owner, name, deadline, is_try)
  local prefix = names.prefix_of(name)
  local _, full = bases.resolve(owner, prefix)
  local entry, ticket = take_or_find(session, full, full .. session.hex, is_try)
  if not entry then return nil, core.new_error("locked") end
  if not ticket then return entry end
  local ok, err = queue_up(entry, ticket, session, deadline)
  if not ok then return nil, err end
  entry.session = session
  err = session:error()
  if err then
    leave(entry)
    return nil, err
  end
  return entry
end

--- True if a call of a session uses its entry for a lock or an election, and the key is known to exist. Does not wait.
local function has_key(session, owner, name)
  local _, full = bases.resolve(owner, names.prefix_of(name))
  local entry = session.entries[full .. session.hex]
  return entry ~= nil and entry.state == "taken" and entry.is_known
end

-- }======

-- {====== Creating the key ======

--- Returns the error of a session whose lease no longer exists.
local function lost(session)
  return session:error() or errors.new("lost", "keywatch: the session is lost: its lease has ended")
end

--- Creates the key, unless it exists. Returns the key's create revision; true if no key is older; the value of the key
-- if it existed, else nil; and the revision of the store. With is_try returns false, and creates nothing, if another
-- session has a key. Returns nil and an error if the request has failed.
function entry_methods:create(owner, name, value, deadline, is_try)
  local session = self.session
  local prefix = names.prefix_of(name)
  self.has_key = true
  local ok, created, is_oldest, before, revision = request(session, lock_requests.create, owner, prefix,
    prefix .. session.hex, value, session.lease.id, is_try, deadline)
  if not ok or created == nil then
    local failure = ok and is_oldest or created
    local is_sure = type(failure) ~= "table" or not failure.maybe_done
    if is_sure then
      self.has_key = sweeper.may_be_created(self)
    elseif not session.is_local then
      sweeper.expect_create(self)
    end
    if not ok then error(failure, 0) end
    if failure.code == "lease_not_found" then
      session.is_gone = true -- before the other callers of the session are woken
      lease.note_gone(session.lease)
      failure = lost(session)
    end
    return nil, failure
  end
  self.is_known = created ~= false
  if not created then -- with is_try: another session has the lock
    self.has_key = sweeper.may_be_created(self)
    return false
  end
  if before and self.late_creates > 0 then -- an earlier request has succeeded
    self.late_creates = self.late_creates - 1
  end
  return created, is_oldest, before, revision
end

--- Notes that the request to create the key was abandoned: the server may still execute it, unless the key is known to
-- exist.
function entry_methods:note_abandoned()
  if self.has_key and not self.is_known and not self.session.is_local then sweeper.expect_create(self) end
end

-- }======

-- {====== Waiting for older keys ======

-- Codes of errors after which a read is repeated.
local TEMPORARY = { unavailable = true, deadline_exceeded = true, timeout = true, no_leader = true }

--- Returns "timeout" instead of "deadline_exceeded" or "no_leader" if the deadline has passed. Returns any other error
-- unchanged: "unavailable" shows that no server was reached.
local function or_timeout(err, deadline)
  if err.code ~= "deadline_exceeded" and err.code ~= "no_leader" or not is_over(deadline) then return err end
  return core.new_error("timeout")
end

--- Reads a range through the root. Repeats the read after temporary errors. Returns the result, or nil and an error.
local function read(session, key, opts, deadline)
  local pause = FIRST_PAUSE
  opts.deadline = deadline
  while true do
    local why = session:error() -- `request` notices only a loss during the request
    if why then return nil, why end
    local ok, result, err = request(session, session.root.range, session.root, key, opts)
    if not ok then error(result, 0) end
    if result then return result end
    why = session:error()
    if why then return nil, why end
    if not TEMPORARY[err.code] then return nil, err end
    if is_over(deadline) then return nil, or_timeout(err, deadline) end
    driver.get().select { session.lease, timeout = math.min(pause, driver.time_left(deadline) or pause) }
    pause = math.min(2 * pause, LONGEST_PAUSE)
  end
end

--- Opens a watch through the root. Returns the watch; false after a temporary error or a compaction; or nil and an
-- error.
local function open_watch(session, key, opts, deadline)
  local root = session.root
  opts.deadline = deadline
  local ok, watch, err = request(session, root.watch, root, key, opts)
  if not ok then error(watch, 0) end
  if watch then return watch end
  local why = session:error() -- the loss of the session has ended the request
  if why then return nil, why end
  if err.code == "compacted" or TEMPORARY[err.code] and not is_over(deadline) then return false end
  return nil, or_timeout(err, deadline)
end

--- Waits for a watch, or another object that select takes, until the session is lost. Returns the results that select
-- returns for the object; or nil and an error.
local function await_object(session, object, deadline)
  local found, result, why = driver.get().select { object, session.lease, timeout = driver.time_left(deadline) }
  if not found then return nil, result end -- the error of the timeout
  if found == session.lease then return nil, lost(session) end
  return result, why
end

--- Waits until a key is deleted after a revision, or until a deletion may have been missed. Returns true, or nil and an
-- error.
local function await_deletion(session, key, revision, deadline)
  local watch, err = open_watch(session, key, { start_revision = revision + 1, filters = { "no_put" } }, deadline)
  if watch == false then return true end
  if not watch then return nil, err end
  local ok, event, why = driver.protect(watch.close, watch, await_object, session, watch, deadline)
  watch:close()
  if not ok then error(event, 0) end
  if event or why and why.code == "compacted" then return true end
  return nil, why or core.new_error("closed")
end

--- Waits until no key below the prefix has a create revision below `created`: for the deletion of the next older key,
-- then of the one before, and so on. Returns true, or nil and an error.
local function look_for_turn(entry, created, deadline)
  local session = entry.session
  while true do
    local older, err = read(session, entry.prefix, {
      prefix = true, sort_target = "create", sort_order = "descend", limit = 1, keys_only = true,
      max_create_revision = created - 1,
    }, deadline)
    if not older then return nil, err end
    local before = older.kvs[1]
    if not before then return true end
    local ok, why = await_deletion(session, before.key, older.revision, deadline)
    if not ok then return nil, why end
  end
end

--- Waits until no key below the prefix is older than the entry's key, which has the create revision `created`. Returns
-- true if the entry's key still exists then, or nil and an error.
function entry_methods:await_turn(created, deadline)
  local session = self.session
  local ok, err = look_for_turn(self, created, deadline)
  if not ok then return nil, err end
  local result
  result, err = read(session, self.key, { keys_only = true }, deadline)
  if not result then return nil, err end
  local own = result.kvs[1]
  if own and own.create_revision == created then return true end
  if not own then self.has_key, self.is_known = false, false end
  return nil, session:error() or errors.new("lost", "keywatch: the key was deleted while the call waited for its turn")
end

-- }======

-- {====== Leaving ======

--- Deletes the key at once, if the store is in this process. Returns true if the key was deleted.
local function delete_now(entry)
  local session = entry.session
  if not session.is_local or session:error() then return false end
  local ok, result = pcall(session.root.delete, session.root, entry.key)
  return ok and result ~= nil
end

--- Gives up the entry. If its key may exist, and the session is not lost, the key is deleted, in the background unless
-- the store is in this process. Then the next call of the session gets the entry.
function entry_methods:withdraw()
  local session = self.session
  if not self.has_key or session:error() or delete_now(self) then
    self.has_key, self.is_known = false, false
    return leave(self)
  end
  self.has_key = false
  session.sweeper:add(self)
end

--- Gives up the entry, and waits up to GRACE seconds for the deletion of its key.
function entry_methods:withdraw_and_wait()
  self:withdraw()
  self.session.sweeper:await(self, GRACE)
end

--- Gives up the entry, whose key was deleted, by this or another client, or will be deleted with its lease.
function entry_methods:release()
  self.has_key, self.is_known = false, false
  if sweeper.may_be_created(self) then return self.session.sweeper:add(self) end
  leave(self)
end

-- }======

return {
  enter = enter, leave = leave, has_key = has_key, is_over = is_over, or_timeout = or_timeout,
  TEMPORARY = TEMPORARY,
}
