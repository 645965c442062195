-- SPDX-License-Identifier: MIT
--- feed: keeps the replica of a cache equal to a range of a server's keys.
--
--             all pages have come                 the history is gone, or another one
--   READING ----------------------> FOLLOWING ------------------------------------------> READING
--      |   ^                            |
--      |   | the pause is over          | the server refuses
--      +-->+                            |
--     PAUSED <--------------------------+
--
-- READING: the pages of the range are read, all of one revision. FOLLOWING: a watch of the client goes on after that
-- revision, and what it is told goes to the replica inside of the core. PAUSED: the server has refused; it is asked
-- again after a while.
--
-- To the client a feed is a watch (see remote_source.lua): it has the fields that client/watch_calls.lua and
-- client/reads.lua use, and its event `arrival` does the work that is due, inside of the transport's poll. So a cache
-- needs no task, and works at top level, too. Neither transport nor driver hold a feed: it lives as long as its cache.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local local_source = require "keywatch.watch.local_source"
local reason = require "keywatch.support.reason"

local RANGE = "/etcdserverpb.KV/Range"
local PAGE = 10000 -- kvs of one page
local OTHER_HISTORY = { regressed = true, cluster_changed = true }

local feed_methods = {}
local feed_mt = { __index = feed_methods }

-- {====== Reading ======

--- Asks for the next page. All pages are of the revision of the first one.
local function ask_page(self)
  local last, revision = self.state:last()
  local opts = { range_end = self.range_end, limit = self.page }
  if revision > 0 then opts.revision = revision end
  local key = last ~= "" and last .. "\0" or self.key
  local bytes = core.requests.range(self.client, key, opts)
  self.read = self.watch_calls.transport.reads:begin(RANGE, bytes, self)
end

--- Begins to read the range. `why` is the error that makes it necessary, or nil the first time.
local function begin_reading(self, why)
  self.phase, self.why = "reading", why
  if self.state then self.state:close() end
  self.state = core.feed_state(self.key, self.range_end)
  self.page_cluster = nil
  ask_page(self)
end

--- Asks again after a while. `err` says why.
local function pause(self, err)
  self.phase, self.trouble = "paused", err
  self.failures = self.failures + 1
  self.retry_at = driver.get().now() + self.watch_calls.transport.backoff(self.failures)
end

--- Begins to follow the events after the revision of the pages.
local function begin_following(self, revision)
  self.phase, self.trouble, self.failures, self.why = "following", nil, 0, nil
  self.tag = self.watch_calls:new_tag()
  self.core = core.subscription(self.tag, self.key, { range_end = self.range_end, progress = true })
  self.core:begin(revision, self.cluster)
  self.call, self.has_own_call, self.is_full = nil, false, false
  self.core:arm()
  self.watch_calls:add(self)
end

--- Gives the pages that have come to the replica. The first ones are its base. Later ones are merged with what it has,
-- unless its history is another one. Returns true, or nil and an error.
local function use_state(self)
  if not self.cluster then return self.cache.replica:load(self.state) end
  local is_other = self.why and OTHER_HISTORY[self.why.code] or self.cluster ~= self.page_cluster
  if not is_other then
    local ok, err = self.cache.replica:merge(self.state)
    if ok or err.code ~= "stale_revision" then return ok, err end
  end
  return self.hooks.begin_anew(self.cache, self.state, self.why or core.new_error("cluster_changed"))
end

--- Goes on with events, once all pages have come.
local function use_pages(self)
  local _, revision = self.state:last()
  local ok, err = use_state(self)
  if not ok then return pause(self, err) end
  self.state:close()
  self.state, self.cluster = nil, self.page_cluster
  begin_following(self, revision)
end

--- Handles a page that has come, or the error of reading it.
local function take_page(self, read)
  self.read = nil
  if read.err and read.err.code == "compacted" then return begin_reading(self, self.why) end
  if read.err and read.err.code == "answer_too_large" and self.page > 1 then
    self.page = math.floor(self.page / 2)
    return ask_page(self)
  end
  if read.err then return pause(self, read.err) end
  local cluster = core.header(read.message)
  if self.page_cluster and cluster ~= self.page_cluster then return begin_reading(self, self.why) end
  self.page_cluster = cluster
  local ok, more = self.state:add(read.message)
  if not ok then return pause(self, more) end
  self.heard_at = driver.get().now()
  if more then ask_page(self) else use_pages(self) end
end

-- }======

-- {====== Following ======

--- Handles the failure of the watch.
local function fail(self, code, text)
  self.core:close()
  self.watch_calls:forget(self)
  local err = code == "unknown" and text and core.error_of(reason.parse(text)) or errors.new(code, text)
  if code == "compacted" or OTHER_HISTORY[code] then return begin_reading(self, err) end
  pause(self, err)
end

--- Moves what has come to the replica.
local function follow(self)
  repeat
    local n, more = self.cache.replica:feed(self.core)
    if not n then return fail(self, more.code, more.message) end
    if self.is_full then self.watch_calls:resume(self) end
  until not more
  self.heard_at = driver.get().now()
  local kind, what, text = self.core:take()
  if kind == "compacted" then return fail(self, "compacted") end
  if kind == "failed" then return fail(self, what, text) end
  self.core:arm()
end

-- }======

--- Does what is due.
local function work(self)
  if self.phase == "reading" then
    if self.read and self.read.is_done then take_page(self, self.read) end
  elseif self.phase == "following" then
    follow(self)
  end
end

--- Called when something has come. A finalizer may call it in the middle of itself.
local function pump(self)
  if self.is_working then
    self.is_stirred = true
    return
  end
  self.is_working = true
  repeat
    self.is_stirred = false
    work(self)
  until not self.is_stirred or self.phase == "closed"
  self.is_working = false
  local_source.poke(self.cache.replica)
  self.hooks.on_change(self.cache)
end

--- Called by the transport. Returns the seconds until it must be called again, or nil.
function feed_methods:poll(now)
  if self.phase ~= "paused" then return nil end
  if now < self.retry_at then return self.retry_at - now end
  begin_reading(self, self.trouble)
end

--- Ends the feed.
function feed_methods:close()
  if self.phase == "closed" then return end
  self.phase = "closed"
  local transport = self.watch_calls.transport
  transport.feeds[self] = nil
  if self.read then transport.reads:cancel(self.read) end
  if self.core then self.core:close() end
  self.watch_calls:forget(self)
  if self.state then self.state:close() end
end

-- {====== What the server has ======

--- True if the events of the server go to the replica.
function feed_methods:is_following()
  return self.phase == "following"
end

--- Asks the server for progress, if it has the watch of the feed.
function feed_methods:request_progress()
  if self.phase == "following" then self.watch_calls:request_progress(self) end
end

--- Returns the revision of the server by a linearizable read, or nil and an error.
function feed_methods:server_revision(deadline)
  local timeout = deadline and math.max(0, deadline - driver.get().now())
  local found, err = self.client:range(self.key, { keys_only = true, limit = 1, timeout = timeout })
  if not found then return nil, err end
  return found.revision
end

-- }======

--- Returns the feed of a cache, which has begun. `hooks` are on_change(cache), called when something has come, and
-- begin_anew(cache, state, err), which has to give the cache another replica with that state.
local function new(cache, hooks)
  local client = cache.client
  local watch_calls = client.transport.watch_calls
  local self = setmetatable({
    cache = cache,
    client = client,
    watch_calls = watch_calls,
    opts = {},
    key = cache.key,
    range_end = cache.range_end,
    hooks = hooks,
    phase = "reading",
    page = PAGE,
    state = nil,        -- the pages that have come
    read = nil,         -- the page that is on its way
    page_cluster = nil, -- the cluster of these pages
    cluster = nil,      -- the cluster of the replica
    why = nil,          -- the error that made reading anew necessary
    trouble = nil,      -- why it is paused
    failures = 0,       -- pauses in a row
    retry_at = 0,
    heard_at = nil,     -- when the server has told something
    arrival = nil,
    is_working = false,
    is_stirred = false, -- something has come while it worked
    -- Of watch_calls.lua:
    core = nil, tag = 0, call = nil, has_own_call = false, is_full = false, attached_at = nil,
  }, feed_mt)
  self.arrival = { set = function() pump(self) end }
  watch_calls.transport.feeds[self] = true
  begin_reading(self)
  return self
end

return { new = new }
