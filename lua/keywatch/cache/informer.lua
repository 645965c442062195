-- SPDX-License-Identifier: MIT
--- informer: the objects below a prefix, kept in this process, with handlers that are called for each change, and
-- indexes.
--
-- An informer that has ended, because it, its client or its store was closed, still answers from its last state, and
-- its status says that the state is stale: objects must not look deleted because the informer ended. Before an informer
-- has synced, every read raises an error.
--
-- Informers of the same object, prefix and options share the objects and the watch: see shared_informer.lua. Each has
-- its own handlers, and a share, which it releases when it is closed or collected. Its handlers keep it alive.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local bases = require "keywatch.concurrency.base"
local handlers = require "keywatch.cache.handler"
local shared_informers = require "keywatch.cache.shared_informer"
local filters = require "keywatch.cache.filter"

local NAME = "informer"

local informer_methods, informer_mt = check.class "keywatch.informer"

-- The share of an informer in a shared one. It is released once.
local share_methods = {}
local share_mt = { __index = share_methods }

--- Releases the share. Also called by the driver, after the informer was collected.
function share_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  self.shared:leave()
end

local guard = compat.guard(function(share) driver.forget(share) end)

-- {====== Waiting ======

--- Returns why the informer has ended, or nil.
local function end_error(self)
  return self.shared.failure or self.share.is_closed and errors.closed("informer") or nil
end

--- Returns the error of an informer that has not synced yet. Its code is "unavailable" unless given.
local function empty_error(self, code)
  local _, trouble = self.shared:describe()
  local text = "keywatch: the informer has not synced yet"
  if trouble then text = text .. ": " .. trouble.message:gsub("^keywatch: ", "") end
  return errors.new(code or "unavailable", text)
end

--- True if the first load is complete.
function informer_methods:has_synced()
  return self.shared.has_all and not end_error(self)
end

--- Waits until has_synced is true. Returns true, or nil and an error.
function informer_methods:wait_synced(timeout)
  check.timeout(timeout, "wait_synced")
  local shared = self.shared
  local function holds() return shared.has_all or end_error(self) ~= nil end
  if not holds() then driver.get().check_wait() end
  local came = driver.await(shared, "synced", driver.deadline_of(timeout), holds)
  local err = end_error(self)
  if err then return nil, err end
  if came then return true end
  return nil, empty_error(self, "timeout")
end

-- }======

-- {====== Reading ======

--- Returns the indexer. Raises if the informer has not synced yet.
local function must_have(self)
  local shared = self.shared
  if not shared.has_all then error(end_error(self) or empty_error(self), 0) end
  return shared.indexer
end

--- Returns the object of a key and its revision, or nil. Raises an error if there is nothing to read yet.
function informer_methods:get(key)
  check.argument(type(key) == "string", 1, "get", "string", key)
  return must_have(self):get(key)
end

--- Returns an iterator over keys and objects, in no order. Raises an error if there is nothing to read yet.
function informer_methods:each()
  return must_have(self):each()
end

--- Returns the number of objects. Raises an error if there is nothing to read yet.
function informer_methods:count()
  return must_have(self).count
end

--- Returns an iterator over the values that cannot be decoded now: key, error and value. Raises if the informer has not
-- synced yet.
function informer_methods:bad_values()
  must_have(self)
  local bad, list, at = self.shared.bad, {}, 0
  for key in pairs(bad) do list[#list + 1] = key end
  table.sort(list)
  return function()
    while at < #list do
      at = at + 1
      local event = bad[list[at]]
      if event then return event.key, event.error, event.value end
    end
  end
end

-- }======

-- {====== Indexes ======

--- Raises unless a name and a function are valid for an index.
local function check_index(name, fn, method)
  if type(name) ~= "string" then
    check.misuse("%s: the name of an index must be a string, not %s", method, check.shown(name))
  end
  if type(fn) ~= "function" then
    check.misuse("%s: the index '%s' must be a function, not %s", method, name, check.shown(fn))
  end
end

--- Adds an index: fn(object, key) returns a value, a list of values, or nil. In a task, other tasks run in between, if
-- there are many objects. Returns true, or nil and an error.
function informer_methods:add_index(name, fn)
  check_index(name, fn, "add_index")
  local err = end_error(self)
  if err then return nil, err end
  self.shared:add_index(name, fn, "add_index")
  return true
end

--- Returns the index of a name. Raises if there is none.
local function index_of(self, name, method)
  local index = self.shared.indexer:index(name)
  if not index then check.misuse("%s: there is no index %s", method, check.shown(name)) end
  if not index.is_filled then check.misuse("%s: the index %s is still being filled", method, check.shown(name)) end
  return index
end

--- Returns an iterator over the keys and objects that have a value in an index. Raises an error if there is nothing to
-- read yet.
function informer_methods:by_index(name, value)
  local index = index_of(self, name, "by_index")
  return must_have(self):by_index(index, value)
end

--- Returns an iterator over the values of an index, and how many objects have each. Raises an error if there is nothing
-- to read yet.
function informer_methods:index_values(name)
  local index = index_of(self, name, "index_values")
  return must_have(self):values_of(index)
end

--- Returns the number of objects that have a value in an index. Raises an error if there is nothing to read yet.
function informer_methods:index_count(name, value)
  local index = index_of(self, name, "index_count")
  return must_have(self):count_of(index, value)
end

-- }======

--- Adds a handler with checked options. Returns it, or nil and an error.
local function add_handler(self, opts)
  local err = end_error(self)
  if err then return nil, err end
  local handler = handlers.new(self, self.shared, opts)
  self.shared:add_handler(handler)
  return handler
end

--- Adds a handler. Returns it, or nil and an error.
function informer_methods:add_handler(opts)
  handlers.check_options(opts)
  local handler, err = add_handler(self, opts)
  return handler, err
end

--- Returns the status of the informer. Makes no request, and does not wait.
function informer_methods:status()
  local shared, own = self.shared, 0
  for _, one in ipairs(shared.handlers) do
    if one.informer == self then own = own + 1 end
  end
  local phase, trouble = shared:describe()
  if self.share.is_closed then phase = "closed" end
  return {
    phase = phase,
    has_synced = self:has_synced(),
    is_stale = shared.has_all and (phase ~= "following" or trouble ~= nil),
    revision = shared.revision,
    objects = shared.indexer.count,
    bad = shared.bad_count,
    handlers = own,
    users = shared.users,
    gaps = shared.gaps,
    trouble = trouble,
    stuck = shared:stuck_calls(),
  }
end

--- Returns why the informer has ended, or nil.
function informer_methods:error()
  return end_error(self)
end

--- Ends the informer, and its handlers. Idempotent.
function informer_methods:close()
  if self.share.is_closed then return end
  for _, one in ipairs(self.shared.handlers) do
    if one.informer == self then handlers.finish(one, errors.closed("informer")) end
  end
  self.share:close()
  self.shared.synced:set() -- waiters check again
end

informer_mt.__close = informer_methods.close

--- Returns the prefix, the number of objects and the state.
function informer_mt:__tostring()
  local status = self:status()
  return ("keywatch.informer<prefix=%s objects=%d %s>"):format(check.shown(self.prefix), status.objects, status.phase)
end

-- {====== Opening ======

local OPTIONS = {
  include = "function", where = "function", transform = "function", labels_at = "string", indexes = "table",
  shared = "boolean", require_leader = "boolean", codec = "any", labels = "any", fields = "any",
}
local IDENTITY = {
  "codec", "include", "where", "transform", "labels", "labels_at", "fields", "require_leader",
}

--- Returns the options that informers must have in common to share, in addition to the prefix. Selectors are compared
-- by their text.
local function identity_of(opts, filter)
  local identity = {}
  for _, name in ipairs(IDENTITY) do identity[name] = opts[name] end
  identity.labels = filter.labels and tostring(filter.labels)
  identity.fields = filter.fields and tostring(filter.fields)
  return identity
end

--- Returns the shared informer of a list that has the same prefix and identity, and no other function for an index; or
-- nil.
local function find(list, prefix, identity, indexes)
  for _, one in ipairs(list) do
    local is_same = one.prefix == prefix
    for name, fn in pairs(indexes) do is_same = is_same and one:takes_index(name, fn) end
    for _, name in ipairs(IDENTITY) do is_same = is_same and rawequal(one.identity[name], identity[name]) end
    if is_same then return one end
  end
end

--- Returns a shared informer of a list, or starts one, which is added to the list if it may be shared.
local function find_or_begin(x, prefix, opts, list)
  local filter = filters.of(opts, { decoded = 0, failed_tests = 0 }, NAME)
  local identity = identity_of(opts, filter)
  local found = opts.shared ~= false and find(list, prefix, identity, opts.indexes or {})
  if found then return found end
  local shared = shared_informers.new(x, prefix, filter, opts.require_leader, function(one)
    for i, other in ipairs(list) do
      if other == one then return table.remove(list, i) end
    end
  end)
  shared.identity = identity
  if opts.shared ~= false then table.insert(list, shared) end
  return shared
end

--- Opens an informer of all keys of x that begin with a prefix. Returns it. x is known to be open.
local function open(x, prefix, opts)
  opts = check.options(opts, NAME, OPTIONS)
  for name, fn in pairs(opts.indexes or {}) do check_index(name, fn, NAME) end
  local list = compat.companion(x, NAME)
  local shared = find_or_begin(x, prefix, opts, list)
  shared:join()
  local share = setmetatable({ shared = shared, is_closed = false }, share_mt)
  local self = setmetatable({ prefix = prefix, shared = shared, share = share, guard = nil }, informer_mt)
  self.guard = guard(share)
  local names = {}
  for name in pairs(opts.indexes or {}) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local ok, raised = pcall(shared.add_index, shared, name, opts.indexes[name], NAME)
    if not ok then
      self:close()
      error(raised, 0)
    end
  end
  return self
end

--- Opens an informer of a store, a client, or an object that is built on one. Returns it, or nil and an error.
local function open_on_face(x, prefix, opts)
  check.self(x, NAME)
  check.argument(type(prefix) == "string", 1, NAME, "string", prefix)
  local root = bases.resolve(x, "")
  if not bases.is_local(root) then
    if root.transport.is_closed then return nil, errors.closed("client") end
  elseif root:run_due() == false then
    check.misuse("%s: the store is closed", NAME)
  end
  return open(x, prefix, opts)
end

-- }======

return { open = open, open_on_face = open_on_face, add_handler = add_handler, mt = informer_mt }
