-- SPDX-License-Identifier: MIT
--- watch: the reader's side of a watch. It is the same for a store in this process and for a server.
--
-- Events are moved from the core's queue into a buffer, one whole batch at a time, and are returned to the reader from
-- the buffer ("handed out"). A long revision arrives in several pieces. A reader that finds both empty waits for an
-- event of the driver. Invariant: everything up to the field `revision` was handed out.
--
-- The queue belongs to the origin of the watch (local_origin.lua, remote_origin.lua), a table with `owner`, the name of
-- the watched object in error texts, and these functions:
--
--   take(watch)            takes the next item from the queue. Returns "events", a list, and whether more of the same
--                          revision follows; "progress" and a revision; "failed" and an error; or nil if the queue is
--                          empty
--   begin_wait(watch)      called before a wait
--   arm(watch)             called after begin_wait, and again if the wait continues: the event watch.arrival is set
--                          once, when something has arrived
--   end_wait(watch)        called after a wait, once for each begin_wait
--   look(watch)            checks once for new events, without waiting, and completes a page of the existing kvs
--                          that was begun, if that needs no wait. Returns true if the caller has to check again when
--                          the queue is empty again
--   is_closed(watch)       true if the store, or the client, is closed
--   has_failed(watch)      true if the watch has failed, even if the error was not taken yet
--   begin_again(watch)     called if the existing kvs were compacted while they were read, and none was handed out.
--                          Returns true if the reading was restarted, at a later revision
--   sync(watch, timeout)   as watch:sync
--   close(watch)           ends the watch
--
-- The field `initial`, an iterator over the existing kvs, never waits. While the next page is being read it raises an
-- error of code "timeout"; the origin wakes the watch when the page has arrived, or continues when the iterator is
-- called again.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local selection = require "keywatch.task.selection"

local watch_methods, watch_mt = check.class "keywatch.watch"

-- {====== Waiting ======

--- Wakes all waiters of a watch. Each of them checks the watch again.
local function wake(watch)
  if watch.arrival then watch.arrival:set() end
  if watch.progressed then watch.progressed:set() end
end

local running = coroutine.running

--- Returns the coroutine of the caller, or "main". (Some VMs have a coroutine for the main program, too.)
local function me()
  local co, is_main = running()
  return not is_main and co or "main"
end

--- True if another coroutine reads the watch: it was the last to read, and has not ended. The main program counts as a
-- reader only while it waits.
local function is_read_by_other(watch)
  local reader = watch.reader
  if not reader or reader == me() then return false end
  if reader == "main" then return watch.is_awaited_by_main end
  return not driver.has_ended(reader)
end

--- Begins a wait. Returns the event that is set when something may have arrived.
local function begin_wait(watch)
  local fresh = not watch.arrival and driver.get().event()
  watch.arrival = watch.arrival or fresh -- atomic
  watch.is_awaited_by_main = watch.is_awaited_by_main or me() == "main"
  watch.origin.begin_wait(watch)
  return watch.arrival
end

--- Ends a wait.
local function end_wait(watch)
  watch.origin.end_wait(watch)
  if me() == "main" then watch.is_awaited_by_main = false end
end

--- Ends the wait of a killed caller.
local function undo_wait(watch)
  watch.origin.end_wait(watch)
end

--- Waits until something may have arrived. Returns false if the deadline has passed. Returns true at once if the event
-- had to be made: a finalizer may have closed the watch during that, and the caller checks again.
local function wait(watch, deadline)
  local d = driver.get()
  if deadline then d.check_wait() end -- raises even if the deadline has passed
  if not watch.arrival then
    watch.arrival = d.event()
    return true
  end
  local arrival = begin_wait(watch)
  watch.origin.arm(watch)
  local left = driver.time_left(deadline)
  local ok, came = driver.protect(undo_wait, watch, arrival.wait, arrival, left)
  end_wait(watch)
  if not ok then error(came, 0) end
  return came
end

-- }======

-- {====== The buffer ======

--- Ends the watch with an error, and wakes its waiters.
local function fail(watch, err)
  watch.failure = err
  watch.initial = nil
  wake(watch)
end

--- Empties the buffer.
local function clear(watch)
  watch.buffer, watch.at, watch.n, watch.has_only_changes = {}, 0, 0, false
end

--- Adds an event to the buffer.
local function append_one(watch, event)
  if watch.at == watch.n then
    if watch.n > 1 then clear(watch) end
    watch.at, watch.n = 0, 0 -- the table of a buffer for one event is reused
  end
  watch.has_only_changes = false
  local n = watch.n + 1
  watch.buffer[n], watch.n = event, n
end

--- Adds events to the buffer.
local function append(watch, events)
  if watch.at == watch.n then clear(watch) end
  watch.has_only_changes = false
  local buffer, n = watch.buffer, watch.n
  for i = 1, #events do buffer[n + i] = events[i] end
  watch.n = n + #events
end

local sub = string.sub

--- Cuts the first `n` bytes off the keys of events and of their previous kvs.
local function cut_events(events, n)
  for i = 1, #events do
    local event = events[i]
    local prev = event.prev
    event.key = sub(event.key, n + 1)
    if prev then prev.key = event.key end
  end
end

--- Moves one item from the queue into the buffer. Returns false if the queue is empty.
local function take(watch)
  local kind, what, is_partial = watch.origin.take(watch)
  if watch.last and (not kind or kind == "failed") then kind, what = "failed", watch.last end
  if not kind then return false end
  if kind == "events" and watch.cut then cut_events(what, watch.cut) end
  if kind == "events" then watch.is_partial = is_partial end
  if kind == "events" and watch.at == watch.n then
    watch.buffer, watch.at, watch.n, watch.has_only_changes = what, 0, #what, not is_partial
  elseif kind == "events" then
    append(watch, what)
  elseif kind == "progress" then
    append_one(watch, setmetatable({ type = "progress", revision = what }, core.record))
  else
    fail(watch, what)
  end
  return true
end

--- Drops everything that was not handed out. Called when the watch has failed before all existing kvs were handed out:
-- later events, and kvs that exist now, would be inconsistent with the kvs that were handed out.
local function abandon_initial(watch)
  watch.initial = nil
  while not watch.failure and take(watch) do end
  clear(watch)
end

--- Handles an error of reading the existing kvs.
local function fail_initial(watch, err)
  if err.code == "compacted" and not watch.has_begun and watch.origin.begin_again(watch) then return end
  if watch.origin.has_failed(watch) then abandon_initial(watch) else fail(watch, err) end
end

--- Moves the next existing kv into the buffer, or the "synced" event after the last one. Raises the iterator's error.
local function append_initial(watch, initial)
  local kv = initial()
  if watch.is_closed then return end -- by a finalizer
  if kv then
    kv.type, kv.initial = "put", true
    if watch.cut then kv.key = sub(kv.key, watch.cut + 1) end
    append_one(watch, kv)
  else
    append_one(watch, setmetatable({ type = "synced", revision = watch.initial_revision }, core.record))
    watch.initial = nil
  end
end

--- Takes the next existing kv, or the "synced" event, or the failure of reading them. Returns false if the page of the
-- kv is still being read, or if a finalizer that has interrupted this very function calls it.
local function take_initial(watch)
  if watch.origin.is_closed(watch) then
    fail(watch, watch.last or errors.closed(watch.origin.owner))
    return true
  end
  local initial = watch.initial
  if not initial then return true end -- a finalizer has closed the watch
  if watch.is_taking_initial then return false end
  watch.is_taking_initial = true
  local ok, err = pcall(append_initial, watch, initial)
  watch.is_taking_initial = nil
  if ok or watch.is_closed then return true end
  if type(err) ~= "table" or not err.code then error(err, 0) end
  if err.code == "timeout" then return false end
  fail_initial(watch, err)
  return true
end

--- Fills the buffer. Returns true if it has an event; false if the caller must wait for one; nil if there will be no
-- more events.
local function fill(watch)
  while watch.at == watch.n do
    if watch.failure or watch.is_closed then return nil end
    local was_taken
    if watch.initial then was_taken = take_initial(watch) else was_taken = take(watch) end
    if not was_taken then return false end
  end
  return true
end

--- Like fill, but also checks for events that are not noticed without a wait, and completes reads that otherwise take
-- several turns.
local function fill_now(watch)
  local filled = fill(watch)
  if filled ~= false then return filled end
  watch.origin.look(watch)
  return fill(watch)
end

--- Waits until the buffer has an event. Returns true; or nil and an error; or only nil after close. With a deadline of
-- nil waits forever, with false does not wait.
local function await(watch, deadline)
  while true do
    local filled
    if deadline == false then filled = fill_now(watch) else filled = fill(watch) end
    if filled then return true end
    if filled == nil then return nil, watch.failure end
    if deadline == false or not wait(watch, deadline) then return nil, core.new_error("timeout") end
  end
end

--- Called when everything up to a revision was handed out. Wakes the tasks that wait for this revision in sync.
local function reach(watch, revision)
  if revision <= watch.revision then return end
  watch.revision = revision
  if watch.progressed then watch.progressed:set() end
end

--- True if `following`, the next event of the buffer or nil, is not the first of a later revision.
local function is_inside(watch, revision, following)
  if following then return following.mod_revision == revision end
  return watch.is_partial
end

--- Takes the next event out of the buffer. Its revision is reached if the event is the last one of that revision.
local function hand_out(watch)
  local buffer, at = watch.buffer, watch.at + 1
  local event = buffer[at]
  buffer[at] = false
  watch.at = at
  if event.initial then
    watch.has_begun = true
    return event
  end
  local revision = event.mod_revision or event.revision
  if not is_inside(watch, revision, buffer[at + 1]) then reach(watch, revision) end
  return event
end

--- True if an event is a progress event and the program did not request such events.
local function is_hidden(watch, event)
  return event.type == "progress" and not watch.progress
end

-- }======

--- Waits for the next event and returns it. Returns nil and an error, or only nil after close. With the code "timeout"
-- the watch remains open.
function watch_methods:next(timeout)
  check.timeout(timeout, "next")
  self.reader = me()
  local deadline = nil
  if timeout then deadline = timeout > 0 and driver.get().now() + timeout end
  while true do
    local ok, err = await(self, deadline)
    if not ok then return check.results(nil, err) end
    local event = hand_out(self)
    if not is_hidden(self, event) then return event end
  end
end

--- Waits for the next revision and returns { revision, events } with all of its events. Each existing kv, and each
-- event without a key, is a batch by itself. Fails like `next`.
function watch_methods:batch(timeout)
  check.timeout(timeout, "batch")
  local event, err = self:next(timeout)
  if not event then return check.results(nil, err) end
  local events, revision = { event }, event.mod_revision or event.revision
  if event.initial then
    revision = self.initial_revision
  elseif event.mod_revision then
    while is_inside(self, revision, self.buffer[self.at + 1]) do
      if self.at == self.n then
        if driver.can_park() then wait(self) end -- other tasks run between the pieces of a long revision
        local filled
        filled, err = await(self)
        if not filled then return check.results(nil, err) end
      else
        events[#events + 1] = hand_out(self)
      end
    end
  end
  return { revision = revision, events = events }
end

--- Returns an iterator over events. It ends when the watch is closed, and raises the error with which the watch fails.
function watch_methods:events()
  return function()
    local at = self.at + 1
    if self.has_only_changes and at <= self.n then -- the usual case of hand_out, written out for speed
      local buffer = self.buffer
      local event, following = buffer[at], buffer[at + 1]
      local revision = event.mod_revision
      if not following or following.mod_revision ~= revision then
        self.revision = revision
        if self.progressed then self.progressed:set() end
      end
      buffer[at], self.at = false, at
      local co, is_main = running()
      self.reader = not is_main and co or "main"
      return event
    end
    local event, err = self:next()
    if err then errors.raise(err) end
    return event
  end
end

-- {====== Selecting ======

--- True if `next` would not wait.
local function is_ready(watch)
  watch.reader = me()
  while true do
    local filled = fill(watch)
    if not filled then return filled == nil end
    if not is_hidden(watch, watch.buffer[watch.at + 1]) then return true end
    hand_out(watch)
  end
end

--- Returns what `next` returns.
local function take_next(watch)
  local event, err = watch:next(0)
  if err and err ~= watch.failure then return selection.NOTHING end
  return event, err
end

watch_mt.__select = { -- see task/selection.lua
  is_ready = is_ready,
  begin = begin_wait,
  arm = function(watch) watch.origin.arm(watch) end,
  finish = end_wait,
  take = take_next,
  look = function(watch) return watch.origin.look(watch) end,
}

-- }======

-- {====== Sync ======

--- Returns the error of a watch that can deliver nothing more, or nil.
local function terminal_error(watch)
  if watch.is_closed then return errors.closed("watch") end
  if watch.origin.is_closed(watch) then return watch.failure or watch.last or errors.closed(watch.origin.owner) end
  return watch.failure
end

--- Returns a revision up to which everything was delivered. If another task reads the watch, returns once that task has
-- received all of it. If the caller reads the watch, returns once all of it can be read without waiting. Returns nil
-- and an error if that fails.
function watch_methods:sync(timeout)
  check.timeout(timeout, "sync")
  local revision, err = self.origin.sync(self, timeout)
  if not revision then return nil, err end
  return revision
end

-- }======

--- Returns the error that the watch has failed with, or nil.
function watch_methods:error()
  return self.failure
end

--- Closes the watch, and wakes its waiters. There are no more events.
function watch_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  self.origin.close(self)
  self.initial = nil
  clear(self)
  wake(self)
end

--- Makes a watch fail with an error after it has handed out everything that has arrived.
local function finish(watch, err)
  watch.last = err
  wake(watch)
end

--- Makes a watch fail with an error at once, and drops everything that was not handed out. Does nothing if the watch
-- has ended.
local function abort(watch, err)
  if watch.failure or watch.is_closed then return end
  fail(watch, err)
  watch.origin.close(watch)
  clear(watch)
end

--- Makes a new watch, which was not read yet, hand out keys without their first `n` bytes. `key` is the watched key
-- under the caller's name.
local function cut_keys(watch, n, key)
  for i = watch.at + 1, watch.n do
    local event = watch.buffer[i]
    if event and event.key then cut_events({ event }, n) end -- a finalizer may have emptied the buffer
  end
  watch.cut, watch.shown_key = (watch.cut or 0) + n, key
end

--- Returns the key, the revision and the state.
function watch_mt:__tostring()
  local state = self.is_closed and "closed" or self.failure and self.failure.code or "open"
  local key = (self.shown_key or self.key):gsub('[%c\127-\255"\\]', function(c) return ("\\x%02x"):format(c:byte()) end)
  return ('keywatch.watch<key="%s" revision=%d %s>'):format(key, self.revision, state)
end

watch_mt.__close = watch_methods.close

-- Options that are not for programs, see core_options:
local CLUSTER, TRANSIENT = {}, {}

local FILTERS = { no_put = true, no_delete = true }

-- The options that are handled in Lua; the core does not know them.
local OWN_OPTIONS = {
  initial = "boolean", timeout = "seconds", deadline = "seconds",
  filters = check.list_of("a list of 'no_put' and 'no_delete'", function(filter) return FILTERS[filter] end),
  require_leader = "boolean", -- for clients; a store in process needs no leader
}

--- Checks the options of a watch and returns those for the core, which refuses unknown names. The options CLUSTER and
-- TRANSIENT are not for programs. CLUSTER, the id of a cluster, is for a client's watch that resumes where another one
-- has stopped, at its start_revision: if the server has another history, the new watch fails like the old one would.
-- TRANSIENT, a boolean, is for a reader that does not keep an event after it has read the next one, and does not call
-- sync: if true, the tables of events are reused for later events.
local function core_options(opts)
  local t = {}
  if opts.initial and opts.start_revision then
    check.misuse("watch: options 'initial' and 'start_revision' cannot be used together")
  end
  check.some(opts, "watch", OWN_OPTIONS)
  for name, value in pairs(opts) do
    if FILTERS[name] then check.misuse("watch: there is no option '%s': use filters = { '%s' }", name, name) end
    if not OWN_OPTIONS[name] and name ~= CLUSTER and name ~= TRANSIENT then t[name] = value end
  end
  for _, filter in ipairs(opts.filters or {}) do t[filter] = true end
  return t
end

--- Makes a watch from a table with these fields: core, origin, key, revision, progress (whether to hand out progress
-- events), initial (an iterator over the existing kvs, or nil), initial_revision, and the fields of the origin.
local function new(fields)
  fields.buffer = {} -- events; false in the place of an event that was handed out
  fields.n = 0       -- events in the buffer, including those that were handed out
  fields.at = 0      -- events of the buffer that were handed out
  fields.has_only_changes = false -- the buffer certainly has only puts and deletes of complete revisions
  fields.is_awaited_by_main = false -- the main program waits for the watch
  fields.is_closed = false
  -- The following fields are set only when they are needed, so that an idle watch is a small table:
  --   reader       the coroutine that read last, or "main"
  --   arrival      driver event: set when something may have arrived
  --   progressed   driver event: set when `revision` has risen
  --   is_partial   more events of the last revision in the buffer follow
  --   failure      the error that the watch has failed with
  --   last         the error that the watch fails with after everything that has arrived was handed out
  --   has_begun    an existing kv was handed out
  --   cut          bytes that are cut off the keys of all events; shown_key: the watched key without them
  --   used         tables of events that are reused: see core_options
  --   is_taking_initial  the next existing kv is being read, or moved into the buffer
  return setmetatable(fields, watch_mt)
end

return {
  new = new,
  finish = finish,
  abort = abort,
  core_options = core_options,
  CLUSTER = CLUSTER,
  TRANSIENT = TRANSIENT,
  cut_keys = cut_keys,
  methods = watch_methods,
  mt = watch_mt,
  -- for origins
  wake = wake,
  clear = clear,
  is_read_by_other = is_read_by_other,
  terminal_error = terminal_error,
  take = take,
  take_initial = take_initial,
  fill = fill,
  -- for other readers: object watches, tables
  fill_now = fill_now,
  hand_out = hand_out,
}
