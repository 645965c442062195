-- SPDX-License-Identifier: MIT
--- lock: a name that at most one session of all clients holds at a time. The keys are those of etcd's clients and of
-- the Lock service, so all of them exclude each other.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local fence = require "keywatch.concurrency.fence"
local held_keys = require "keywatch.concurrency.held_key"
local sessions = require "keywatch.concurrency.session"

local lock_methods, lock_mt = check.class "keywatch.lock"

held_keys.extend(lock_mt)
fence.extend(lock_mt)

local OPTIONS = { ttl = "ttl", session = "any", timeout = "seconds", deadline = "seconds" }

--- Returns the deadline of the options, or nil. Raises if an option is unknown or invalid.
local function check_options(owner, opts, called)
  check.known(opts, called, OPTIONS)
  sessions.check_given(owner, opts, called)
  return opts.deadline or opts.timeout and driver.get().now() + opts.timeout
end

local NONE = {}

--- Takes a lock for the session of the options. Returns the lock, or nil and an error.
local function acquire(owner, opts, name, deadline, is_try)
  local entry, created = held_keys.acquire(owner, opts, name, "", deadline, is_try)
  if not entry then return nil, created end
  return held_keys.new(lock_mt, entry, owner, name .. "/" .. entry.session.hex, created)
end

--- Checks the arguments of a method, and takes a lock.
local function begin(owner, name, opts, is_try, called)
  check.self(owner, called)
  check.argument(type(name) == "string", 1, called, "string", name)
  opts = opts == nil and NONE or check.options(opts, called)
  local deadline = opts ~= NONE and check_options(owner, opts, called) or nil
  return acquire(owner, opts, name, deadline, is_try)
end

--- Waits until the lock of a name is held. Returns it, or nil and an error.
local function lock(owner, name, opts)
  return check.results(begin(owner, name, opts, false, "lock"))
end

--- Takes the lock of a name, if it is free. Returns it, or nil and an error: of code "locked" if it is not free.
local function try_lock(owner, name, opts)
  return check.results(begin(owner, name, opts, true, "try_lock"))
end

--- Releases the lock. Returns true, also if that was done before. Returns nil and an error of code "lost" if the lock
-- is no longer held; or nil and another error if the server did not answer: the key is then deleted in the
-- background.
function lock_methods:unlock(opts)
  if opts ~= nil then opts = check.times(opts, "unlock") end
  return check.results(self.held_key:give_back(opts))
end

--- Releases the lock of a variable that goes out of scope.
function lock_mt:__close()
  self:unlock()
end

-- {====== In a session ======

--- Checks the arguments of a session's method, and takes a lock.
local function begin_in_session(session, name, opts, is_try, called)
  check.argument(type(name) == "string", 1, called, "string", name)
  local deadline = nil
  if opts ~= nil then
    opts = check.times(opts, called)
    deadline = opts.deadline or opts.timeout and driver.get().now() + opts.timeout
  end
  return acquire(session.owner, { session = session }, name, deadline, is_try)
end

--- Like owner:lock, with this session.
function sessions.methods.lock(session, name, opts)
  return check.results(begin_in_session(session, name, opts, false, "lock"))
end

--- Like owner:try_lock, with this session.
function sessions.methods.try_lock(session, name, opts)
  return check.results(begin_in_session(session, name, opts, true, "try_lock"))
end

-- }======

return { lock = lock, try_lock = try_lock, methods = lock_methods, mt = lock_mt }
