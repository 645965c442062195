--- An observer reads a watch and knows, from the ledger alone, what must come out of it.
--
-- What comes is compared with the next entry that concerns the watch, so nothing can be late, twice or missing. What
-- the core has queued cannot be seen; two bounds are kept of it instead:
--
--   certain   everything up to it was queued, for the watch was seen to be synced then
--   frozen    the store's revision when the watch was found blocked: it, or something before it, was refused
--
-- So a watch that fails must have lacked something after `certain`, and one that was frozen behind a compaction fails.

local difference = require("spec.support.difference").difference
local request = require "spec.support.request"
local span = require "spec.support.model.span"

local methods = {}
local meta = { __index = methods }

local function has(list, item)
  for _, candidate in ipairs(list or {}) do
    if candidate == item then return true end
  end
  return false
end

--- The span of a watch: an empty key is the least of all.
local function span_of(key, options)
  local within = span.new(key, options)
  if within.key == "" then within.key = "\0" end
  return within
end

local function is_empty(within)
  return within.last ~= "" and within.last ~= "\0" and within.last <= within.key
end

--- Observes a watch that has just been opened. `initial` are the kvs that existed, for a watch that begins with them.
local function new(ledger, watch, key, options, initial)
  local start = options.start_revision or 0
  local self = setmetatable({
    ledger = ledger,
    watch = watch,
    name = request.show(request.new("watch", key, options)),
    key = key,
    options = options,
    within = span_of(key, options),
    no_put = has(options.filters, "no_put"),
    no_delete = has(options.filters, "no_delete"),
    opened_at = ledger.revision,
    opened_compacted = ledger.compact_revision,
    start = start > 0 and start or ledger.revision + 1,
    asked_start = start,

    initial = initial and { kvs = initial, at = 0, is_synced = false },
    at = 1,               -- the entry of the ledger to look at next
    revision = nil,       -- what watch.revision must be
    marks = {},           -- revisions of sync whose marks the reader has not passed
    bookmark = 0,         -- of the last progress
    promised = 0,         -- by sync: all of it can be read
    got = 0,              -- events and progress so far

    certain = nil,
    certainties = {},     -- how it grew: { revision, compacted }
    certainty_at = 1,
    frozen = nil,
    is_synced = false,    -- when last looked at
    behind = nil,         -- a compaction that may have overtaken the watch
    is_shaken = false,    -- a compaction may have dropped what was queued, marks too
    doomed = nil,         -- it is behind a compaction for sure: nothing of that revision or later may come
    is_finished = false,
  }, meta)
  self.revision = start > 0 and start - 1 or ledger.revision
  if self.start < ledger:first_event() then self.behind, self.doomed = ledger:first_event(), self.start end
  self:expect_revision()
  return self
end

function methods:wrong(words, ...)
  error(("%s\n  of %s at %s"):format(words:format(...), self.name, tostring(self.watch)), 0)
end

-- {====== What must come ======

function methods:wants(entry)
  local event = entry.event
  if event.mod_revision < self.start or not span.contains(self.within, event.key) then return false end
  if event.type == "put" then return not self.no_put end
  return not self.no_delete
end

--- The first entry from `at` on that the watch wants, and its place.
function methods:find(at)
  local entries = self.ledger.entries
  for i = at, #entries do
    if self:wants(entries[i]) then return entries[i], i end
  end
end

--- The revision of the next event that must come, or nil.
function methods:needed()
  local entry = self:find(self.at)
  return entry and entry.event.mod_revision
end

local function is_of(entry, event)
  local own = entry.event
  return own.mod_revision == event.mod_revision and own.key == event.key and own.type == event.type
end

--- The entry that an event stands for: the next one.
function methods:entry_of(event)
  local entry, i = self:find(self.at)
  if not entry then
    self:wrong("%s of %q at revision %s comes, and nothing is left", event.type, event.key, event.mod_revision)
  end
  if not is_of(entry, event) then
    self:wrong("%s of %q at revision %s comes instead of %s of %q at %d", event.type, event.key, event.mod_revision,
      entry.event.type, entry.event.key, entry.event.mod_revision)
  end
  return entry, i
end

-- }======

-- {====== Fields ======

--- The compacted revision when the event was queued, at most.
function methods:compacted_when_certain(revision)
  local list = self.certainties
  while list[self.certainty_at] and list[self.certainty_at].revision < revision do
    self.certainty_at = self.certainty_at + 1
  end
  local certainty = list[self.certainty_at]
  return certainty and certainty.compacted or self.ledger.compact_revision
end

--- What is before a change is known unless the revision before it was compacted when the event was queued. When that
-- was is known within bounds.
function methods:expect_prev(entry, got)
  if not self.options.prev_kv or not entry.prev then
    if got then self:wrong("there is a prev at revision %d", entry.event.mod_revision) end
    return
  end
  local before = entry.event.mod_revision - 1
  local at_least = math.max(entry.compacted, self.opened_compacted)
  if got == nil and before >= self:compacted_when_certain(before + 1) then
    self:wrong("prev is missing at revision %d", before + 1)
  end
  if got and before < at_least then self:wrong("there is a prev at revision %d, from before compaction", before + 1) end
  local words = got and difference(got, entry.prev, "prev")
  if words then self:wrong("%s at revision %d", words, before + 1) end
end

function methods:expect_fields(entry, event)
  local prev = event.prev
  event.prev = nil
  local words = difference(event, entry.event, "event")
  if words then self:wrong("%s", words) end
  event.prev = prev
  self:expect_prev(entry, prev)
end

-- }======

-- {====== How far the reader has come ======

--- Before all that exists was handed out, the watch has not come as far as its beginning.
function methods:expect_revision()
  if self.initial and not self.initial.is_synced then
    if self.watch.revision >= self.revision then self:wrong("the watch claims what exists too early") end
    return
  end
  if self.is_shaken and self.watch.revision < self.revision then self.revision = self.watch.revision end
  if self.watch.revision ~= self.revision then
    self:wrong("the watch says it has come to revision %s instead of %d", self.watch.revision, self.revision)
  end
end

--- Marks of sync are passed unseen.
function methods:pass_marks(revision)
  while self.marks[1] and self.marks[1] < revision do
    self.revision = math.max(self.revision, table.remove(self.marks, 1))
  end
end

--- A revision is reached with the last of its events, not before.
function methods:reach(revision)
  local rest = self:find(self.at)
  if not rest or rest.event.mod_revision ~= revision then
    self.revision = revision
  end
  self:expect_revision()
end

--- Something up to a revision came: no compaction up to there has overtaken the watch.
function methods:came_to(revision)
  self.got = self.got + 1
  if self.behind and revision + 1 >= self.behind then self.behind = nil end
end

-- }======

-- {====== What comes ======

local on = {}

function on.initial(self, event)
  local initial = self.initial
  if not initial or initial.is_synced then self:wrong("an initial event comes late") end
  initial.at = initial.at + 1
  local expected = { type = "put", initial = true }
  for name, value in pairs(initial.kvs[initial.at] or {}) do expected[name] = value end
  local words = difference(event, expected, "initial event")
  if words then self:wrong("%s", words) end
  self:expect_revision()
end

function on.synced(self, event)
  local initial = self.initial
  if not initial or initial.is_synced then self:wrong("a synced mark comes that nobody waits for") end
  if initial.at ~= #initial.kvs then self:wrong("the synced mark comes after %d of %d", initial.at, #initial.kvs) end
  local words = difference(event, { type = "synced", revision = self.opened_at }, "mark")
  if words then self:wrong("%s", words) end
  initial.is_synced = true
  self:expect_revision()
end

function on.progress(self, event)
  local revision, needed = event.revision, self:needed()
  if not self.options.progress then self:wrong("progress comes that was not asked for") end
  if revision < self.bookmark then self:wrong("progress goes back to %d", revision) end
  if revision > self.ledger.revision then self:wrong("progress is ahead, at %d", revision) end
  if revision < self.asked_start - 1 then self:wrong("progress comes at %d, before the start", revision) end
  if needed and needed <= revision then self:wrong("progress at %d is ahead of events at %d", revision, needed) end
  self.bookmark = revision
  if self.marks[1] == revision then table.remove(self.marks, 1) end
  self:pass_marks(revision)
  self.revision = math.max(self.revision, revision)
  self:expect_revision()
  self:came_to(revision)
end

local function on_change(self, event)
  local revision = event.mod_revision
  local entry, i = self:entry_of(event)
  if revision <= self.bookmark then self:wrong("an event at %d comes after progress at %d", revision, self.bookmark) end
  if self.doomed and revision >= self.doomed then
    self:wrong("an event at %d comes, though the watch has been behind a compaction since %d", revision, self.doomed)
  end
  self:expect_fields(entry, event)
  self:pass_marks(revision)
  self.at = i + 1
  self:came_to(revision)
end

function methods:expect_initial_done()
  if self.initial and not self.initial.is_synced then self:wrong("something comes before the synced mark") end
end

function methods:expect(event)
  if event.initial or event.type == "synced" then
    on[event.initial and "initial" or "synced"](self, event)
    return
  end
  self:expect_initial_done()
  if event.type == "progress" then return on.progress(self, event) end
  on_change(self, event)
end

--- There is nothing to read now.
function methods:expect_nothing()
  self:expect_initial_done()
  self:pass_marks(math.huge)
  self:expect_revision()
  local needed, known = self:needed(), math.max(self.certain or 0, self.promised)
  if needed and needed <= known then
    self:wrong("nothing comes, though everything up to %d was queued, and %d is missing", known, needed)
  end
end

--- Whether a failure at this compacted revision is due to what the watch needed next.
function methods:was_overtaken(first)
  if self.ledger.over == first then return true end
  if not self.ledger.floors[first] then return false end
  local wanted = self:find(self.at)
  if wanted and wanted.event.mod_revision < first then return true end
  if self.ledger.is_rough then return self.got == 0 or self.revision < first end
  return not self.certain and self.got == 0 and self.start < first
end

function methods:expect_failure(err)
  if err.code ~= "compacted" then self:wrong("the watch fails: %s", tostring(err)) end
  self:expect_nothing() -- that was queued
  if not self:was_overtaken(err.compact_revision) then
    self:wrong("the watch fails with compaction at %s, and needs %s of %d next", err.compact_revision,
      tostring(self:needed()), self.ledger.revision)
  end
  if self.watch:error() ~= err then self:wrong("error() is not what the watch failed with") end
  local event, again = self.watch:next(0)
  if event ~= nil or again ~= err then self:wrong("a watch that has failed goes on") end
  self.is_finished = true
end

-- }======

-- {====== Reading ======

function methods:missed(err)
  self.frozen = nil -- there may be room now
  if err == nil then self:wrong("the watch ends without a reason") end
  if err.code == "timeout" then
    self:expect_nothing()
  else
    self:expect_failure(err)
  end
  return false
end

--- Reads one event; false if there is none.
function methods:read()
  local event, err = self.watch:next(0)
  if not event then return self:missed(err) end
  self.frozen = nil
  self:expect(event)
  if event.mod_revision and not event.initial then self:reach(event.mod_revision) end
  return true
end

--- Reads all events of a revision; false if there are none.
function methods:read_batch()
  local batch, err = self.watch:batch(0)
  if not batch then return self:missed(err) end
  self.frozen = nil
  for _, event in ipairs(batch.events) do
    self:expect(event)
    local revision = event.initial and self.opened_at or event.mod_revision or event.revision
    if batch.revision ~= revision then self:wrong("revision %d is in a batch of %d", revision, batch.revision) end
  end
  local last = batch.events[#batch.events]
  if #batch.events > 1 and not last.mod_revision then self:wrong("a mark comes with others") end
  if not last.mod_revision or last.initial then return true end
  if self:needed() == last.mod_revision then self:wrong("revision %d comes in parts", last.mod_revision) end
  self.revision = last.mod_revision
  self:expect_revision()
  return true
end

--- Reads an event with the iterator, if there is one that it does not have to wait for.
function methods:iterate()
  local needed = self:needed()
  if not needed or needed > math.max(self.certain or 0, self.promised) then return end
  local event = self.watch:events()()
  self.frozen = nil
  self:expect(event)
  if event.mod_revision and not event.initial then self:reach(event.mod_revision) end
end

--- Reads `n` events, or all there are.
function methods:drain(n)
  for _ = 1, n or math.huge do
    if self.is_finished or not self:read() then return end
  end
end

function methods:has_begun()
  return self.asked_start <= self.ledger.revision + 1
end

--- Asks for a revision up to which everything can be read. That may fail, unless nothing waits to be read.
function methods:sync(must_succeed)
  local revision, err = self.watch:sync(0)
  self.frozen = nil
  if revision and not self:has_begun() then
    if revision ~= self.ledger.revision then self:wrong("sync gives %s before the start", revision) end
    return
  end
  if revision then
    if revision ~= self.ledger.revision then self:wrong("sync gives %s, not %d", revision, self.ledger.revision) end
    self.marks[#self.marks + 1] = revision
    self.promised = self.is_shaken and 0 or revision
    self.behind = nil
    return
  end
  if not err then self:wrong("sync gives nothing, without a reason") end
  local is_expected = err.code == "full" or err == self.watch:error()
  if must_succeed or not is_expected then self:wrong("sync fails: %s", tostring(err)) end
end

--- After that, nothing comes, whatever was queued.
function methods:close()
  self.is_finished = true
  self.watch:close()
  for _, read in ipairs { "next", "batch" } do
    local event, err = self.watch[read](self.watch, 0)
    if event ~= nil or err ~= self.watch:error() then self:wrong("something comes out of a closed watch") end
  end
end

-- }======

-- {====== The store as it is seen from outside ======

--- Looks at the watch. `is_idle`: nobody lags.
function methods:look(is_idle)
  local is_blocked = self.watch.core:is_blocked()
  self.is_synced = is_idle and not is_blocked and not self.behind and not self.ledger.over
  if is_blocked then
    self.frozen = self.frozen or self.ledger.revision
    return
  end
  self.frozen = nil
  if self.is_synced and not self.is_shaken and self.ledger.revision > (self.certain or 0) then
    self.certain = self.ledger.revision
    self.certainties[#self.certainties + 1] = { revision = self.certain, compacted = self.ledger.compact_revision }
  end
end

--- If revisions may be long, what was queued may be dropped, when it is compacted or replaced.
function methods:shake()
  if not self.ledger.is_long then return end
  self.certain, self.certainties, self.certainty_at, self.promised = nil, {}, 1, 0
  self.is_shaken = true
end

--- The store has been compacted.
function methods:on_compaction()
  local first = self.ledger:first_event()
  if self.frozen and self.frozen < first then self.doomed = self.doomed or self.frozen end
  if not self.is_synced or self.ledger.is_long then self.behind = first end
  self:shake()
end

--- The history of a replica has been replaced by another: only who waits for its future goes on with it.
function methods:on_replace(old, ledger)
  if self.ledger == old then self:shake() end
  if self.ledger ~= old or self.asked_start <= old.revision or self.asked_start <= ledger.revision then return end
  self.ledger = ledger
  self.at = 1
  self.certain, self.certainties, self.certainty_at = nil, {}, 1
  self.opened_compacted = ledger.compact_revision
end

--- At the end, after everything was read: nothing is missing.
function methods:expect_complete()
  if self.is_finished then return end
  if self.doomed then self:wrong("the watch has been behind a compaction since %d, and did not fail", self.doomed) end
  if self.ledger.over then self:wrong("history was replaced, and the watch did not fail") end
  self:expect_initial_done()
  local needed = self:needed()
  if needed then self:wrong("an event at revision %d never came", needed) end
end

-- }======

return { new = new, span_of = span_of, is_empty = is_empty }
