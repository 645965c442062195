-- SPDX-License-Identifier: MIT
--- object_watch: a watch of objects: of values that a codec decodes, and that match a filter.
--
-- Changes come from an ordinary watch, with their previous values, and transition.lua computes the events from them.
--
--            nothing more has arrived,                   its queue is full
--            and it can be found by an index
--   ALONE -----------------------------------> SHARED ---------------------> BEHIND
--     ^                                                                        |
--     +----------- its queue is read, and a watch of its own has begun --------+
--
-- ALONE: the watch belongs to the object watch. SHARED: a dispatcher has the watch, see dispatcher.lua. BEHIND: the
-- queue of the dispatcher is read first, and then a watch of its own is opened at the next revision. In each state the
-- events are those of an object watch that was always alone: none is lost or repeated.
--
-- An error is returned as an event, once. Then the object watch has failed.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local dispatchers = require "keywatch.cache.dispatcher"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local selection = require "keywatch.task.selection"
local selectors = require "keywatch.cache.selector"
local transition = require "keywatch.cache.transition"
local watches = require "keywatch.watch.watch"
local filters = require "keywatch.cache.filter"
local workers = require "keywatch.task.worker"

local NAME = "object_watch"
local MAX_BYTES = 1024 * 1024 -- of a queue, as of a watch in the core
local MAX_UNWANTED = 1000     -- changes in a row that do not match, after which other tasks run
local MAX_INDEXED = 100       -- maximum number of values of an indexed requirement

local correct, event_of = transition.correct, transition.event_of
local fill, fill_now, hand_out = watches.fill, watches.fill_now, watches.hand_out
local protocol = watches.mt.__select

local object_watch_methods, object_watch_mt = check.class "keywatch.object_watch"

-- {====== The end ======

--- Notes the high-water marks of the queue in a dispatcher.
local function note_marks(self, entry)
  if entry.most > self.most then self.most = entry.most end
  if entry.most_bytes > self.most_bytes then self.most_bytes = entry.most_bytes end
end

--- Releases the watch or the dispatcher.
local function release(self)
  local watch, entry, opener = self.watch, self.entry, self.opener
  self.watch, self.entry, self.guard, self.opener = nil, nil, nil, nil
  if watch then watch:close() end
  if entry then
    note_marks(self, entry)
    entry.dispatcher:remove(entry)
  end
  if opener then opener:stop(true) end
end

--- Fails the object watch. The error is returned next, as an event; `change` is its cause, if known.
local function fail(self, err, change)
  self.failure = err
  self.last_event = {
    type = "error", error = err, key = change and change.key,
    revision = change and change.mod_revision or self.revision,
  }
end

--- Returns the last event, once.
local function take_last(self)
  local event = self.last_event
  self.last_event, self.is_over = nil, true
  release(self)
  return event
end

-- }======

-- {====== Taking changes ======

--- Returns the underlying watch: that of the dispatcher if the object watch shares it; nil while one is being opened.
local function source_of(self)
  local entry = self.entry
  return self.watch or entry and entry.dispatcher.watch
end

--- Notes a revision up to which every event was returned.
local function reach(self, revision)
  if revision > self.revision then self.revision = revision end
end

-- The functions below get the watch or the entry from their caller: a finalizer may close the object watch before the
-- call.

--- Takes the next change of the own watch. Returns nil if there is none, or the watch has failed. With `is_quick`, for
-- a caller that does not wait, initial pages are read to their end.
local function take_own(self, watch, is_quick)
  if watch.at == watch.n then
    local filled
    if is_quick and watch.initial then filled = fill_now(watch) else filled = fill(watch) end
    if not filled then
      if filled == nil and not self.is_over then fail(self, watch.failure or errors.closed("watch")) end
      return nil
    end
    local n = watch.n - watch.at
    if n > self.most then self.most = n end
  end
  local change = hand_out(watch)
  if change.mod_revision and not change.initial then correct(self.memory, change) end
  return change
end

--- Takes the next item of the dispatcher. Returns a change and the item; nil if there is none, if the dispatcher has
-- failed, or if the object watch is left behind.
local function take_shared(self, entry)
  local shared = entry.dispatcher
  local item = dispatchers.take(entry)
  if not item and not entry.is_behind then
    shared:pump()
    item = dispatchers.take(entry)
  end
  if not item then
    if entry.is_behind or shared.is_working or self.is_over then return nil end
    reach(self, shared.revision)
    local failure = shared.failure
    if failure and failure.code == "compacted" and entry.floor > shared.revision then -- it needs no compacted revision
      dispatchers.leave_behind(entry, entry.floor + 1)
    elseif failure then
      fail(self, failure)
    end
    return nil
  end
  if item.bookmark then return { type = "progress", revision = item.bookmark }, item end
  return item.change, item
end

--- Notes up to which revision every event was returned, after a change was handled.
local function advance(self, watch, item)
  if watch then
    self.revision = watch.revision
  elseif item and self.entry then
    local following = self.entry.items[self.entry.first]
    if not following or following.revision ~= item.revision then reach(self, item.revision) end
  end
end

--- True if the last taken change is not the last one of its revision.
local function is_inside_revision(self)
  local entry, watch = self.entry, self.watch
  if entry then
    local following = entry.items[entry.first]
    return following ~= nil and following.revision == self.taken
  end
  return watch ~= nil and not watch.initial and watch.at < watch.n and watch.revision < self.taken
end

-- }======

-- {====== Sharing ======

local guard = compat.guard(function(entry) entry.dispatcher:remove(entry) end)

local rebind

--- Adds the object watch to a dispatcher that has counted its entry (see dispatcher.lua). It gets the changes after a
-- revision; nil: after the dispatcher's.
local function join(self, shared, revision)
  local entry = shared:add {
    requirement = self.requirement, labels = self.filter.labels, fields = self.filter.fields, arrival = self.arrival,
    max_bytes = self.max_bytes, wants_bookmarks = self.wants_progress,
  }
  if revision then dispatchers.set_floor(entry, revision) end
  self.entry, self.guard = entry, guard(entry)
  return entry
end

--- Returns the dispatcher of the object watch's keys, or nil. A dispatcher with a failed watch is not found.
local function find_shared(self)
  local shared = dispatchers.find(self.registry, self.id, self.filter.decode)
  if not shared or shared.is_working then return shared end
  shared:pump()
  return dispatchers.find(self.registry, self.id, self.filter.decode)
end

--- Moves the object watch, whose own watch has no more events, to the dispatcher of its keys. If there is none, its own
-- watch becomes that of a new dispatcher. A watch that may not have reached its first revision stays alone: others
-- would miss the events before that.
local function share(self, watch)
  if not self.requirement or watch.initial or watch.failure or watch.at < watch.n then return end
  if self.start > 0 and watch.revision < self.start then return end
  local shared = find_shared(self)
  if self.watch ~= watch or shared and (shared.is_working or watch.revision < shared.last_change) then return end
  if shared then dispatchers.reserve(shared) end
  if shared and shared.failure then return end -- a finalizer has removed the last entry
  self.watch = nil
  local dispatcher = shared or dispatchers.new(watch, self.filter.decode, self.registry, self.id)
  join(self, dispatcher, watch.revision)
  if self.is_over then release(self) end -- closed by a finalizer
  rebind(self)
  if shared then watch:close() end
end

-- }======

-- {====== Opening watches ======

local PASSED = { "prefix", "range_end", "from_key", "require_leader", "max_bytes" }

--- Returns the options of the ordinary watch.
local function watch_options(opts, start, initial)
  local own = { prev_kv = true, progress = true, initial = initial }
  for _, name in ipairs(PASSED) do own[name] = opts[name] end
  if start > 0 then own.start_revision = start end
  return own
end

--- Makes a watch the own one.
local function adopt(self, watch)
  watch.arrival = self.arrival
  self.watch = watch
  rebind(self)
  self.arrival:set()
end

--- Opens a watch of its own for an object watch that was left behind and has read its queue. A watch of a client is
-- opened in a task, since that waits for the server.
local function catch_up(self, entry)
  local x, key, resume = self.x, self.key, entry.resume
  local before = entry.dispatcher.watch
  local is_remote = before.watch_calls ~= nil
  local options = watch_options(self.opts, resume, nil)
  if is_remote then options[watches.CLUSTER] = select(4, before.core:seen()) end
  note_marks(self, entry)
  if self.is_over then return end -- closed by a finalizer
  self.entry, self.guard = nil, nil
  self.start, self.times_behind = resume, self.times_behind + 1
  local function open()
    local ok, watch, err = driver.attempt(x.watch, x, key, options) -- if it raises, the worker starts over
    self.opener = nil
    if self.is_over then
      if ok and watch then watch:close() end
      return
    end
    if not ok then err = errors.new("internal", errors.text_of(watch.err)) end
    if ok and watch and watch.store == before.store then return adopt(self, watch) end
    if ok and watch then -- a cache that has started over: with another history
      watch:close()
      err = before.last or core.new_error("regressed")
    end
    fail(self, err)
    self.arrival:set()
  end
  rebind(self)
  if not is_remote then return open() end
  self.opener = workers.start(open)
end

-- }======

-- {====== Time ======

--- Returns a bookmark; nil if nothing has been handed out yet, or none is wanted.
local function bookmark(self)
  if self.revision == 0 or self.opts.bookmarks == false then return nil end
  self.counts.bookmarks = self.counts.bookmarks + 1
  return { type = "bookmark", revision = self.revision }
end

--- Requests progress of the underlying watch, which becomes a bookmark. Returns true if that is certain to come: a
-- server is silent if it has nothing new.
local function ask_progress(self)
  local watch = source_of(self)
  if not watch then return false end
  if watch.store then return watch.core:request_progress() ~= nil end
  if watch.watch_calls:is_trusted(watch) then watch.watch_calls:request_progress(watch) end
  return false
end

--- Notes the last revision that a shared object watch has reached.
local function expire_shared(self, entry)
  local shared = entry.dispatcher
  if entry.is_behind then return end
  if shared.watch.store and not shared.failure then shared.watch.core:request_progress() end
  shared:pump()
  local has_more = entry.last > entry.first or entry.last == entry.first and not entry.items[entry.first].bookmark
  if not has_more and not entry.is_behind and not shared.is_working then reach(self, shared.revision) end
end

--- Ends the object watch at the end of its lifetime. Returns the last bookmark, or nil.
local function expire(self)
  local watch, entry = self.watch, self.entry
  if watch and watch.store and watch.at == watch.n and not watch.initial and watch.core:request_progress()
    and fill(watch) and watch.buffer[watch.at + 1].type == "progress" then
    reach(self, hand_out(watch).revision)
  elseif entry then
    expire_shared(self, entry)
  end
  self.is_over, self.has_expired = true, true
  release(self)
  return bookmark(self)
end

--- Does the due work. Returns a bookmark, or nil.
local function on_time(self)
  local now = driver.get().now()
  if self.end_at and now >= self.end_at and not is_inside_revision(self) then return expire(self) end
  local interval = self.interval
  if not interval or now < self.bookmark_at or is_inside_revision(self) then return nil end
  self.bookmark_at = now + interval
  if self.revision == 0 or ask_progress(self) then return nil end
  return bookmark(self)
end

--- Returns the time of the next due work, or nil.
local function due_at(self)
  local at = self.end_at
  if self.interval and (not at or self.bookmark_at < at) then at = self.bookmark_at end
  return at
end

-- }======

-- {====== Stepping ======

--- Reports a bad value that is skipped to the program.
local function report_skipped(self, err, change)
  self.counts.skipped = self.counts.skipped + 1
  local hook = self.opts.on_error
  if not hook then return log.warn("%s", err.message) end
  local ok, trouble = driver.attempt(hook, err, change.key)
  if not ok then log.error("%s", "on_error of an object watch has failed: " .. log.failure(self, trouble)) end
end

--- True if a put without a previous value is the first one of its key, though it does not create it: a cache that has
-- missed changes reports a key that was created and then changed as one change. A previous value that is compacted is
-- lost only by a compaction at the revision of the change, or later.
local function is_first(self, change)
  local watch = source_of(self)
  local store = watch and watch.store
  if not store then return false end
  local ok, status = pcall(store.status, store)
  return ok and status.compact_revision < change.mod_revision
end

--- Returns the event of a change, or nil.
local function handle(self, change, item)
  local counts, kind = self.counts, change.type
  if kind == "put" or kind == "delete" then
    counts.received = counts.received + 1
    self.taken = change.mod_revision
    local event, err, is_bad = event_of(self.filter, change, item, is_first, self)
    if self.is_over then return nil end -- closed by a function of the program
    if event then
      counts.delivered = counts.delivered + 1
      return event
    end
    if not err then
      counts.filtered = counts.filtered + 1
    elseif is_bad and self.filter.skips_bad then
      report_skipped(self, err, change)
    else
      fail(self, err, change)
    end
    return nil
  elseif kind == "synced" then
    return { type = "synced", revision = change.revision }
  end
  if not self.wants_progress then return nil end
  counts.bookmarks = counts.bookmarks + 1
  return { type = "bookmark", revision = change.revision }
end

--- Returns the next event without waiting; false if the caller must wait for one; nil if there will be no more. If
-- is_busy is set, there is more to read without waiting.
local function step(self, is_unbounded)
  local peeked, unwanted = self.peeked, 0
  self.is_busy, self.peeked = false, nil
  if peeked then return peeked end
  while true do
    if self.last_event then return take_last(self) end
    if self.is_over then return nil end
    if self.end_at or self.interval then
      local event = on_time(self)
      if event or self.is_over then return event end
    end
    local change, item
    local watch, entry = self.watch, self.entry
    if watch then
      change = take_own(self, watch, is_unbounded)
    elseif entry then
      change, item = take_shared(self, entry)
    end
    if change then
      local event = handle(self, change, item)
      if not self.failure then advance(self, watch, item) end
      if event then return event end
      unwanted = unwanted + 1
      if unwanted == MAX_UNWANTED and not is_unbounded then
        self.is_busy = true
        return false
      end
    elseif not self.last_event and not self.is_over then
      if entry and entry.is_behind then
        if entry.first > entry.last then catch_up(self, entry) end -- else a finalizer has left it behind just now
      elseif watch and self.requirement then
        share(self, watch)
        if self.watch then return false end
      else
        return false
      end
    end
  end
end

-- }======

-- {====== Waiting ======

--- Begins to wait for the underlying watch or the dispatcher.
local function bind(self)
  local watch = self.watch
  local shared = not watch and self.entry and self.entry.dispatcher
  self.bound = watch or shared
  if watch then
    protocol.begin(watch)
    protocol.arm(watch)
  elseif shared then
    shared:begin_wait()
    shared:arm()
  end
end

--- Ends that wait.
local function unbind(self)
  local bound = self.bound
  self.bound = nil
  if not bound then return end
  if bound.end_wait then bound:end_wait() else protocol.finish(bound) end
end

--- Called after a move between watch and dispatcher: waiters now wait for the new one.
function rebind(self)
  if self.waits == 0 then return end
  unbind(self)
  bind(self)
end

--- Returns the poller that sets the event of an object watch in a select when work is due.
local function new_timer(self)
  return {
    poll = function()
      local now, at = driver.get().now(), self.is_busy and 0 or due_at(self)
      if not at then return nil end
      if now < at then return at - now end
      self.arrival:set()
    end,
  }
end

--- Begins a wait. Returns the event that is set when there may be events.
local function begin_wait(self)
  self.waits = self.waits + 1
  if self.waits == 1 then bind(self) end
  return self.arrival
end

--- Ends a wait.
local function end_wait(self)
  self.waits = self.waits - 1
  if self.waits == 0 then unbind(self) end
end

--- Arms the event, which is set when a change comes.
local function arm(self)
  local bound = self.bound
  if not bound then return end
  if bound.end_wait then bound:arm() else protocol.arm(bound) end
end

--- Checks once for changes that are not announced without a wait. Returns true if that must be repeated after a step.
local function look(self)
  local watch = source_of(self)
  return watch and watch.origin.look(watch) or self.is_busy
end

--- Waits until there may be events or due work. Returns false if the deadline was first.
local function wait(self, deadline)
  local d = driver.get()
  if self.is_busy then
    d.sleep(0)
    return not deadline or d.now() < deadline
  end
  local at = due_at(self)
  local first = deadline and at and math.min(deadline, at) or deadline or at
  local arrival = begin_wait(self)
  arm(self)
  local left = driver.time_left(first)
  local ok, came = driver.protect(end_wait, self, arrival.wait, arrival, left)
  end_wait(self)
  if not ok then error(came, 0) end
  return came or not deadline or d.now() < deadline
end

-- }======

--- Waits for the next event and returns it. Returns nil and an error: of code "timeout", or the one with which the
-- object watch has failed. Returns only nil after close, and at the end of the lifetime.
function object_watch_methods:next(timeout)
  check.timeout(timeout, "next")
  local is_quick = timeout and timeout <= 0
  local event = step(self, is_quick)
  if event == false and is_quick then
    local has_more
    repeat
      has_more = look(self)
      event = step(self, true)
    until event ~= false or not has_more
    if event == false then return nil, core.new_error("timeout") end
  elseif event == false then
    local d = driver.get()
    d.check_wait()
    local deadline = timeout and d.now() + timeout
    while event == false do
      local is_late = not wait(self, deadline)
      event = step(self)
      if event == false and is_late then return nil, core.new_error("timeout") end
    end
  end
  if event then return event end
  return nil, self.failure
end

--- Returns an iterator over events. It ends when the object watch is closed or its lifetime has passed, and raises the
-- error that the object watch fails with.
function object_watch_methods:events()
  return function()
    local event, err = step(self)
    if not event then event, err = self:next() end
    if not event and not err then return nil end
    if err or event.type == "error" then errors.raise(err or event.error) end
    return event
  end
end

--- Returns the error that the object watch has failed with, or nil.
function object_watch_methods:error()
  return self.failure
end

--- Ends the object watch. Its waiters are woken, and no more events come. Idempotent.
function object_watch_methods:close()
  if self.is_closed then return end
  self.is_closed, self.is_over = true, true
  self.last_event, self.peeked = nil, nil
  release(self)
  self.arrival:set()
end

object_watch_mt.__close = object_watch_methods.close

-- {====== Selecting ======

object_watch_mt.__select = { -- see task/selection.lua
  is_ready = function(self)
    local event = step(self)
    if event then self.peeked = event end
    return event ~= false
  end,
  begin = function(self)
    if not self.timer then self.timer = new_timer(self) end
    self.selections = self.selections + 1
    driver.get().attach(self.timer)
    return begin_wait(self)
  end,
  arm = arm,
  finish = function(self)
    end_wait(self)
    self.selections = self.selections - 1
    if self.selections == 0 then driver.get().detach(self.timer) end
  end,
  take = function(self)
    local event = step(self)
    if event == false then return selection.NOTHING end
    if event then return event end
    return nil, self.failure
  end,
  look = look,
}

-- }======

--- Returns the word for the state.
local function state_of(self)
  if self.is_closed then return "closed" end
  if self.has_expired then return "ended" end
  return self.failure and self.failure.code or "open"
end

--- Returns the status of the object watch: counters, and high-water marks of its queue. Does not wait.
function object_watch_methods:status()
  local counts, entry, watch = self.counts, self.entry, self.watch
  local shared = entry and entry.dispatcher
  if entry then note_marks(self, entry) end
  return {
    state = state_of(self),
    revision = self.revision,
    queued = entry and entry.last - entry.first + 1 or watch and watch.n - watch.at or 0,
    most_queued = self.most,
    queued_bytes = entry and entry.bytes or 0,
    most_queued_bytes = self.most_bytes,
    received = counts.received,
    delivered = counts.delivered,
    filtered = counts.filtered,
    decoded = counts.decoded,
    skipped = counts.skipped,
    failed_tests = counts.failed_tests,
    bookmarks = counts.bookmarks,
    times_behind = self.times_behind,
    shared = shared and {
      watches = shared.count, changes = shared.counts.changes, decoded = shared.counts.decoded,
      tested = shared.counts.tested,
    } or nil,
  }
end

--- Returns the key, the revision and the state.
function object_watch_mt:__tostring()
  local key = self.key:gsub('[%c\127-\255"\\]', function(c) return ("\\x%02x"):format(c:byte()) end)
  return ('keywatch.object_watch<key="%s" revision=%d %s>'):format(key, self.revision, state_of(self))
end

-- {====== Opening ======

local KINDS = {
  prefix = "boolean", range_end = "string", from_key = "boolean", start_revision = "revision", initial = "boolean",
  require_leader = "boolean", max_bytes = "number", timeout = "seconds", deadline = "seconds", codec = "any",
  labels = "any", labels_at = "string", fields = "any", include = "function", where = "function",
  transform = "function", old = "boolean", on_bad_value = check.one_of("fail", "skip"), on_error = "function",
  lifetime = "some seconds", bookmarks = "boolean or seconds",
}

--- Returns the requirement by which a dispatcher finds the object watch, or nil. The watch refuses a range with two
-- different ends.
local function requirement_of(filter, opts)
  if (opts.prefix and 1 or 0) + (opts.from_key and 1 or 0) + (opts.range_end and 1 or 0) > 1 then return nil end
  local best = filter.labels and selectors.indexable(filter.labels)
  local other = filter.fields and selectors.indexable(filter.fields)
  if other and (not best or #other.values < #best.values) then best = other end
  return best and #best.values <= MAX_INDEXED and best or nil
end

--- Returns the text for the keys of an object watch, by which a dispatcher is found.
local function id_of(key, opts)
  local ending = opts.prefix and "prefix" or opts.from_key and "from" or "range" .. (opts.range_end or "")
  return ("%d:%s%s%s"):format(#key, key, opts.require_leader and "leader:" or "", ending)
end

--- Returns the present revision of x, a store or client; or nil and an error. Waits for the server, if there is one.
local function revision_now(x, key, opts)
  local has_range = opts.prefix or opts.from_key or opts.range_end
  local result, err = x:range(key == "" and not has_range and "\0" or key, {
    prefix = opts.prefix, from_key = opts.from_key, range_end = opts.range_end, limit = 1, keys_only = true,
    timeout = opts.timeout, deadline = opts.deadline,
  })
  if not result then return nil, err end
  return result.revision
end

--- Adds the object watch to an existing dispatcher that has not passed its first revision. Returns true; false if there
-- is none; or nil and an error.
local function join_at_once(self)
  local shared = self.requirement and not self.opts.initial and find_shared(self)
  if not shared or shared.is_working then return false end
  if self.start > 0 and self.start <= shared.revision then return false end
  dispatchers.reserve(shared)
  if shared.failure then return false end -- a finalizer has removed the last entry
  local entry = join(self, shared)
  local floor, err = self.start - 1, nil
  if self.start == 0 then floor, err = revision_now(self.x, self.key, self.opts) end
  if not floor then return nil, err end
  dispatchers.set_floor(entry, floor)
  if entry.is_behind and entry.resume <= floor then entry.resume = floor + 1 end
  self.revision = floor
  return true
end

--- Opens the first watch. Returns true, or nil and an error.
local function begin(self)
  local is_done, err = join_at_once(self)
  if is_done ~= false then return is_done, err end
  local own = watch_options(self.opts, self.start, self.opts.initial)
  own.timeout, own.deadline = self.opts.timeout, self.opts.deadline
  local watch, failed = self.x:watch(self.key, own)
  if not watch then return nil, failed end
  watch.arrival = self.arrival
  self.watch, self.revision = watch, watch.revision
  if self.start == 0 then share(self, watch) end
  return true
end

--- Watches objects. Returns the object watch, or nil and an error.
local function new(x, key, opts)
  local counts = {
    received = 0, delivered = 0, filtered = 0, decoded = 0, skipped = 0, failed_tests = 0, bookmarks = 0,
  }
  local filter = filters.of(opts, counts, NAME)
  local d = driver.get()
  local self = setmetatable({
    x = x,
    key = key,
    opts = opts,
    filter = filter,
    counts = counts,
    requirement = requirement_of(filter, opts), -- by which a dispatcher finds it; nil: it stays alone
    registry = compat.companion(x, NAME), -- see dispatcher.lua
    id = id_of(key, opts),
    start = opts.start_revision or 0,
    revision = 0,        -- every event up to it was returned
    taken = 0,           -- the revision of the last change that was taken
    memory = {},         -- of transition.correct
    max_bytes = opts.max_bytes or MAX_BYTES,
    wants_progress = opts.bookmarks ~= nil and opts.bookmarks ~= false,
    interval = type(opts.bookmarks) == "number" and opts.bookmarks or nil,
    bookmark_at = 0,
    end_at = nil,
    watch = nil,         -- ALONE: its own watch
    entry = nil,         -- SHARED or BEHIND: its entry of a dispatcher
    guard = nil,         -- removes the entry when the object watch is collected
    opener = nil,        -- the worker that opens its own watch
    arrival = d.event(), -- set when something may have arrived
    waits = 0,           -- waits that have begun and not ended
    bound = nil,         -- the own watch or the dispatcher, for which they wait
    timer = nil,         -- sets the event when work is due, during a select
    selections = 0,      -- selects that wait for it
    most = 0, most_bytes = 0, -- high-water marks of the queue
    times_behind = 0,
    peeked = nil,        -- an event that is_ready has found
    failure = nil,
    last_event = nil,    -- an error, not returned yet
    is_busy = false,     -- it has stopped looking, so that other tasks run
    is_over = false,     -- no more events come
    is_closed = false,
    has_expired = false,
  }, object_watch_mt)
  local ok, is_open, err = pcall(begin, self)
  if not ok or not is_open then self:close() end
  if not ok then check.raise_again(is_open, NAME, "watch") end
  if not is_open then return nil, err end
  local now = d.now()
  self.end_at = opts.lifetime and now + opts.lifetime
  self.bookmark_at = self.interval and now + self.interval or 0
  return self
end

--- Opens an object watch of an object that has the methods watch and range. Returns it, or nil and an error.
local function open(x, key, opts)
  check.argument(type(key) == "string", 1, NAME, "string", key)
  opts = check.copy(check.options(opts, NAME, KINDS)) -- the program may change its own table
  if opts.on_error and opts.on_bad_value ~= "skip" then
    check.misuse("%s: option 'on_error' needs on_bad_value = 'skip': an error that ends the watch is an event", NAME)
  end
  return check.results(new(x, key, opts))
end

-- }======

return { open = open, methods = object_watch_methods, mt = object_watch_mt }
