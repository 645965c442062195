-- SPDX-License-Identifier: MIT
--- feed: keeps the replica of a client's cache equal to a range of a server's keys.
--
--             all pages have arrived              the history is gone, or another one
--   READING ----------------------> FOLLOWING ------------------------------------------> READING
--      |   ^                            |
--      |   | the pause ends             | the server refuses
--      v   |                            |
--     PAUSED <--------------------------+            CLOSED: the cache or its client is closed
--
-- READING: the pages of the range are read, all of one revision. FOLLOWING: a watch of the client continues after that
-- revision, and its events go to the replica inside of the core. PAUSED: the server has refused; the feed tries again
-- after a pause.
--
-- For the client a feed is a watch (see remote_origin.lua): it has the fields that client/watch_calls.lua and
-- client/reads.lua use, and its event `arrival` does the due work, inside of the transport's poll. So a cache needs no
-- task, and works at top level, too. Neither transport nor driver reference a feed: it lives as long as its cache.
--
-- All work is done by `pump`, which is not reentrant. Only `close` may come in between, called by a finalizer or by a
-- hook of a table. So a function checks the phase again after each call.
--
-- A feed may have a file with the last known content (content_file.lua). If the server has not sent the content within
-- the option `timeout` of the cache, or no endpoint answers, the replica is loaded from the file. When the server has
-- sent the content, it is merged into the replica, as after a gap. The feeds of a client count the time of a silent
-- server together, from the moment at which the first of them has begun to wait.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local local_origin = require "keywatch.watch.local_origin"
local log = require "keywatch.support.log"
local reason = require "keywatch.support.reason"
local server_revision = require "keywatch.cache.server_revision"
local sooner = require("keywatch.task.timers").sooner
local staleness = require "keywatch.cache.staleness"

local RANGE = "/etcdserverpb.KV/Range"
local inner = core.inner
local FIRST_PAGE, LARGEST_PAGE = 1000, 10000 -- kvs
-- A page has about PAGE_BYTES, or this share of all bytes that were read before it, if that is more. Larger blocks
-- would fragment the memory.
local PAGE_BYTES, PAGE_SHARE = 512 * 1024, 1 / 32
local ASK_AGAIN = 0.1 -- seconds: servers drop requests for progress while any watch of the call is behind
local MAX_RESTARTS = 3 -- in a row, because pages have arrived over several connections
local STABLE = 5      -- seconds: the end of a watch that has lasted this long is not a failure
local ASKS = 5        -- unanswered progress requests, after which watches that may delay it move to other calls
local TOGETHER = 60   -- seconds in which caches of a client notice that their server was replaced
local MAX_GAPS = 16   -- that are known one by one
local OTHER_HISTORY = { regressed = true, cluster_changed = true }
local IS_BUSY = "is in the middle of a call, and a finalizer has to wait" -- raised by the core

local last_number = 0 -- the number of the last feed of this process

local feed_methods = {}
local feed_mt = { __index = feed_methods }

-- {====== Reading ======

--- Requests the next page, which the server may stream. All pages have the revision of the first one.
local function ask_page(self)
  local state, reads = self.state, self.transport.reads
  local last, revision = state:last()
  local opts = { range_end = self.range_end, limit = self.page }
  if revision > 0 then opts.revision = revision end
  local key = last ~= "" and last .. "\0" or self.key
  local bytes, rest_bytes = core.requests.range(self.client, key, opts), nil
  if revision > 0 then
    opts.limit = nil
    rest_bytes = core.requests.range(self.client, key, opts)
  end
  local read = reads:begin(RANGE, bytes, self, self.rest, rest_bytes)
  if self.phase ~= "reading" then return reads:cancel(read) end
  self.read = read
  self.transport:look_again() -- it may have polled its reads before
  if read.is_done then self.must_look_again = true end -- it was done before the feed had it
end

--- Begins to read the range. `why` is the error that made that necessary, or nil the first time.
local function begin_reading(self, why)
  local state, old, old_rest = core.feed_state(self.key, self.range_end), self.state, self.rest
  if self.phase == "closed" then return state:close() end
  self.phase, self.why, self.state, self.read, self.page_cluster = "reading", why, state, nil, nil
  self.read_bytes, self.is_complete, self.fresh, self.rest = 0, false, nil, self.transport.new_rest()
  self.is_before_file, self.merged_from = false, nil
  if old then old:close() end
  if old_rest then old_rest:close() end
  if self.phase == "reading" then ask_page(self) end
end

--- Frees the pages, and tries again after a pause. `err` is the reason.
local function pause(self, err)
  local retry_at = driver.get().now() + self.transport.backoff(self.failures + 1)
  if self.phase == "closed" then return end
  local state = self.state
  self.phase, self.trouble, self.failures, self.retry_at = "paused", err, self.failures + 1, retry_at
  self.state, self.fresh = nil, nil
  if state then state:close() end
  if self.rest then self.rest:close() end
  self.transport:look_again() -- at the new deadline
end

--- Begins to read the range again: at once after the first failure, and after a pause if failures repeat, since reading
-- may be expensive for the server. `err` is the failure; `why` is as in begin_reading.
local function read_again(self, err, why)
  self.why = why
  if self.failures > 0 then return pause(self, err) end
  self.failures = 1
  begin_reading(self, why)
end

--- Ends the feed, and with it the cache, because the client is closed.
local function end_with_client(self)
  self:close()
  self.hooks.on_end(self.cache, errors.closed("client"))
end

--- Begins to follow the events after the revision of the pages. The server had the pages at the time `confirmed_at`.
local function begin_following(self, revision, confirmed_at)
  local tag = self.watch_calls:new_tag()
  local object = core.subscription(tag, self.key, { range_end = self.range_end, progress = true })
  object:begin(revision, self.cluster, true)
  inner.feed_from(self.cache.replica, object)
  if self.phase == "closed" then return object:close() end
  self.phase, self.trouble, self.why, self.since = "following", nil, nil, driver.get().now()
  self.tag, self.core, self.confirmed_at = tag, object, confirmed_at
  self.is_synced, self.is_from_file, self.fall_back_at = true, false, nil
  self.call, self.has_own_call, self.is_full, self.mismatch = nil, false, false, nil
  self.watch_calls:add(self)
  self.transport:look_again()
  if self.phase == "closed" then self.watch_calls:forget(self) end
end

--- Logs that the server has another history: one line for all caches of the client that notice it together.
local function report_history(self, why)
  local transport, now = self.transport, driver.get().now()
  if now < transport.history_reported_at + TOGETHER then return end
  transport.history_reported_at = now
  log.warn("the cache of %s starts over, and its watches fail: %s", log.quote(self.cache.prefix),
    (why.message:gsub("^keywatch: ", "")))
end

--- Moves the received pages into the replica, as many as one turn may. The first pages are its base. Later ones are
-- merged with its content, unless they have another history. Returns true; false, if another turn must continue; nil
-- and an error; or only nil, if the pages must be read again: they were requested before the content of the file was
-- loaded, which may be newer.
local function use_state(self)
  if not self.cluster then return inner.load(self.cache.replica, self.state) end
  local is_other = self.why and OTHER_HISTORY[self.why.code] or self.cluster ~= self.page_cluster
  if not is_other and not self.fresh then
    self.merged_from = self.merged_from or self.cache.replica:status().revision
    local ok, err = inner.merge(self.cache.replica, self.state)
    if ok ~= nil or err.code ~= "stale_revision" then return ok, err end
  end
  if self.is_before_file then return nil end
  local why = self.why and OTHER_HISTORY[self.why.code] and self.why
  why = why or core.new_error(self.cluster ~= self.page_cluster and "cluster_changed" or "regressed")
  if not self.fresh then
    if self.file then self.file:forget() end
    report_history(self, why)
    if self.phase ~= "reading" then return nil, errors.closed("cache") end -- by a finalizer
  end
  local fresh, is_used = self.hooks.start_over(self.cache, self.state, why, self.fresh)
  if not fresh then return nil, is_used end -- the error
  self.fresh = not is_used and fresh or nil
  self.merged_from, self.gaps = nil, { floor = 0 }
  return is_used
end

--- Notes that the replica has skipped the revisions up to `to`, because pages were merged.
local function note_gap(self, to)
  local from, gaps = self.merged_from, self.gaps
  if not from or to - from < 2 then return end
  gaps[#gaps + 1] = { from = from, to = to }
  if #gaps > MAX_GAPS then gaps.floor = table.remove(gaps, 1).to end
end

--- Uses the pages, once all have arrived, and continues with events.
local function use_pages(self)
  local _, revision = self.state:last()
  if self.phase ~= "reading" then return end -- a finalizer has closed the client
  local ok, err = use_state(self)
  if self.phase ~= "reading" or ok == false then return end
  if not ok and not err then return begin_reading(self, self.why) end
  if not ok then return pause(self, err) end
  note_gap(self, revision)
  local state = self.state
  self.state, self.cluster, self.restarts = nil, self.page_cluster, 0
  state:close()
  begin_following(self, revision, self.read_at)
end

--- Chooses how many kvs the next page has, after a page of some kvs and bytes. Many small pages of a large range would
-- be slow, as etcd counts the rest of the range for each page.
local function size_next_page(self, n, bytes)
  self.read_bytes = self.read_bytes + bytes
  if n == 0 then return end
  local wanted = math.max(PAGE_BYTES, self.read_bytes * PAGE_SHARE)
  self.page = math.max(1, math.min(LARGEST_PAGE, math.floor(n * wanted / bytes)))
end

--- True if a page has arrived over another connection than the previous one, and the range must be read again: the
-- server may have been restored to an older state in between, and have the same revision in another history. For a
-- large range this is limited to MAX_RESTARTS.
local function is_of_other_connection(self)
  if not self.rest:take_move() or self.restarts == MAX_RESTARTS then return false end
  self.restarts = self.restarts + 1
  return true
end

--- Handles a page that has arrived, or the error of reading it.
local function take_page(self, read)
  self.read = nil
  local err = read.err
  self.is_answered = self.is_answered or not err or err.code ~= "unavailable"
  if err and err.code == "closed" then return end_with_client(self) end
  if err and err.code == "compacted" then return read_again(self, err, self.why) end
  if err and err.code == "answer_too_large" and self.page > 1 then
    self.page = math.floor(self.page / 2)
    return ask_page(self)
  end
  if err then return pause(self, err) end
  if self.rest.is_of_other_cluster then
    return read_again(self, core.new_error("cluster_changed"), self.why)
  end
  if is_of_other_connection(self) then return begin_reading(self, self.why) end
  self.page_at = driver.get().now()
  if not self.page_cluster then self.page_cluster, self.read_at = self.rest.cluster, self.page_at end
  local ok, more, n = self.state:add(read.message, read.is_part)
  if self.phase ~= "reading" then return end
  if not ok then return pause(self, more) end
  size_next_page(self, n, #read.message)
  self.is_complete = not more
  if more then ask_page(self) else use_pages(self) end
end

-- }======

-- {====== Following ======

--- Handles the failure of the watch. If the history is gone, or another one, reading begins at once.
local function fail(self, code, text)
  local err = code == "unknown" and text and core.error_of(reason.parse(text)) or errors.new(code, text)
  if self.phase ~= "following" then return end
  self.core:close()
  self.watch_calls:forget(self)
  if self.transport.is_closed then return end_with_client(self) end
  if driver.get().now() - self.since >= STABLE then self.failures = 0 end
  if self.phase ~= "following" then return end
  if code == "compacted" or OTHER_HISTORY[code] then return read_again(self, err, err) end
  pause(self, err)
end

--- Moves the events that the core has not moved to the replica. Returns whether the server has confirmed the content,
-- or nil if the feed no longer follows.
local function move(self, object)
  local is_confirmed = false
  repeat
    local n, more, is_answer = inner.feed(self.cache.replica, object)
    if self.phase ~= "following" then return nil end
    if not n then return fail(self, more.code, more.message) end
    is_confirmed = is_confirmed or is_answer
    if self.is_full then self.watch_calls:resume(self) end
  until not more
  return is_confirmed
end

--- Moves received events, and handles a failure after them. The state is checked first: nothing comes after a failure.
local function follow(self)
  local object, mismatch = self.core, self.mismatch
  if mismatch then return fail(self, mismatch) end
  local has_failed = object:state() == "failed"
  local is_confirmed = move(self, object)
  if is_confirmed == nil or self.phase ~= "following" then return end
  if is_confirmed then self.confirmed_at = driver.get().now() end
  if not has_failed then return end
  local kind, what, text = object:take()
  if kind == "compacted" then return fail(self, "compacted") end
  fail(self, kind == "failed" and what or "out_of_memory", text)
end

-- }======

-- {====== Work ======

--- Does the due work.
local function work(self)
  if self.phase == "reading" then
    local read = self.read
    if self.is_complete then
      use_pages(self)
    elseif not read then
      ask_page(self) -- an error has occurred in between
    elseif read.is_done then
      take_page(self, read)
    end
  elseif self.phase == "following" then
    follow(self)
  elseif self.phase == "paused" and driver.get().now() >= self.retry_at then
    begin_reading(self, self.why)
  end
end

--- Returns the reason why the content is not being updated now, or nil.
local function present_trouble(self)
  if self.phase == "paused" then return self.trouble end
  local is_open = self.phase == "following" and self.core:state() == "open"
  if is_open or self.phase == "closed" then return nil end
  local transport = self.transport
  if not transport.connection and transport.dialer.trouble then return transport.dialer:error() end
  if self.phase == "following" then return self.watch_calls.trouble end
  return self.read and self.read.trouble or self.why
end

--- Makes the feed check its work once more, in the next turn.
function feed_methods:look_again()
  self.must_look_again = true
  self.transport:look_again()
end

--- Makes the core announce every change of the replica while a caller of the cache, a table or the file waits for
-- changes. Otherwise the core announces only events that the watches of the cache wait for.
local function update_following(self)
  local is_wanted = self.waiters > 0 or self.cache.followers[1] ~= nil or self.cache.is_following
    or self.file ~= nil and self.file:is_clean()
  local replica = self.cache.replica
  if self.followed == (is_wanted and replica) then return end
  self.followed = is_wanted and replica
  inner.announce_feed(replica, is_wanted)
end

--- Makes the core announce every change of the replica, for a table. The next announcement checks whether the table
-- still exists.
function feed_methods:follow()
  self.followed = self.cache.replica
  inner.announce_feed(self.followed, true)
end

--- Notifies the watches and the tables of the cache that something may have arrived.
local function notify(self)
  if self.phase ~= "closed" then local_origin.poke(self.cache.replica) end
  if self.phase ~= "closed" then self.hooks.on_change(self.cache) end
  if self.phase ~= "closed" then update_following(self) end
end

--- True if an error says that the replica is in the middle of a call, which the calling finalizer has interrupted.
local function is_busy(err)
  return type(err) == "string" and err:find(IS_BUSY, 1, true) ~= nil
end

--- Calls `notify`, and wakes the callers that wait.
local function notify_all(self)
  local ok, err = pcall(notify, self)
  if self.changed then self.changed:set() end
  if not ok and not is_busy(err) then error(err, 0) end
end

--- Makes the transport poll the feed, if a change makes work due: history that is too old, or a file.
local function have_polled(self)
  if self.cache.history.history_age or self.file then self.transport:look_at_all() end
end

--- Does the due work until there is none. Called after each change.
local function pump(self)
  if self.is_working then
    self.must_look_again = true
    return
  end
  self.is_working = true
  have_polled(self)
  local ok, err
  repeat
    self.must_look_again = false
    ok, err = pcall(work, self)
  until not ok or not self.must_look_again or self.phase == "closed"
  self.is_working = false
  if not ok then -- a finalizer has polled the transport in the middle of a read of the replica
    self:look_again()
    if not is_busy(err) then error(err, 0) end
    return
  end
  notify_all(self)
end

--- Called when the core has moved events to the replica.
function feed_methods:on_news()
  if self.is_working or self.phase ~= "following" then return pump(self) end
  have_polled(self)
  notify_all(self)
end

--- Returns when the server last confirmed the content, or nil.
function feed_methods:last_confirmed()
  local confirmed_at, later = self.confirmed_at, self.core and self.core:heard()
  return later and (not confirmed_at or later > confirmed_at) and later or confirmed_at
end

-- {====== The file ======

--- Returns the description of the content for the file: see content_file.lua.
local function content_of(self)
  return {
    replica = self.cache.replica,
    key = self.key,
    range_end = self.range_end,
    cluster = self.cluster,
    confirmed_at = math.max(0, math.floor(os.time() - (driver.get().now() - self:last_confirmed()))),
  }
end

--- Loads the content of the file, since the server has not sent any in time.
local function fall_back(self, now)
  local cluster, time_of_day = self.file:load(self.cache.replica, self.key, self.range_end)
  self.fall_back_at = nil
  if not cluster or self.phase == "closed" then return end
  self.cluster, self.is_from_file, self.confirmed_at = cluster, true, now - math.max(0, os.time() - time_of_day)
  self.is_before_file = self.phase == "reading"
  self.staleness:begin_with_file(self.file.path, self.confirmed_at, present_trouble(self), now)
  notify(self)
  if self.changed then self.changed:set() end
end

--- True if no endpoint of the client has answered, and each was tried.
local function is_refused(transport)
  return not transport.connection and transport.dialer.failures > 0
end

--- Does the due work of the file. Returns the seconds until it must be called again, or nil.
local function poll_file(self, now)
  local is_early = self.fall_back_at and now < self.fall_back_at
  if is_early and not is_refused(self.transport) then return self.fall_back_at - now end
  if self.fall_back_at then fall_back(self, now) end
  if not self.is_synced or self.phase == "closed" then return nil end
  return self.file:poll(now, self.cache.replica, self.describe_content)
end

--- Calls poll_file, unless a finalizer polls the feed in the middle of that call or of other work. A finalizer may also
-- close the feed, and with it file and replica: resulting failures are ignored.
local function tend_file(self, now)
  if self.is_tending or self.is_working then return nil end
  self.is_tending = true
  local ok, seconds = pcall(poll_file, self, now)
  self.is_tending = false
  if self.phase == "closed" then return nil end
  if not ok and not is_busy(seconds) then error(seconds, 0) end
  if not ok then return 0 end
  update_following(self)
  return seconds
end

-- }======

--- Logs when the content has become stale, or has caught up. Returns the seconds until the next call.
local function poll_staleness(self, now)
  if now < self.stale_at then return self.stale_at - now end
  local confirmed_at, later = self.page_at, self:last_confirmed()
  if later and (not confirmed_at or later > confirmed_at) then confirmed_at = later end
  local call = self.phase == "following" and self.call or nil
  local wait = self.staleness:check(now, {
    phase = self.phase,
    trouble = present_trouble(self),
    is_trusted = call and call.connection.trusts_progress,
    is_open = self.phase == "following" and self.core:state() == "open",
    has_content = self.cache.is_loaded,
    confirmed_at = confirmed_at,
  })
  self.stale_at = now + wait
  return wait
end

--- True while the received pages are being moved into the replica, turn by turn.
local function is_using(self)
  return self.phase == "reading" and self.is_complete
end

--- Called by the transport. Returns the seconds until it must be called again, or nil.
function feed_methods:poll(now)
  local is_due = self.phase == "paused" and now >= self.retry_at or is_using(self)
  if (self.must_look_again or is_due) and not self.is_working then pump(self) end
  local wait = (self.must_look_again or is_using(self)) and 0 or nil
  if self.phase == "paused" then wait = math.max(0, self.retry_at - now) end
  if self.phase ~= "closed" then wait = sooner(wait, poll_staleness(self, now)) end
  if self.file and self.phase ~= "closed" then wait = sooner(wait, tend_file(self, now)) end
  if self.cache.history.history_age and self.phase ~= "closed" then
    wait = sooner(wait, self.cache.replica:run_due() or nil) -- drops old history, even if nothing comes
  end
  return wait
end

--- Called by the transport when the client is closed.
function feed_methods:on_client_closed()
  if self.phase ~= "closed" then end_with_client(self) end
end

--- Ends the feed.
function feed_methods:close()
  if self.phase == "closed" then return end
  self.phase = "closed"
  local read, object, state = self.read, self.core, self.state
  self.read, self.state = nil, nil
  self.transport.feeds[self] = nil
  if read then self.transport.reads:cancel(read) end
  if self.rest then self.rest:close() end
  if object then
    object:close()
    self.watch_calls:forget(self)
  end
  if state then state:close() end
  self.asker:close()
  if self.file then
    self.file:close(driver.get().now(), self.cache.replica, self.is_synced and self.describe_content)
  end
  if self.changed then self.changed:set() end
end

-- }======

-- {====== Methods for the cache ======

--- Returns the driver event that is set after each change.
local function changes(self)
  if not self.changed then
    local fresh = driver.get().event()
    self.changed = self.changed or fresh -- a finalizer may have waited, or closed the cache
  end
  return self.changed
end

--- Returns the error of a client that is closed, or nil.
function feed_methods:error()
  if self.transport.is_closed then return errors.closed("client") end
end

--- Returns the phase; the seconds since the server last confirmed the content, or nil; and the reason why the content
-- is not being updated now, or nil.
function feed_methods:describe()
  local confirmed_at = self:last_confirmed()
  return self.phase, confirmed_at and math.max(0, driver.get().now() - confirmed_at), present_trouble(self)
end

--- True once the content has arrived from the server.
function feed_methods:has_synced()
  return self.is_synced
end

--- True if the content is that of the file.
function feed_methods:is_of_file()
  return self.is_from_file
end

--- Waits until the content has arrived from the server. Returns nil, or an error.
function feed_methods:await_synced(cache, deadline)
  local d, changed = driver.get(), changes(self)
  while true do
    local err = cache.end_error or self:error()
    if err then return err end
    if self.is_synced then return nil end
    if deadline and d.now() >= deadline then return core.new_error("timeout") end
    if self.phase ~= "closed" then changed:wait(driver.time_left(deadline)) end
  end
end

--- Returns the deadline of a wait for content that may take so many seconds. For the first wait they count from the
-- moment at which the feeds of the client began to wait for a silent server.
function feed_methods:content_deadline(seconds)
  local since = self.awaited_since
  self.awaited_since = nil
  return (since or driver.get().now()) + seconds
end

--- Returns the deadline of a request of the client.
function feed_methods:deadline()
  return driver.get().now() + self.transport.opts.timeout
end

--- Requests progress of the server, which moves the replica to the server's revision. One request in each period serves
-- all waiters.
local function ask_for_progress(self, target)
  local now, confirmed_at = driver.get().now(), self:last_confirmed()
  if now < self.ask_at then return end
  if confirmed_at ~= self.asked_after then self.asked_after, self.asks = confirmed_at, 0 end
  self.ask_at, self.asks = now + ASK_AGAIN, self.asks + 1
  if self.asks % ASKS == 0 then self.watch_calls:move_others_away(self, target) end
  self.watch_calls:request_progress(self)
end

--- True if the cache has content of a revision, or of a later one.
local function has_reached(self, target)
  return self.cache.is_loaded and (target == 0 or self.cache.replica:status().revision >= target)
end

--- Makes the replica reach a revision sooner. Returns the time when this must be called again, or nil; and true
-- if the server's progress cannot be trusted: then only an event, or the server's own periodic progress, moves the
-- replica there.
local function hasten(self, target)
  if self.phase ~= "following" then return nil end
  local is_trusted = self.watch_calls:is_trusted(self)
  if is_trusted == false then return nil, true end
  ask_for_progress(self, target)
  return self.ask_at
end

--- Waits until the replica has reached a revision. Returns nil, or an error. With is_strict that is "unsupported" if
-- the server's progress cannot be trusted. If `replica` is given the wait ends as well when the cache has another one.
local function await_revision(self, cache, target, deadline, is_strict, replica)
  local d, changed = driver.get(), changes(self)
  while true do
    local err = cache.end_error or self:error()
    if err then return err end
    if has_reached(self, target) or replica and cache.replica ~= replica then return nil end
    if deadline and d.now() >= deadline then
      if self.fall_back_at then self:poll(d.now()) end -- both times may have passed at once
      return cache.end_error or not has_reached(self, target) and core.new_error("timeout") or nil
    end
    local look_at, is_untrusted = hasten(self, target)
    if is_untrusted and is_strict then return core.new_error("unsupported") end
    local until_ = look_at and math.min(look_at, deadline or math.huge) or deadline
    if self.phase ~= "closed" then changed:wait(driver.time_left(until_)) end
  end
end

--- Notes that a caller no longer waits.
local function leave_waiters(self)
  self.waiters = self.waiters - 1
end

--- Counts a caller that waits, and calls await_revision.
function feed_methods:await_revision(...)
  self.waiters = self.waiters + 1
  update_following(self)
  local ok, err = driver.protect(leave_waiters, self, await_revision, self, ...)
  leave_waiters(self)
  if not ok then error(err, 0) end
  return err
end

--- Waits until there is content, and a watch that keeps it up to date. In a pause the server is tried again at once.
-- Returns nil, or an error.
local function await_following(self, deadline)
  local asked
  local changed = changes(self)
  while true do
    local err = self.cache.end_error or self:error()
    if err then return err end
    if self.cache.is_loaded and self.phase == "following" and not self.mismatch then return nil end
    if self.phase == "paused" and self.retry_at ~= asked then
      asked = self.retry_at
      local revision, why = self.asker:ask(deadline or self:deadline())
      if not revision then return why end
    elseif not changed:wait(driver.time_left(deadline)) then
      return core.new_error("timeout")
    end
  end
end

--- Fails the watch, so that the content is read again: the server that has answered a read has another history. `code`
-- is "cluster_changed" or "regressed".
local function note_mismatch(self, code)
  if self.phase ~= "following" then return end -- it is being read again already
  self.mismatch = code
  pump(self)
end

--- Returns a revision that the server had after this call, and that the replica can reach; or nil and an error:
-- "unsupported" if the server's progress cannot be trusted. The server may have another history, which the watch has
-- not noticed yet. Then its revision is not in the replica's history, and is requested again when the content has been
-- read again. Without a deadline the server has the time of a request, and the content has no limit.
function feed_methods:server_revision(deadline)
  local is_trusted, why = self.phase == "following" and self.watch_calls:is_trusted(self) or nil, nil
  if is_trusted == nil then is_trusted, why = self.watch_calls:await_trust(deadline or self:deadline()) end
  if is_trusted == nil then return nil, why end
  if not is_trusted then return nil, core.new_error("unsupported") end
  while true do
    local err = await_following(self, deadline)
    if err then return nil, err end
    local replica, own = self.cache.replica, self.cluster
    local known = replica:status().revision
    local revision, cluster = self.asker:ask(deadline or self:deadline())
    if not revision then return nil, cluster end -- the error
    if replica == self.cache.replica then
      if cluster == own and revision >= known then return revision end
      note_mismatch(self, cluster ~= own and "cluster_changed" or "regressed")
    end
  end
end

-- }======

--- Notes that a feed begins to wait for the server. Returns the time at which the first waiting feed of the client has
-- begun to wait.
local function begin_awaiting(self, now)
  local awaiting = self.transport.awaiting
  local first = awaiting[1]
  if not first or first.phase == "closed" or first.is_answered then
    awaiting[1], first = self, self
  end
  return first == self and now or first.opened_at
end

--- Makes the feed of a cache, which the caller must then begin. `hooks` are
--   on_change(cache)               called after each change
--   start_over(cache, state, err, fresh)  loads a new replica of the cache with the pages: see cache.lua
--   on_end(cache, err)             called when the client is closed
-- `file` is the file with the last known content, or nil; its content is used after `timeout` seconds.
local function new(cache, hooks, file, timeout)
  local client = cache.owner
  local transport = client.transport
  last_number = last_number + 1
  local self = setmetatable({
    number = last_number, -- the feeds of a client work in this order
    cache = cache,
    client = client,
    transport = transport,
    watch_calls = transport.watch_calls,
    asker = server_revision.new(client, cache.key, cache.range_end),
    opts = { require_leader = true }, -- a member without a leader does not know what it misses
    key = cache.key,
    range_end = cache.range_end,
    hooks = hooks,
    phase = "paused",   -- until it begins, in the first call of pump
    page = FIRST_PAGE,  -- kvs of the next page
    state = nil,        -- the pages that have arrived
    read = nil,         -- the requested page
    read_bytes = 0,     -- the bytes of the pages that have arrived
    is_complete = false, -- all pages have arrived, and are being used
    is_before_file = false, -- the pages were requested before the content of the file was loaded
    fresh = nil,        -- a replica that replaces the cache's when it is loaded
    merged_from = nil,  -- the revision of the replica before the pages were merged with it
    gaps = { floor = 0 }, -- see cache.lua
    rest = nil,         -- the rest of the range, see client/range_stream.lua
    page_cluster = nil, -- the cluster of the pages
    restarts = 0,       -- how often in a row reading has started over because of another connection
    read_at = nil,      -- when the first page has arrived
    page_at = nil,      -- when the last page has arrived
    cluster = nil,      -- the cluster of the replica
    why = nil,          -- the error that made reading again necessary
    trouble = nil,      -- the error because of which the feed is paused
    mismatch = nil,     -- "regressed" or "cluster_changed", if a read has shown that before the watch has
    failures = 0,       -- failures in a row
    since = nil,        -- when the feed has begun to follow
    retry_at = 0,       -- when the pause ends
    confirmed_at = nil,     -- when the server last confirmed the content
    asked_after = nil, -- confirmed_at at the last request for progress
    waiters = 0,        -- callers that wait for changes
    followed = false,   -- the replica whose changes the core announces; or false
    ask_at = 0,         -- the earliest time of the next request for progress
    asks = 0,           -- requests for progress since the server last confirmed the content
    is_synced = false,  -- the content has arrived from the server
    file = file,
    describe_content = nil, -- function for the file: see content_file.lua
    opened_at = 0,
    awaited_since = nil, -- when the first feed of the client has begun to wait; nil once a caller has waited
    is_answered = false, -- the server has answered a read of a page
    fall_back_at = nil, -- when the content of the file is used, unless no endpoint answers
    is_from_file = false, -- the content is that of the file
    is_tending = false, -- the work of the file is being done
    staleness = nil,
    stale_at = 0,       -- the time of the next check of staleness
    arrival = nil,
    changed = nil,      -- driver event: set after each change
    is_working = false,
    must_look_again = false, -- something has arrived while it worked
    -- Of watch_calls.lua:
    core = nil, tag = 0, call = nil, has_own_call = false, is_full = false, attached_at = nil,
  }, feed_mt)
  self.arrival = { set = function() pump(self) end }
  self.describe_content = function() return content_of(self) end
  local now = driver.get().now()
  self.staleness = staleness.new(cache.prefix, now)
  self.opened_at, self.awaited_since = now, begin_awaiting(self, now)
  self.fall_back_at = file and self.awaited_since + timeout
  return self
end

--- Begins to read the range. Called once.
function feed_methods:begin()
  self.transport.feeds[self] = true
  pump(self)
  if self.transport.is_closed then self:on_client_closed() end -- by a finalizer
end

return { new = new }
