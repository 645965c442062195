-- SPDX-License-Identifier: MIT
--- turns: calls of a store that would take long. In a task such a call is made in turns, between which other tasks,
-- servers and watches run. Outside of a task the call is made in one piece.
--
-- A call is tried first with the work of one turn, which is enough for nearly every call. A range that needs more, or a
-- transaction that only reads, is read at one revision, even if other tasks write during that. A list of leases has no
-- revision, see csrc/store/lease_read.h. A write that needs more keeps the store busy: reads see the
-- state before it, and the writes of other tasks wait in the order of their calls. Waiting requests of clients are in
-- the same order, see csrc/bind/lua_write.h. A long write continues if its task is
-- cancelled: it is committed, unless it fails or the store is closed before its end.
--
-- `queue` is a poller, attached to the driver while a task waits or a long write of a task is running: its polls step
-- the store.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local poller = require "keywatch.store.poller"

local MAX_RESTARTS = 3 -- of a read whose revision was compacted; after them it is read in one piece
local PAUSE = 0.01     -- seconds between two checks of a compaction that waits

local methods = core.store_methods
local try_range, open_read, read_more = methods.try_range, methods.open_read, methods.read_more
local range_in_one_piece = methods.range
local is_busy, take, must_wait = methods.is_busy, methods.take, methods.must_wait
local take_number, set_first_task, prepare = methods.take_number, methods.set_first_task, methods.prepare

-- {====== Long ranges ======

--- Reads to the end, and lets other tasks run before each part. Returns the result, or nil and an error.
local function read_all(store, read)
  local list, restarts = {}, 0
  local result, err
  repeat
    local is_whole = restarts > MAX_RESTARTS
    if not is_whole then driver.get().sleep(0) end
    result, err = read_more(store, list, read, is_whole)
    if result == false and err then list, restarts = {}, restarts + 1 end
  until result ~= false
  return result, err
end

--- Reads a range in turns. Returns its result, or nil and an error.
local function range_in_turns(store, key, opts)
  local read, why = open_read(store, key, opts)
  if not read then return nil, why end
  local ok, result, err = pcall(read_all, store, read)
  read:close() -- if the task was cancelled, or the store has failed
  if not ok then error(result, 0) end
  return result, err
end

--- Reads a range. Returns its result, or nil and an error.
function methods.range(store, key, opts)
  local ok, result, err = pcall(try_range, store, key, opts)
  if not ok then check.raise_again(result, "range") end
  if result ~= false then return check.results(result, err) end
  if driver.can_park() then return check.results(range_in_turns(store, key, opts)) end
  return check.results(check.call("range", range_in_one_piece, store, key, opts))
end

-- }======

-- {====== Waiting ======

local queue_methods = {}
local queue_mt = { __index = queue_methods }

local waiting = setmetatable({}, { __mode = "k" }) -- by store: the queue, while a task waits for its turn

local get_queue = poller.of_stores(function(store)
  return setmetatable({
    store = store,
    waiters = {}, -- from index first to last, with holes: { queue =, index =, number = (see lua_write.h), task =,
                  -- event =, is_closed = (the store) }
    first = 1,
    last = 0,
    owners = {},  -- tasks whose long writes have not ended, or have ended since the last poll: { write =, event = }
  }, queue_mt)
end)

--- Forgets the waiters of the parent process.
function queue_methods:after_fork()
  self.waiters, self.first, self.last, self.owners, self.count = {}, 1, 0, {}, 0
  waiting[self.store] = nil
  set_first_task(self.store, nil)
  driver.get().detach(self)
end

--- Returns the number of the first waiter; 0, which is lower than all numbers, if no task waits.
local function first_number(self)
  local first = self.waiters[self.first]
  return first and first.number or 0
end

--- Removes a waiter from its queue. Returns false if the waiter is no longer there.
local function remove(waiter)
  local self = waiter.queue
  if self.waiters[waiter.index] ~= waiter then return false end -- after a fork
  self.waiters[waiter.index] = nil
  while self.first <= self.last and not self.waiters[self.first] do self.first = self.first + 1 end
  if self.first > self.last then waiting[self.store] = nil end
  set_first_task(self.store, first_number(self))
  poller.leave(self)
  return true
end

--- Wakes the first waiting task. That task wakes the next one when it leaves the queue. Waiters of tasks that are done,
-- and whose code may never run again, are removed.
local function wake_first(self)
  local first = self.waiters[self.first]
  while first and first.task.state == "done" do
    remove(first)
    first = self.waiters[self.first]
  end
  if first then first.event:set() end
end

--- Removes a waiter from its queue, and wakes the next one.
local function leave(waiter)
  if remove(waiter) then wake_first(waiter.queue) end
end

--- Steps the store, and wakes the tasks that can continue.
function queue_methods:poll()
  local store, owners = self.store, self.owners
  local seconds, is_pending = store:run_due()
  set_first_task(store, first_number(self)) -- again: an error may have prevented it after a change of the waiters
  for i = #owners, 1, -1 do
    local owner = owners[i]
    if owner.write:has_ended() then
      table.remove(owners, i)
      poller.leave(self)
      owner.event:set()
    end
  end
  if must_wait(store, first_number(self)) then return 0, is_pending end
  wake_first(self)
  return seconds or nil, is_pending
end

--- Waits until a waiter is first in the queue, and the store is not busy, or is closed.
local function await_first(self, waiter)
  local store = self.store
  while true do
    if self.first == waiter.index then
      waiter.is_closed = store:run_due() == false
      if waiter.is_closed or not must_wait(store, waiter.number) then return end
    end
    waiter.event:wait()
  end
end

--- Waits for the turn of this task. Returns the task's number in the queue; or false if the store is closed. Called
-- again with that number, the task waits at the front of the queue.
function queue_methods:wait(number)
  local d = driver.get()
  local waiter = { queue = self, index = nil, number = 0, task = d.current(), event = d.event(), is_closed = false }
  poller.enter(self)
  if number then self.first = self.first - 1 else self.last = self.last + 1 end
  waiter.index = number and self.first or self.last
  self.waiters[waiter.index], waiting[self.store] = waiter, self
  waiter.number = number or take_number(self.store)
  set_first_task(self.store, first_number(self))
  local ok, err = driver.protect(leave, waiter, await_first, self, waiter)
  leave(waiter)
  if not ok then error(err, 0) end
  return not waiter.is_closed and waiter.number
end

--- In a task, waits while a long write is running, or earlier writes wait. Returns false if the store was closed during
-- the wait.
local function await_turn(store)
  if not waiting[store] and not must_wait(store) or not driver.can_park() then return true end
  return get_queue(store):wait()
end

-- }======

-- {====== Long writes ======

--- Takes the results of a long write that has ended. If the write only reads, it is read in turns here. Returns false
-- and true if its revision was compacted during that: the call must be repeated.
local function take_results(store, write)
  while true do
    local result, err, ticket = take(store, write)
    if result ~= false or err then return result, err, ticket end
    driver.get().sleep(0)
  end
end

--- Waits for the end of a long write. Returns its results.
local function finish_write(store, owner)
  while not owner.write:has_ended() do owner.event:wait() end
  return take_results(store, owner.write)
end

--- Waits for the end of a long write. Returns its results. If the task is cancelled, the write continues.
function queue_methods:await_end(write)
  local owner = { write = write, event = driver.get().event() }
  poller.enter(self)
  self.owners[#self.owners + 1] = owner
  local ok, result, err, ticket = pcall(finish_write, self.store, owner)
  local failure = ok and err or not ok and result
  local is_in_doubt = not ok or result == nil and errors.code_of(err) == "closed"
  if is_in_doubt and type(failure) == "table" then failure.maybe_done = true end
  if not ok then error(result, 0) end
  return result, err, ticket
end

--- Waits for the turn of this task. Waits again if the step of the store before the call has begun a long write, the
-- expiry of a lease. Returns false if the store is closed.
local function await_prepared(store)
  local number
  repeat
    number = get_queue(store):wait(number)
    if not number then return false end
  until not prepare(store, number)
  return true
end

--- Returns a method that waits for its turn, and then calls the method of the core, which is never long.
local function waiting_method(name)
  local method = methods[name]
  return function(store, ...)
    local has_to_wait = waiting[store] or prepare(store) -- false if not a store: the method refuses it
    if has_to_wait and driver.can_park() and not await_prepared(store) then
      return nil, core.new_error("closed")
    end
    return check.call(name, method, store, ...)
  end
end

local put = waiting_method "put"
local expects_long_writes = false

--- Makes puts of stores in memory wait for long writes, too. Called before the first long write, and before a server or
-- a lease, whose expiry may cause one. Until then a put is the core's, without extra cost.
local function expect_long_writes()
  methods.put, expects_long_writes = put, true
end

--- True if a call of a store must wait before it is tried. An object of another class is refused by the call itself.
local function is_behind(store)
  return waiting[store] or expects_long_writes and must_wait(store)
end

--- Makes a long call that only reads, in a task. Returns its results; or false if its revision was compacted.
local function read_in_turns(begin, store, ...)
  local read, err = begin(store, ...)
  if not read then return nil, err end
  return take_results(store, read)
end

--- Makes a long call in turns, in a task. With `is_tried` it was tried, and the store is not busy.
local function call_in_turns(name, is_tried, store, ...)
  local try, begin = methods["try_" .. name], methods["begin_" .. name]
  while true do
    if not is_tried then
      if not await_turn(store) then return nil, core.new_error("closed") end
      local result, err, ticket = try(store, ...)
      if result ~= false then return result, err, ticket end
    end
    expect_long_writes()
    local write, err, ticket = begin(store, ...)
    if write == nil then return nil, err, ticket end
    local result = false
    if write then result, err, ticket = get_queue(store):await_end(write) end
    if result ~= false then return result, err, ticket end
    is_tried = false
  end
end

--- Returns the results of a method of the core, without trailing nils: LuaJIT's assert raises its last argument, which
-- must be the error.
local function give(result, err, ticket)
  if ticket then return result, err, ticket end
  return check.results(result, err)
end

--- Installs a method whose calls may be long. A call that only reads does not wait for writes.
local function install_long(name)
  local in_one_piece, try, try_read = methods[name], methods["try_" .. name], methods["try_read_" .. name]
  local begin = methods["begin_" .. name]
  methods[name] = function(store, ...)
    local has_to_wait = is_behind(store)
    local ok, result, err, ticket = pcall(has_to_wait and try_read or try, store, ...)
    if not ok then check.raise_again(result, name) end
    if result ~= false then return give(result, err, ticket) end
    local can_park, only_reads, is_tried = driver.can_park(), err, not has_to_wait and not is_busy(store)
    for _ = 0, can_park and only_reads and MAX_RESTARTS or -1 do
      result, err, ticket = check.call(name, read_in_turns, begin, store, ...)
      if result ~= false then return give(result, err, ticket) end
    end
    if only_reads or not can_park then return check.call(name, in_one_piece, store, ...) end
    return give(check.call(name, call_in_turns, name, is_tried, store, ...))
  end
end

for _, name in ipairs { "delete", "txn", "lease_revoke" } do install_long(name) end
for _, name in ipairs { "arm", "disarm", "disarm_own", "change_rows", "rows", "lease_grant", "defragment" } do
  methods[name] = waiting_method(name)
end

local grant = methods.lease_grant

function methods.lease_grant(store, ttl, opts)
  expect_long_writes()
  return grant(store, ttl, opts)
end

-- }======

-- {====== Lists of leases ======

local describe_lease, open_leases, list_more = methods.describe_lease, methods.open_leases, methods.list_more

--- Reads an opened list, in turns if this is a task. Returns the list, or nil and an error; and a ticket.
local function list_all(store, read)
  local list, is_whole = {}, false
  while true do
    local result, err, ticket = list_more(store, list, read, is_whole)
    if result ~= false then return result, err, ticket end
    is_whole = not driver.can_park()
    if not is_whole then driver.get().sleep(0) end
  end
end

--- Reads an opened list, and closes it, even if the task is cancelled.
local function make_list(store, read)
  local ok, list, err, ticket = pcall(list_all, store, read)
  read:close()
  if not ok then error(list, 0) end
  return list, err, ticket
end

function methods.leases(store, opts)
  local read, err = check.call("leases", open_leases, store, opts)
  if not read then return nil, err end
  return give(make_list(store, read))
end

function methods.lease_time_to_live(store, id, opts)
  local lease, err, ticket = check.call("lease_time_to_live", describe_lease, store, id, opts)
  if not lease or not lease.keys then return give(lease, err, ticket) end
  lease.keys, err, ticket = make_list(store, lease.keys)
  if not lease.keys then return give(nil, err, ticket) end
  return give(lease, nil, ticket)
end

-- }======

-- {====== Compaction ======

local compact = waiting_method "compact"

--- Compacts the history. With `physical`, returns after all compacted records were removed.
function methods.compact(store, revision, opts)
  local is_long = type(opts) == "table" and opts.physical == true and driver.can_park()
  local result, err, ticket = compact(store, revision, is_long and check.copy(opts, "physical") or opts)
  while is_long and not ticket and store:is_compacting() do
    local seconds = store:run_due()
    driver.get().sleep(seconds == 0 and 0 or math.min(seconds or PAUSE, PAUSE))
  end
  if result and is_long and not ticket and store:run_due() == false then
    local closed = core.new_error("closed")
    closed.maybe_done = true -- the first step is done
    return nil, closed
  end
  return give(result, err, ticket)
end

-- }======

return { put = put, compact = compact, expect_long_writes = expect_long_writes }
