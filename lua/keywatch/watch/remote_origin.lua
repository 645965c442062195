-- SPDX-License-Identifier: MIT
--- remote_origin: the origin of a client's watch: its events come from a server. The core queues them, up to a limit.
-- client/watch_calls.lua keeps every watch attached to a Watch call.
--
-- Pages of the existing kvs are read in the background, see client/reads.lua. So a reader waits for a page as for an
-- event: as long as it takes, or until its own timeout.
--
-- A field of a watch is written by one module: `call`, `has_own_call`, `is_full` and `attached_at` by
-- client/watch_calls.lua, the others here and in watch.lua.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local pages = require "keywatch.store.pages"
local reason = require "keywatch.support.reason"
local watch = require "keywatch.watch.watch"

local RANGE = "/etcdserverpb.KV/Range"
local ASK_AGAIN = 0.1    -- seconds: servers drop requests for progress while any watch of the call is behind
local ASKS = 5           -- unanswered requests for progress, after which watches that may delay it are moved away
local MAX_BEGINNINGS = 3 -- attempts to read the existing kvs, each of which a compaction may overtake
local SYNC_KVS = 10000   -- events in the buffer, above which sync adds no existing kvs
local LEAST_SECONDS = 1  -- for a Watch call to confirm a watch, even if the client's timeout is shorter
local NOT_YET = core.new_error("timeout") -- raised by the iterator over the existing kvs, see watch.lua

local origin = { owner = "client" }

--- Returns the error of a watch that has failed in the core, from its code and text. With the code "unknown" the text
-- is the reason of the server.
local function failure(code, text)
  if code == "unknown" and text then return core.error_of(reason.parse(text)) end
  return errors.new(code, text)
end

--- Takes the next item from the core's queue. See watch.lua.
function origin.take(one)
  if origin.is_closed(one) then return "failed", errors.closed("client") end
  while true do
    local kind, what, text = one.core:take(one.used)
    if one.is_full then one.watch_calls:resume(one) end
    if kind == "compacted" then
      local err = core.new_error("compacted")
      err.compact_revision = what
      return "failed", err
    elseif kind == "failed" then
      return "failed", failure(what, text)
    elseif kind == "closed" then
      return "failed", core.new_error("closed")
    elseif kind ~= "events" or #what > 0 then
      return kind, what
    end
  end
end

--- Does nothing: the client knows its watches.
function origin.begin_wait() end

--- Makes the core announce, once, that something has arrived or arrives. While a page of the existing kvs is being
-- read, events are not taken, and must not wake the reader.
function origin.arm(one)
  if not one.initial then one.core:arm() end
end

--- Does nothing: an armed watch costs nothing.
function origin.end_wait() end

--- Looks at the sockets once, without waiting.
function origin.look(one)
  one.watch_calls.transport:look()
end

--- True if the client is closed.
function origin.is_closed(one)
  return one.watch_calls.transport.is_closed
end

--- True if the watch has failed, even if the error was not taken yet.
function origin.has_failed(one)
  return one.core:state() == "failed"
end

--- Cancels the read of a page, if one is running.
local function cancel_read(one)
  local read, rest = one.read, one.rest
  one.read = nil
  if read then one.watch_calls.transport.reads:cancel(read) end
  if rest then rest:close() end
end

--- Returns the request for the rest of the range, beginning with a page; or nil for the first page, whose revision is
-- not known yet.
local function rest_bytes_of(one, key, opts)
  if not opts.revision then return nil end
  return core.requests.range(one.client, key, {
    prefix = opts.prefix, from_key = opts.from_key, range_end = opts.range_end, revision = opts.revision,
  })
end

--- Ends the watch, and its own call, if it has one.
function origin.close(one)
  one.core:close()
  cancel_read(one)
  one.watch_calls:forget(one)
end

-- {====== Existing kvs ======

--- Asks for a page, and returns it like client:range once it has arrived. Returns nil and NOT_YET until then. Reuses
-- the tables of the list `used`, if given.
local function take_page(one, key, opts, used)
  local read = one.read
  if not read then
    local bytes = core.requests.range(one.client, key, opts)
    read = one.watch_calls.transport.reads:begin(RANGE, bytes, one, one.rest, rest_bytes_of(one, key, opts))
    one.read = read
    if one.is_closed then cancel_read(one) end -- by a finalizer, before one.read was set
  end
  if not read.is_done then return nil, NOT_YET end
  one.read = nil
  if not read.message then return nil, read.err end
  local decode = used and core.answers.page or core.answers.range
  local result, malformed = decode(read.message, used)
  if not result then return nil, malformed end
  if read.is_part then result.more = true end
  return result
end

--- Makes the watch begin after the revision of the existing kvs, in their cluster.
local function begin_after(one, revision, cluster)
  one.initial_revision = revision
  one.core:begin(revision, cluster)
  one.watch_calls:add(one)
end

--- Returns an iterator over the existing kvs. All pages are of the revision and the cluster of the first one.
local function initial_pages(one)
  local opts = one.opts
  local reader, used = {}, opts[watch.TRANSIENT] and {}
  local rest = one.watch_calls.transport.new_rest()
  one.rest = rest
  function reader.range(_, key, page)
    page[pages.REST] = nil
    local result, err = take_page(one, key, page, used)
    if not result then return nil, err end
    if one.is_closed then return nil, errors.closed("watch") end -- by a finalizer
    if not one.initial_revision then begin_after(one, result.revision, rest.cluster) end
    return result
  end
  local key = one.key
  if key == "" and not (opts.prefix or opts.from_key) then key = "\0" end
  return pages.iterate(reader, key, {
    prefix = opts.prefix,
    range_end = opts.range_end,
    from_key = opts.from_key,
  }, nil, true, nil, rest)
end

-- }======

-- {====== Opening ======

--- Makes the core's part of a watch. Raises the core's text if the options are wrong.
local function new_core(one)
  one.tag = one.watch_calls:new_tag()
  local ok, found = pcall(core.subscription, one.tag, one.key, one.core_opts)
  if not ok then error(found, 0) end
  one.core = found
end

--- Waits until the first page of the existing kvs has arrived. Raises an error if that fails.
local function await_initial(one, deadline)
  one.initial = initial_pages(one)
  while not one.initial_revision do
    local was_taken = watch.take_initial(one)
    if one.failure then error(one.failure, 0) end
    if one.is_closed then error(errors.closed("watch"), 0) end
    if not was_taken and not one.arrival:wait(driver.time_left(deadline)) then
      error(one.watch_calls.transport.reads:error(one.read), 0)
    end
  end
end

--- Waits until a server has created the watch. A call that does not confirm the watch in time is replaced, and the next
-- one has twice the time. Raises an error if that fails, or if driver.expire ends the wait.
local function await_created(one, deadline)
  local d = driver.get()
  local seconds = math.max(LEAST_SECONDS, one.watch_calls.transport.opts.timeout)
  local replace_at = d.now() + seconds
  while true do
    local _, was_created = one.core:seen()
    if was_created then return end
    if one.core:state() == "failed" then error(select(2, origin.take(one)), 0) end
    if one.is_closed then error(errors.closed("watch"), 0) end
    local left, until_replaced, now = driver.time_left(deadline), driver.time_left(replace_at), d.now()
    local is_last = left and left <= until_replaced
    local came = one.arrival:wait(is_last and left or until_replaced)
    if not came and (is_last or d.now() < now + until_replaced) then
      one.watch_calls:stop_sharing(one)
      error(one.watch_calls:error(), 0)
    elseif not came then
      one.watch_calls:replace_call(one)
      seconds = seconds * 2
      replace_at = d.now() + seconds
    end
  end
end

--- Returns the first revision of the watch. Events of that revision may have arrived already.
local function first_revision(one)
  local start = one.opts.start_revision or 0
  if start > 0 then return start end
  local _, next_revision = one.core:state()
  local _, _, created_at = one.core:seen()
  return math.min(next_revision, created_at + 1)
end

--- Opens a watch. Raises an error, or misuse as text.
local function try_open(one, deadline)
  new_core(one)
  one.arrival = driver.get().event()
  local cluster = one.opts[watch.CLUSTER]
  if cluster then one.core:begin(one.opts.start_revision - 1, cluster) end
  if one.opts.initial then await_initial(one, deadline) else one.watch_calls:add(one) end
  await_created(one, deadline)
  if not one.opts.initial then one.revision = first_revision(one) - 1 end
end

--- True if an error is an external failure, and not misuse or the cancellation of the task.
local function is_failure(err)
  return type(err) == "table" and err.code ~= nil and not driver.is_cancellation(err)
end

--- Restarts the watch, because a compaction has overtaken the reading of the existing kvs and none of them was returned
-- to the reader. Returns false if that was done too often.
function origin.begin_again(one)
  if one.beginnings >= MAX_BEGINNINGS then return false end
  one.beginnings = one.beginnings + 1
  one.core:close()
  cancel_read(one)
  one.watch_calls:forget(one)
  watch.clear(one) -- drops kvs that were read but not returned
  one.call, one.is_full, one.initial_revision = nil, false, nil
  new_core(one)
  one.initial = initial_pages(one)
  return true
end

--- Returns the deadline of opening a watch; nil: none. Raises, before anything is sent, if the caller must not wait.
local function deadline_of(opts)
  local d = driver.get()
  local deadline = opts.deadline or driver.deadline_of(opts.timeout)
  if not deadline or deadline > d.now() then d.check_send() end
  return deadline
end

--- Watches a key, or a range of keys. Returns the watch, or nil and an error. Waits for a server as long as it takes,
-- unless a timeout or a deadline is given.
local function open(client, key, opts)
  check.self(client, "watch")
  check.argument(type(key) == "string", 1, "watch", "string", key)
  opts = check.options(opts, "watch")
  if client.transport.is_closed then return nil, errors.closed("client") end
  local one = {
    origin = origin,
    client = client,
    watch_calls = client.transport.watch_calls,
    opts = opts,
    core_opts = watch.core_options(opts),
    key = key,
    revision = 0,
    progress = opts.progress,
    beginnings = 1,       -- attempts to read the existing kvs
    call = nil,           -- the Watch call to which the watch is attached
    has_own_call = false, -- the watch does not share its call
    is_full = false,      -- the queue is full: the watch has left its call until it is read
    read = nil,           -- the read of the next page of the existing kvs
    rest = nil,           -- for the pages of the existing kvs: see client/range_stream.lua
  }
  one.used = opts[watch.TRANSIENT] and {} -- tables of events
  watch.new(one)
  local ok, err = pcall(try_open, one, deadline_of(opts))
  if ok then return one end
  if one.core then one:close() end
  if is_failure(err) then return nil, err end
  if type(err) == "string" and err:find("^watch: ") then check.misuse("%s", err) end
  error(err, 0)
end

-- }======

-- {====== Sync ======

--- Moves the existing kvs that have arrived into the buffer. Returns an error if the buffer is full.
local function buffer_initial(one)
  while one.initial do
    if one.n - one.at >= SYNC_KVS then return core.new_error("full") end
    if not watch.take_initial(one) then return nil end
  end
end

--- Returns the revision that sync has reached, if it is at least the target; otherwise nil or false, and an error if
-- there will be no further progress. With `is_reader` the caller of sync reads the watch itself, and everything that
-- has arrived counts; otherwise only events that were returned to the reader.
local function reached(one, target, is_reader)
  if not is_reader then return one.revision >= target and one.revision end
  if one.initial then return nil, buffer_initial(one) end
  local state, next_revision = one.core:state()
  if next_revision > target then return target end
  if state == "failed" then -- earlier events can still be read
    while not one.failure and watch.take(one) do end
    return nil, one.failure
  end
  if one.is_full or one.watch_calls:is_held(one) then return nil, core.new_error("full") end
end

--- Waits until sync has reached the target revision. Returns a revision, or nil and an error. A server answers a
-- request for progress only while all watches of the call are up to date, so it is repeated.
local function follow(one, target, deadline)
  local d, asks, ask_at = driver.get(), 0, 0
  while true do
    local is_reader = not watch.is_read_by_other(one)
    local err = watch.terminal_error(one)
    if err then return nil, err end
    local revision, why = reached(one, target, is_reader)
    if revision then return revision end
    if why then return nil, why end
    if is_reader and one.is_full then return nil, core.new_error("full") end
    if one.watch_calls:is_trusted(one) == false then return nil, core.new_error("unsupported") end
    if d.now() >= ask_at then
      asks, ask_at = asks + 1, d.now() + ASK_AGAIN
      if asks % ASKS == 0 then one.watch_calls:move_others_away(one, target) end
      one.watch_calls:request_progress(one)
    end
    local left = driver.time_left(deadline)
    if left == 0 then return nil, core.new_error("timeout") end
    one.progressed = one.progressed or d.event()
    one.progressed:wait(math.min(ask_at - d.now(), left or ASK_AGAIN))
  end
end

--- Returns the current revision of the store by a linearizable read, or nil and an error.
local function revision_now(one, deadline)
  local key = one.key == "" and "\0" or one.key
  local result, err = one.client:range(key, { keys_only = true, limit = 1, timeout = driver.time_left(deadline) })
  if not result then return nil, err end
  return result.revision
end

--- Returns the error "timeout" for a request that took too long, if sync has a timeout; any other error as it is.
local function timeout_error(err, timeout)
  local is_late = timeout and (err.code == "deadline_exceeded" or err.code == "unavailable")
  return is_late and core.new_error("timeout") or err
end

--- Ends the sync of a killed caller.
local function undo_sync(one)
  one.core:follow(false)
end

--- Waits until everything up to the current revision was delivered. Returns a revision, or nil and an error.
function origin.sync(one, timeout)
  local err = watch.terminal_error(one)
  if err then return nil, err end
  local deadline = timeout and driver.get().now() + timeout
  local is_trusted, why = one.watch_calls:await_trust(deadline)
  if is_trusted == nil then return nil, timeout_error(why, timeout) end
  if not is_trusted then return nil, core.new_error("unsupported") end
  local target, failed = revision_now(one, deadline)
  if not target then return nil, timeout_error(failed, timeout) end
  one.core:follow(true)
  local ok, revision, stopped = driver.protect(undo_sync, one, follow, one, target, deadline)
  one.core:follow(false)
  if not ok then error(revision, 0) end
  if revision then return revision end
  return nil, stopped
end

-- }======

return { open = open }
