-- SPDX-License-Identifier: MIT
--- durable: the calls of a store that has a disk. What they return is durable, and so is all that it has seen.
--
-- The core hands a write over and returns a mark with its answer. A task parks until the mark is settled, so that
-- many tasks share one commit; anybody else waits for the disk.

local check = require "keywatch.check"
local core = require "keywatch.core"
local driver = require "keywatch.driver"
local source = require "keywatch.source"

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
    error(("open: option 'on_progress' must be a function, not a %s"):format(type(on_progress)), 3)
  end
  own.on_progress = nil
  return own, on_progress
end

--- Opens a store, in memory or on a disk.
local function open(opts)
  if type(opts) ~= "table" or rawget(opts, "path") == nil and rawget(opts, "on_progress") == nil then
    return core.open(opts)
  end
  local own, on_progress = split(opts)
  local ok, store, err = pcall(core.open, own)
  if not ok then error(store, 2) end
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
    waiting = {}, -- by number: { mark =, settled = event }; marks rise
    first = 1,
    last = 0,
  }, source_mt)
end)

--- Wakes those whose marks are settled.
function source_methods:poll()
  local seconds, is_pending = self.store:tend()
  local settled = seconds == false and math.huge or self.store:settled()
  while self.first <= self.last and self.waiting[self.first].mark <= settled do
    self.waiting[self.first].settled:set()
    self.waiting[self.first] = nil
    self.first = self.first + 1
  end
  return seconds or nil, is_pending
end

function source_methods:wait(mark)
  local who = { mark = mark, settled = driver.get().event() }
  source.enter(self)
  self.last = self.last + 1
  self.waiting[self.last] = who
  local ok, err = pcall(who.settled.wait, who.settled)
  source.leave(self)
  if not ok then error(err, 0) end
end

local function is_closed(store)
  return store:tend() == false
end

--- True once the mark is settled and its writes are durable; nil and an error if they never will be.
local function await(store, mark)
  if not driver.is_task() then return store:wait(mark) end
  get_source(store):wait(mark)
  if is_closed(store) then return nil, core.new_error("closed") end
  return store:outcome(mark)
end

-- }======

local function finish(store, result, err, mark)
  if not mark then return result, err end
  local ok, why = await(store, mark)
  if not ok then return nil, why end
  return result, err
end

--- Misuse is raised where the method was called, as the core would do it.
local function relay(name, store, ok, ...)
  if ok then return finish(store, ...) end
  error(check.renamed((...), name), 2)
end

for _, name in ipairs {
  "put", "delete", "txn", "compact", "lease_grant", "lease_revoke", "lease_time_to_live", "leases", "arm", "disarm",
  "defragment", "keep", "kept",
} do
  local method = core.store_methods[name]
  methods[name] = function(store, ...) return relay(name, store, pcall(method, store, ...)) end
end

local compact, defragment = methods.compact, methods.defragment

--- What is kept is in a snapshot as it is now: so that has to be durable first.
function methods.open_snapshot(store)
  local kept, err = store:kept("auth")
  if not kept then return nil, err end
  return core.store_methods.open_snapshot(store)
end

--- Gives space that is not in use back to the file system. Writes wait meanwhile.
function methods.defragment(store, opts)
  local ok, err = defragment(store, opts)
  if not ok then return nil, err end
  return store:defragmented()
end

--- With `physical`, all steps of the compaction have been done, too; also of another one that was first.
function methods.compact(store, revision, opts)
  if type(opts) ~= "table" or not opts.physical then return compact(store, revision, opts) end
  local result, err = compact(store, revision, opts)
  while not is_closed(store) do
    local goes_on, why = finish(store, store:go_on())
    if goes_on == nil and why.code == "no_space" then return result, err end -- it has happened; the rest will later
    if goes_on == nil then return nil, why end
    if not goes_on then return result, err end
  end
  return nil, core.new_error("closed")
end

return { open = open }
