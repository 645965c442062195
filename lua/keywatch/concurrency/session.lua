-- SPDX-License-Identifier: MIT
--- session: a lease that is renewed in the background, and the locks and leaderships that are bound to it. They end
-- with the lease.
--
-- Every store and client has default sessions, one for each requested TTL. A default session is created at its first
-- use, and replaced at the first use after a loss.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local exits = require "keywatch.task.exits"
local bases = require "keywatch.concurrency.base"
local lease = require "keywatch.store.lease"
local entry = require "keywatch.concurrency.entry"
local sweeper = require "keywatch.concurrency.sweeper"

local DEFAULT_TTL = 60 -- seconds, as in etcd's clients

local session_methods, session_mt = check.class "keywatch.session"

local weak_mt = { __mode = "v" }

--- Returns the entries of a lease: all sessions of one lease in this process share them, since they share the keys.
local function entries_of(root, hex)
  local all = bases.companion(root)
  all.entries = all.entries or setmetatable({}, weak_mt)
  local name, fresh = hex .. " " .. core.pid(), {}
  local entries = all.entries[name] or fresh -- atomic with the next line
  all.entries[name] = entries
  return entries
end

--- Ends a session when its program exits. A session that an nginx request has opened, or in which a request holds a
-- lock, is abandoned: its lease expires.
local function give_back(self, seconds)
  if self.is_of_request then return end
  for _, one in pairs(self.entries) do
    if one.is_of_request then return end
  end
  self:close { timeout = seconds }
end

--- Returns a session of a lease that is renewed.
local function new(owner, kept)
  local root, hex = bases.resolve(owner, ""), core.hex(kept.id)
  local self = setmetatable({
    owner = owner,
    root = root,
    is_local = bases.is_local(root),
    lease = kept,
    reference = kept.reference, -- is_released once the lease is no longer renewed, for this session: see store/kept.lua
    hex = hex,
    pid = core.pid(),
    entries = entries_of(root, hex), -- by key at the root: see entry.lua
    callers = {},         -- as keys: the callers with running requests: see request.lua
    is_listening = false, -- see request.lua
    is_closed = false,
    is_gone = false, -- the server has refused to create a key, since there is no such lease
    is_of_request = false, -- opened by an nginx request
    sweeper = nil,
  }, session_mt)
  self.sweeper = sweeper.new(entry.leave)
  exits.hold(self, 2, give_back)
  return self
end

local OPTIONS = { ttl = "ttl", lease = "any", timeout = "seconds", deadline = "seconds" }

--- Raises if the option `lease` of `session` is invalid.
local function check_lease(owner, opts)
  if opts.lease == nil then return end
  if opts.ttl then check.misuse("session: options 'ttl' and 'lease' cannot be used together") end
  if getmetatable(opts.lease) ~= lease.mt and not core.id(opts.lease) then
    check.misuse("session: option 'lease' must be a lease or the id of one, not %s", check.shown_id(opts.lease))
  end
  if getmetatable(opts.lease) == lease.mt and bases.resolve(opts.lease.owner, "") ~= bases.resolve(owner, "") then
    check.misuse("session: the lease belongs to another store or client")
  end
end

--- Returns the lease of the option `lease`, which must exist; or nil and an error.
local function existing_lease(owner, found, times)
  if getmetatable(found) ~= lease.mt then found = owner:lease_by_id(found) end
  local ttl, err = found:keepalive(times)
  if not ttl then return nil, err end
  return found
end

--- Creates a session: grants a lease, or takes that of the options, and renews it in the background. Returns it, or nil
-- and an error.
local function open(owner, opts)
  check.self(owner, "session")
  opts = check.options(opts, "session", OPTIONS)
  check_lease(owner, opts)
  local times = { timeout = opts.timeout, deadline = opts.deadline }
  local found, err
  if opts.lease ~= nil then
    found, err = existing_lease(owner, opts.lease, times)
  else
    found, err = check.call("session", owner.lease, owner, opts.ttl or DEFAULT_TTL, times)
  end
  if not found then return nil, err end
  local self = new(owner, found:keep())
  self.is_of_request = driver.in_request()
  return self
end

-- {====== Loss ======

--- Returns the error of the loss, or nil. Does not wait.
function session_methods:error()
  if self.pid ~= core.pid() then
    return errors.new("lost", "keywatch: the session is lost: it belongs to the parent process")
  end
  if self.reference.is_released then
    return errors.new("lost", "keywatch: the session is lost: orphan() of the session or of its lease was called")
  end
  return lease.failure(self.lease)
end

--- Returns the error of the loss for a request of the session that has failed with `failure`, or nil if the session is
-- not lost. The error keeps `maybe_done` of the request.
local function loss_after(self, failure)
  local err = self:error()
  if not err or type(failure) ~= "table" or not failure.maybe_done then return err end
  local own = errors.new("lost", err.message) -- the other one belongs to the lease
  own.maybe_done = true
  return own
end

--- Checks in the background whether the lease still exists, because a key that was bound to it is gone. A store in this
-- process reports the end of a lease itself.
local function suspect(self)
  if self.is_local or self:error() then return end
  driver.get().spawn_own(lease.methods.keepalive, self.lease)
end

--- Returns the time at which the session is lost unless its lease is renewed before; nil if the store is in this
-- process, since renewals cannot fail there. Does not wait.
local function lost_at(self)
  return self.reference.kept.deadline
end

--- Waits until the session is lost. Returns the reason as an error; or nil and an error of code "timeout".
function session_methods:wait_lost(timeout)
  check.timeout(timeout, "wait_lost")
  local err = self:error()
  if err then return err end
  local lost, why = self.lease:wait_lost(timeout)
  err = lost or self:error() -- the second, if the lease was orphaned in between
  if err then return err end
  return nil, why
end

--- Stops renewing the lease. For this program the session is lost; its keys stay until the lease expires.
function session_methods:orphan()
  if not self:error() then self.lease:orphan() end
end

--- Ends the session: revokes the lease, and with it all locks and leaderships. Returns true, also if the session was
-- lost before; or nil and an error, after which the lease expires by itself.
function session_methods:close(opts)
  opts = check.times(opts, "close")
  if self.is_closed or self:error() and not self.reference.is_released then return true end
  local revoked, err = self.lease:revoke(opts)
  self.is_closed = true
  if revoked or err.code == "lease_not_found" then return true end
  self:orphan()
  return nil, err
end

--- Ends the session when a to-be-closed variable goes out of scope. A failure is ignored: the lease then expires by
-- itself.
function session_mt:__close()
  self:close()
end

session_mt.__select = { -- that of the lease: see task/selection.lua
  is_ready = function(self) return self:error() ~= nil or lease.mt.__select.is_ready(self.lease) end,
  begin = function(self) return lease.mt.__select.begin(self.lease) end,
  arm = function(self)
    local arm = lease.mt.__select.arm
    if arm then arm(self.lease) end
  end,
  finish = function(self) lease.mt.__select.finish(self.lease) end,
  take = function(self) return self:error() end,
  look = function(self)
    local look = lease.mt.__select.look
    if look then look(self.lease) end
  end,
}

--- Returns the id of the lease, and the state.
function session_mt:__tostring()
  return ("keywatch.session<%s%s>"):format(self.hex, self:error() and " lost" or "")
end

-- }======

-- {====== Default sessions ======

--- Creates a default session. Returns it, or nil and an error.
local function grant_default(root, ttl, deadline)
  local found, err = root:lease(ttl, { deadline = deadline })
  if not found then return nil, err end
  return new(root, found:keep())
end

--- Ends the creation of a default session by a killed caller: another caller takes over.
local function undo_default(found)
  found.is_done = true
  if found.companion[found.ttl] == found then found.companion[found.ttl] = nil end
  found.done:set()
end

--- Returns the default session of the store or client below an owner; or nil and an error. Later callers wait while the
-- lease is being granted. If that fails at the timeout of the first caller, another caller takes over.
local function default(owner, ttl, deadline)
  local root = bases.resolve(owner, "")
  local companion = bases.companion(root)
  ttl = ttl or DEFAULT_TTL
  while true do
    local found = companion[ttl]
    if not found or found.pid ~= core.pid() or found.session and found.session:error() then
      found = {
        pid = core.pid(), session = nil, err = nil, deadline = deadline, is_done = false, done = driver.get().event(),
        companion = companion, ttl = ttl,
      }
      companion[ttl] = found
      local ok, session, err = driver.protect(undo_default, found, grant_default, root, ttl, deadline)
      found.session, found.err, found.is_done = ok and session or nil, ok and err or nil, true
      if not found.session and companion[ttl] == found then companion[ttl] = nil end
      found.done:set()
      if not ok then error(session, 0) end
      return found.session, found.err and entry.or_timeout(found.err, deadline)
    end
    if found.session then return found.session end
    if not found.is_done and not found.done:wait(driver.time_left(deadline)) and entry.is_over(deadline) then
      return nil, core.new_error("timeout")
    end
    if found.err and not entry.is_over(found.deadline) then return nil, found.err end
    if found.err and entry.is_over(deadline) then return nil, entry.or_timeout(found.err, deadline) end
  end
end

-- }======

--- Raises if the option `session` of a method on an owner is not a session of the same store or client.
local function check_given(owner, opts, name)
  local given = opts.session
  if given == nil then return end
  if getmetatable(given) ~= session_mt then
    check.misuse("%s: option 'session' must be a session, not %s", name, check.shown(given))
  end
  if opts.ttl then check.misuse("%s: options 'ttl' and 'session' cannot be used together", name) end
  if given.root ~= bases.resolve(owner, "") then
    check.misuse("%s: the session belongs to another store or client", name)
  end
end

--- Returns the session of the options of a method on an owner: the given one, or the default one. Or nil and an error.
local function of_options(owner, opts, deadline)
  local given = opts.session
  if given == nil then return default(owner, opts.ttl, deadline) end
  local err = given:error()
  if err then return nil, err end
  return given
end

return {
  open = open, of_options = of_options, check_given = check_given, methods = session_methods, mt = session_mt,
  suspect = suspect, loss_after = loss_after, lost_at = lost_at,
}
