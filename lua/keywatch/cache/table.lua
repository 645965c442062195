-- SPDX-License-Identifier: MIT
--- table: a plain Lua table that is kept equal to the content of a cache: key to value, or to what a function makes of
-- the value.
--
-- The table is changed as soon as the cache is, inside of the driver's turns, and never while the program reads it: a
-- loop over the table that does not wait sees one state. A hook is called after each change of a key. It must not wait.
-- The cache does not hold the table: one that the program has dropped is followed no more.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"

local OPTIONS = { decode = "function", on_change = "function", on_error = "function", relative = "boolean" }
local DECODE_FAILED = "keywatch: the value of %s cannot be decoded: %s"

local follower_methods = {}
local follower_mt = { __index = follower_methods }

--- Calls a function of the user, which must not stop the cache. Its error is logged with the traceback.
local function call_hook(name, fn, ...)
  local args, n = { ... }, select("#", ...)
  local ok, trouble = xpcall(function() return fn(compat.unpack(args, 1, n)) end, errors.with_traceback)
  if not ok then log.error("%s of cache:table has failed: %s", name, trouble.traceback) end
end

--- Tells that the value of a key cannot be decoded. The table keeps what it had.
local function tell_bad_value(self, key, text)
  local err = errors.new("malformed", DECODE_FAILED:format(check.shown(key), text))
  if self.on_error then return call_hook("on_error", self.on_error, key, err) end
  log.warn("%s", err.message)
end

--- Returns what the table has for a kv; or nothing, if the value cannot be decoded.
local function decoded(self, kv, key)
  if not self.decode then return kv.value end
  local ok, found, why = pcall(self.decode, kv.value, key)
  if ok and found ~= nil then return found end
  tell_bad_value(self, key, errors.text_of(not ok and found or why or "the function has returned nil"))
end

--- Sets a key of the table, or removes it, and calls the hook if that is a change.
local function set(self, target, key, value)
  local old = target[key]
  if old == value then return end
  target[key] = value
  if self.on_change then call_hook("on_change", self.on_change, key, value, old) end
end

--- Returns the key as the table has it.
local function shown_key(self, key)
  return self.cut > 0 and key:sub(self.cut + 1) or key
end

--- Does what an event says.
local function apply(self, target, event)
  if event.type == "synced" then
    for key in pairs(self.stale or {}) do set(self, target, key, nil) end
    self.stale = nil
    return
  end
  local key = shown_key(self, event.key)
  if self.stale then self.stale[key] = nil end
  if event.type == "delete" then return set(self, target, key, nil) end
  local value = decoded(self, event, key)
  if value ~= nil then set(self, target, key, value) end
end

--- Begins to follow the present content of the cache. Keys that are not in it are removed once all of it has come.
local function begin(self, cache, target)
  local watch = cache:watch(cache.prefix, { prefix = true, initial = true })
  if not watch then return false end
  watch.cache = nil -- the cache holds the follower
  self.watch, self.stale = watch, {}
  for key in pairs(target) do self.stale[key] = true end
  return true
end

--- Called by the cache when something has come. Returns false if nobody holds the table any more.
function follower_methods:follow(cache)
  local target = self.target[1]
  if not target then
    if self.watch then self.watch:close() end
    return false
  end
  while self.watch or begin(self, cache, target) do
    local event, err = self.watch:next(0)
    if event then
      apply(self, target, event)
    elseif err and err.code == "timeout" then
      return true
    else
      self.watch:close()
      self.watch = nil
      if cache.is_closed then return true end
    end
  end
  return true
end

--- Returns a new table, and its follower.
local function new(cache, opts)
  opts = check.options(opts, "table")
  check.known(opts, "table", OPTIONS)
  local target = {}
  return target, setmetatable({
    target = setmetatable({ target }, { __mode = "v" }),
    decode = opts.decode,
    on_change = opts.on_change,
    on_error = opts.on_error,
    cut = opts.relative and #cache.prefix or 0, -- bytes that are cut off each key
    watch = nil, -- of the cache
    stale = nil, -- as keys: what may be gone, while the content comes
  }, follower_mt)
end

return { new = new }
