-- SPDX-License-Identifier: MIT
--- table: a plain Lua table that mirrors the content of a cache: key to value, or to the result of a function of the
-- value.
--
-- The table is changed as soon as the cache is, inside of the driver's turns, and never while the program reads it: a
-- loop over the table that does not wait sees one state. A hook is called after each change of a key. It must not wait.
--
-- The table references its cache, by its metatable. The cache does not reference the table: a table that the program
-- has dropped is no longer updated.
--
-- If the content cannot be read because memory is short, the table stays as it is, and tries again after a pause.

local backoff = require "keywatch.client.backoff"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local order = require "keywatch.support.order"
local watches = require "keywatch.watch.watch"

local OPTIONS = { decode = "function", on_change = "function", on_error = "function", relative = "boolean" }
local DECODE_FAILED = "keywatch: the value of %s cannot be decoded: %s"
local YIELDED = "it has yielded: a function of cache:table must not wait"
local OTHER_CONTENT = { compacted = true, regressed = true, cluster_changed = true } -- which can be read at once

local pause = backoff.new {} -- until unreadable content is read again

local follower_methods = {}
local follower_mt = { __index = follower_methods }

-- The watch of a follower, which is closed when the table is collected. It does not reference the functions of the
-- user, which may refer to the table.
local reader_methods = {}
local reader_mt = { __index = reader_methods }

-- The poller while a follower must try again. A trial keeps neither the follower nor the cache alive.
local trial_methods = {}
local trial_mt = { __index = trial_methods }

-- {====== Functions of the user ======

--- Returns the results of compat.resume: false and a text if the coroutine has not ended.
local function results_of(co, ok, ...)
  if ok and compat.status(co) ~= "dead" then return false, YIELDED end
  return ok, ...
end

--- Calls a function of the user in a coroutine of its own: there a call that waits raises, and says to use spawn.
-- Returns the coroutine; and true and the results, or false and the error.
local function call(fn, ...)
  local co = compat.create(fn)
  return co, results_of(co, compat.resume(co, ...))
end

--- Calls a hook. Its error is logged with the traceback, and does not stop the cache.
local function call_hook(self, name, ...)
  local co, ok, err = call(self[name], ...)
  if not ok then log.error("%s of cache:table has failed: %s", name, log.failure(self, errors.raised_in(co, err))) end
end

--- Reports that the value of a key cannot be decoded. The table keeps the previous value.
local function report_bad_value(self, key, text)
  local err = errors.new("malformed", DECODE_FAILED:format(check.shown(key), text))
  if self.on_error then return call_hook(self, "on_error", key, err) end
  log.warn("%s", err.message)
end

--- Returns the table's value for a kv; or nothing, if the value cannot be decoded.
local function decoded(self, kv, key)
  if not self.decode then return kv.value end
  local _, ok, found, why = call(self.decode, kv.value)
  if ok and found ~= nil then return found end
  report_bad_value(self, key, errors.text_of(not ok and found or why or "the function has returned nil"))
end

-- }======

-- {====== Following ======

--- Sets a key of the table, or removes it, and calls the hook if that is a change.
local function set(self, target, key, value)
  local old = rawget(target, key)
  if rawequal(old, value) then return end
  rawset(target, key, value)
  if self.on_change then call_hook(self, "on_change", key, value, old) end
end

--- Applies an event.
local function apply(self, target, event)
  if event.type == "synced" then
    local stale = self.stale or {}
    self.stale, self.failures = nil, 0
    for _, key in ipairs(order.strings_first(stale)) do set(self, target, key, nil) end
    return
  end
  local key = self.cut > 0 and event.key:sub(self.cut + 1) or event.key
  if self.stale then self.stale[key] = nil end
  if event.type == "delete" then return set(self, target, key, nil) end
  local value = decoded(self, event, key)
  if value ~= nil then set(self, target, key, value) end
end

--- Ends the watch of a follower.
function reader_methods:close()
  local watch, is_listening = self.watch, self.is_listening
  self.watch, self.is_listening = nil, false
  if is_listening then watch.origin.end_wait(watch) end
  if watch then watch:close() end
end

--- Called by the driver: lets the tables follow, when that is due. Returns the seconds until then, or nil.
function trial_methods:poll()
  local cache, now = self.held.cache, driver.get().now()
  if cache and now < self.at then return self.at - now end
  driver.get().detach(self)
  if cache then self.on_news(cache) end
end

--- In the child after a fork a store on a disk belongs to the parent, and so does its cache.
function trial_methods:after_fork()
  local cache = self.held.cache
  if not cache or cache.replica.set_bell then driver.get().detach(self) end
end

--- Makes the follower try again after a pause, which is longer after each failure. Logs `err` once, if given.
function follower_methods:try_later(cache, err)
  if self.is_closed or cache.end_error or cache.feed:error() then return end
  local d = driver.get()
  if err and self.failures == 0 and not OTHER_CONTENT[err.code] then
    log.warn("a table of the cache of %s cannot be filled, and is tried again: %s", log.quote(cache.prefix),
      (err.message:gsub("^keywatch: ", "")))
  end
  self.failures = self.failures + 1
  local trial = self.trial or setmetatable({
    held = setmetatable({ cache = cache }, { __mode = "v" }), on_news = self.on_news, at = 0,
  }, trial_mt)
  trial.at = d.now() + pause(self.failures)
  if self.is_closed then return end -- by a finalizer
  self.trial = trial
  d.attach(trial)
end

--- Begins to follow the present content of the cache. Keys that are not in it are removed once all of it was read.
-- Returns true, or false and an error.
local function begin(self, cache, target)
  local watch, err = cache:watch(cache.prefix, {
    prefix = true, initial = true, slow_after = false, [watches.TRANSIENT] = true,
  })
  if not watch then return false, err end
  watch.cache = nil -- the cache references the follower
  local stale = {}
  for key in next, target do stale[key] = true end
  if self.is_closed then -- by a finalizer
    watch:close()
    return false
  end
  self.reader.watch, self.stale = watch, stale
  return true
end

--- Makes the driver poll the cache's store, and wake the follower after changes. The driver then references the watch,
-- which must not reference the follower.
function follower_methods:listen(cache)
  local reader = self.reader
  local watch = reader.watch
  if cache.is_whole then return end -- the feed calls the follower
  if not watch then return self:try_later(cache) end
  if not reader.is_listening then
    local held = setmetatable({ cache }, { __mode = "v" })
    local on_news = self.on_news
    watch.arrival = { set = function()
      if held[1] then on_news(held[1]) end
    end }
    reader.is_listening = true
    watch.origin.begin_wait(watch)
  end
  watch.origin.arm(watch)
end

--- Lets the core apply all changes to a table of plain values. Returns true if there is nothing else.
local function apply_in_core(self, target)
  local watch = self.reader.watch
  if not self.is_plain or not watch or self.stale or watch.initial or watch.at < watch.n then return false end
  if watch.failure or watch.last or watch.is_closed then return false end
  local revision, has_more = watch.core:apply(target, self.cut + (watch.cut or 0))
  if revision > watch.revision then watch.revision = revision end
  return not has_more
end

--- Called by the cache after changes. Returns false if the table is no longer followed.
function follower_methods:follow(cache)
  local target = self.target[1]
  if not target or self.is_closed then
    self:close()
    return false
  end
  local reader = self.reader
  local err
  while true do
    local has_begun = reader.watch
    if not has_begun then has_begun, err = begin(self, cache, target) end
    if not has_begun then break end
    local has_all = apply_in_core(self, target)
    local watch = reader.watch
    local filled = not has_all and watch and watches.fill_now(watch)
    if self.is_closed or not watch then return false end -- by a finalizer
    if filled then
      local event = watches.hand_out(watch)
      if event.type ~= "progress" then apply(self, target, event) end
    elseif filled == false and not select(3, watch.core:backlog()) then
      self:listen(cache)
      return true
    elseif filled == false then
      err = core.new_error("out_of_memory") -- the only reason why the store cannot catch up a lagging watch
      break
    else
      err = watch.failure -- the content is another one, or cannot be read
      reader:close()
      if self.stale and err and not OTHER_CONTENT[err.code] then break end
    end
  end
  self:try_later(cache, err)
  return not self.is_closed
end

--- Ends the follower. The table stays as it is.
function follower_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  self.reader:close()
  if self.trial then driver.get().detach(self.trial) end
end

local guard = compat.guard(function(reader) driver.forget(reader) end)

--- Returns a new table, and its follower. on_news(cache) lets the tables of a cache follow.
local function new(cache, opts, on_news)
  opts = check.options(opts, "table", OPTIONS)
  local target = {}
  local follower = setmetatable({
    target = setmetatable({ target }, { __mode = "v" }),
    decode = opts.decode,
    on_change = opts.on_change,
    on_error = opts.on_error,
    on_news = on_news,
    is_plain = not (opts.decode or opts.on_change),
    cut = opts.relative and #cache.prefix or 0, -- bytes that are cut off each key
    reader = setmetatable({ watch = nil, is_listening = false }, reader_mt), -- watch: of the cache
    stale = nil, -- as keys: keys that may be gone, while the content is read
    failures = 0, -- failed attempts to read the content since the last complete read
    trial = nil, -- the poller after a failure; nil before the first one
    is_closed = false,
  }, follower_mt)
  setmetatable(target, { __name = "keywatch.table", cache = cache, sentinel = guard(follower.reader) })
  return target, follower
end

-- }======

return { new = new }
