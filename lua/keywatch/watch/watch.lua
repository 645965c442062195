-- SPDX-License-Identifier: MIT
--- watch: what happens to some keys, as something to read from: of a store in this process, or over the wire.
--
-- Here is the reader's side, which is the same for both: events come out of a buffer, one whole batch of the core at a
-- time, and whoever finds it empty waits for an event of the driver. `revision` says how far the reader has come:
-- everything up to it was handed out.
--
-- Where they come from is the watch's origin, a table of functions:
--   take(watch)            the next of what the core has: "events" and a list; "progress" and a revision; "failed" and
--                          an error; or nothing
--   wait(watch, timeout)   until something may have come: true; or false, if the time is over
--   look(watch)            sees once whether something has come, without waiting
--   is_closed(watch)       whether the store, or the client, is
--   has_failed(watch)      whether it has, though that may not have been taken yet
--   begin_again(watch)     after what exists could not be read as it was, and nothing was handed out: true if it can be
--                          read anew
--   sync(watch, timeout)
--   close(watch)

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"

local watch_methods = {}
local watch_mt = { __name = "keywatch.watch", __index = watch_methods }

-- {====== Waiting ======

--- Wakes everybody who waits for a watch, to look for himself.
local function wake(watch)
  if watch.arrival then watch.arrival:set() end
  if watch.progressed then watch.progressed:set() end
end

local running = coroutine.running

--- Who calls: a coroutine, or "main", which some VMs have as a coroutine, too, and others as none.
local function me()
  local co, is_main = running()
  return not is_main and co or "main"
end

--- Whether somebody else than the caller reads the watch: the coroutine that read last, if it has not ended. The top
-- level reads only while it waits.
local function is_read_by_other(watch)
  local reader = watch.reader
  if not reader or reader == me() then return false end
  if reader == "main" then return watch.is_awaited_by_main end
  return not driver.has_ended(reader)
end

--- Waits until something may have come; false if `deadline` is over. While the event was made, a finalizer may have
-- closed the watch: whoever waits looks again first.
local function wait(watch, deadline)
  local d = driver.get()
  if deadline then d.check_wait() end -- also if that is over by now
  if not watch.arrival then
    watch.arrival = d.event()
    return true
  end
  watch.is_awaited_by_main = watch.is_awaited_by_main or me() == "main"
  local ok, came = pcall(watch.origin.wait, watch, deadline and math.max(0, deadline - d.now()))
  if me() == "main" then watch.is_awaited_by_main = false end
  if not ok then error(came, 0) end
  return came
end

-- }======

-- {====== The buffer ======

local function fail(watch, err)
  watch.failure = err
  watch.initial = nil
  wake(watch)
end

local function clear(watch)
  watch.buffer, watch.at, watch.n, watch.has_only_changes = {}, 0, 0, false
end

local function append(watch, events)
  if watch.at == watch.n then clear(watch) end
  watch.has_only_changes = false
  local buffer, n = watch.buffer, watch.n
  for i = 1, #events do buffer[n + i] = events[i] end
  watch.n = n + #events
end

--- Takes one thing from the core into the buffer; false if there is nothing now.
local function take(watch)
  local kind, what = watch.origin.take(watch)
  if not kind then return false end
  if kind == "events" and watch.at == watch.n then
    watch.buffer, watch.at, watch.n, watch.has_only_changes = what, 0, #what, true
  elseif kind == "events" then
    append(watch, what)
  elseif kind == "progress" then
    append(watch, { { type = "progress", revision = what } })
  else
    fail(watch, what)
  end
  return true
end

--- A watch that has failed before all that exists was handed out has nothing more to say: what came after that, and
-- what exists now, would not go together with what was handed out.
local function abandon_initial(watch)
  watch.initial = nil
  while not watch.failure and take(watch) do end
  clear(watch)
end

local function fail_initial(watch, err)
  if err.code == "compacted" and not watch.has_begun and watch.origin.begin_again(watch) then return end
  if watch.origin.has_failed(watch) then abandon_initial(watch) else fail(watch, err) end
end

--- Whether somebody waits for the next of what exists.
local function is_taking(watch)
  local taker = watch.taker
  return taker ~= nil and (taker == "main" or not driver.has_ended(taker))
end

--- Returns the next existing kv as an event, or the "synced" event that ends them. With a client this call may wait;
-- no other task takes events meanwhile.
local function take_initial(watch)
  if watch.origin.is_closed(watch) then return fail(watch, core.new_error("closed")) end
  watch.taker = me()
  local ok, kv = pcall(watch.initial)
  watch.taker = nil
  if watch.has_rival then
    watch.has_rival = false
    wake(watch)
  end
  if watch.is_closed then return end
  if not ok then
    if type(kv) ~= "table" or not kv.code or kv.code == "cancelled" then error(kv, 0) end
    fail_initial(watch, kv)
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
    if watch.initial and is_taking(watch) then
      watch.has_rival = true
      return false
    elseif watch.initial then
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
    if deadline == false then
      watch.origin.look(watch)
      filled = fill(watch)
      if filled then return true end
      if filled == nil then return nil, watch.failure end
    end
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
  if event.initial then
    watch.has_begun = true
    return event
  end
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
    local at = self.at + 1
    if self.has_only_changes and at <= self.n then -- the way of most events, as hand_out does it
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
    if err then error(rawget(_G, "ngx") and tostring(err) or err, 0) end
    return event
  end
end

-- {====== Sync ======

--- Why nothing can be waited for any more, if that is so.
local function why_not(watch)
  if watch.is_closed then return errors.closed("watch") end
  if watch.origin.is_closed(watch) then return watch.failure or core.new_error("closed") end
  return watch.failure
end

--- A revision up to which everything has been delivered. Where another task reads the watch: once that task has been
-- handed all of it. Where the caller reads it itself: once all of it can be had without waiting.
function watch_methods:sync(timeout)
  check.self(self, "sync", watch_mt)
  check.timeout(timeout, "sync")
  return self.origin.sync(self, timeout)
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
  self.origin.close(self)
  self.initial = nil
  clear(self)
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
local OWN_OPTIONS = { initial = "boolean", filters = "table", timeout = "seconds", deadline = "seconds" }

local function check_own_options(opts)
  local own = {}
  for name in pairs(OWN_OPTIONS) do own[name] = opts[name] end
  check.known(own, "watch", OWN_OPTIONS)
end

local function check_filters(filters)
  local n = 0
  for i, filter in pairs(filters) do
    n = n + 1
    if type(i) ~= "number" or not FILTERS[filter] then
      check.misuse("watch: filters must be a list of 'no_put' and 'no_delete', and has %s", tostring(filter))
    end
  end
  if n ~= #filters then check.misuse("watch: filters must be a list without holes") end
end

--- The options of the core. Names that nobody knows are left to it to refuse.
local function core_options(opts)
  local t = {}
  if opts.initial and opts.start_revision then
    check.misuse("watch: initial and start_revision exclude each other")
  end
  check_own_options(opts)
  for name, value in pairs(opts) do
    if FILTERS[name] then check.misuse("watch: there is no option '%s': it is a filter", name) end
    if not OWN_OPTIONS[name] then t[name] = value end
  end
  check_filters(opts.filters or {})
  for _, filter in ipairs(opts.filters or {}) do t[filter] = true end
  return t
end

--- A watch of these fields: core, origin, key, revision, progress, initial (an iterator over what exists) and
-- initial_revision, and whatever the origin needs.
local function new(fields)
  fields.buffer = {} -- events that came; false where they were handed out
  fields.n = 0       -- how many came
  fields.at = 0      -- how many were handed out
  fields.has_only_changes = false -- they are changes for certain, and neither what exists nor progress
  fields.is_awaited_by_main = false
  fields.is_closed = false
  -- Set when they are needed, and not here: an idle watch is a smaller table without them.
  --   reader       the coroutine that read last
  --   arrival      an event of the driver, set when something may have come
  --   progressed   the same, set when the reader has come further
  --   failure      an error
  --   has_begun    something of what exists was handed out
  --   taker        the coroutine that waits for the next of what exists
  --   has_rival    and somebody else, for him
  return setmetatable(fields, watch_mt)
end

return {
  new = new,
  core_options = core_options,
  methods = watch_methods,
  mt = watch_mt,
  -- for origins
  wake = wake,
  clear = clear,
  is_read_by_other = is_read_by_other,
  why_not = why_not,
  take = take,
  take_initial = take_initial,
  is_taking = is_taking,
  fill = fill,
}
