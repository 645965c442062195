-- SPDX-License-Identifier: MIT
--- cache: a copy of a client's keys below a prefix, in this process, with the reading methods of a store.
--
-- The copy is a replica, a store of the core that takes its revisions from the server (see feed.lua). Reads and watches
-- are those of the replica, so any number of local watches cost one watch upstream. A local watch holds its cache.
--
-- A cache that is not closed, and that nobody holds, is collected, and ends.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local feeds = require "keywatch.cache.feed"
local key_order = require "keywatch.support.key_order"
local local_source = require "keywatch.watch.local_source"
local pages = require "keywatch.store.pages"
local tables = require "keywatch.cache.table"
local watches = require "keywatch.watch.watch"

local ASK_AGAIN = 0.1 -- seconds: servers drop requests for progress while any watch of the call is behind

local cache_methods = {}
local cache_mt = { __name = "keywatch.cache", __index = cache_methods }

-- {====== Keys ======

--- True if a key, or all keys from it to an ending ("\0": no end), are in the range of the cache.
local function contains(cache, key, ending)
  if key_order.is_before(key, cache.key) then return false end
  if cache.range_end == "\0" then return true end
  if ending == nil or ending == "" then return key_order.is_before(key, cache.range_end) end
  return ending ~= "\0" and not key_order.is_before(cache.range_end, ending)
end

--- Raises if a method asks for keys that the cache does not have.
local function check_keys(cache, name, key, opts)
  check.argument(type(key) == "string", 1, name, "string", key)
  local ending = opts.range_end
  if opts.prefix then ending = key_order.prefix_end(key) elseif opts.from_key then ending = "\0" end
  if key == "" then key = "\0" end
  if contains(cache, key, ending) then return end
  check.misuse("%s: the cache has only keys that begin with %s", name, check.shown(cache.prefix))
end

-- }======

-- {====== Waiting ======

--- Returns the error of a cache that is closed, or nil.
local function closed_error(cache)
  if cache.is_closed then return errors.closed("cache") end
  if cache.client.transport.is_closed then return errors.closed("client") end
end

--- Returns the error of a cache that has no content yet.
local function empty_error(cache)
  local why = cache.feed.trouble or cache.client.transport.dialer:error()
  return errors.new("unavailable", "keywatch: the cache has no content yet: " .. why.message:gsub("^keywatch: ", ""))
end

--- Waits until is_so(cache) is true. Returns true, or nil and an error.
local function await(cache, is_so, deadline)
  local d = driver.get()
  cache.changed = cache.changed or d.event() -- before the loop: a finalizer may close the cache here
  while not is_so(cache) do
    local err = closed_error(cache)
    if err then return nil, err end
    if deadline and d.now() >= deadline then return nil, core.new_error("timeout") end
    cache.changed:wait(deadline and deadline - d.now())
  end
  return true
end

--- Returns the deadline of a timeout, or nil.
local function deadline_of(timeout)
  return timeout and driver.get().now() + timeout
end

local function is_loaded(cache) return cache.is_loaded end

--- True if the cache has content. The content may be old: see status.
function cache_methods:is_ready()
  check.self(self, "is_ready", cache_mt)
  return self.is_loaded and not closed_error(self)
end

--- Waits until the cache has content. Returns true, or nil and an error.
function cache_methods:wait_ready(timeout)
  check.self(self, "wait_ready", cache_mt)
  check.timeout(timeout, "wait_ready")
  local ok, err = await(self, is_loaded, deadline_of(timeout))
  if not ok and err.code == "timeout" then return nil, empty_error(self) end
  return ok, err
end

--- Returns the revision of the content; 0 before there is any.
local function revision_of(cache)
  return cache.is_loaded and cache.replica:status().revision or 0
end

--- Waits until the cache has come to a revision. Returns the revision of its content, or nil and an error.
function cache_methods:wait_for(revision, timeout)
  check.self(self, "wait_for", cache_mt)
  local is_whole = type(revision) == "number" and revision >= 0 and revision % 1 == 0
  check.argument(is_whole, 1, "wait_for", "revision", revision)
  check.timeout(timeout, "wait_for", 2)
  local ok, err = await(self, function() return self.is_loaded and revision_of(self) >= revision end,
    deadline_of(timeout))
  if not ok then return nil, err end
  return revision_of(self)
end

-- }======

-- {====== Sync ======

--- Has the server tell its revision to the watch of the feed until the cache has come to `target`. Returns that, or nil
-- and an error.
local function follow(cache, target, deadline)
  local d = driver.get()
  local function has_come() return cache.is_loaded and revision_of(cache) >= target end
  while not has_come() do
    local feed = cache.feed
    if feed:is_following() and feed.watch_calls:is_trusted(feed) == false then
      return nil, core.new_error("unsupported")
    end
    if d.now() >= cache.ask_at then
      cache.ask_at = d.now() + ASK_AGAIN
      feed:request_progress()
    end
    local ok, err = await(cache, has_come, math.min(deadline or math.huge, cache.ask_at))
    if not ok and (err.code ~= "timeout" or deadline and d.now() >= deadline) then return nil, err end
  end
  return target
end

--- Waits until the cache has all that the server had when sync was called. Returns the revision of the server then, or
-- nil and an error.
function cache_methods:sync(timeout)
  check.self(self, "sync", cache_mt)
  check.timeout(timeout, "sync")
  local deadline = deadline_of(timeout)
  local is_trusted, why = self.feed.watch_calls:await_trust(deadline)
  if is_trusted == nil then return nil, why end
  if not is_trusted then return nil, core.new_error("unsupported") end
  local target, err = self.feed:server_revision(deadline)
  if not target then return nil, err end
  local revision, failed = follow(self, target, deadline)
  return revision, failed
end

-- }======

-- {====== Reading ======

--- Returns the options of a read for the replica or the client: without those of the cache.
local function without_own(opts)
  if opts.consistent == nil and opts.min_revision == nil then return opts end
  local rest = {}
  for name, value in pairs(opts) do rest[name] = value end
  rest.consistent, rest.min_revision = nil, nil
  return rest
end

--- Waits until the cache is as new as a read asks for. Returns the object to read from, or nil and an error.
local function source_of(cache, opts)
  local err = closed_error(cache) or not cache.is_loaded and empty_error(cache)
  if err then return nil, err end
  if opts.consistent then
    local revision, failed = cache:sync(opts.timeout)
    if revision then return cache.replica end
    if failed.code == "unsupported" then return cache.client end
    return nil, failed
  elseif opts.min_revision then
    local revision, failed = cache:wait_for(opts.min_revision, opts.timeout)
    if not revision then return nil, failed end
  end
  return cache.replica
end

for _, name in ipairs { "get", "range" } do
  cache_methods[name] = function(self, key, opts)
    check.self(self, name, cache_mt)
    opts = check.options(opts, name)
    check_keys(self, name, key, opts)
    local source, err = source_of(self, opts)
    if not source then return nil, err end
    local result, failed = source[name](source, key, without_own(opts))
    return result, failed
  end
end

--- Returns an iterator over the kvs of a range, all of one revision. Raises an error if the cache has no content.
function cache_methods:each(key, opts)
  check.self(self, "each", cache_mt)
  opts = check.options(opts, "each")
  check_keys(self, "each", key, opts)
  local source, err = source_of(self, opts)
  if not source then error(err, 0) end
  return (pages.each(source, key, without_own(opts)))
end

--- Watches keys of the cache. Returns a watch, or nil and an error.
function cache_methods:watch(key, opts)
  check.self(self, "watch", cache_mt)
  opts = check.options(opts, "watch")
  check_keys(self, "watch", key, opts)
  local err = closed_error(self) or not self.is_loaded and empty_error(self)
  if err then return nil, err end
  local one, failed = local_source.open(self.replica, key, opts)
  if not one then return nil, failed end
  one.cache = self
  self.watches[one] = true
  return one
end

-- }======

--- Returns how the cache stands. Asks nobody, and does not wait.
function cache_methods:status()
  check.self(self, "status", cache_mt)
  local feed, replica = self.feed, self.replica:status()
  return {
    revision = revision_of(self),
    compact_revision = self.is_loaded and replica.compact_revision or 0,
    keys = replica.keys,
    phase = self.is_closed and "closed" or feed.phase,
    age = feed.heard_at and driver.get().now() - feed.heard_at or nil,
    trouble = feed.trouble or feed.why,
  }
end

--- Has the tables follow. A hook may open and close tables and the cache.
local function follow_tables(cache)
  if #cache.followers == 0 or not cache.is_loaded then return end
  local all = cache.followers
  cache.followers = {}
  for _, one in ipairs(all) do
    if one:follow(cache) then table.insert(cache.followers, one) end
  end
end

--- Returns a plain table, key to value, that is kept equal to the content of the cache.
function cache_methods:table(opts)
  check.self(self, "table", cache_mt)
  local target, follower = tables.new(self, opts)
  table.insert(self.followers, follower)
  follow_tables(self)
  return target
end

--- Ends all local watches with an error, after what they have received.
local function end_watches(cache, err)
  for one in pairs(cache.watches) do watches.finish(one, err) end
  cache.watches = setmetatable({}, { __mode = "k" })
end

--- Ends the cache, and its watches. Idempotent.
function cache_methods:close()
  check.self(self, "close", cache_mt)
  if self.is_closed then return end
  self.is_closed = true
  self.feed:close()
  end_watches(self, errors.closed("cache"))
  if self.changed then self.changed:set() end
end

cache_mt.__close = cache_methods.close

--- Returns the prefix, the revision and the state.
function cache_mt:__tostring()
  return ("keywatch.cache<prefix=%s revision=%d %s>"):format(check.shown(self.prefix), revision_of(self),
    self.is_closed and "closed" or self.feed.phase)
end

-- {====== Opening ======

local OPTIONS = { history_bytes = "number" }

--- Called by the feed when something has come. There may be content now.
local function on_change(cache)
  if cache.feed and cache.feed:is_following() then cache.is_loaded = true end
  follow_tables(cache)
  if cache.changed then cache.changed:set() end
end

--- Called by the feed when the server has another history: the cache begins anew with a state of that. Returns true, or
-- nil and an error.
local function begin_anew(cache, state, why)
  local replica, err = core.open { replica = true, history_bytes = cache.history_bytes }
  if not replica then return nil, err end
  local ok, failed = replica:load(state)
  if not ok then return nil, failed end
  end_watches(cache, why)
  cache.replica = replica
  return true
end

--- Opens a cache of all keys of a client that begin with `prefix`. Returns it, or nil and an error. Does not wait.
local function open(client, prefix, opts)
  check.self(client, "cache")
  check.argument(type(prefix) == "string", 1, "cache", "string", prefix)
  opts = check.options(opts, "cache")
  check.known(opts, "cache", OPTIONS)
  if client.transport.is_closed then return nil, errors.closed("client") end
  local replica, err = core.open { replica = true, history_bytes = opts.history_bytes }
  if not replica then return nil, err end
  local cache = setmetatable({
    client = client,
    prefix = prefix,
    key = prefix == "" and "\0" or prefix,
    range_end = key_order.prefix_end(prefix),
    history_bytes = opts.history_bytes,
    replica = replica,
    watches = setmetatable({}, { __mode = "k" }), -- as keys: the local watches
    followers = {},  -- of the tables
    feed = nil,
    ask_at = 0,      -- the time before which sync does not ask the server for progress again
    is_loaded = false,
    is_closed = false,
    changed = nil,   -- driver event: set when something has come
  }, cache_mt)
  cache.feed = feeds.new(cache, { on_change = on_change, begin_anew = begin_anew })
  return cache
end

-- }======

return { open = open, methods = cache_methods }
