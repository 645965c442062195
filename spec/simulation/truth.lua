--- The true history of a server, revision by revision. It is recorded by a watch of the server's store in the process,
-- which no fault affects. At the end the recorded log is compared with ranges of the store at past revisions, and with
-- its hash, so that a defect of watches cannot go unnoticed.
--
-- A server that is restored, or replaced, begins a new *epoch*: a separate history, with the rest of the previous one.
-- A history is complete: no revision is missing, since each has changed something, and the version of a key rises by
-- one from put to put.

local keywatch = require "keywatch"

local difference = require("spec.support.difference").difference
local hash = require "spec.support.model.hash"
local models = require "spec.support.model"
local span = require "spec.support.model.span"

local FIELDS = { "key", "value", "create_revision", "mod_revision", "version", "lease" }
local LOOKS = 5 -- past revisions that are compared with the store

local truth_methods = {}
local truth_mt = { __index = truth_methods }

local function kv_of(event)
  if not event or event.type == "delete" then return nil end
  local kv = {}
  for _, name in ipairs(FIELDS) do kv[name] = event[name] end
  return kv
end

-- {====== Epochs ======

local epoch_methods = {}

local function new_epoch(number)
  return setmetatable({
    number = number,
    first = 2,            -- revision
    last = 1,
    kept = 1,             -- the last revision that the epoch shares with the previous one
    events = {},          -- by revision, a list
    keys = {},            -- by key, the list of its events
    tags = {},            -- by tag, the list of the puts with it
    times = {},           -- by revision
    began = keywatch.now(),
    acknowledged = 1,     -- the newest revision of any answer or event
    compactions = {},     -- { revision, began }: every compaction that may have been done
    claims = {},          -- by revision: the operation that has written it
    sorted = {},          -- by prefix: { keys, n }
    n_keys = 0,
  }, { __index = epoch_methods })
end

--- Returns the tag in a value: its first word.
local function tag_of(value) return value and value:match("^%S+") end

local function check_event(self, event)
  local list = self.keys[event.key] or {}
  local before = list[#list]
  local version = before and before.type == "put" and before.version or 0
  if event.type == "put" and event.version ~= version + 1 then
    error(("the history has version %d of %s after version %d"):format(event.version, event.key, version))
  end
  if event.type == "delete" and version == 0 then error("the history deletes what does not exist: " .. event.key) end
end

--- Adds the events of the next revision.
function epoch_methods:add(revision, events)
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

--- Returns the put that a key had at a revision; nil if the key did not exist then.
function epoch_methods:at(key, revision)
  local list = self.keys[key] or {}
  local low, high = 0, #list -- list[low] is not later
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if list[middle].mod_revision <= revision then low = middle else high = middle - 1 end
  end
  local event = list[low]
  return event and event.type == "put" and event or nil
end

--- Returns the revisions that have put a tag: none, one, or more if a request was done twice.
function epoch_methods:revisions_of(tag)
  local list = {}
  for i, event in ipairs(self.tags[tag] or {}) do list[i] = event.mod_revision end
  return list
end

--- Calls fn(revision, events) for each revision from `from` to `to`, with the events of keys that begin with a prefix.
function epoch_methods:each(prefix, from, to, fn)
  for revision = math.max(from, self.first), math.min(to, self.last) do
    local found = {}
    for _, event in ipairs(self.events[revision]) do
      if event.key:sub(1, #prefix) == prefix then found[#found + 1] = event end
    end
    if #found > 0 then fn(revision, found) end
  end
end

--- Adds the events of a revision, each with the recorder's previous kv, unless `is_known`.
function epoch_methods:record(revision, events, is_known)
  for _, event in ipairs(events) do
    if not self.keys[event.key] then self.n_keys = self.n_keys + 1 end
    if not is_known then
      local before = event.prev
      event.prev = nil
      if event.type == "delete" or event.version > 1 then
        local words = difference(before, kv_of(self:at(event.key, revision - 1)), "the recorder's prev")
        local is_new = not self:at(event.key, revision - 1) -- created in the same revision
        if words and not is_new then error(("%s of %s at %d"):format(words, event.key, revision), 0) end
      end
    end
  end
  self:add(revision, events)
  self.times[revision] = keywatch.now()
end

--- Returns the sorted keys below a prefix, including deleted ones.
function epoch_methods:keys_below(prefix)
  local known = self.sorted[prefix]
  if known and known.n == self.n_keys then return known end
  local list = {}
  for key in pairs(self.keys) do
    if key:sub(1, #prefix) == prefix then list[#list + 1] = key end
  end
  table.sort(list)
  list.n = self.n_keys
  self.sorted[prefix] = list
  return list
end

--- Returns the kvs within a span at a revision, in the order of their keys.
function epoch_methods:kvs(revision, within, prefix)
  local kvs = {}
  if within.last == "" then
    kvs[1] = kv_of(self:at(within.key, revision))
    return kvs
  end
  for _, key in ipairs(self:keys_below(prefix or "")) do
    if span.contains(within, key) then kvs[#kvs + 1] = kv_of(self:at(key, revision)) end
  end
  return kvs
end

--- Returns the events of a revision within a span.
function epoch_methods:within(revision, within)
  local list = {}
  for _, event in ipairs(self.events[revision] or {}) do
    if span.contains(within, event.key) then list[#list + 1] = event end
  end
  return list
end

--- True if history up to a revision may have been compacted before a time.
function epoch_methods:may_lack(revision, time)
  for _, one in ipairs(self.compactions) do
    if one.revision > revision and one.began <= time then return true end
  end
  return false
end

-- }======

-- {====== Views: the naive model of a store, at a revision ======

local model_methods = getmetatable(models.new()).__index
local view_methods = {}

--- Returns a view: a model of a store with the keys below a prefix, without the prefix, at a revision of an epoch. Its
-- methods are those of spec/support/model.lua; writes to the view do not change the epoch.
function epoch_methods:view(revision, prefix)
  return setmetatable({
    epoch = self, base = revision, revision = revision, prefix = prefix or "", history = {}, grants = {}, armed = {},
    compact_revision = -1, now = 0, is_replica = false, max_request_bytes = math.huge, max_txn_ops = math.huge,
    min_lease_ttl = 2, lease_ids = {},
  }, { __index = function(_, name) return view_methods[name] or model_methods[name] end })
end

function view_methods:kvs_at(revision, within)
  local kvs, n = {}, #self.prefix
  local base = math.min(revision, self.base)
  if within.last == "" then
    kvs[1] = kv_of(self.epoch:at(self.prefix .. within.key, base))
    if kvs[1] then kvs[1].key = within.key end
  else
    for _, full in ipairs(self.epoch:keys_below(self.prefix)) do
      local key = full:sub(n + 1)
      local kv = span.contains(within, key) and kv_of(self.epoch:at(full, base))
      if kv then
        kv.key = key
        kvs[#kvs + 1] = kv
      end
    end
  end
  if #self.history == 0 or revision <= self.base then return kvs end
  local own, list = {}, {}
  for _, kv in ipairs(kvs) do own[kv.key] = kv end
  for _, record in ipairs(self.history) do
    if span.contains(within, record.key) then own[record.key] = record.kv end
  end
  for _, kv in pairs(own) do list[#list + 1] = kv end
  table.sort(list, function(a, b) return a.key < b.key end)
  return list
end

function view_methods:kv_at(revision, key) return self:kvs_at(revision, span.new(key, {}))[1] end
function view_methods.has_lease() return true end
function view_methods.unreadable() return nil end
function view_methods:leases() return self.lease_ids end

-- }======

-- {====== The recorder ======

local function new(server)
  local self = setmetatable({
    server = server,
    epochs = { new_epoch(1) },
    epoch = nil,
    watch = nil,
    failure = nil,  -- why the log cannot continue: an objection
    revived = {},   -- by id, as a text: leases that had ended, and that a restored store has again
    revived_until = 0, -- when the last one of them expires
    reopened = 0,   -- when the store was opened again: the time of each lease starts over then
    leases = {},    -- by id, as a text: a list of { what, began, ended, ttl, outcome }
    living = {},    -- { id, ends }: leases that may exist, in the order of their grants
  }, truth_mt)
  self.epoch = self.epochs[1]
  self:follow()
  return self
end

--- Reads the store's changes in a task, until the store is replaced.
function truth_methods:follow()
  local epoch = self.epoch
  local watch = assert(self.server.store:watch("", {
    prefix = true, start_revision = epoch.last + 1, prev_kv = true, max_bytes = 2 ^ 30,
  }))
  self.watch = watch
  self.task = keywatch.spawn(function()
    while true do
      local batch, err = watch:batch()
      if not batch then
        if err and self.watch == watch then self.failure = "the recorder fails: " .. tostring(err) end
        return
      end
      local ok, why = pcall(epoch.record, epoch, batch.revision, batch.events)
      if not ok then
        self.failure = self.failure or tostring(why)
        return
      end
    end
  end)
end

--- Returns the newest revision of the store.
function truth_methods:revision() return self.server.store:status().revision end

--- Waits until all present revisions of the store are in the log.
function truth_methods:learn()
  local revision = self.server.store:status().revision
  while self.epoch.last < revision and not self.failure do keywatch.sleep(0) end
end

--- Ends the recorder.
function truth_methods:stop()
  local watch = self.watch
  self.watch = nil
  watch:close()
  self.task:join()
end

--- Calls reopen(), which opens the store again. The store must still have every revision that a client has seen.
function truth_methods:reopen(reopen)
  local epoch = self.epoch
  self:learn()
  self:stop()
  reopen()
  self.reopened = keywatch.now()
  local revision = self.server.store:status().revision
  if revision < math.max(epoch.last, epoch.acknowledged) then
    self.failure = self.failure or ("a store that was at %d, with %d acknowledged, is at %d when it is opened again")
      :format(epoch.last, epoch.acknowledged, revision)
  end
  self:follow()
end

--- Notes the leases that a restored store has again, though they had ended: their owners do not renew them. `living`
-- has the leases that had not ended.
local function note_revived(self, living)
  local store, has_ended = self.server.store, self.revived
  self.revived, self.revived_until = {}, 0
  for _, id in ipairs(store:leases()) do
    local name = tostring(id)
    if has_ended[name] or not living[name] then
      self.revived[name] = true
      local ends = keywatch.now() + store:lease_time_to_live(id).granted_ttl
      self.revived_until = math.max(self.revived_until, ends)
    end
  end
end

--- Restores the server to a revision, or replaces it if the revision is nil. Returns true if that was done.
function truth_methods:restore(revision)
  self:learn()
  local before, living = self.epoch, {}
  for _, id in ipairs(self.server.store:leases()) do living[tostring(id)] = true end
  self:stop()
  if revision and not self.server:restore(revision) then
    self:follow()
    return false
  end
  if not revision then self.server:replace() end
  note_revived(self, living)
  self.epoch = new_epoch(before.number + 1)
  self.epochs[#self.epochs + 1] = self.epoch
  self.epoch.kept = revision or 1
  for r = 2, self.epoch.kept do self.epoch:record(r, before.events[r], true) end
  if revision then self.epoch.compactions = before.compactions end
  self.epoch.acknowledged = self.epoch.kept
  self:follow()
  return true
end

--- Returns the ids of the leases that may exist.
function truth_methods:living_leases()
  local ids, now = {}, keywatch.now()
  for i = #self.living, 1, -1 do
    if self.living[i].ends <= now then table.remove(self.living, i) end
  end
  for i, one in ipairs(self.living) do ids[i] = one.id end
  return ids
end

--- Records an attempt to grant, renew or end a lease. `ttl` is nil for an end.
function truth_methods:note_lease(id, what, began, ttl, outcome)
  for _, one in ipairs(self.living) do
    if one.id == id then one.ends = ttl and keywatch.now() + ttl or 0 end
  end
  if what == "grant" and outcome == "ok" then table.insert(self.living, { id = id, ends = keywatch.now() + ttl }) end
  id = tostring(id)
  self.leases[id] = self.leases[id] or {}
  table.insert(self.leases[id], { what = what, began = began, ended = keywatch.now(), ttl = ttl, outcome = outcome })
end

--- Compares the log with the store: its content now and at some revisions of the past, and its hash. Returns a text
-- that describes a difference, or nil.
function truth_methods:verify(random)
  self:learn()
  local epoch, store = self.epoch, self.server.store
  local status = store:status()
  local compact_revision = status.compact_revision or math.max(0, store:hash_kv().compact_revision)
  if self.failure then return self.failure end
  if status.revision ~= epoch.last then return ("the log ends at %d, and the store is at %d"):format(epoch.last,
    status.revision) end
  local everything = span.new("", { prefix = true })
  for i = 0, LOOKS do
    local revision = i == 0 and epoch.last or random:between(math.max(1, compact_revision), epoch.last)
    local found, err = store:range("", { prefix = true, revision = revision })
    if not found then return ("the store cannot be read at %d: %s"):format(revision, tostring(err)) end
    local words = difference(found.kvs, epoch:kvs(revision, everything), ("the store at %d"):format(revision))
    if words then return words end
  end
  if #self.epochs > 1 or epoch.n_events and epoch.n_events > 3000 then return nil end
  return self:verify_hash(compact_revision)
end

function truth_methods:verify_hash(compact_revision)
  local epoch, records = self.epoch, {}
  for revision = 2, epoch.last do
    for i, event in ipairs(epoch.events[revision]) do
      records[#records + 1] = { main = revision, sub = i - 1, key = event.key, kv = kv_of(event) }
    end
  end
  if #records > 1500 then return nil end -- the checksum in Lua takes too long
  local function newest_at(at)
    local newest = {}
    for _, record in ipairs(records) do
      if record.main <= at then newest[record.key] = record end
    end
    return newest
  end
  local expected = hash.hash(records, newest_at, epoch.last, compact_revision)
  return difference(self.server.store:hash_kv(epoch.last).hash, expected, "the hash of the store")
end

-- }======

return { new = new, kv_of = kv_of }
