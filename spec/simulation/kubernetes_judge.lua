--- The judge of the actors of Kubernetes' API (kubernetes.lua), by the log of the keys. The rules:
--
--   lists      have the state of their revision, which is not older than any revision that was known before
--   watches    have the transitions of each change after the list, for their selector: in order, once, without gap
--   bookmarks  come after all changes up to their revision
--   writes     an accepted write is in the log once, and replaces the revision that its writer has named; a patch keeps
--              the other fields; a refused write is not in the log; finalizers delay a deletion
--   ends       a watch ends only with 410, or with its API; the last one of an actor gets everything

local json = require "keywatch.json"

local difference = require("spec.support.difference").difference
local span = require "spec.support.model.span"

local PREFIX = "/registry/sim.example/things/" -- of the keys

local decoded = setmetatable({}, { __mode = "k" })

--- Returns the object of an event of the log, at a revision; nil if it is none, or does not match a stretch.
local function object_at(event, stretch)
  if not event or event.type ~= "put" then return nil end
  local object = decoded[event] or json.decode(event.value)
  decoded[event] = object
  object.metadata.resourceVersion = ("%d"):format(event.mod_revision)
  if stretch and stretch.fn and not stretch.fn(object) then return nil end
  return object
end

--- Returns the events that a stretch must have after its list, up to a revision.
local function expected_events(epoch, stretch, last)
  local list = {}
  epoch:each(PREFIX .. (stretch.namespace and stretch.namespace .. "/" or ""), stretch.revision + 1, last,
    function(revision, events)
      for _, event in ipairs(events) do
        local new, old = object_at(event, stretch), object_at(epoch:at(event.key, revision - 1), stretch)
        local kind = new and (old and "MODIFIED" or "ADDED") or old and "DELETED"
        local object = new or old
        if kind == "DELETED" then
          object = json.decode(json.encode(old))
          object.metadata.resourceVersion = ("%d"):format(revision)
        end
        if kind then list[#list + 1] = { type = kind, object = object, revision = revision } end
      end
    end)
  return list
end

--- Returns a text about the first difference between a stretch and an epoch; nil if there is none.
local function stretch_trouble(epoch, stretch)
  local prefix, items = PREFIX .. (stretch.namespace and stretch.namespace .. "/" or ""), {}
  for _, kv in ipairs(epoch:kvs(stretch.revision, span.new(prefix, { prefix = true }))) do
    items[#items + 1] = object_at(epoch:at(kv.key, stretch.revision), stretch)
  end
  local words = difference(stretch.items, items, ("the list at %d"):format(stretch.revision))
  if words then return words end
  local expected, n = expected_events(epoch, stretch, stretch.is_drained and epoch.last or stretch.last), 0
  for _, event in ipairs(stretch.events) do
    local next_event = expected[n + 1]
    if event.type ~= "BOOKMARK" then
      n = n + 1
      words = difference(event.object, next_event and next_event.object, "the object")
        or difference(event.type, next_event and next_event.type, "the type")
      if words then return ("event %d at %d: %s"):format(n, event.revision, words) end
    elseif next_event and next_event.revision <= event.revision then
      return ("a bookmark at %d comes before %d"):format(event.revision, next_event.revision)
    end
  end
  local missing = stretch.is_drained and expected[n + 1]
  if missing then return ("in silence %d is missing"):format(missing.revision) end
end

--- Checks a stretch: it is of the epoch in which it has begun, or of a later one.
local function judge_stretch(a, stretch)
  local words
  for number = (stretch.is_drained and a.truth.epoch or stretch.epoch).number, #a.truth.epochs do
    words = stretch_trouble(a.truth.epochs[number], stretch)
    if not words then break end
  end
  if words then return a.sim:object(stretch, "%s", words) end
  if stretch.least and stretch.revision < stretch.least then
    a.sim:object(stretch, "lists at %d, and %d was known", stretch.revision, stretch.least)
  end
end

--- Returns a text about what a write has made of an object; nil if it is right.
local function content_trouble(record, new, old)
  local spec = record.sent and record.sent.spec
  local tier = record.sent and record.sent.metadata.labels.tier or record.tier
  if record.mark then
    spec = json.decode(json.encode(old.spec))
    spec.tag, spec.marks[record.mark] = record.tag, record.tag
  end
  return difference(new.spec, spec, "the spec") or difference(new.metadata.labels.tier, tier, "the tier")
end

--- Checks the events of a key in an epoch: each is that of a write, and replaces what the write was based on. Counts
-- the events of each tag.
local function judge_key(a, epoch, key, by_tag)
  local before, last_revision
  for _, event in ipairs(epoch.keys[key]) do
    local new, old = object_at(event), before
    local record = new and by_tag[new.spec.tag]
    local is_mark = new and old and new.spec.tag == old.spec.tag
    local words
    if is_mark then
      words = difference(new.spec, old.spec, "the spec")
        or (old.metadata.deletionTimestamp or not new.metadata.deletionTimestamp) and "it is no mark"
    elseif new and not record then
      words = "no write has made it"
    elseif new then
      record.found[epoch] = (record.found[epoch] or 0) + 1
      local based = old and last_revision or 0
      if record.based and record.based ~= based then
        words = ("it replaces %d, and its writer has named %d"):format(based, record.based)
      end
      words = words or content_trouble(record, new, old)
    elseif old.metadata.finalizers and not old.metadata.deletionTimestamp then
      words = "a finalizer was ignored"
    end
    if new and old and new.metadata.uid ~= old.metadata.uid then words = "its uid has changed" end
    if words then a.sim:object(record or a, "%s at %d: %s", key, event.mod_revision, words) end
    before, last_revision = new, event.mod_revision
  end
end

--- True if an epoch has the event that a deletion or the release of an object says to have made.
local function has_deletion(epoch, record)
  local before
  for _, event in ipairs(epoch.keys[record.key] or {}) do
    local is_deleted = event.type == "delete"
    local is_new = before and before.mod_revision == record.based or event.mod_revision == record.revision
    if is_new and (is_deleted or record.what == "delete" and not record.is_gone) then return true end
    before = event
  end
end

--- Checks that a write is in the log as often as its outcome says.
local function judge_write(a, record)
  local n, is_deletion = 0, false
  for number, epoch in ipairs(a.truth.epochs) do
    n = math.max(n, record.found[epoch] or 0)
    if number >= record.epoch.number then is_deletion = is_deletion or has_deletion(epoch, record) end
  end
  local is_patch_of_release = record.what == "patch" and not record.based
  if n > 1 then
    a.sim:object(record, "is %d times in the log", n)
  elseif record.outcome == "refused" and n > 0 then
    a.sim:object(record, "is refused, and in the log")
  elseif record.outcome == "ok" and n == 0 and not is_deletion and not is_patch_of_release then
    a.sim:object(record, "of %s at %s is accepted, and not in the log", record.key, tostring(record.revision))
  end
end

--- Checks all writes of the actors of a server together, once.
local function judge_writes(a)
  if a.truth.has_judged_things then return end
  a.truth.has_judged_things = true
  local by_tag, all = {}, {}
  for _, other in ipairs(a.sim.actors) do
    for _, record in ipairs(other.kind == a.kind and other.truth == a.truth and other.writes or {}) do
      record.found = {}
      all[#all + 1] = record
      if record.tag then by_tag[record.tag] = record end
    end
  end
  for _, epoch in ipairs(a.truth.epochs) do
    for _, key in ipairs(epoch:keys_below(PREFIX)) do judge_key(a, epoch, key, by_tag) end
  end
  for _, record in ipairs(all) do judge_write(a, record) end
end

return { PREFIX = PREFIX, stretch = judge_stretch, writes = judge_writes }
