-- SPDX-License-Identifier: MIT
--- in_process: the feed of a store's cache, see cache.lua. The cache of a store in this process is the store itself: it
-- is always ready and up to date, and nothing has to be brought to it.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local local_source = require "keywatch.watch.local_source"

local LOOK_AGAIN = 0.1  -- seconds: a store that is a replica may come to a revision without an event, and a table that
                        -- could not begin to follow tries again
local TIMEOUT = 10      -- seconds that a read waits for its min_revision at most: as the default of connect

local store_methods = {}
local store_mt = { __index = store_methods }

--- Returns the error of a store that is closed, or nil.
function store_methods:error()
  if self.store:tend() == false then return errors.closed("store") end
end

--- Returns phase, age and trouble: the content is that of the store.
function store_methods.describe()
  return "following", 0
end

--- True: the store has all of its content.
function store_methods.has_synced()
  return true
end

--- False: the cache of a store needs no file.
function store_methods.is_of_file()
  return false
end

--- Returns the deadline of a read that has to wait.
function store_methods.deadline()
  return driver.get().now() + TIMEOUT
end

--- Waits until the store has come to a revision. Returns nil, or an error. The wait ends with the cache.
function store_methods:await_revision(cache, target, deadline)
  local store, d = self.store, driver.get()
  local watch, err = local_source.open(store, "", { prefix = true, start_revision = target })
  if not watch then return err end
  cache.watches[watch] = true
  err = cache.end_error or self:error()
  while not err and store:status().revision < target do
    local left = deadline and deadline - d.now() or LOOK_AGAIN
    if left <= 0 then
      err = core.new_error("timeout")
    else
      local event, failed = watch:next(math.min(left, LOOK_AGAIN))
      if not event and failed.code ~= "timeout" then err = failed end
      err = err or cache.end_error or self:error()
    end
  end
  watch:close()
  -- A store that is a replica may have been replaced, by contents of that revision or a later one.
  if err and err.code == "compacted" and store:status().revision >= target then return nil end
  return err
end

--- Returns the revision of the store.
function store_methods:server_revision()
  return self.store:status().revision
end

--- Has the tables follow once more, after a while: the store wakes only those that have a watch.
function store_methods:look_again()
  self.look_at = driver.get().now() + LOOK_AGAIN
  driver.get().attach(self)
end

--- Called by the driver: has the tables follow, when that is due. Returns the seconds until then, or nil.
function store_methods:poll()
  local cache, look_at, now = self.held.cache, self.look_at, driver.get().now()
  if cache and now < look_at then return look_at - now end
  driver.get().detach(self)
  if not cache then return nil end
  self.look_at = nil
  self.on_change(cache)
  return self.look_at and LOOK_AGAIN
end

--- Does nothing: a table listens to the store.
function store_methods.follow() end

--- Does nothing: the store does not belong to the cache.
function store_methods.close() end

--- Returns the feed of a cache, which is of a store. on_change(cache) has the tables follow. The driver may hold the
-- feed, and must not hold the cache by it.
local function new(cache, store, on_change)
  return setmetatable({
    store = store,
    held = setmetatable({ cache = cache }, { __mode = "v" }),
    on_change = on_change,
    look_at = nil, -- when the tables follow once more
  }, store_mt)
end

return { new = new }
