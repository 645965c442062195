--- Everything that ever happened to a store, in order, as those who watch it must be told; and how far history had
-- been compacted when it happened. Nothing is ever dropped.
--
-- An entry is { event, prev, compacted, is_superseded }: the event without prev; the kv that the key had before its
-- revision; the compacted revision when it happened; and whether the same revision changed the key once more.

local methods = {}
local meta = { __index = methods }

--- A ledger that begins after `revision`. What a replica was loaded with has no events: `base` is its revision.
local function new(revision, base)
  local ledger = setmetatable({
    entries = {},
    revision = revision,
    base = base or 0,
    compact_revision = base or -1,
    floors = {},      -- every value that first_event has had
    over = nil,       -- why nothing more is entered here: the first event of the history that came instead
    is_long = false,  -- whether a compaction drops what is queued: a long revision is not held in the queue
    is_rough = false, -- whether watchers may go back further than to what they need next
  }, meta)
  ledger.floors[ledger:first_event()] = true
  return ledger
end

--- The first revision whose events are all known.
function methods:first_event()
  return math.max(self.compact_revision, self.base + 1)
end

local fields = { "key", "value", "create_revision", "mod_revision", "version", "lease" }

local function event_of(revision, key, kv)
  if not kv then return { type = "delete", key = key, mod_revision = revision } end
  local event = { type = "put" }
  for _, name in ipairs(fields) do event[name] = kv[name] end
  return event
end

local function is_create(event)
  return event.type == "put" and event.create_revision == event.mod_revision
end

function methods:mark_superseded(event)
  for i = #self.entries, 1, -1 do
    local earlier = self.entries[i]
    if earlier.event.mod_revision ~= event.mod_revision then return end
    if earlier.event.key == event.key then earlier.is_superseded = true end
  end
end

--- Enters a put, or without a kv a delete. `previous` is what the key was at the revision before.
function methods:enter(revision, key, kv, previous)
  local event = event_of(revision, key, kv)
  self:mark_superseded(event)
  self.entries[#self.entries + 1] = {
    event = event,
    prev = not is_create(event) and previous or nil,
    compacted = self.compact_revision,
    is_superseded = false,
  }
end

--- Everything up to a revision has been entered.
function methods:reach(revision)
  self.revision = revision
end

function methods:compact(revision)
  self.compact_revision = revision
  self.floors[self:first_event()] = true
end

--- History does not go on: another begins, whose first event can be that of `first`.
function methods:close(first)
  self.over = first
end

return { new = new }
