-- SPDX-License-Identifier: MIT
--- stm: software transactions. A function reads keys and notes writes; its writes are committed in one transaction of
-- the store, if the keys that the function has read have not changed. Otherwise the function is called again.
--
-- Each call of the function is an attempt with a tx object of its own. The reads of an attempt:
--
--   seen      by key: the mod_revision that was read, 0 for a key that does not exist; validated by the commit
--   found     by key: the kv that was read, or false
--   base      the revision of all reads, with a level that reads at one revision
--   fetched   by key: kvs, or false, from the commit of the previous attempt, or the prefetch. They count as read when
--             the function reads them
--
-- Invariant: a commit whose outcome is in doubt is not repeated.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"

-- By isolation level: has_base: all reads are of one revision; validates: the commit fails if a key that was read has
-- changed since; guards_writes: it fails, too, if a key that is written has changed since the base.
local LEVELS = {
  serializable_snapshot = { has_base = true, validates = true, guards_writes = true },
  serializable = { has_base = true, validates = true },
  repeatable_reads = { validates = true },
  read_committed = {},
}

local FIRST_PAUSE = 0.001  -- seconds: the bound of the random pause after the second conflict in a row; it doubles
local LONGEST_PAUSE = 0.064

local tx_methods, tx_mt = check.class "keywatch.tx"

--- Returns whether the attempt is running, and the number of its reads and writes.
function tx_mt:__tostring()
  return ("keywatch.tx<%d read, %d written%s>"):format(self.n_seen, #self.written, self.is_over and " over" or "")
end

-- {====== An attempt ======

--- Returns the tx object of a new attempt. `base` and `fetched` are from the commit that has failed, or nil.
local function begin(run, base, fetched)
  return setmetatable({
    run = run,
    base = base,
    fetched = fetched or {},
    seen = {},
    found = {},
    order = {},  -- the keys of `seen`, as they were read
    n_seen = 0,
    writes = {}, -- by key: the operation
    written = {}, -- the keys of `writes`, as they were first written
    failure = nil, -- the error of a read: the attempt cannot be committed
    is_over = false,
  }, tx_mt)
end

--- Raises if the attempt has ended, a read has failed, or the key is not a string.
local function check_use(tx, name, key)
  if tx.is_over then
    check.misuse("%s: the software transaction has ended: tx is valid until its function returns", name)
  end
  if tx.failure then error(tx.failure, 0) end
  check.argument(type(key) == "string", 1, name, "string", key)
end

--- Ends the attempt with an error, also if the function catches the error.
local function fail(tx, err)
  tx.failure = err
  error(err, 0)
end

--- Notes the read of a key, unless another task has done that before.
local function note(tx, key, kv)
  if tx.seen[key] then return end
  tx.n_seen = tx.n_seen + 1
  tx.order[tx.n_seen] = key
  tx.seen[key], tx.found[key] = kv and kv.mod_revision or 0, kv
end

--- Reads a key. At a revision, any member that has reached the revision may answer. Returns the result of the range, or
-- nil and an error.
local function read(run, key, base)
  local owner = run.owner
  local opts = { revision = base, serializable = base ~= nil, deadline = run.deadline }
  local result, err = check.call("get", owner.range, owner, key, opts)
  if result or not base or err.code ~= "future_revision" then return result, err end
  opts.serializable = false
  return check.call("get", owner.range, owner, key, opts)
end

--- Reads a key from the owner. If all reads must be of one revision, and another task of the function has set that
-- revision during the read, reads again at that revision.
local function fetch(tx, key)
  local has_base = tx.run.level.has_base
  repeat
    local base = tx.base
    local result, err = read(tx.run, key, base)
    if tx.is_over then check.misuse("get: the software transaction has ended before the key was read") end
    if not result then fail(tx, err) end
    if has_base then tx.base = tx.base or result.revision end
    if not has_base or tx.base == (base or result.revision) then return result.kvs[1] or false end
  until false
end

--- Notes a key as read, and reads it unless that was done before.
local function see(tx, key)
  if tx.seen[key] then return end
  local kv = tx.fetched[key]
  if kv == nil then kv = fetch(tx, key) end
  note(tx, key, kv)
end

-- }======

-- {====== Methods of tx ======

--- Returns the id of a lease, or nil.
local function id_of(lease)
  return core.id(type(lease) == "table" and lease.id or lease)
end

--- Returns the kv of a key, or nil. A key that was written before has only the fields key, value and lease.
function tx_methods:get(key)
  check_use(self, "get", key)
  local write = self.writes[key]
  if write then return write.put and { key = key, value = write.value, lease = id_of(write.lease or 0) } or nil end
  see(self, key)
  local kv = self.found[key]
  return kv and setmetatable(check.copy(kv), getmetatable(kv)) or nil -- the function may change it
end

--- Returns the mod_revision of a key as it was read, 0 if the key does not exist. Own writes do not count.
function tx_methods:revision(key)
  check_use(self, "revision", key)
  see(self, key)
  return self.seen[key]
end

--- Notes an operation for a key. The last one counts.
local function write(tx, key, operation)
  if not tx.writes[key] then tx.written[#tx.written + 1] = key end
  tx.writes[key] = operation
end

local PUT_OPTIONS = { lease = "any" }

--- Returns the lease in the options of a put, or its id; nil if there is none.
local function lease_of(opts)
  local lease = check.options(opts, "put", PUT_OPTIONS).lease
  if lease ~= nil and not id_of(lease) then
    check.misuse("put: option 'lease' must be a lease or an id, not %s", check.shown_id(lease))
  end
  return lease
end

--- Notes that the commit must set the value of a key.
function tx_methods:put(key, value, opts)
  check_use(self, "put", key)
  check.argument(type(value) == "string", 2, "put", "string", value)
  write(self, key, { put = key, value = value, lease = lease_of(opts) })
end

--- Notes that the commit must delete a key.
function tx_methods:delete(key)
  check_use(self, "delete", key)
  write(self, key, { delete = key })
end

-- }======

-- {====== The commit ======

--- Returns the compares of the commit.
local function compares(tx)
  local level, list = tx.run.level, {}
  if level.validates then
    for i, key in ipairs(tx.order) do list[i] = { key = key, mod_revision = tx.seen[key] } end
  end
  if not (level.guards_writes and tx.base) then return list end
  for _, key in ipairs(tx.written) do
    if not tx.seen[key] then list[#list + 1] = { key = key, mod_revision = tx.base + 1, op = "<" } end
  end
  return list
end

--- Returns operations that read keys.
local function gets(keys)
  local list = {}
  for i, key in ipairs(keys) do list[i] = { get = key } end
  return list
end

--- Returns the kvs in the responses to `gets`, by key; false for a key that does not exist.
local function by_key(keys, responses)
  local kvs = {}
  for i, key in ipairs(keys) do kvs[key] = responses[i] end
  return kvs
end

--- True if no commit is needed: there are no writes, and all reads are of one revision.
local function is_done(tx)
  if #tx.written > 0 then return false end
  return tx.run.level.has_base or not tx.run.level.validates or tx.n_seen <= 1
end

--- Executes a transaction of the owner. Returns its result, or nil and an error.
local function execute(run, txn)
  local owner = run.owner
  return check.call("stm", owner.txn, owner, txn, { deadline = run.deadline })
end

--- Returns the error of a transaction, with the numbers of reads and writes if there are too many operations.
local function explain(err, n_read, n_written)
  if err.code ~= "too_many_ops" then return err end
  err.message = ("%s: the software transaction reads %d keys and writes %d"):format(err.message, n_read, n_written)
  return err
end

--- Returns the seconds until the deadline, or nil without one; and the error "deadline_exceeded" if it has passed.
local function time_left(run)
  local left = run.deadline and run.deadline - driver.get().now()
  if not left or left > 0 then return left end
  local text = ("keywatch: stm: the deadline has passed after %d conflicts"):format(run.conflicts)
  return 0, errors.new("deadline_exceeded", text)
end

--- Commits the attempt. Returns true; or false, the revision and the kvs for the next attempt; or nil and an error. The
-- branch that is executed after a conflict reads the keys that the next attempt will probably need. Nothing is sent
-- after the deadline, since the commit would be in doubt.
local function commit(tx)
  if is_done(tx) then return true end
  local _, late = time_left(tx.run)
  if late then return nil, late end
  local success = {}
  for i, key in ipairs(tx.written) do success[i] = tx.writes[key] end
  local conflicts = compares(tx)
  local failure = #conflicts > 0 and gets(tx.order) or nil
  local result, err = execute(tx.run, { compare = conflicts, success = success, failure = failure })
  if not result then return nil, explain(err, tx.n_seen, #tx.written) end
  if result.succeeded then return true end
  return false, tx.run.level.has_base and result.revision or nil, by_key(tx.order, result.responses)
end

-- }======

-- {====== Attempts ======

--- Reads the keys of the option `prefetch`, in one transaction. Returns revision and kvs for the first attempt, or nil
-- and an error. If the answer is lost, nothing has changed: then the keys are read when they are needed.
local function prefetch(run)
  if #run.prefetch == 0 then return nil, {} end
  local result, err = execute(run, { success = gets(run.prefetch) })
  if result then return run.level.has_base and result.revision or nil, by_key(run.prefetch, result.responses) end
  if err.maybe_done then return nil, {} end
  return nil, nil, explain(err, #run.prefetch, 0)
end

--- Waits a random time after conflicts in a row, so that other callers succeed. There is no wait after the first
-- conflict, as the next attempt knows the newest values. Returns an error if the deadline has passed.
local function pause(run)
  run.conflicts = run.conflicts + 1
  local left, late = time_left(run)
  if late then return late end
  if run.conflicts == 1 or not driver.can_park() then return nil end
  local bound = math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ^ math.min(run.conflicts - 2, 10))
  driver.get().sleep(math.min(driver.random() * bound, left or bound))
end

--- Packs the results of pcall: returns the first one, and a list of the others with their number `n`.
local function pack(ok, ...)
  return ok, { n = select("#", ...), ... }
end

--- Makes one attempt. Returns true and the results; false, and revision and kvs for the next attempt; or nil and an
-- error. Raises what the function raises.
local function attempt(run, base, fetched)
  local tx = begin(run, base, fetched)
  local ok, results = pack(pcall(run.fn, tx))
  tx.is_over = true
  local failure = tx.failure
  if not ok and not (failure and rawequal(results[1], failure)) then error(results[1], 0) end
  if failure and failure.code == "compacted" and tx.base then return false end -- the base was compacted: start over
  if failure then return nil, failure end
  local is_committed, revision, kvs = commit(tx)
  if is_committed then return true, results end
  return is_committed, revision, kvs
end

--- Makes attempts until one is committed. Returns the results of the function as a list, or nil and an error.
local function repeat_attempts(run)
  local base, fetched, err = prefetch(run)
  if err then return nil, err end
  while true do
    local is_committed, first, second = attempt(run, base, fetched)
    if is_committed then return first end
    if is_committed == nil then return nil, first end
    base, fetched = first, second
    local late = pause(run)
    if late then return nil, late end
  end
end

-- }======

local OPTIONS = {
  isolation = check.one_of("serializable_snapshot", "serializable", "repeatable_reads", "read_committed"),
  prefetch = check.list_of("a list of keys", function(key) return type(key) == "string" end),
  timeout = "seconds", deadline = "seconds",
}

--- Returns the keys of the option `prefetch`, without repetitions.
local function prefetch_keys(opts)
  local keys, is_there = {}, {}
  for _, key in ipairs(opts.prefetch or {}) do
    if not is_there[key] then keys[#keys + 1] = key end
    is_there[key] = true
  end
  return keys
end

--- Calls fn(tx) until its reads and writes are committed. Returns the results of fn, or nil and an error.
local function run_stm(owner, fn, opts)
  check.self(owner, "stm")
  check.argument(type(fn) == "function", 1, "stm", "function", fn)
  opts = check.options(opts, "stm", OPTIONS)
  local run = {
    owner = owner,
    fn = fn,
    level = LEVELS[opts.isolation or "serializable_snapshot"],
    prefetch = prefetch_keys(opts),
    deadline = opts.deadline or opts.timeout and driver.get().now() + opts.timeout,
    conflicts = 0,
  }
  local results, err = repeat_attempts(run)
  if not results then return nil, err end
  return compat.unpack(results, 1, results.n)
end

return { run = run_stm, methods = tx_methods }
