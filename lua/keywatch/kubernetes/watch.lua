-- SPDX-License-Identifier: MIT
--- watch: a watch of the objects of one kind, for a program in this process.
--
-- Events are { type, object, key }: ADDED, MODIFIED, DELETED, and with the option `bookmarks` BOOKMARK, whose object
-- has only a resourceVersion: all changes up to it were returned. A watch begins, by Kubernetes' rules:
--
--   initial  resourceVersion   begins with
--   nil      nil or "0"        the existing objects as ADDED
--   nil      N                 the changes after N
--   true     nil, "0" or N     the existing objects of the newest, of any, or of a least revision, and then, with
--                              `bookmarks`, a BOOKMARK that is marked as the end of the existing objects
--   false    nil, "0" or N     the changes after the newest revision, after that of the cache, or after N
--
-- Existing objects come in the order of their revisions, so that the last one is the best place to continue from.

local check = require "keywatch.support.check"
local cursors = require "keywatch.kubernetes.cursor"
local driver = require "keywatch.task.driver"
local entries = require "keywatch.kubernetes.entry"
local errors = require "keywatch.support.errors"
local reads = require "keywatch.kubernetes.reads"
local selection = require "keywatch.task.selection"
local status_error = require "keywatch.kubernetes.status_error"

local BOOKMARK_INTERVAL = 60 -- seconds
local MAX_PIECES = 1000      -- changes without an event that are read before other tasks run
local END = "k8s.io/initial-events-end"

local watch_methods, watch_mt = check.class "keywatch.kubernetes.watch"

-- {====== Beginning ======

--- Returns what a watch begins with: { list } with options for reads.lua, or { revision }; or nil and an error.
local function beginning_of(resource, opts)
  local revision, err = reads.revision_of(opts.resource_version)
  if revision == false then return nil, err end
  local has_objects = opts.initial
  if has_objects == nil then has_objects = (revision or 0) == 0 end
  if has_objects then
    return { list = {
      namespace = opts.namespace, filter = opts.filter, resource_version = revision,
      resource_version_match = revision and "NotOlderThan",
    } }
  end
  if revision and revision > 0 then return { revision = revision } end
  if revision == 0 then
    local ok, why = resource.history:wait_ready(reads.PATIENCE)
    if not ok then return nil, why end
    return { revision = resource.cache:status().revision } -- the history may be a moment behind
  end
  local list, failed = resource.reads:list { limit = 1 }
  if not list then return nil, failed end
  return { revision = list.revision }
end

--- Begins to watch: opts are { namespace, filter, resource_version, initial }. Returns a cursor (cursor.lua), and the
-- list of the existing objects (reads.lua), or nil if the watch has none; or nil and an error.
local function begin(resource, opts)
  local beginning, err = beginning_of(resource, opts)
  if not beginning then return nil, err end
  local list, revision = nil, beginning.revision
  if beginning.list then
    list, err = resource.reads:list(beginning.list)
    if not list then return nil, err end
    revision = list.revision
  end
  local ok, why = resource.history:wait_ready(reads.PATIENCE)
  if not ok then return nil, why end
  local cursor, failed = cursors.new(resource.history, revision, opts.namespace, opts.filter)
  if not cursor then return nil, failed end
  return cursor, list
end

--- Returns the error of the options of a request that watches; nil if they are valid: `initial` is sendInitialEvents,
-- and `resource_version_match` and `continue` are as the client has sent them.
local function option_error(opts)
  local match, field = opts.resource_version_match, "resourceVersionMatch"
  if match == "" then match = nil end
  local function invalid(reason, message, other)
    return status_error.invalid(reads.LIST_OPTIONS, nil,
      { { reason = "FieldValue" .. reason, message = message, field = other or field } })
  end
  if opts.initial == nil then
    if match == nil then return nil end
    return invalid("Forbidden", "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
      .. "provided")
  elseif match == nil then
    return invalid("Forbidden", "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
  elseif match ~= "NotOlderThan" then
    return invalid("NotSupported", ('Unsupported value: %q: supported values: "NotOlderThan"'):format(
      tostring(match):sub(1, 100)))
  elseif opts.continue and opts.continue ~= "" then
    return invalid("Forbidden", "Forbidden: continue is forbidden when sendInitialEvents is provided", "continue")
  end
end

--- Returns a BOOKMARK's object.
local function bookmark_of(kind, revision, is_end)
  return {
    kind = kind.kind, apiVersion = kind.api_version,
    metadata = { resourceVersion = ("%d"):format(revision), annotations = is_end and { [END] = "true" } or nil },
  }
end

-- }======

-- {====== Events ======

--- Ends the watch with an error, or nil.
local function finish(self, err)
  self.failure, self.pending, self.at, self.end_bookmark = err, {}, 0, nil
  self.is_over = true
  if self.unsubscribe then self.unsubscribe() end
  self.unsubscribe = nil
  self.arrival:set()
end

--- Returns the event of an entry; or nil after the watch has failed.
local function event_of(self, kind, entry)
  local object, err = entries.copy(entry)
  if not object then
    finish(self, err)
    return nil
  end
  self.revision = math.max(self.revision, entry.revision)
  return { type = kind, key = entry.key, object = object }
end

--- Returns the event of a BOOKMARK. The next one comes after an interval.
local function bookmark(self, revision, is_end)
  self.bookmarked = revision
  self.bookmark_at = driver.get().now() + BOOKMARK_INTERVAL
  return { type = "BOOKMARK", object = bookmark_of(self.resource.kind, revision, is_end) }
end

--- Returns a BOOKMARK if one is due, and the history is further than the last one. All changes were returned.
local function due_bookmark(self)
  if not self.bookmark_at or driver.get().now() < self.bookmark_at then return nil end
  local revision = self.resource.history.revision
  if revision > self.bookmarked then return bookmark(self, revision) end
  self.bookmark_at = driver.get().now() + BOOKMARK_INTERVAL
end

--- Returns the next event that needs no wait. Returns nil if there is none: the watch may be over, or have more changes
-- that were not read yet (true).
local function take(self)
  local peeked = self.peeked
  if peeked then
    self.peeked = nil
    return peeked
  end
  if self.is_over then return nil end
  local pending = self.pending
  if self.at < #pending then
    self.at = self.at + 1
    local entry = pending[self.at]
    pending[self.at] = false
    return event_of(self, "ADDED", entry)
  end
  if self.end_bookmark then
    local revision = self.end_bookmark
    self.end_bookmark = nil
    return bookmark(self, revision, true)
  end
  local cursor = self.cursor
  local kind, entry = cursor:next(MAX_PIECES)
  if kind then return event_of(self, kind, entry) end
  if cursor:is_lost() then
    finish(self, self.resource.history.end_error or cursor:error())
  end
  return nil, entry -- true if there are more
end

--- Lets the history catch up if a BOOKMARK is due. May wait.
local function prepare_bookmark(self)
  if not self.bookmark_at or driver.get().now() < self.bookmark_at then return end
  self.resource.history:catch_up(reads.PATIENCE)
end

-- }======

--- Waits for the next event and returns it. Returns nil and an error, or only nil after close. With the code "timeout"
-- the watch remains open.
function watch_methods:next(timeout)
  check.timeout(timeout, "next")
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  while true do
    local event, has_more = take(self)
    if event then return event end
    if self.is_over then return check.results(nil, self.failure) end
    event = due_bookmark(self)
    if event then return event end
    if has_more then
      d.sleep(0)
    elseif deadline and d.now() >= deadline then
      return nil, status_error.timeout "no event has come in time"
    else
      local until_ = self.bookmark_at and math.min(self.bookmark_at, deadline or math.huge) or deadline
      self.arrival:wait(driver.time_left(until_))
      prepare_bookmark(self)
    end
  end
end

--- Returns an iterator over events. It ends when the watch is closed, and raises the error with which the watch fails.
function watch_methods:events()
  return function()
    local event, err = self:next()
    if err then errors.raise(err) end
    return event
  end
end

--- Returns the error that the watch has failed with, or nil.
function watch_methods:error()
  return self.failure
end

--- Ends the watch. Idempotent.
function watch_methods:close()
  if self.is_over then return end
  self.peeked = nil
  finish(self, nil)
end

watch_mt.__close = watch_methods.close

watch_mt.__select = { -- see task/selection.lua
  is_ready = function(self)
    local event, has_more
    repeat event, has_more = take(self) until event or not has_more
    self.peeked = event or not self.is_over and due_bookmark(self) or nil
    return self.peeked ~= nil or self.is_over
  end,
  begin = function(self) return self.arrival end,
  finish = function() end,
  take = function(self)
    local event, err = self:next(0)
    if err and err ~= self.failure then return selection.NOTHING end
    return event, err
  end,
}

--- True if an entry is older than another one.
local function is_older(a, b)
  if a.revision ~= b.revision then return a.revision < b.revision end
  return a.key < b.key
end

--- Opens a watch of a resource: see begin, and the option `bookmarks`. Returns it; or nil and an error.
local function open(resource, opts)
  local cursor, list = begin(resource, opts)
  if not cursor then return nil, list end
  local pending, err = {}, nil
  if list then pending, err = list:entries() end
  if err then return nil, err end
  table.sort(pending, is_older)
  local d = driver.get()
  local self = setmetatable({
    resource = resource, cursor = cursor,
    pending = pending, at = 0,  -- existing objects, and how many were returned
    end_bookmark = nil,         -- the revision of the BOOKMARK after the existing objects
    bookmark_at = nil,          -- when the next BOOKMARK is due; nil: never
    bookmarked = cursor.revision,
    revision = cursor.revision, -- of the last change that was returned
    peeked = nil,               -- an event that is_ready has taken
    arrival = d.event(),
    failure = nil, is_over = false, unsubscribe = nil,
  }, watch_mt)
  if opts.bookmarks then
    self.bookmark_at = d.now() + BOOKMARK_INTERVAL
    if opts.initial and list then self.end_bookmark = list.revision end
  end
  self.unsubscribe = resource.history:subscribe(function() self.arrival:set() end)
  return self
end

return { methods = watch_methods, open = open, begin = begin, option_error = option_error, bookmark_of = bookmark_of }
