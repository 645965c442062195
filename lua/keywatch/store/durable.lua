-- SPDX-License-Identifier: MIT
--- durable: the calls of a store that has a disk. What they return is durable, and so is all that it has seen.
--
-- The core hands a write over and returns a ticket with its answer. A task parks until the ticket is settled, so that
-- many tasks share one commit; anybody else, and a task that cannot be suspended where it writes, waits for the disk.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local source = require "keywatch.store.source"

local methods = core.durable_methods

local RECORDS_AT_ONCE = 50000 -- that are read when a store is opened, between two looks around

--- Reads what a store has on its disk. Whoever gives `on_progress` is told how far that has come.
local function read_all(store, on_progress)
  repeat
    local done, total = store:read_on(RECORDS_AT_ONCE)
    if not done then return nil, total end
    if on_progress and total > 0 then on_progress(done, total) end
  until done == total
  return store
end

--- The options without `on_progress`, which the core does not know of.
local function split(opts)
  local own = {}
  for name, value in pairs(opts) do own[name] = value end
  local on_progress = own.on_progress
  if on_progress ~= nil and type(on_progress) ~= "function" then
    check.misuse("open: option 'on_progress' must be a function, not %s", check.shown(on_progress))
  end
  own.on_progress = nil
  return own, on_progress
end

--- Opens a store, in memory or on a disk.
local function open(opts)
  if type(opts) ~= "table" or rawget(opts, "path") == nil and rawget(opts, "on_progress") == nil then
    return check.call("open", core.open, opts)
  end
  local own, on_progress = split(opts)
  local store, err = check.call("open", core.open, own)
  if not store or not own.path then return store, err end
  local is_read, opened, why = pcall(read_all, store, on_progress)
  if not (is_read and opened) then store:close() end
  if not is_read then error(opened, 0) end
  return opened, why
end

-- {====== Waiting ======

local source_methods = {}
local source_mt = { __index = source_methods }

local get_source = source.of_stores(function(store)
  return setmetatable({
    store = store,
    waiting = {}, -- by number: { ticket =, is_settled =, failure = an error, settled = event }; tickets rise
    first = 1,
    last = 0,
  }, source_mt)
end)

local function is_closed(store)
  return store:tend() == false
end

--- Why the writes of a settled ticket are not durable, or nil. A finalizer may have closed the store meanwhile.
local function failure_of(store, ticket, has_closed)
  local ok, _, err = pcall(store.outcome, store, ticket)
  if has_closed or not ok then return core.new_error("closed") end
  return err
end

--- Wakes those whose tickets are settled, and tells each what has become of its own.
function source_methods:poll()
  local seconds, is_pending = self.store:tend()
  local settled = seconds == false and math.huge or self.store:settled()
  while self.first <= self.last and self.waiting[self.first].ticket <= settled do
    local who = self.waiting[self.first]
    who.failure = failure_of(self.store, who.ticket, seconds == false)
    who.is_settled = true
    self.waiting[self.first] = nil
    self.first = self.first + 1
    who.settled:set()
  end
  return seconds or nil, is_pending
end

local function await_fate(who)
  while not who.is_settled do who.settled:wait() end
end

--- Parks the task until the ticket is settled. The error if its writes are not durable.
function source_methods:wait(ticket)
  local who = { ticket = ticket, is_settled = false, failure = nil, settled = driver.get().event() }
  source.enter(self)
  self.last = self.last + 1
  self.waiting[self.last] = who
  local ok, err = pcall(await_fate, who)
  source.leave(self)
  if not ok then error(err, 0) end
  return who.failure
end

--- Waits until the ticket is settled. The error if its writes are not durable, and never will be.
local function await(store, ticket)
  if driver.can_park() then return get_source(store):wait(ticket) end
  local _, err = store:wait(ticket)
  return err
end

-- }======

local IN_DOUBT = { cancelled = true, closed = true, storage = true } -- all others have changed nothing

--- An error of a write that was handed over, which says so if it may have been done, or will be.
local function doubt(err)
  if type(err) == "table" and IN_DOUBT[err.code] then err.maybe_done = true end
  return err
end

--- Ends a call: what it came to is returned when that is durable.
local function finish(store, is_read, result, err, ticket)
  if not ticket then return result, err end
  local ok, failure = pcall(await, store, ticket)
  if failure and result ~= nil and not is_read then doubt(failure) end
  if not ok then error(failure, 0) end
  if failure then return nil, failure end
  return result, err
end

local READS = { lease_time_to_live = true, leases = true, rows = true }

for _, name in ipairs {
  "put", "delete", "txn", "compact", "lease_grant", "lease_revoke", "lease_time_to_live", "leases", "arm", "disarm",
  "disarm_own", "defragment", "change_rows", "rows",
} do
  local method, is_read = core.store_methods[name], READS[name]
  methods[name] = function(store, ...) return finish(store, is_read, check.call(name, method, store, ...)) end
end

local compact, defragment = methods.compact, methods.defragment

--- What is kept is in a snapshot as it is now: so that has to be durable first.
function methods.open_snapshot(store)
  local rows, err = store:rows("auth")
  if not rows then return nil, err end
  return core.store_methods.open_snapshot(store)
end

--- Gives space that is not in use back to the file system. Writes wait meanwhile.
function methods.defragment(store, opts)
  local ok, err = defragment(store, opts)
  if not ok then return nil, err end
  return store:defragmented()
end

--- An error of a compaction whose steps have not all been done, though its first, which is durable, may have been.
local function incomplete(result, err)
  err.maybe_done = result ~= nil or nil
  return err
end

--- With `physical`, all steps of the compaction have been done, too; also of another one that was first.
function methods.compact(store, revision, opts)
  if type(opts) ~= "table" or not opts.physical then return compact(store, revision, opts) end
  local result, err = compact(store, revision, opts)
  if err and err.maybe_done then return nil, err end
  while not is_closed(store) do
    local goes_on, why = finish(store, false, store:go_on())
    if goes_on == nil and why.code == "no_space" then return result, err end -- it has happened; the rest will later
    if goes_on == nil then return nil, incomplete(result, why) end
    if not goes_on then return result, err end
  end
  return nil, incomplete(result, core.new_error("closed"))
end

return { open = open }
