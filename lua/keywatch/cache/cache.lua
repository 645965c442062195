-- SPDX-License-Identifier: MIT
--- cache: the keys below a prefix, in this process, with the reading methods of a store.
--
-- The cache of a client is a copy: a replica, a store of the core that takes its revisions from the server. The cache
-- of a store in this process is that store. Reads and watches use the replica, or the store, so any number of local
-- watches cost one watch upstream. A local watch keeps its cache alive.
--
-- An open cache without references is collected, and ends. A cache whose client was closed has ended, too, but still
-- answers reads from its last content, and its status says that the content is stale.
--
-- The replica has a feed (feed.lua); that of a store in this process does nothing (in_process.lua). Methods of a feed:
--
--   error()                    returns the error that has ended the feed, or nil
--   describe()                 returns phase, age and trouble
--   has_synced()               true if the content has arrived from the server, now or before
--   is_of_file()               true if the content is that of the file
--   await_synced(cache, deadline)
--                              waits for content from the server. Returns nil, or an error
--   content_deadline(seconds)  returns the deadline of a wait for content, see feed.lua
--   deadline()                 returns the deadline of a read without one
--   await_revision(cache, revision, deadline, is_strict, replica)
--                              waits until the replica has reached a revision, or the cache has another one than
--                              `replica`. Returns nil, or an error. With is_strict the error is "unsupported" if the
--                              replica cannot reach it soon
--   server_revision(deadline)  returns a revision of the replica's history that the server had after the call; or nil
--                              and an error
--   follow()                   lets the tables follow each change from now on
--   look_again()               lets the tables follow once more, in the next turn
--   close()

local check = require "keywatch.support.check"
local content_file = require "keywatch.cache.content_file"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local bases = require "keywatch.concurrency.base"
local feeds = require "keywatch.cache.feed"
local in_process = require "keywatch.cache.in_process"
local key_order = require "keywatch.support.key_order"
local keys = require "keywatch.namespace.keys"
local keys_by = require("keywatch.support.order").keys_by
local local_origin = require "keywatch.watch.local_origin"
local pages = require "keywatch.store.pages"
local slow = require "keywatch.cache.slow"
local tables = require "keywatch.cache.table"
local watches = require "keywatch.watch.watch"

local cache_methods, cache_mt = check.class "keywatch.cache"

-- {====== Keys ======

--- True if a key, or all keys from it to an ending ("\0": no end), are in the range of the cache.
local function contains(cache, key, ending)
  if key_order.is_before(key, cache.key) then return false end
  if cache.range_end == "\0" then return true end
  if ending == nil or ending == "" then return key_order.is_before(key, cache.range_end) end
  return ending ~= "\0" and not key_order.is_before(cache.range_end, ending)
end

--- Returns key and options of a method for the replica. Raises if the cache does not have these keys.
local function outer_range(cache, name, key, opts)
  check.argument(type(key) == "string", 1, name, "string", key)
  local space = cache.space
  local outer = key
  if space then outer, opts = keys.range(space, key, opts) end
  if outer == "" and space then outer = space.first end
  local ending = opts.range_end
  if opts.prefix then ending = key_order.prefix_end(outer) elseif opts.from_key then ending = "\0" end
  if contains(cache, outer == "" and "\0" or outer, ending) then return outer, opts end
  check.misuse("%s: the cache has only keys that begin with %s", name, check.shown(cache.prefix))
end

-- }======

-- {====== Waiting ======

--- Returns the error of a cache that has ended, or nil.
local function closed_error(cache)
  return cache.end_error or cache.feed:error()
end

--- True if the cache has content that can be read.
local function has_content(cache)
  return cache.is_loaded and not cache.is_closed and (cache.is_whole or not cache.feed:error())
end

--- Returns the error of a cache that has no content yet, or none from the server, as `what` says.
local function empty_error(cache, what)
  local _, _, trouble = cache.feed:describe()
  local why = trouble or cache.owner.transport.dialer:error()
  return errors.new("unavailable", ("keywatch: the cache has %s yet: "):format(what or "no content")
    .. why.message:gsub("^keywatch: ", ""))
end

--- True if the cache has content. The content may be old: see status.
function cache_methods:is_ready()
  return has_content(self)
end

--- Returns the deadline of a wait for content; nil: none. A timeout of the caller counts from now. Any other timeout,
-- and every timeout if the driver limits all waits (`patience`), counts once for all caches of a client.
local function content_deadline(cache, timeout, default)
  local d = driver.get()
  local patience = d.patience and d.patience()
  local seconds = timeout or default or patience
  if timeout and not patience then return d.now() + timeout end
  return seconds and cache.feed:content_deadline(seconds)
end

--- Waits until the cache has content. Returns true, or nil and an error. Without a timeout the option `timeout` of the
-- cache applies, if it was given.
function cache_methods:wait_ready(timeout)
  check.timeout(timeout, "wait_ready")
  local err = closed_error(self)
  if err then return nil, err end
  if self.is_loaded then return true end
  driver.get().check_wait()
  err = self.feed:await_revision(self, 0, content_deadline(self, timeout, self.timeout))
  if not err then return true end
  return nil, err.code == "timeout" and empty_error(self) or err
end

--- True once the content has arrived from the server, and not only from a file.
function cache_methods:has_synced()
  return self.feed:has_synced() and not closed_error(self)
end

--- Waits until the content has arrived from the server. Returns true, or nil and an error.
function cache_methods:wait_synced(timeout)
  check.timeout(timeout, "wait_synced")
  local err = closed_error(self)
  if err then return nil, err end
  if self.feed:has_synced() then return true end
  driver.get().check_wait()
  err = self.feed:await_synced(self, content_deadline(self, timeout))
  if not err then return true end
  return nil, err.code == "timeout" and empty_error(self, "no content of the server") or err
end

--- Returns the revision of the content; 0 before there is any.
local function revision_of(cache)
  return has_content(cache) and cache.replica:status().revision or 0
end

--- Lets some followers follow the replica. Those whose tables are still in use are added to cache.followers. Returns
-- nil, or the error that was raised: by the replica, if a finalizer polls during a call of the replica.
local function follow_all(cache, followers)
  local raised
  for _, follower in ipairs(followers) do
    local ok, continues = true, not cache.end_error
    if continues then ok, continues = pcall(follower.follow, follower, cache) end
    if not ok then
      raised = continues -- the error
      follower:listen(cache)
    end
    if cache.end_error then follower:close() elseif continues then table.insert(cache.followers, follower) end
  end
  return raised
end

--- Lets the only follower of a cache follow, whose table has no hook. Returns false if follow_all must be called.
local function follow_plain(cache, follower)
  cache.is_following, cache.has_more = true, false
  local ok, continues = pcall(follower.follow, follower, cache)
  cache.is_following = false
  return ok and continues and not cache.has_more and not cache.end_error
end

--- Lets the tables follow. A hook may open and close tables and the cache. If a hook or a finalizer causes more
-- changes, the tables follow once more.
local function follow_tables(cache)
  local first, second = cache.followers[1], cache.followers[2]
  if not first and not cache.is_following or not cache.is_loaded then return end
  if cache.is_following then
    cache.has_more = true
    return
  end
  if not second and first.is_plain and follow_plain(cache, first) then return end
  local raised
  cache.is_following = true
  repeat
    local all = cache.followers
    cache.has_more, cache.followers = false, {}
    raised = follow_all(cache, all)
  until not cache.has_more or raised or cache.end_error
  cache.is_following = false
  if not raised then return end
  cache.feed:look_again()
  error(raised, 0)
end

--- Waits until the content has reached a revision, or is no longer that of `replica`, if given. With is_strict the
-- error is "unsupported" if that may take long. Returns the revision of the content, or nil and an error.
local function reach(cache, target, deadline, is_strict, replica)
  local err = closed_error(cache)
  if err then return nil, err end
  local revision = revision_of(cache)
  if revision >= target and cache.is_loaded then
    follow_tables(cache)
    return revision
  end
  driver.get().check_wait()
  err = cache.feed:await_revision(cache, target, deadline, is_strict, replica)
  if err then return nil, err end
  follow_tables(cache)
  return revision_of(cache)
end

--- Waits until the cache has reached a revision. Returns the revision of its content, or nil and an error.
function cache_methods:wait_for(revision, timeout)
  local is_whole = type(revision) == "number" and revision >= 0 and revision % 1 == 0
  check.argument(is_whole, 1, "wait_for", "revision", revision)
  check.timeout(timeout, "wait_for", 2)
  return check.results(reach(self, revision, driver.deadline_of(timeout), false))
end

--- Waits until the cache has every change that the server had at the call. Returns that revision of the server, or nil
-- and an error. If the server's history changes before the answer, the server is asked again.
local function sync(cache, deadline)
  while true do
    local err = closed_error(cache)
    if err then return nil, err end
    local target, failed = cache.feed:server_revision(deadline)
    if not target then return nil, failed end
    local replica = cache.replica
    local revision, late = reach(cache, target, deadline, true, replica)
    if not revision then return nil, late end
    if cache.replica == replica then return target end
  end
end

--- Waits until the cache has every change that the server had at the call. Returns that revision of the server, or nil
-- and an error.
function cache_methods:sync(timeout)
  check.timeout(timeout, "sync")
  local deadline = driver.deadline_of(timeout)
  local revision, err = sync(self, deadline)
  if revision then return revision end
  local is_late = timeout and (err.code == "deadline_exceeded" or err.code == "unavailable")
  return nil, is_late and core.new_error("timeout") or err
end

-- }======

-- {====== Reading ======

local READ_OPTIONS = { consistent = "boolean", min_revision = "revision", timeout = "seconds", deadline = "seconds" }

--- Returns the options of a read for the replica or the client: without those of the cache, and with a deadline.
local function without_own(opts, deadline)
  if not deadline and opts.consistent == nil and opts.min_revision == nil then return opts end
  local rest = check.copy(opts)
  rest.consistent, rest.min_revision = nil, nil
  if deadline then rest.timeout, rest.deadline = nil, deadline end
  return rest
end

--- Waits until the cache is as new as a read requires. Returns the replica and the options for reading it, or nil and
-- an error. If the cache cannot know how new it is, returns the client in place of the replica.
local function store_for(cache, opts)
  if not opts.consistent and not opts.min_revision and has_content(cache) then
    return cache.replica, without_own(opts)
  end
  local err = closed_error(cache)
  if err then return nil, err end
  if not opts.consistent and not opts.min_revision then return nil, empty_error(cache) end
  local deadline = opts.deadline or driver.deadline_of(opts.timeout) or cache.feed:deadline()
  local ok, failed
  if opts.consistent then ok, failed = sync(cache, deadline) else ok = true end
  if ok and opts.min_revision then ok, failed = reach(cache, opts.min_revision, deadline, true) end
  if ok then return cache.replica, without_own(opts) end
  if failed.code == "unsupported" then return cache.owner, without_own(opts, deadline) end
  if failed.code == "timeout" then failed = core.new_error("deadline_exceeded") end
  return nil, failed
end

--- Returns the kv of a key, or nil; or nil and an error.
function cache_methods:get(key, opts)
  opts = check.options(opts, "get")
  check.some(opts, "get", READ_OPTIONS)
  local outer = outer_range(self, "get", key, opts)
  local store, rest = store_for(self, opts)
  if not store then return nil, rest end -- the error
  local kv, err = check.call("get", store.get, store, outer, rest)
  if kv then kv.key = key end
  return check.results(kv, err)
end

--- Reads a range of keys. Returns the result, or nil and an error.
function cache_methods:range(key, opts)
  opts = check.options(opts, "range")
  check.some(opts, "range", READ_OPTIONS)
  local outer, outer_opts = outer_range(self, "range", key, opts)
  local store, rest = store_for(self, outer_opts)
  if not store then return nil, rest end
  local result, err = check.call("range", store.range, store, outer, rest)
  if not result then return nil, err end
  if self.space then keys.cut(self.space, result.kvs) end
  return result
end

--- Returns an iterator over the kvs of a range, all of one revision. Raises an error if the cache has no content, or
-- none that is as new as the options require.
function cache_methods:each(key, opts)
  opts = check.options(opts, "each")
  check.some(opts, "each", READ_OPTIONS)
  local outer, outer_opts = outer_range(self, "each", key, opts)
  local store, rest = store_for(self, outer_opts)
  if not store then error(rest, 0) end
  local iterator = pages.each(store, outer, rest)
  local space = self.space
  if not space then return iterator end
  return function()
    local kv = iterator()
    if kv then keys.cut(space, { kv }) end
    return kv
  end
end

--- Returns the options of a watch for the replica, and its option slow_after. Raises if slow_after is invalid.
local function watch_options(cache, opts)
  local after = opts.slow_after
  if after == nil then return opts, cache.slow_after end
  if after ~= false then check.some(opts, "watch", { slow_after = "some seconds" }) end
  return check.copy(opts, "slow_after"), after
end

--- Watches keys of the cache. Returns a watch, or nil and an error.
function cache_methods:watch(key, opts)
  local own, after = watch_options(self, check.options(opts, "watch"))
  local outer, outer_opts = outer_range(self, "watch", key, own)
  local err = closed_error(self) or not self.is_loaded and empty_error(self)
  if err then return nil, err end
  local one, failed = local_origin.open(self.replica, outer, outer_opts)
  if not one then return nil, failed end
  local late = self.end_error or one.store ~= self.replica and core.new_error("compacted")
  if late then -- a finalizer has closed the cache
    one:close()
    return nil, late
  end
  one.cache = self
  self.watches[one] = true
  if self.space then watches.cut_keys(one, #self.space.prefix, key) end
  if after then slow.guard(one, after) end
  return one
end

-- }======

--- Returns the status of the cache. Makes no request, and does not wait.
function cache_methods:status()
  local err = closed_error(self)
  if err and not has_content(self) then
    return { revision = 0, compact_revision = 0, keys = 0, phase = "closed", from_file = false, is_stale = false }
  end
  local replica = self.replica:status()
  local phase, age, trouble = self.feed:describe()
  if err then phase, trouble = "closed", err end
  local counted, failed = { count = replica.keys }, nil
  if not self.is_whole then
    counted, failed = self.replica:range(self.key, { range_end = self.range_end, count_only = true })
  end
  return {
    revision = self.is_loaded and replica.revision or 0,
    compact_revision = self.is_loaded and replica.compact_revision or 0,
    keys = counted and counted.count or 0,
    phase = phase,
    is_stale = self.is_loaded and (phase ~= "following" or trouble ~= nil),
    age = age,
    trouble = trouble or failed,
    from_file = self.feed:is_of_file(),
  }
end

--- Reads a range of objects as one text, see csrc/bind/lua_texts.h. Returns the result; nil and an error; or only nil
-- if that is not possible in one turn, or at all. For this library.
local function texts_of(cache, key, opts, lead, max)
  if not has_content(cache) then return nil end
  local outer, outer_opts = outer_range(cache, "range", key, opts)
  local ok, result, err = pcall(core.inner.texts, cache.replica, outer, outer_opts, lead, max)
  if not ok or not result then return nil, ok and err or nil end
  if cache.space and result.last then result.last = result.last:sub(#cache.space.prefix + 1) end
  return result
end

--- Returns the gaps of the history, see above. For this library.
local function gaps_of(cache)
  return cache.feed.gaps
end

--- Returns a plain table, key to value, that mirrors the content of the cache; or nil and an error.
function cache_methods:table(opts)
  local target, follower = tables.new(self, opts, follow_tables)
  local err = closed_error(self)
  if err then return nil, err end
  if self.is_loaded then follower:follow(self) end -- also in a hook of another table
  if self.end_error then
    follower:close()
  else
    table.insert(self.followers, follower)
    self.feed:follow()
    follow_tables(self) -- a finalizer may have polled
  end
  return target
end

-- {====== The end ======

--- Ends the cache with an error, and its watches. The content can still be read.
local function finish(cache, err)
  if cache.end_error then return end
  local all, followers = cache.watches, cache.followers
  cache.end_error, cache.watches, cache.followers = err, {}, {}
  cache.feed:close()
  for _, one in ipairs(keys_by(all, "tag")) do watches.abort(one, err) end
  for _, one in ipairs(followers) do one:close() end
end

--- Ends the cache, and its watches. The content is freed at once: Lua's collector does not see its size. Idempotent.
function cache_methods:close()
  self.is_closed = true
  finish(self, errors.closed("cache"))
  if self.is_whole then self.replica:close() end
end

cache_mt.__close = cache_methods.close

--- Returns the prefix, the revision and the state.
function cache_mt:__tostring()
  local is_closed = closed_error(self) ~= nil
  return ("keywatch.cache<prefix=%s revision=%d %s>"):format(check.shown(self.prefix), revision_of(self),
    is_closed and "closed" or (self.feed:describe()))
end

-- }======

-- {====== Opening ======

local OPTIONS = {
  history_bytes = "amount", history_revisions = "amount", history_age = "0 or more", slow_after = "some seconds",
  file = "path", file_delay = "0 seconds or more", timeout = "0 seconds or more",
}
local FILE_DELAY, TIMEOUT = 1, 1 -- seconds
local IDLE_BYTES = 1024 * 1024 -- of history while no watch or read needs more: thousands of small events

--- Called by the feed after each change. There may be content now.
local function on_change(cache)
  if cache.feed:is_of_file() or cache.feed.phase == "following" then cache.is_loaded = true end
  follow_tables(cache)
end

--- Returns a new replica of a cache, or nil and an error.
local function new_replica(history)
  local opts = check.copy(history)
  opts.replica = true
  return driver.open_store(core.open, opts)
end

--- Called by the feed when the server has another history: the cache starts over with a replica of that history.
-- `fresh_replica` is the replica that is being loaded, or nil. Returns the replica, and true if it is loaded and in
-- use, or false; or nil and an error.
local function start_over(cache, state, why, fresh_replica)
  local replica, err = fresh_replica, nil
  if not replica then replica, err = new_replica(cache.history) end
  if not replica then return nil, err end
  local ok, failed = core.inner.load(replica, state)
  if ok == nil then return nil, failed end
  if not ok then return replica, false end
  local fresh, old = setmetatable({}, { __mode = "k" }), cache.watches
  if cache.end_error then return nil, cache.end_error end -- by a finalizer
  cache.watches, cache.replica = fresh, replica
  for _, one in ipairs(keys_by(old, "tag")) do watches.finish(one, why) end -- after what they have received
  return replica, true
end

--- Returns the options that bound the history.
local function history_of(opts)
  local age = opts.history_age
  local is_chosen = opts.history_bytes or opts.history_revisions or age
  return {
    history_bytes = opts.history_bytes, history_revisions = opts.history_revisions, history_age = age,
    history_idle_bytes = not is_chosen and IDLE_BYTES or nil,
  }
end

--- Returns a cache that has no feed yet. `space` is the namespace of its key names, or nil.
local function new(owner, space, prefix, opts, replica, is_whole)
  local outer = space and space.prefix .. prefix or prefix
  return setmetatable({
    owner = owner,         -- the client or the store
    space = space,         -- { prefix =, range_end =, first = }: see namespace/keys.lua
    prefix = prefix,       -- as the caller names it
    key = outer == "" and "\0" or outer == (space and space.prefix) and space.first or outer,
    range_end = key_order.prefix_end(outer),
    history = opts.history,
    slow_after = opts.slow_after,
    timeout = opts.timeout, -- seconds that a reader waits for the first content; nil: not given
    replica = replica,
    is_whole = is_whole,   -- the replica has only the keys of the cache, and belongs to the cache
    watches = setmetatable({}, { __mode = "k" }), -- as keys: the local watches
    followers = {},        -- the followers of the tables
    is_following = false,  -- the tables are following; has_more: they follow once more after that
    feed = nil,
    is_loaded = not is_whole,
    end_error = nil,       -- the error that the cache has ended with
    is_closed = false,     -- by the program: the content is freed
  }, cache_mt)
end

--- Opens a cache of a client. Does not wait.
local function open_remote(client, prefix, opts, space)
  if client.transport.is_closed then return nil, errors.closed("client") end
  local replica, err = new_replica(opts.history)
  if not replica then return nil, err end
  local cache = new(client, space, prefix, opts, replica, true)
  local file = opts.file and content_file.new(opts.file, opts.file_delay or FILE_DELAY, prefix)
  cache.feed = feeds.new(cache, { on_change = on_change, start_over = start_over, on_end = finish }, file,
    opts.timeout or TIMEOUT)
  cache.feed:begin()
  return cache
end

--- Returns a cache of a store in this process.
local function open_local(store, prefix, opts, space)
  local feed = in_process.new(store)
  if feed:error() then check.misuse("cache: the store is closed") end
  local cache = new(store, space, prefix, opts, store, false)
  cache.feed = feed
  return cache
end

--- Opens a cache of all keys of an owner that begin with `prefix`. The owner is a store, a client, or an object over
-- one, such as a namespace, whose key names the cache uses. Returns the cache, or nil and an error.
local function open(owner, prefix, opts)
  check.self(owner, "cache")
  check.argument(type(prefix) == "string", 1, "cache", "string", prefix)
  opts = check.options(opts, "cache", OPTIONS)
  if opts.file_delay and not opts.file then check.misuse("cache: option 'file_delay' needs the option 'file'") end
  local own = {
    history = history_of(opts), slow_after = opts.slow_after,
    file = opts.file, file_delay = opts.file_delay, timeout = opts.timeout,
  }
  local root, before = bases.resolve(owner, "")
  local space = before ~= "" and {
    prefix = before, range_end = key_order.prefix_end(before), first = before .. "\0",
  } or nil
  if bases.is_local(root) then return open_local(root, prefix, own, space) end
  return open_remote(root, prefix, own, space)
end

-- }======

--- Raises unless the cache has all keys that begin with a prefix. `name` is the method that was called. Returns the
-- error of a closed cache, or nil.
local function check_prefix(cache, name, prefix)
  outer_range(cache, name, prefix, { prefix = true })
  return closed_error(cache)
end

return { open = open, check_prefix = check_prefix, gaps_of = gaps_of, texts_of = texts_of,
  methods = cache_methods, mt = cache_mt }
