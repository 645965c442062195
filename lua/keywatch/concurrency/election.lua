-- SPDX-License-Identifier: MIT
--- election: candidates compete to become the leader. At most one of them leads at a time. The leader announces a
-- value, such as its address. The keys have the layout of etcd's clients and of the Election service, so candidates of
-- either can compete in the same election.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local fence = require "keywatch.concurrency.fence"
local held_keys = require "keywatch.concurrency.held_key"
local names = require "keywatch.concurrency.names"
local observers = require "keywatch.concurrency.observer"
local request = require "keywatch.concurrency.request"
local sessions = require "keywatch.concurrency.session"

local election_methods, election_mt = check.class "keywatch.election"

local leadership_methods, leadership_mt = check.class "keywatch.leadership"

held_keys.extend(leadership_mt)
fence.extend(leadership_mt)

local OPTIONS = { ttl = "ttl", session = "any" }

--- Returns the election of a name. Does not wait: the session is created at the first use.
local function open(owner, name, opts)
  check.self(owner, "election")
  check.argument(type(name) == "string", 1, "election", "string", name)
  opts = check.options(opts, "election", OPTIONS)
  sessions.check_given(owner, opts, "election")
  return setmetatable({
    name = name,
    owner = owner,
    prefix = names.prefix_of(name),
    opts = { ttl = opts.ttl, session = opts.session },
  }, election_mt)
end

--- Does what owner:election does, with this session.
function sessions.methods.election(session, name)
  check.argument(type(name) == "string", 1, "election", "string", name)
  local election = open(session.owner, name, { session = session })
  return election
end

--- Returns the class and the name.
function election_mt:__tostring()
  return ("keywatch.election<%s>"):format(self.name)
end

-- {====== Leading ======

--- Changes the value of a key, if its create revision is `created`. Returns true, or nil and an error: with the code
-- "lost" if there is no such key, or the session is lost.
local function set_value(session, key, created, value, times)
  local root = session.root
  local ok, result, err = request(session, root.txn, root, {
    compare = { { key = key, create_revision = created } },
    success = { { put = key, value = value, lease = session.lease.id } },
  }, times)
  if not ok then error(result, 0) end
  local lost = (not result or not result.succeeded) and sessions.loss_after(session, err)
  if lost then return nil, lost end
  if not result then return nil, err end
  if result.succeeded then return true end
  return nil, errors.new("lost", "keywatch: the leadership is lost: its key was deleted")
end

--- Returns the function `adopt` for held_keys.acquire, which is called if the session already has the key. It sets the
-- value of the key, and returns true, or nil and an error.
local function adopt_with(value)
  return function(own, created, before, deadline)
    if before == value then return true end
    return set_value(own.session, own.key, created, value, { deadline = deadline })
  end
end

--- Waits until the caller leads. Returns the leadership, or nil and an error. If the call fails or is cancelled, its
-- key is deleted.
function election_methods:campaign(value, opts)
  check.argument(type(value) == "string", 1, "campaign", "string", value)
  opts = check.times(opts, "campaign")
  local deadline = opts.deadline or opts.timeout and driver.get().now() + opts.timeout
  local own, created = held_keys.acquire(self.owner, self.opts, self.name, value, deadline, false, adopt_with(value))
  if not own then return nil, created end -- the error
  return held_keys.new(leadership_mt, own, self.owner, self.prefix .. own.session.hex, created)
end

--- Announces a new value. Returns true; or nil and an error, with the code "lost" if the caller no longer leads.
function leadership_methods:proclaim(value, opts)
  check.argument(type(value) == "string", 1, "proclaim", "string", value)
  opts = check.times(opts, "proclaim")
  local held_key = self.held_key
  local err = held_key:reason()
  if err then return nil, err end
  local ok
  ok, err = set_value(self.session, held_key.entry.key, self.revision, value, opts)
  if not ok and err.code == "lost" and not self.session:error() then held_key:lose() end
  return check.results(ok, err)
end

--- Stops leading. Returns true, also if the caller has resigned before. Returns nil and an error with the code "lost"
-- if the leadership was lost before; or nil and another error if the server did not answer: the key is then deleted in
-- the background.
function leadership_methods:resign(opts)
  opts = check.times(opts, "resign")
  return check.results(self.held_key:give_back(opts))
end

--- Resigns when a to-be-closed variable goes out of scope.
function leadership_mt:__close()
  self:resign()
end

-- }======

-- {====== Following ======

--- Returns the kv of the leader's key, or nil if there is no leader; or nil and an error.
function election_methods:leader(opts)
  opts = check.times(opts, "leader")
  local range = { timeout = opts.timeout, deadline = opts.deadline }
  for name, value in pairs(names.OLDEST) do range[name] = value end
  local result, err = check.call("leader", self.owner.range, self.owner, self.prefix, range)
  if not result then return nil, err end
  return result.kvs[1]
end

--- Returns an observer, whose calls return the kv of the present leader and of each later one; or nil and an error.
function election_methods:observe(opts)
  opts = check.times(opts, "observe")
  return check.results(observers.new(self.owner, self.prefix, opts))
end

-- }======

return {
  open = open, methods = election_methods, mt = election_mt, leadership_methods = leadership_methods,
}
