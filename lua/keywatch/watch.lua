-- SPDX-License-Identifier: MIT
--- watch: what happens to some keys of a store, as something to read from.
--
-- The core queues what the watch is told, in bounds, and never waits. Here is the reader's side: events come out of a
-- buffer, one whole batch of the core at a time, and whoever finds it empty waits for an event of the driver.
-- `revision` says how far the reader has come: everything up to it was handed out.

local check = require "keywatch.check"
local core = require "keywatch.core"
local driver = require "keywatch.driver"
local pages = require "keywatch.pages"

local SYNC_STEPS = 64 -- that sync does, or batches that it puts into the buffer, for a reader that asks for itself

local watch_methods = {}
local watch_mt = { __name = "keywatch.watch", __index = watch_methods }

-- {====== Waiting ======
--
-- A source stands for a store whose watches are waited for. The driver polls it when there is nothing to run.

--- Wakes everybody who waits for a watch, to look for himself.
local function wake(watch)
  if watch.arrival then watch.arrival:set() end
  if watch.progressed then watch.progressed:set() end
end

local function me()
  return coroutine.running() or "main"
end

--- Whether somebody else than the caller reads the watch: the coroutine that read last, if it has not ended. The top
-- level reads only while it waits.
local function is_read_by_other(watch)
  local reader = watch.reader
  if not reader or reader == me() then return false end
  if reader == "main" then return watch.is_awaited_by_main end
  return coroutine.status(reader) ~= "dead"
end

local source_methods = {}
local source_mt = { __index = source_methods }
local source_of = setmetatable({}, { __mode = "kv" }) -- by store; the driver holds those that are waited for

local function get_source(store)
  local source = source_of[store]
  if not source then
    source = setmetatable({
      store = store,
      waiting = {}, -- watches by tag
      count = 0,
      asking = {},  -- watches that want a mark of progress, as soon as they are synced
      syncing = {}, -- watches whose reader somebody waits for, and by how many
    }, source_mt)
    source_of[store] = source
    if store.set_bell then store:set_bell(driver.get().bell()) end
  end
  return source
end

function source_methods:wake_all()
  for _, watch in pairs(self.waiting) do wake(watch) end
end

--- Moves the store on, and wakes those for whom something has come.
function source_methods:poll()
  local seconds, is_pending = self.store:tend()
  if seconds == false then
    self:wake_all()
    return 0
  end
  for watch in pairs(self.asking) do
    if watch.core:request_progress() then self.asking[watch] = nil end
  end
  for watch in pairs(self.syncing) do
    if not is_read_by_other(watch) then watch.progressed:set() end
  end
  for tag in self.store.next_ready, self.store do
    local watch = self.waiting[tag]
    if watch and watch.arrival then watch.arrival:set() end
  end
  return seconds, is_pending
end

function source_methods:begin_sync(watch)
  self.syncing[watch] = (self.syncing[watch] or 0) + 1
  if not watch.core:request_progress() then self.asking[watch] = true end
end

function source_methods:end_sync(watch)
  self.syncing[watch] = self.syncing[watch] > 1 and self.syncing[watch] - 1 or nil
  if not self.syncing[watch] then self.asking[watch] = nil end
end

function source_methods:add(watch)
  if self.count == 0 then driver.get().attach(self) end
  self.count = self.count + 1
  self.waiting[watch.tag] = watch
  watch.waiters = watch.waiters + 1
end

function source_methods:remove(watch)
  self.count = self.count - 1
  watch.waiters = watch.waiters - 1
  if watch.waiters == 0 then
    self.waiting[watch.tag] = nil
    watch.core:disarm() -- what comes is nobody's business until somebody waits again
  end
  if self.count == 0 then driver.get().detach(self) end
end

--- Waits until something may have come; false if `deadline` is over.
local function wait(watch, deadline)
  local d = driver.get()
  local source = get_source(watch.store)
  watch.arrival = watch.arrival or d.event()
  watch.core:arm()
  source:add(watch)
  watch.is_awaited_by_main = watch.is_awaited_by_main or me() == "main"
  local ok, came = pcall(watch.arrival.wait, watch.arrival, deadline and math.max(0, deadline - d.now()))
  if me() == "main" then watch.is_awaited_by_main = false end
  source:remove(watch)
  if not ok then error(came, 0) end
  return came
end

-- }======

-- {====== The buffer ======

local function fail(watch, code, compact_revision)
  local err = core.new_error(code)
  err.compact_revision = compact_revision
  watch.failure = err
  watch.initial = nil
  wake(watch)
end

local function append(watch, events)
  if watch.at == watch.n then watch.buffer, watch.at, watch.n = {}, 0, 0 end
  local buffer, n = watch.buffer, watch.n
  for i = 1, #events do buffer[n + i] = events[i] end
  watch.n = n + #events
end

--- Takes one thing from the core into the buffer; false if there is nothing now.
local function take(watch)
  local kind, what = watch.core:take()
  if not kind then return false end
  if kind == "events" and watch.at == watch.n then
    watch.buffer, watch.at, watch.n = what, 0, #what
  elseif kind == "events" then
    append(watch, what)
  elseif kind == "progress" then
    append(watch, { { type = "progress", revision = what } })
  elseif kind == "compacted" then
    fail(watch, "compacted", what)
  else
    fail(watch, "closed")
  end
  return true
end

local function is_store_closed(watch)
  return watch.store:tend() == false
end

--- A watch that has failed before all that exists was handed out has nothing more to say: what came after that, and
-- what exists now, would not go together with what was handed out.
local function abandon_initial(watch)
  watch.initial = nil
  while not watch.failure and take(watch) do end
  watch.buffer, watch.at, watch.n = {}, 0, 0
end

--- The next of what exists, as an event; or the mark that ends it.
local function take_initial(watch)
  if is_store_closed(watch) then return fail(watch, "closed") end
  local ok, kv = pcall(watch.initial)
  if not ok and watch.core:has_failed() then
    abandon_initial(watch)
  elseif not ok then
    if type(kv) ~= "table" or not kv.code then error(kv, 0) end
    fail(watch, kv.code, kv.compact_revision)
  elseif kv then
    kv.type, kv.initial = "put", true
    append(watch, { kv })
  else
    append(watch, { { type = "synced", revision = watch.initial_revision } })
    watch.initial = nil
  end
end

--- Sees to it that the buffer has something: false if that needs waiting, nil if nothing will come any more.
local function fill(watch)
  while watch.at == watch.n do
    if watch.failure or watch.is_closed then return nil end
    if watch.initial then
      take_initial(watch)
    elseif not take(watch) then
      return false
    end
  end
  return true
end

--- Something to hand out is in the buffer: true. Else nil, and why not: an error, or nothing after close. Without a
-- deadline it waits as long as it takes; a deadline of false does not wait.
local function await(watch, deadline)
  while true do
    local filled = fill(watch)
    if filled then return true end
    if filled == nil then return nil, watch.failure end
    if deadline == false or not wait(watch, deadline) then return nil, core.new_error("timeout") end
  end
end

local function reach(watch, revision)
  if revision <= watch.revision then return end
  watch.revision = revision
  if watch.progressed then watch.progressed:set() end
end

--- Hands out the next event of the buffer. A revision is reached with the last of its events.
local function hand_out(watch)
  local buffer, at = watch.buffer, watch.at + 1
  local event = buffer[at]
  buffer[at] = false
  watch.at = at
  if event.initial then return event end
  local revision = event.mod_revision or event.revision
  local following = buffer[at + 1]
  if not following or following.mod_revision ~= revision then reach(watch, revision) end
  return event
end

local function is_hidden(watch, event)
  return event.type == "progress" and not watch.progress
end

-- }======

--- The next event; or nil and an error, which of code "timeout" is no failure; or nil after close.
function watch_methods:next(timeout)
  check.self(self, "next", watch_mt)
  check.timeout(timeout, "next")
  self.reader = me()
  local deadline = nil
  if timeout then deadline = timeout > 0 and driver.get().now() + timeout end
  while true do
    local ok, err = await(self, deadline)
    if not ok then return nil, err end
    local event = hand_out(self)
    if not is_hidden(self, event) then return event end
  end
end

--- All events of the next revision: { revision, events }; else as next.
function watch_methods:batch(timeout)
  check.self(self, "batch", watch_mt)
  check.timeout(timeout, "batch")
  local event, err = self:next(timeout)
  if not event then return nil, err end
  local events, revision = { event }, event.mod_revision or event.revision
  if event.initial then
    revision = self.initial_revision
  elseif event.mod_revision then
    while true do
      local following = self.buffer[self.at + 1]
      if not following or following.mod_revision ~= revision then break end
      events[#events + 1] = hand_out(self)
    end
  end
  return { revision = revision, events = events }
end

--- An iterator over events. It ends when the watch is closed, and raises what it fails with.
function watch_methods:events()
  check.self(self, "events", watch_mt)
  return function()
    if self.at < self.n then
      self.reader = me()
      local event = hand_out(self)
      if not is_hidden(self, event) then return event end
    end
    local event, err = self:next()
    if err then error(rawget(_G, "ngx") and tostring(err) or err, 0) end
    return event
  end
end

-- {====== Sync ======

local function closed_error()
  local err = core.new_error("closed")
  err.message = "keywatch: the watch is closed"
  return err
end

--- Where what exists can no longer be read as it was, all that is left of it is what has been read already: that is
-- taken, and then the watch is through with it, or fails.
local function settle_initial(watch)
  if not watch.initial or watch.store:status().compact_revision <= watch.initial_revision then return end
  while watch.initial do take_initial(watch) end
end

--- Why nothing can be waited for any more, if that is so.
local function why_not(watch)
  if watch.is_closed then return closed_error() end
  if is_store_closed(watch) then return core.new_error("closed") end
  settle_initial(watch)
  return watch.failure
end

--- The reader asks for itself. Once the core has queued a mark behind all that has happened, all of it can be had
-- without waiting; a watch that lags is brought up, and one that holds as much as it may is relieved a little.
local function sync_alone(watch)
  for i = 1, SYNC_STEPS do
    local revision = watch.core:request_progress()
    if revision then return revision end
    watch.store:tend()
    if not watch.initial and (watch.core:is_blocked() or i > 1) then take(watch) end
    local err = why_not(watch)
    if err then return nil, err end
  end
  if watch.core:has_failed() then
    while watch.initial do take_initial(watch) end
    while fill(watch) and not watch.failure and take(watch) do end
    if watch.failure then return nil, watch.failure end
  end
  return nil, core.new_error("full")
end

--- Somebody else reads: waits until that reader has come as far as the store is now, or has ended.
local function sync_with_reader(watch, timeout)
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  local target = watch.store:status().revision
  local source = get_source(watch.store)
  watch.progressed = watch.progressed or d.event()
  source:add(watch)
  source:begin_sync(watch)
  local ok, revision, err = pcall(function()
    while watch.revision < target do
      local why = why_not(watch)
      if why then return nil, why end
      if not is_read_by_other(watch) then return sync_alone(watch) end
      if not watch.progressed:wait(deadline and deadline - d.now()) then return nil, core.new_error("timeout") end
    end
    return watch.revision
  end)
  source:end_sync(watch)
  source:remove(watch)
  if not ok then error(revision, 0) end
  return revision, err
end

--- A revision up to which everything has been delivered. Where another task reads the watch: once that task has been
-- handed all of it. Where the caller reads it itself: once all of it can be had without waiting.
function watch_methods:sync(timeout)
  check.self(self, "sync", watch_mt)
  check.timeout(timeout, "sync")
  local err = why_not(self)
  if err then return nil, err end
  if is_read_by_other(self) then return sync_with_reader(self, timeout) end
  return sync_alone(self)
end

-- }======

--- What the watch has failed with, or nil.
function watch_methods:error()
  check.self(self, "error", watch_mt)
  return self.failure
end

--- Ends the watch. Whoever waits for it is woken; nothing comes any more.
function watch_methods:close()
  check.self(self, "close", watch_mt)
  if self.is_closed then return end
  self.is_closed = true
  self.core:close()
  self.buffer, self.at, self.n, self.initial = {}, 0, 0, nil
  wake(self)
end

function watch_mt:__tostring()
  local state = self.is_closed and "closed" or self.failure and self.failure.code or "open"
  local key = self.key:gsub('[%c\127-\255"\\]', function(c) return ("\\x%02x"):format(c:byte()) end)
  return ('keywatch.watch<key="%s" revision=%d %s>'):format(key, self.revision, state)
end

watch_mt.__close = watch_methods.close

local FILTERS = { no_put = true, no_delete = true }

-- What the core does not know of.
local OWN_OPTIONS = { initial = "boolean", filters = "table", timeout = "number", deadline = "number" }

local function check_own_options(opts)
  for name, kind in pairs(OWN_OPTIONS) do
    local value = opts[name]
    local found = value ~= value and "nan" or type(value)
    if found ~= "nil" and found ~= kind then
      error(("watch: option '%s' must be a %s, not a %s"):format(name, kind, found), 4)
    end
  end
end

local function check_filters(filters)
  local n = 0
  for i, filter in pairs(filters) do
    n = n + 1
    if type(i) ~= "number" or not FILTERS[filter] then
      error(("watch: filters must be a list of 'no_put' and 'no_delete', and has %s"):format(tostring(filter)), 4)
    end
  end
  if n ~= #filters then error("watch: filters must be a list without holes", 4) end
end

--- The options of the core. Names that nobody knows are left to it to refuse.
local function core_options(opts)
  local t = {}
  check_own_options(opts)
  for name, value in pairs(opts) do
    if FILTERS[name] then error(("watch: there is no option '%s': it is a filter"):format(name), 3) end
    if not OWN_OPTIONS[name] then t[name] = value end
  end
  check_filters(opts.filters or {})
  for _, filter in ipairs(opts.filters or {}) do t[filter] = true end
  return t
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
  if opts.initial and opts.start_revision then
    error("watch: initial and start_revision exclude each other", 2)
  end
  local handle, tag, now = store:open_watch(key, core_options(opts))
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
  return setmetatable({
    core = handle,
    store = store, -- which lives as long as somebody watches it
    tag = tag,
    key = key,
    revision = revision,
    progress = opts.progress,

    buffer = {},   -- events that came; false where they were handed out
    n = 0,         -- how many came
    at = 0,        -- how many were handed out
    initial = initial, -- gives what exists, kv by kv
    initial_revision = opts.initial and now or nil,

    is_awaited_by_main = false,
    waiters = 0,
    is_closed = false,
    -- Set when they are needed, and not listed: an idle watch is a smaller table without them.
    --   reader       the coroutine that read last
    --   arrival      an event of the driver, set when something may have come
    --   progressed   the same, set when the reader has come further
    --   failure      an error
  }, watch_mt)
end

return { open = open, methods = watch_methods, mt = watch_mt }
