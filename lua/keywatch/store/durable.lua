-- SPDX-License-Identifier: MIT
--- durable: the methods of a store on a disk. A method returns when its result, and every write that the result depends
-- on, is durable.
--
-- The core applies a write at once and returns a ticket with the result. The ticket is settled when its commit group
-- is durable or has failed. A task is parked until then, so that the writes of many tasks share one commit group. At
-- top level, and in a task that cannot be suspended at that point, the program blocks until then.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local log = require "keywatch.support.log"
local poller = require "keywatch.store.poller"
local turns = require "keywatch.store.turns"

local methods = core.durable_methods

local RECORDS_AT_ONCE = 50000 -- read from the disk between two calls of on_progress, fewer if they are large

--- Reads all records of a store from its disk. Calls on_progress(done, total) periodically, if given. Returns
-- the store, or nil and an error.
local function read_all(store, on_progress)
  repeat
    local done, total = store:read_on(RECORDS_AT_ONCE)
    if not done then return nil, total end
    if on_progress and total > 0 then on_progress(done, total) end
  until done == total
  return store
end

--- Returns nil and the error of a failed open. Its field `where` is the line that called keywatch.
local function fail_open(err)
  err.where = check.where()
  return nil, err
end

--- Opens a store of the core. Returns it, or nil and an error. Misuse is raised at the line that called keywatch.
local function open_core(opts)
  local store, err = check.call("open", core.open, opts)
  return store, err
end

--- Opens a store, in memory or on a disk. Returns it, or nil and an error.
local function open(opts)
  local own, on_progress = opts, nil
  if type(opts) == "table" and rawget(opts, "on_progress") ~= nil then -- unknown to the core
    check.some(opts, "open", { on_progress = "function" })
    own, on_progress = check.copy(opts, "on_progress"), opts.on_progress
  end
  if type(opts) ~= "table" or rawget(opts, "path") == nil then
    return check.results(driver.open_store(open_core, own))
  end
  if own.now ~= nil then driver.check_disk() end
  local store, err = driver.open_store(open_core, own)
  if not store then return fail_open(err) end
  local is_read, opened, why = pcall(read_all, store, on_progress)
  if not (is_read and opened) then store:close() end
  if not is_read then error(opened, 0) end
  if not opened then return fail_open(why) end
  for _, text in ipairs(opened:status().errors) do log.warn("%s: %s", own.path, text) end
  return opened
end

-- {====== Waiting ======

local poller_methods = {}
local poller_mt = { __index = poller_methods }

local get_poller = poller.of_stores(function(store)
  return setmetatable({
    store = store,
    writers = {}, -- waiting tasks, from index first to last, by ascending ticket: { ticket =, is_settled =,
                  -- failure = error or nil, settled = driver event }
    first = 1,
    last = 0,
  }, poller_mt)
end)

--- True if the store is closed. Does work of the store that is due.
local function is_closed(store)
  return store:run_due() == false
end

--- Returns the error of a settled ticket whose writes are not durable, or nil. A finalizer may have closed the store
-- since.
local function failure_of(store, ticket, has_closed)
  local ok, _, err = pcall(store.outcome, store, ticket)
  if has_closed or not ok then return core.new_error("closed") end
  return err
end

--- Wakes the tasks whose tickets are settled. Does work of the store that is due.
function poller_methods:poll()
  local seconds, is_pending = self.store:run_due()
  local settled = seconds == false and math.huge or self.store:settled()
  while self.first <= self.last and self.writers[self.first].ticket <= settled do
    local writer = self.writers[self.first]
    writer.failure = failure_of(self.store, writer.ticket, seconds == false)
    writer.is_settled = true
    self.writers[self.first] = nil
    self.first = self.first + 1
    writer.settled:set()
  end
  return seconds or nil, is_pending
end

--- Waits until the ticket of a writer is settled.
local function await_settled(writer)
  while not writer.is_settled do writer.settled:wait() end
end

--- Parks the task until the ticket is settled. Returns nil if its writes are durable, otherwise an error.
function poller_methods:wait(ticket)
  local writer = { ticket = ticket, is_settled = false, failure = nil, settled = driver.get().event() }
  poller.enter(self)
  self.last = self.last + 1
  self.writers[self.last] = writer
  local ok, err = driver.protect(poller.leave, self, await_settled, writer)
  poller.leave(self)
  if not ok then error(err, 0) end
  return writer.failure
end

--- Waits until the ticket is settled. Returns nil if its writes are durable, otherwise an error.
local function await(store, ticket)
  if driver.can_park() then return get_poller(store):wait(ticket) end
  local _, err = store:wait(ticket)
  return err
end

-- }======

local IN_DOUBT = { cancelled = true, closed = true, storage = true } -- codes; after any other error nothing was changed

--- Sets maybe_done in the error of an applied write that may be durable, or may become durable. Returns the error.
local function mark_maybe_done(err)
  if type(err) == "table" and IN_DOUBT[err.code] then err.maybe_done = true end
  return err
end

--- Ends a method: waits until its result is durable, and returns the result.
local function finish(store, is_read, result, err, ticket)
  if not ticket then return check.results(result, err) end
  local ok, failure = pcall(await, store, ticket)
  if failure and result ~= nil and not is_read then mark_maybe_done(failure) end
  if not ok then error(failure, 0) end
  return check.results(result, failure or err)
end

local READS = { lease_time_to_live = true, leases = true, rows = true }

for _, name in ipairs {
  "put", "delete", "txn", "compact", "lease_grant", "lease_revoke", "lease_time_to_live", "leases", "arm", "disarm",
  "disarm_own", "defragment", "change_rows", "rows",
} do
  local method, is_read = turns[name] or core.store_methods[name], READS[name]
  methods[name] = function(store, ...) return finish(store, is_read, method(store, ...)) end
end

local compact, defragment = methods.compact, methods.defragment -- as defined above; both do more here

--- Opens a snapshot. Makes a checkpoint first: a snapshot shows the content of the database.
function methods.open_snapshot(store)
  local ok, err = finish(store, true, store:checkpoint())
  if not ok then return nil, err end
  return core.store_methods.open_snapshot(store)
end

--- Gives unused space back to the file system. Writes wait until that is done.
function methods.defragment(store, opts)
  local ok, err = defragment(store, opts)
  if not ok then return nil, err end
  return store:defragmented()
end

--- Returns the error of a compaction that was not completed. It has maybe_done if the first step may be durable.
local function incomplete(result, err)
  err.maybe_done = result ~= nil or nil
  return err
end

--- Compacts the history. With `physical` it returns after all steps of this compaction and of earlier ones were done,
-- or when the disk has no space for them: they are then done later.
function methods.compact(store, revision, opts)
  if type(opts) ~= "table" or not opts.physical then return compact(store, revision, opts) end
  local result, err = compact(store, revision, opts)
  if err and err.maybe_done then return nil, err end
  while not is_closed(store) do
    local is_running, why = finish(store, false, store:step_compaction())
    if is_running == nil and why.code == "no_space" then return check.results(result, err) end -- other steps: later
    if is_running == nil then return nil, incomplete(result, why) end
    if not is_running then break end
    if driver.can_park() then driver.get().sleep(0) end -- a step that has removed nothing has no ticket to wait for
  end
  if is_closed(store) then return nil, incomplete(result, core.new_error("closed")) end
  local ok, why = finish(store, false, store:checkpoint()) -- the space of removed records is free after that
  if not ok and why.code ~= "no_space" then return nil, incomplete(result, why) end
  return check.results(result, err)
end

return { open = open }
