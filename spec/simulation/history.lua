--- Everything that has happened to a cluster, as it tells when nothing is wrong any more.
--
-- The history is whole, or reading it fails: no revision is missing, since each has changed something, and the version
-- of a key grows by one from put to put.

local PATIENCE = 60 -- seconds without a revision, after which the rest of the history will not come

local history_methods = {}
local history_mt = { __index = history_methods }

--- The tag in a value: its first word.
local function tag_of(value) return value and value:match("^%S+") end

local function new(first)
  return setmetatable({
    first = first,  -- revision
    last = first - 1,
    events = {},    -- by revision, a list
    keys = {},      -- by key, the list of its events
    tags = {},      -- by tag, the list of the events that have put it
  }, history_mt)
end

local function check_event(self, event)
  local list = self.keys[event.key] or {}
  local before = list[#list]
  local version = before and before.type == "put" and before.version or 0
  if event.type == "put" and event.version ~= version + 1 then
    error(("the history has version %d of %s after version %d"):format(event.version, event.key, version))
  end
  if event.type == "delete" and version == 0 then error("the history deletes what does not exist: " .. event.key) end
end

--- Adds the events of the next revision. One revision changes a key once.
function history_methods:add(revision, events)
  if revision ~= self.last + 1 then error(("the history has %d after %d"):format(revision, self.last)) end
  self.last, self.events[revision] = revision, events
  for _, event in ipairs(events) do
    check_event(self, event)
    self.keys[event.key] = self.keys[event.key] or {}
    table.insert(self.keys[event.key], event)
    local tag = event.type == "put" and tag_of(event.value)
    if tag then
      self.tags[tag] = self.tags[tag] or {}
      table.insert(self.tags[tag], event)
    end
  end
end

--- Reads the history of a cluster that nobody has written to before, up to a revision.
local function read(client, last)
  local self = new(2)
  local watch = assert(client:watch("\0", { from_key = true, start_revision = 2, prev_kv = true, timeout = PATIENCE }))
  while self.last < last do
    local batch = assert(watch:batch(PATIENCE))
    self:add(batch.revision, batch.events)
  end
  watch:close()
  return self
end

--- The event that has made a key what it was at a revision, a put; nil if there was no such key.
function history_methods:at(key, revision)
  local list = self.keys[key] or {}
  local low, high = 0, #list -- list[low] is not later
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if list[middle].mod_revision <= revision then low = middle else high = middle - 1 end
  end
  local event = list[low]
  return event and event.type == "put" and event or nil
end

--- The revisions that have put a tag: none, one, or more if something was done twice.
function history_methods:revisions_of(tag)
  local list = {}
  for i, event in ipairs(self.tags[tag] or {}) do list[i] = event.mod_revision end
  return list
end

--- Calls fn(revision, events) for each revision from one to another, with the events of keys that begin with a prefix.
function history_methods:each(prefix, from, to, fn)
  for revision = math.max(from, self.first), math.min(to, self.last) do
    local found = {}
    for _, event in ipairs(self.events[revision]) do
      if event.key:sub(1, #prefix) == prefix then found[#found + 1] = event end
    end
    if #found > 0 then fn(revision, found) end
  end
end

return { new = new, read = read }
