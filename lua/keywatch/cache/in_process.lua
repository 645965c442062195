-- SPDX-License-Identifier: MIT
--- in_process: the feed of a store's cache, see cache.lua. The cache of a store in this process is the store itself: it
-- is always ready and up to date, and needs no updates.

local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local local_origin = require "keywatch.watch.local_origin"

local TIMEOUT = 10 -- maximum wait of a read for its min_revision, in seconds: the default timeout of connect

local store_methods = {}
local store_mt = { __index = store_methods }

--- Returns the error of a store that is closed, or nil.
function store_methods:error()
  if self.store:run_due() == false then return errors.closed("store") end
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

--- Returns the deadline of a read that must wait.
function store_methods.deadline()
  return driver.get().now() + TIMEOUT
end

--- Waits until the store has reached a revision. Returns nil, or an error. The wait ends with the cache.
function store_methods:await_revision(cache, target, deadline)
  local store, d = self.store, driver.get()
  local watch, err = local_origin.open(store, "", { prefix = true, start_revision = target })
  if not watch then return err end
  cache.watches[watch] = true
  err = cache.end_error or self:error()
  while not err and store:status().revision < target do
    local _, failed = watch:next(deadline and math.max(0, deadline - d.now()))
    err = failed or cache.end_error or self:error()
  end
  watch:close()
  return err
end

--- Returns the revision of the store.
function store_methods:server_revision()
  return self.store:status().revision
end

--- Does nothing: the store wakes the tables when it is polled.
function store_methods.look_again() end

--- Does nothing: a table listens to the store.
function store_methods.follow() end

--- Does nothing: the store does not belong to the cache.
function store_methods.close() end

--- Returns the feed of a cache of a store.
local function new(store)
  return setmetatable({ store = store, gaps = { floor = 0 } }, store_mt)
end

return { new = new }
