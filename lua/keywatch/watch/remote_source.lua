-- SPDX-License-Identifier: MIT
--- remote_watch: watches over the wire. The core queues what they are told, in bounds, and streams.lua sees to it that
-- each is attached to some call.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local pages = require "keywatch.store.pages"
local reason = require "keywatch.support.reason"
local watch = require "keywatch.watch.watch"

local RANGE = "/etcdserverpb.KV/Range"
local ASK_AGAIN = 0.1  -- seconds: servers drop requests for progress while any watch of the call is behind
local ASKS = 5         -- that were not answered, after which those who may be why are sent elsewhere
local BEGINNINGS = 3   -- of what exists, while it is compacted away
local SYNC_KVS = 10000 -- of what exists, that sync puts into the buffer

local origin = {}

local function failure(code, text)
  if code == "unknown" and text then return core.error_of(reason.parse(text)) end
  return errors.new(code, text)
end

function origin.take(one)
  if origin.is_closed(one) then return "failed", errors.closed("client") end
  while true do
    local kind, what, text = one.core:take()
    if one.is_full then one.streams:relieve(one) end
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

function origin.wait(one, timeout)
  one.core:arm()
  return one.arrival:wait(timeout)
end

function origin.look(one)
  one.streams.channel:look()
end

function origin.is_closed(one)
  return one.streams.channel.is_closed
end

function origin.has_failed(one)
  return one.core:state() == "failed"
end

function origin.close(one)
  one.core:close()
  one.streams:forget(one)
end

-- {====== What exists ======

local function seconds_left(deadline)
  return deadline and math.max(0, deadline - driver.get().now())
end

--- As client:range, with the id of the cluster.
local function range(one, key, opts, deadline)
  local channel = one.streams.channel
  local bytes = core.requests.range(one.client, key, opts)
  local back, err = channel:unary(RANGE, bytes, deadline or channel:deadline_of(one.opts.timeout), true)
  if not back then return nil, err end
  local result, malformed = core.answers.range(back)
  if not result then return nil, malformed end
  return result, nil, (core.header(back))
end

--- A server that has cancelled a call has not cancelled the task.
local function not_cancelled(err)
  return err.code == "cancelled" and core.error_of(grpc_status.UNAVAILABLE, err.message) or err
end

--- All pages are of one revision, and of one cluster.
local function initial_pages(one, deadline)
  local cluster, revision
  local opts = one.opts
  local reader = {}
  function reader.range(_, key, page)
    local result, err, found = range(one, key, page, deadline)
    if not result then return nil, not_cancelled(err) end
    cluster, revision = cluster or found, revision or result.revision
    if found ~= cluster then return nil, core.new_error("cluster_changed") end
    return result
  end
  local key = one.key
  if key == "" and not (opts.prefix or opts.from_key) then key = "\0" end
  local iterator = pages.iterate(reader, key, {
    prefix = opts.prefix,
    range_end = opts.range_end,
    from_key = opts.from_key,
  })
  deadline = nil -- which was that of opening: later pages have as long as any request
  return iterator, revision, cluster
end

--- Reads the first page; the watch goes on after its revision.
local function begin_initial(one, deadline)
  local iterator, revision, cluster = initial_pages(one, deadline)
  one.initial, one.initial_revision = iterator, revision
  one.core:begin(revision, cluster)
end

-- }======

-- {====== Opening ======

local function new_core(one)
  one.tag = one.streams:new_tag()
  local ok, found = pcall(core.subscription, one.tag, one.key, one.core_opts)
  if not ok then error(found, 0) end
  one.core = found
end

--- Waits until a server has created it: true; or nil and an error.
local function await_created(one, deadline)
  one.arrival = driver.get().event()
  while true do
    local _, was_created = one.core:seen()
    if was_created then return true end
    if one.core:state() == "failed" then
      local _, err = origin.take(one)
      return nil, err
    end
    if not one.arrival:wait(seconds_left(deadline)) then
      one.streams:shun(one)
      return nil, one.streams:error()
    end
  end
end

--- The first revision that it tells of, which may have come already.
local function first_revision(one)
  local start = one.opts.start_revision or 0
  if start > 0 then return start end
  local _, next_revision = one.core:state()
  local _, _, created_at = one.core:seen()
  return math.min(next_revision, created_at + 1)
end

local function try_open(one, deadline)
  new_core(one)
  if one.opts.initial then
    local ok, err = pcall(begin_initial, one, deadline)
    if not ok then error(err, 0) end
  end
  one.streams:add(one)
  local created, err = await_created(one, deadline)
  if not created then error(err, 0) end
  if not one.opts.initial then one.revision = first_revision(one) - 1 end
end

local function is_failure(err)
  return type(err) == "table" and err.code ~= nil and err.code ~= "cancelled"
end

--- What exists could not be read as it was, and nothing of it was handed out: all begins anew.
function origin.begin_again(one)
  if one.beginnings >= BEGINNINGS then return false end
  one.beginnings = one.beginnings + 1
  one.core:close()
  one.streams:forget(one)
  watch.clear(one) -- of what was read, and not handed out
  one.stream, one.is_full, one.initial = nil, false, nil
  local arrival = one.arrival
  local ok, err = pcall(try_open, one, one.streams.channel:deadline_of(one.opts.timeout))
  one.arrival = arrival or one.arrival
  if ok then return true end
  if not is_failure(err) then error(err, 0) end
  return false
end

--- Watches a key, or a range of keys.
local function open(client, key, opts)
  check.self(client, "watch")
  check.argument(type(key) == "string", 1, "watch", "string", key)
  opts = check.options(opts, "watch")
  if client.channel.is_closed then return nil, errors.closed("client") end
  local one = {
    origin = origin,
    client = client,
    streams = client.channel.streams,
    opts = opts,
    core_opts = watch.core_options(opts),
    key = key,
    revision = 0,
    progress = opts.progress,
    beginnings = 1,
    -- of streams.lua
    stream = nil,     -- that it is attached to
    is_apart = false, -- it has a call of its own
    is_full = false,  -- nobody reads it
  }
  watch.new(one)
  local ok, err = pcall(try_open, one, client.channel:deadline_of(opts.timeout, opts.deadline))
  if ok then return one end
  if one.core then one:close() end
  if is_failure(err) then return nil, err end
  if type(err) == "string" and err:find("^watch: ") then check.misuse("%s", err) end
  error(err, 0)
end

-- }======

-- {====== Sync ======

--- Reads what exists into the buffer; an error, if that is too much.
local function settle_initial(one)
  for _ = 1, SYNC_KVS do
    if not one.initial or watch.is_taking(one) then return end
    watch.take_initial(one)
  end
  return one.initial and core.new_error("full")
end

--- How far the reader has come, or for one that asks for itself, what came; and why it comes no further.
local function reached(one, target, is_alone)
  if not is_alone then return one.revision >= target and one.revision end
  if one.initial then return nil, settle_initial(one) end
  local state, next_revision = one.core:state()
  if next_revision > target then return target end
  if state == "failed" then -- and what comes before that may be read still
    while not one.failure and watch.take(one) do end
    return nil, one.failure
  end
  if one.is_full or one.streams:is_held(one) then return nil, core.new_error("full") end
end

--- Servers answer with a revision only while all watches of a call are up to date, and otherwise not at all.
local function follow(one, target, deadline)
  local d, asks, ask_at = driver.get(), 0, 0
  while true do
    local is_alone = not watch.is_read_by_other(one)
    local err = watch.why_not(one)
    if err then return nil, err end
    local revision, why = reached(one, target, is_alone)
    if revision then return revision end
    if why then return nil, why end
    if is_alone and one.is_full then return nil, core.new_error("full") end
    if one.streams:is_trusted(one) == false then return nil, core.new_error("unsupported") end
    if d.now() >= ask_at then
      asks, ask_at = asks + 1, d.now() + ASK_AGAIN
      if asks % ASKS == 0 then one.streams:leave_alone(one, target) end
      one.streams:ask(one)
    end
    local left = seconds_left(deadline)
    if left == 0 then return nil, core.new_error("timeout") end
    one.progressed = one.progressed or d.event()
    one.progressed:wait(math.min(ask_at - d.now(), left or ASK_AGAIN))
  end
end

--- The revision of the store, as a read that any member would answer alike.
local function revision_now(one, deadline)
  local key = one.key == "" and "\0" or one.key
  local result, err = one.client:range(key, { keys_only = true, limit = 1, timeout = seconds_left(deadline) })
  if not result then return nil, err end
  return result.revision
end

local function timeout_error(err, timeout)
  local is_late = timeout and (err.code == "deadline_exceeded" or err.code == "unavailable")
  return is_late and core.new_error("timeout") or err
end

function origin.sync(one, timeout)
  local err = watch.why_not(one)
  if err then return nil, err end
  local deadline = timeout and driver.get().now() + timeout
  local is_trusted, why = one.streams:trusts(deadline)
  if is_trusted == nil then return nil, timeout_error(why, timeout) end
  if not is_trusted then return nil, core.new_error("unsupported") end
  local target, failed = revision_now(one, deadline)
  if not target then return nil, timeout_error(failed, timeout) end
  one.core:follow(true)
  local ok, revision, stopped = pcall(follow, one, target, deadline)
  one.core:follow(false)
  if not ok then error(revision, 0) end
  if revision then return revision end
  return nil, stopped
end

-- }======

return { open = open }
