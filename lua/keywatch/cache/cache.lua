-- SPDX-License-Identifier: MIT
--- cache: a copy of a range of a server's keys in this process, with the reading methods of a store.
--
-- The copy is a replica, a store of the core that takes its revisions from the server (see feed.lua). Reads and watches
-- are those of the replica: any number of local watches cost one watch upstream.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local exists = require "keywatch.store.exists"
local feeds = require "keywatch.cache.feed"
local key_order = require "keywatch.support.key_order"
local local_source = require "keywatch.watch.local_source"
local pages = require "keywatch.store.pages"
local watches = require "keywatch.watch.watch"

local ASK_AGAIN = 0.1 -- seconds: servers drop requests for progress while any watch of the call is behind

local cache_methods = {}
local cache_mt = { __name = "keywatch.cache", __index = cache_methods }

-- {====== Keys ======

--- True if a range of keys lies in the range of the cache. An `ending` of nil is a single key, "\0" no end.
local function contains(cache, key, ending)
  if key_order.is_before(key, cache.key) then return false end
  if cache.range_end == "\0" then return true end
  if ending == "\0" then return false end
  if ending and ending ~= "" then return not key_order.is_before(cache.range_end, ending) end
  return key_order.is_before(key, cache.range_end)
end

--- Raises if a method asks for keys that the cache does not have.
local function check_keys(cache, name, key, opts)
  check.argument(type(key) == "string", 1, name, "string", key)
  local ending = opts.range_end
  if opts.prefix then ending = key_order.prefix_end(key) elseif opts.from_key then ending = "\0" end
  if contains(cache, key, ending) then return end
  check.misuse("%s: the cache has only the keys that begin with '%s'", name, cache.prefix)
end

-- }======

-- {====== Waiting ======

--- Returns the error of a cache that has no content, or is closed.
local function error_of(cache)
  if cache.is_closed then return errors.closed("cache") end
  local why = cache.feed.trouble or cache.client.transport.dialer:error()
  return errors.new("unavailable", "keywatch: the cache has no content yet: " .. why.message:gsub("^keywatch: ", ""))
end

--- Waits until is_so(cache) is true. Returns true, or nil and an error.
local function await(cache, is_so, timeout)
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  while not is_so(cache) do
    if cache.is_closed then return nil, errors.closed("cache") end
    if cache.client.transport.is_closed then return nil, errors.closed("client") end
    if not cache.changed then
      cache.changed = d.event() -- making it may have run a finalizer
    else
      local left = deadline and deadline - d.now()
      if left and left <= 0 then return nil, core.new_error("timeout") end
      cache.changed:wait(left)
    end
  end
  return true
end

local function is_ready(cache) return cache.is_loaded end

--- True if the cache has had content since it was opened.
function cache_methods:is_ready()
  check.self(self, "is_ready", cache_mt)
  return self.is_loaded and not self.is_closed
end

--- Waits until the cache has content. Returns true, or nil and an error.
function cache_methods:wait_ready(timeout)
  check.self(self, "wait_ready", cache_mt)
  check.timeout(timeout, "wait_ready")
  local ok, err = await(self, is_ready, timeout)
  if not ok and err.code == "timeout" then return nil, error_of(self) end
  return ok, err
end

--- Waits until the cache has a revision. Returns the revision of the cache, or nil and an error.
function cache_methods:wait_for(revision, timeout)
  check.self(self, "wait_for", cache_mt)
  check.argument(type(revision) == "number" and revision >= 0 and revision % 1 == 0, 1, "wait_for", "revision", revision)
  check.timeout(timeout, "wait_for", 2)
  local ok, err = await(self, function(cache)
    return cache.is_loaded and cache.replica:status().revision >= revision
  end, timeout)
  if not ok then return nil, err end
  return self.replica:status().revision
end

--- Has the server tell its revision to the watch of the feed, until the cache has come to `target`.
local function follow(cache, target, deadline)
  local d = driver.get()
  while true do
    local feed = cache.feed
    if cache.is_loaded and cache.replica:status().revision >= target then return target end
    if feed.phase == "following" then
      if feed.watch_calls:is_trusted(feed) == false then return nil, core.new_error("unsupported") end
      feed.watch_calls:request_progress(feed)
    end
    local left = deadline and deadline - d.now()
    if left and left <= 0 then return nil, core.new_error("timeout") end
    local ok, err = await(cache, function() return cache.replica:status().revision >= target end,
      math.min(left or ASK_AGAIN, ASK_AGAIN))
    if not ok and err.code ~= "timeout" then return nil, err end
  end
end

--- Waits until the cache has all that the server had when sync was called. Returns the revision of the server then, or
-- nil and an error.
function cache_methods:sync(timeout)
  check.self(self, "sync", cache_mt)
  check.timeout(timeout, "sync")
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  local is_trusted, why = self.feed.watch_calls:await_trust(deadline)
  if is_trusted == nil then return nil, why end
  if not is_trusted then return nil, core.new_error("unsupported") end
  local found, err = self.client:range(self.key == "" and "\0" or self.key,
    { keys_only = true, limit = 1, timeout = deadline and math.max(0, deadline - d.now()) })
  if not found then return nil, err end
  local revision, failed = follow(self, found.revision, deadline)
  return revision, failed
end

-- }======

-- {====== Reading ======

local OWN = { consistent = true, min_revision = true }

--- Returns the options of a read for the replica: without those of the cache.
local function replica_options(opts)
  if opts.consistent == nil and opts.min_revision == nil then return opts end
  local t = {}
  for name, value in pairs(opts) do
    if not OWN[name] then t[name] = value end
  end
  return t
end

--- Waits until the cache is as new as a read asks for. Returns true; false if the server must be asked instead; or nil
-- and an error.
local function freshen(cache, opts)
  if not cache.is_loaded or cache.is_closed then return nil, error_of(cache) end
  if opts.consistent then
    local revision, err = cache:sync(opts.timeout)
    if revision then return true end
    if err.code == "unsupported" then return false end
    return nil, err
  elseif opts.min_revision then
    local revision, err = cache:wait_for(opts.min_revision, opts.timeout)
    return revision and true, err
  end
  return true
end

for _, name in ipairs { "get", "range" } do
  cache_methods[name] = function(self, key, opts)
    check.self(self, name, cache_mt)
    opts = check.options(opts, name)
    check_keys(self, name, key, opts)
    local is_fresh, err = freshen(self, opts)
    if is_fresh == nil then return nil, err end
    local result, failed
    if is_fresh then
      result, failed = self.replica[name](self.replica, key, replica_options(opts))
    else
      result, failed = self.client[name](self.client, key, replica_options(opts))
    end
    return result, failed
  end
end

--- Returns an iterator over the kvs of a range, all of one revision.
function cache_methods:each(key, opts)
  check.self(self, "each", cache_mt)
  opts = check.options(opts, "each")
  check_keys(self, "each", key, opts)
  if not self.is_loaded then error(error_of(self), 0) end
  return (pages.each(self.replica, key, opts))
end

--- Watches keys of the cache. Returns a watch, or nil and an error.
function cache_methods:watch(key, opts)
  check.self(self, "watch", cache_mt)
  opts = check.options(opts, "watch")
  check_keys(self, "watch", key, opts)
  if not self.is_loaded or self.is_closed then return nil, error_of(self) end
  local one, err = local_source.open(self.replica, key, opts)
  if one then self.watches[one] = true end
  return one, err
end

-- }======

--- Returns how the cache stands.
function cache_methods:status()
  check.self(self, "status", cache_mt)
  local feed, now = self.feed, driver.get().now()
  local status = self.replica:status()
  return {
    revision = self.is_loaded and status.revision or 0,
    keys = status.keys,
    is_ready = self:is_ready(),
    phase = feed.phase,
    age = feed.heard_at and now - feed.heard_at or nil,
    trouble = feed.trouble or feed.why,
  }
end

--- Ends the cache, and its watches.
function cache_methods:close()
  check.self(self, "close", cache_mt)
  self.parts:close()
end

-- {====== Opening ======

local parts_methods = {}
local parts_mt = { __index = parts_methods }

--- Ends all local watches with an error, once what they hold was read.
local function end_watches(cache, err)
  for one in pairs(cache.watches) do watches.finish(one, err) end
end

function parts_methods:close()
  local cache = self
  if cache.is_closed then return end
  cache.is_closed = true
  cache.feed:close()
  end_watches(cache, errors.closed("cache"))
  if cache.changed then cache.changed:set() end
end

local OPTIONS = { history_bytes = "number" }

--- Opens a cache of all keys of a client that begin with `prefix`. Does not wait.
local function open(client, prefix, opts)
  check.self(client, "cache")
  check.argument(type(prefix) == "string", 1, "cache", "string", prefix)
  opts = check.options(opts, "cache")
  check.known(opts, "cache", OPTIONS)
  if client.transport.is_closed then return nil, errors.closed("client") end
  local function new_replica() return assert(core.open { replica = true, history_bytes = opts.history_bytes }) end
  local cache = {
    client = client,
    prefix = prefix,
    key = prefix == "" and "\0" or prefix,
    range_end = key_order.prefix_end(prefix),
    replica = new_replica(),
    watches = setmetatable({}, { __mode = "k" }), -- as keys: the local watches
    feed = nil,
    is_loaded = false,
    is_closed = false,
    changed = nil, -- driver event: set when something has come
  }
  cache.feed = feeds.new(client, cache.key, cache.range_end, cache.replica, {
    on_change = function(feed)
      cache.is_loaded = cache.is_loaded or feed.phase == "following"
      if cache.changed then cache.changed:set() end
    end,
    on_other_history = function(feed, state, err)
      local replica = new_replica()
      local ok, failed = replica:load(state)
      if not ok then return nil, failed end
      end_watches(cache, err)
      cache.replica, feed.replica = replica, replica
      return true
    end,
  })
  cache.parts = setmetatable({}, { __index = parts_methods })
  cache.parts = { close = function() parts_methods.close(cache) end }
  return setmetatable(cache, cache_mt)
end

-- }======

local _ = compat, exists, parts_mt

return { open = open, methods = cache_methods }
