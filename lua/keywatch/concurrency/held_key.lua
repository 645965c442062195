-- SPDX-License-Identifier: MIT
--- held_key: the key of a lock or a leadership, which a session holds. Locks and leaderships have the methods of this
-- module.
--
-- A held key ends when it is released, when its session is lost, or when another client deletes or replaces its key.
-- The latter is noticed only by requests that use the key, and during `wait_lost` or select, in which the key is
-- watched.
--
-- An object that is collected without a release stays held until its session ends: the collector may run inside the
-- critical section, whose code need not refer to the object. The state for background work is in a table of its own,
-- the held_key, which does not refer to the object.

local check = require "keywatch.support.check"
local lock_requests = require "keywatch.concurrency.lock_requests"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local entry = require "keywatch.concurrency.entry"
local forwarder = require "keywatch.concurrency.forwarder"
local request = require "keywatch.concurrency.request"
local sessions = require "keywatch.concurrency.session"

local RETRY = 0.5 -- seconds before a watch that could not be opened is tried again

local held_key_methods = {}
local held_key_mt = { __index = held_key_methods }

--- Makes an object of a class, a metatable, for an entry whose key was created at a revision. `key` is the key in the
-- owner's names.
local function new(class, own_entry, owner, key, revision)
  local held_key = setmetatable({
    entry = own_entry,
    session = own_entry.session,
    revision = revision,
    is_over = false, -- the key was released
    err = nil,       -- the error "lost", after another client has deleted the key, or a release has found the loss
    forwarder = nil, -- created by the first wait for the loss
    watch = nil,     -- the watch of the key, during a wait for the loss
    opener = nil,    -- the task that opens the watch
    from = nil,      -- the start revision of the watch, if it is not the first one after the key was created
    trouble = nil,   -- the error code of the last watch, or read of the key, until there is a watch
  }, held_key_mt)
  return setmetatable({
    key = key,
    revision = revision,
    session = own_entry.session,
    owner = owner,
    held_key = held_key,
  }, class)
end

-- {====== Loss ======

--- Returns the error of a held key that another client has deleted.
local function deleted()
  return errors.new("lost", "keywatch: the lock or leadership is lost: its key was deleted")
end

--- Returns the error of the loss, if the key is known to be lost; or nil.
function held_key_methods:error()
  return self.err or self.session:error()
end

--- Returns why the key is not held, as far as known: it is lost, or was released; or nil.
function held_key_methods:reason()
  if self.is_over and not self.err then
    return errors.new("lost", "keywatch: the lock or leadership was released")
  end
  return self:error()
end

--- Stops watching the key.
local function stop_watching(self)
  local watch, opener = self.watch, self.opener
  self.watch, self.opener = nil, nil
  if watch then
    if self.forwarder then self.forwarder:remove(watch) end
    watch:close()
  end
  if opener then opener:cancel() end
end

--- Notes that the key is lost: another client has deleted it.
function held_key_methods:lose()
  if self.err or self.is_over then return end
  self.err = deleted()
  stop_watching(self)
  if self.forwarder then self.forwarder:wake() end
  self.entry:release()
  sessions.suspect(self.session)
end

--- Reads the key after its watch has failed: the key may have been deleted since. Returns true if it is still held, and
-- can be watched from now on.
local function look_at_key(self)
  local result, err = self.session.root:range(self.entry.key, { keys_only = true })
  local kv = result and result.kvs[1]
  if not result then
    self.trouble = err.code
  elseif kv and kv.create_revision == self.revision then
    self.from = result.revision + 1
    return true
  else
    self:lose()
  end
  return false
end

--- Opens the watch of the key. Repeats that until it succeeds or is no longer needed. Runs as a task, or directly if
-- the store is in this process.
local function open_watch(self)
  local root, is_local = self.session.root, self.session.is_local
  while not (self.is_over or self:error() or self.watch) do
    if self.trouble and self.trouble ~= "compacted" then
      if is_local then return end -- the store is closed
      driver.get().sleep(RETRY)
    end
    if not self.trouble or look_at_key(self) then
      local watch, err = root:watch(self.entry.key, { start_revision = self.from or self.revision + 1 })
      if watch and (self.is_over or self.watch) then
        watch:close()
      elseif watch then
        self.watch, self.opener, self.trouble = watch, nil, nil
        self.forwarder:add(watch)
      elseif err.code == "closed" then
        return
      else
        self.trouble = err.code
      end
    end
  end
end

--- Makes sure that the key is watched. If that needs a request, a task makes it.
local function watch_key(self)
  if self.watch or self.is_over or self:error() then return end
  if self.session.is_local then return open_watch(self) end
  if self.opener and self.opener.state ~= "done" then return end
  self.opener = driver.get().spawn_own(open_watch, self)
end

--- Reads the events of the watch, without waiting.
local function look_at_watch(self)
  while self.watch do
    local event, err = self.watch:next(0)
    if event and (event.type == "delete" or event.create_revision ~= self.revision) then
      return self:lose()
    elseif not event then
      if err and err.code == "timeout" then return end
      stop_watching(self) -- a failed watch; the next wait opens another one
      if not err or err.code == "closed" then return end
      self.trouble = err.code
      watch_key(self)
      if self.watch == nil then return end
    end
  end
end

--- True if the key is lost or was released.
local function is_ready(self)
  look_at_watch(self)
  return self:reason() ~= nil
end

--- Begins a wait for the loss. Returns the event to wait for.
local function begin(self)
  if not self.forwarder then
    local fresh = forwarder.new()
    self.forwarder = self.forwarder or fresh
    self.forwarder:add(self.session.lease)
  end
  watch_key(self)
  return self.forwarder:begin()
end

local protocol = { -- see task/selection.lua
  is_ready = function(object) return is_ready(object.held_key) end,
  begin = function(object) return begin(object.held_key) end,
  arm = function(object) object.held_key.forwarder:arm() end,
  finish = function(object) object.held_key.forwarder:finish() end,
  take = function(object) return object.held_key:reason() end,
}

-- }======

-- {====== Releasing ======

--- Ends the held_key, so that the caller can release it. Returns true, false if another call did, or nil and an error
-- if it is lost.
function held_key_methods:finish()
  if self.is_over then return false end
  local err = self.err or not self.session.reference.is_released and self.session:error() or nil
  self.is_over = true
  if self.watch or self.opener then stop_watching(self) end
  if self.forwarder then self.forwarder:wake() end
  if not err then return true end
  if not self.err then self.entry:release() end
  self.err = err
  return nil, err
end

--- Deletes the key. If the outcome is not known, the key is deleted in the background. Returns true, or nil and an
-- error.
function held_key_methods:give_back(times)
  local is_ours, err = self:finish()
  if is_ours == false then return true end
  if not is_ours then return nil, err end
  local own = self.entry
  local ok, is_deleted, why = driver.finish(request, self.session, lock_requests.delete, self.session.root, own.key,
    self.revision, times)
  if ok and is_deleted ~= nil then
    own:release()
    if is_deleted then return true end
    sessions.suspect(self.session)
    self.err = self.session:error() or deleted()
    return nil, self.err
  end
  local lost = sessions.loss_after(self.session, why)
  self.err = lost and self.session:error()
  own:withdraw()
  if not ok then error(is_deleted, 0) end
  return nil, lost or why
end

-- }======

-- {====== Methods ======

--- Adds the methods to a class, a metatable with __index.
local function extend(class)
  class.__select = protocol

  --- Waits until the object is lost, or was released. Returns the reason as an error; or nil and an error of code
  -- "timeout".
  function class.__index.wait_lost(self, timeout)
    check.timeout(timeout, "wait_lost")
    local found, err = driver.get().select { self, timeout = timeout }
    if not found then return nil, err end
    return err
  end

  --- Returns the error of the loss, or nil. Does not wait, and makes no request.
  function class.__index.error(self)
    return self.held_key:error()
  end

  --- True if the object is held, as far as is known. Does not wait.
  function class.__index.is_held(self)
    return not is_ready(self.held_key)
  end

  --- Returns the key and the state.
  function class.__tostring(self)
    local held_key = self.held_key
    local state = held_key.is_over and not held_key.err and "released" or held_key:error() and "lost" or "held"
    return ("%s<%s %s>"):format(class.__name, self.key, state)
  end
end

-- }======

-- {====== Acquiring ======

--- Waits for the turn of an entry whose key was created. Returns true, or nil and an error.
local function await_turn(own, created, is_oldest, deadline, is_try)
  if is_oldest then return true end
  if is_try then return nil, core.new_error("locked") end
  return own:await_turn(created, deadline)
end

--- Creates the key of an entry and waits for its turn. Returns its create revision, or nil and an error.
local function take(own, owner, name, value, deadline, is_try, adopt)
  local created, is_oldest, before = own:create(owner, name, value, deadline, is_try)
  if created == false then return nil, core.new_error("locked") end
  if not created then return nil, is_oldest end -- the error
  if before and adopt then
    local ok, err = adopt(own, created, before, deadline)
    if not ok then return nil, err end
  end
  local ok, err = await_turn(own, created, is_oldest, deadline, is_try)
  if not ok then return nil, err end
  err = own.session:error()
  if err then return nil, err end
  return created
end

--- Returns the error of a failed call. Any delay beyond the deadline is a timeout of the call. A missing key may have
-- been deleted with its lease.
local function failure_of(session, err, deadline)
  local lost = session:error()
  if lost then return lost end
  if err.code == "lost" then sessions.suspect(session) end
  return entry.or_timeout(err, deadline)
end

--- Gives up the entry of a caller that was killed. Its key may be being created.
local function undo_take(own)
  own:note_abandoned()
  own:withdraw()
end

--- Waits until the session has the lock, or leads. Returns its entry and the create revision of its key; or nil, an
-- error, and true if the key was created. A call that fails or is cancelled leaves no key.
local function acquire_in(session, owner, name, value, deadline, is_try, adopt)
  local own, err = entry.enter(session, owner, name, deadline, is_try)
  if not own then return nil, failure_of(session, err, deadline) end
  own.is_of_request = driver.in_request()
  local ok, created, why = driver.protect(undo_take, own, take, own, owner, name, value, deadline, is_try, adopt)
  if ok and created then return own, created end
  local is_known = own.is_known
  driver.finish(own.withdraw_and_wait, own)
  if not ok then error(created, 0) end
  return nil, failure_of(session, why, deadline), is_known
end

--- Like acquire_in, in the session of the options of a method. If the server has lost the lease of the default session
-- before the key was created, tries once more, in a new one.
local function acquire(owner, opts, name, value, deadline, is_try, adopt, is_again)
  local session, err = sessions.of_options(owner, opts, deadline)
  if not session then return nil, err end
  local own, created, is_known = acquire_in(session, owner, name, value, deadline, is_try, adopt)
  if own or is_known or is_again or opts.session or not session.is_gone then return own, created end
  return acquire(owner, opts, name, value, deadline, is_try, adopt, true)
end

-- }======

return { new = new, extend = extend, acquire = acquire }
