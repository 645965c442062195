--- A local watch of a cache, and what it must have seen: each revision that has events for it, once, in order and
-- whole; what exists, if it asked for that. It may fail if what it needs is gone, and must fail if the server is
-- another one. Where the cache has read anew after a compaction, it may have been told the difference alone.

local difference = require("spec.support.difference").difference

local methods = {}
local meta = { __index = methods }

local OTHER_HISTORY = { regressed = true, cluster_changed = true }

--- Opens a watch.
local function open(cache, truth, key, opts, contains)
  local watch = assert(cache:watch(key, opts))
  local self = setmetatable({
    name = ("watch of %s from %s"):format(key, opts.initial and "what exists" or opts.start_revision or "now"),
    cache = cache,
    replica = cache.replica,
    truth = truth,
    watch = watch,
    contains = contains,
    revision = watch.revision, -- up to which it has seen everything
    initial = opts.initial and {} or nil, -- what exists, while that comes
    state = nil,               -- what its events lead to
    n = 0,                     -- events
    n_skipped = 0,             -- revisions of which it was told the difference alone
    error = nil,
  }, meta)
  if not opts.initial then
    truth:learn(self.revision)
    self.state = truth:content(self.revision, contains)
  end
  return self
end

function methods:fail(text, ...)
  error(("%s, at revision %d: %s"):format(self.name, self.revision, text:format(...)), 0)
end

-- {====== Events ======

--- Everything between what it has seen and a revision was not for it; or was in a gap.
function methods:expect_nothing_before(revision)
  for r = self.revision + 1, revision - 1 do
    if #self.truth:events_of(r, self.contains) > 0 then
      if not self.truth:is_in_gap(r) then self:fail("revision %d is missing before %d", r, revision) end
      self.n_skipped = self.n_skipped + 1
    end
  end
end

--- The event without the previous kv, which is that of the truth if there is one.
function methods:without_previous(event)
  local plain = {}
  for name, value in pairs(event) do plain[name] = value end
  plain.prev = nil
  if event.prev and not self.truth:is_in_gap(event.mod_revision) then
    local before = self.truth:content(event.mod_revision - 1, self.contains)[event.key]
    local words = difference(event.prev.mod_revision, before and before.mod_revision, "the previous revision")
    if words then self:fail("%s", words) end
  end
  return plain
end

--- An event in a gap: a put is one that there was, and what is deleted is gone.
function methods:check_difference(event)
  if event.type == "delete" then
    if self.truth:content(event.mod_revision, self.contains)[event.key] then self:fail("%s is not gone", event.key) end
    return
  end
  for _, told in ipairs(self.truth:events_of(event.mod_revision, self.contains)) do
    if told.key == event.key then
      local words = difference(event, told, "an event of a gap")
      if words then self:fail("%s", words) end
      return
    end
  end
  self:fail("there was no put of %s at revision %d", event.key, event.mod_revision)
end

--- A revision with all of its events.
function methods:see_changes(batch)
  local revision, events = batch.revision, {}
  if revision <= self.revision then self:fail("revision %d comes once more", revision) end
  self.truth:learn(revision)
  self:expect_nothing_before(revision)
  for i, event in ipairs(batch.events) do events[i] = self:without_previous(event) end
  local words = difference(events, self.truth:events_of(revision, self.contains), ("revision %d"):format(revision))
  if words and not self.truth:is_in_gap(revision) then self:fail("%s", words) end
  for _, event in ipairs(events) do
    if words then self:check_difference(event) end
    self.state[event.key] = event.type == "put" and event or nil
  end
  if words then self.n_skipped = self.n_skipped + 1 end
  self.n = self.n + #events
  self.revision = revision
  if not self.truth:is_in_gap(revision) then self:check_state(revision) end
end

--- What its events have led to is what the server had.
function methods:check_state(revision)
  local words = difference(self.state, self.truth:content(revision, self.contains), "the content")
  if words then self:fail("%s", words) end
end

function methods:see(batch)
  local first = batch.events[1]
  if first.initial then
    first.initial = nil
    self.initial[first.key] = first
  elseif first.type == "synced" then
    self.truth:learn(first.revision)
    self.state, self.initial, self.revision = self.initial, nil, first.revision
    self:check_state(first.revision)
  elseif first.type == "progress" then
    self.truth:learn(first.revision)
    self:expect_nothing_before(first.revision + 1)
    self.revision = math.max(self.revision, first.revision)
  else
    self:see_changes(batch)
  end
end

-- }======

--- It has failed: what it needed may be gone, or the server is another one.
function methods:see_failure(err, truth)
  self.error = err.code
  if OTHER_HISTORY[err.code] then
    if truth == self.truth then self:fail("fails with %s, of the same server", err.code) end
  elseif err.code == "compacted" then
    local is_gone = self.replica:status().compact_revision > self.revision or self.initial
    if not (is_gone or self.truth:is_in_gap(self.revision + 1)) then self:fail("fails, and nothing is gone") end
  else
    self:fail("fails with %s", tostring(err))
  end
end

--- Reads up to n batches without waiting. `truth` is that of the server as it is now. Returns false once there are no
-- more.
function methods:read(n, truth)
  for _ = 1, n do
    if self.error then return false end
    local batch, err = self.watch:batch(0)
    if batch then
      self:see(batch)
    elseif err.code == "timeout" then
      return false
    else
      self:see_failure(err, truth)
    end
  end
  return true
end

--- Reads all. It must have come as far as its cache, or have failed.
function methods:finish(truth, revision)
  while self:read(100, truth) do end
  if self.error then return end
  if truth ~= self.truth then self:fail("goes on, and the server is another one") end
  if self.initial then self:fail("has not all that exists") end
  self:expect_nothing_before(revision + 1)
  self:check_state(revision)
end

return { open = open }
