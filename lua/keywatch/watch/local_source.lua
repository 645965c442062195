-- SPDX-License-Identifier: MIT
--- local_watch: watches of a store in this process. The core queues what they are told, in bounds, and never waits.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local pages = require "keywatch.store.pages"
local source = require "keywatch.store.source"
local watch = require "keywatch.watch.watch"

local SYNC_STEPS = 64 -- that sync does, or batches that it puts into the buffer, for a reader that asks for itself

-- {====== Waiting ======

local source_methods = {}
local source_mt = { __index = source_methods }

local get_source = source.of_stores(function(store)
  return setmetatable({
    store = store,
    waiting = {}, -- watches by tag
    asking = {},  -- watches that want progress, as soon as they are synced
    syncing = {}, -- watches whose reader somebody waits for, and by how many
  }, source_mt)
end)

function source_methods:wake_all()
  for _, one in pairs(self.waiting) do watch.wake(one) end
end

--- Moves the store on, and wakes those for whom something has come.
function source_methods:poll()
  local seconds, is_pending = self.store:tend()
  if seconds == false then
    self:wake_all()
    return 0
  end
  for one in pairs(self.asking) do
    if one.core:request_progress() then self.asking[one] = nil end
  end
  for one in pairs(self.syncing) do
    if not watch.is_read_by_other(one) then one.progressed:set() end
  end
  for tag in self.store.next_ready, self.store do
    local waiting = self.waiting[tag]
    if waiting and waiting.arrival then waiting.arrival:set() end
  end
  return seconds, is_pending
end

function source_methods:begin_sync(one)
  self.syncing[one] = (self.syncing[one] or 0) + 1
  if not one.core:request_progress() then self.asking[one] = true end
end

function source_methods:end_sync(one)
  self.syncing[one] = self.syncing[one] > 1 and self.syncing[one] - 1 or nil
  if not self.syncing[one] then self.asking[one] = nil end
end

function source_methods:add(one)
  source.enter(self)
  self.waiting[one.tag] = one
  one.waiters = one.waiters + 1
end

function source_methods:remove(one)
  one.waiters = one.waiters - 1
  if one.waiters == 0 then
    self.waiting[one.tag] = nil
    one.core:disarm() -- what comes is nobody's business until somebody waits again
  end
  source.leave(self)
end

-- }======

-- {====== Sync ======

--- Where what exists can no longer be read as it was, all that is left of it is what has been read already: that is
-- taken, and then the watch is through with it, or fails.
local function settle_initial(one)
  if not one.initial or one.store:status().compact_revision <= one.initial_revision then return end
  while one.initial do watch.take_initial(one) end
end

--- Why nothing can be waited for any more, if that is so.
local function why_not(one)
  local err = watch.why_not(one)
  if err then return err end
  settle_initial(one)
  return one.failure
end

--- The reader asks for itself. Once the core has queued progress behind all that has happened, all of it can be had
-- without waiting; a watch that lags is brought up, and one that holds as much as it may is relieved a little.
local function sync_alone(one)
  for i = 1, SYNC_STEPS do
    local revision = one.core:request_progress()
    if revision then return revision end
    one.store:tend()
    if not one.initial and (one.core:is_blocked() or i > 1) then watch.take(one) end
    local err = why_not(one)
    if err then return nil, err end
  end
  if one.core:has_failed() then
    while one.initial do watch.take_initial(one) end
    while watch.fill(one) and not one.failure and watch.take(one) do end
    if one.failure then return nil, one.failure end
  end
  return nil, core.new_error("full")
end

--- Somebody else reads: waits until that reader has come as far as the store is now, or has ended.
local function sync_with_reader(one, timeout)
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  local target = one.store:status().revision
  local own = get_source(one.store)
  one.progressed = one.progressed or d.event()
  own:add(one)
  own:begin_sync(one)
  local ok, revision, err = pcall(function()
    while one.revision < target do
      local why = why_not(one)
      if why then return nil, why end
      if not watch.is_read_by_other(one) then return sync_alone(one) end
      if not one.progressed:wait(deadline and deadline - d.now()) then return nil, core.new_error("timeout") end
    end
    return one.revision
  end)
  own:end_sync(one)
  own:remove(one)
  if not ok then error(revision, 0) end
  return revision, err
end

-- }======

local origin = {}

function origin.take(one)
  local kind, what = one.core:take()
  if kind == "compacted" then
    local err = core.new_error("compacted")
    err.compact_revision = what
    return "failed", err
  elseif kind == "corrupt" or kind == "closed" then
    return "failed", core.new_error(kind)
  end
  return kind, what
end

function origin.wait(one, timeout)
  local own = get_source(one.store)
  own:add(one)
  one.core:arm()
  local ok, came = pcall(one.arrival.wait, one.arrival, timeout)
  own:remove(one)
  if not ok then error(came, 0) end
  return came
end

function origin.look() end

function origin.is_closed(one)
  return one.store:tend() == false
end

function origin.has_failed(one)
  return one.core:has_failed()
end

function origin.begin_again()
  return false
end

function origin.sync(one, timeout)
  local err = why_not(one)
  if err then return nil, err end
  if watch.is_read_by_other(one) then return sync_with_reader(one, timeout) end
  return sync_alone(one)
end

function origin.close(one)
  one.core:close()
end

local function initial_pages(store, handle, key, opts, revision)
  if key == "" and not (opts.prefix or opts.from_key) then key = "\0" end -- as the core takes it
  return pages.iterate(store, key, {
    prefix = opts.prefix,
    range_end = opts.range_end,
    from_key = opts.from_key,
    revision = revision,
  }, function()
    if handle:has_failed() then error(core.new_error("compacted"), 0) end -- another page may be of another history
  end)
end

--- Watches a key, or a range of keys.
local function open(store, key, opts)
  check.self(store, "watch")
  check.argument(type(key) == "string", 1, "watch", "string", key)
  opts = check.options(opts, "watch")
  local handle, tag, now = check.call("watch", store.open_watch, store, key, watch.core_options(opts))
  if not handle then return nil, tag end
  local ok, initial = true, nil
  if opts.initial then ok, initial = pcall(initial_pages, store, handle, key, opts, now) end
  if not ok then
    handle:close()
    if type(initial) == "table" and initial.code then return nil, initial end
    error(initial, 0)
  end
  local start = opts.start_revision or 0
  local revision = start > 0 and start - 1 or now
  if opts.initial then revision = 0 end
  return watch.new {
    core = handle,
    origin = origin,
    store = store, -- which lives as long as somebody watches it
    tag = tag,
    key = key,
    revision = revision,
    progress = opts.progress,
    initial = initial, -- gives what exists, kv by kv
    initial_revision = opts.initial and now or nil,
    waiters = 0,
  }
end

core.store_methods.watch = open

return { open = open }
