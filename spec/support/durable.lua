--- A durable store that gets one request at a time, and a model of the requests that it has acknowledged.
--
-- A step is a list: the name of a method and its arguments. A step that fails with "storage" may have happened, but
-- then completely; a step that fails with another error has not happened. Only a defragmentation can be "aborted".

local difference = require("spec.support.difference").difference
local expect = require("spec.support.difference").expect
local keywatch = require "keywatch"
local new_model = require("spec.support.model").new
require "spec.support.inner"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local FILES = { "data.mdb", "copy.mdb", "copy.mdb-lock", "lock", "data.mdb-lock", "journal.new" }
local SEGMENTS = 4 -- of a journal

local methods = {}
local meta = { __index = methods }

local acts = {}

function acts.grant(store, id, ttl) return store:lease(ttl, { id = id }) end
function acts.revoke(store, id) return store:lease_by_id(id):revoke() end

--- Compacts at the revision that is `back` revisions before the newest one.
function acts.compact(store, back, options)
  return store:compact(math.max(store:status().revision - back, 1), options)
end

local function act(store, step)
  local fn = acts[step[1]] or store[step[1]]
  return fn(store, unpack(step, 2))
end

--- `segment_bytes` is the size of the journal's segments: nil for the default.
local function new(path, segment_bytes)
  return setmetatable({ path = path, segment_bytes = segment_bytes, model = new_model { now = 0 }, store = nil,
    doubtful = nil }, meta)
end

function methods:open()
  local err
  self.store, err = keywatch.open { path = self.path, now = 0, journal_segment_bytes = self.segment_bytes }
  return self.store, err
end

function methods:close()
  if self.store then self.store:close() end
  self.store = nil
end

--- Makes a request of the store and, unless the disk has failed, of the model: their answers must have the same
-- revision or the same error. Returns true, or nil and the error that the disk has caused.
function methods:ask(step)
  local got, err = act(self.store, step)
  if got == nil and err.code == "storage" then
    if not self.has_failed then self.doubtful = step end
    self.has_failed = true
    return nil, err
  end
  if got == nil and (err.code == "no_space" or err.code == "aborted") then return nil, err end
  local expected, refusal = act(self.model, step)
  expect(err and err.code, refusal and refusal.code, step[1] .. "'s failure")
  if type(got) == "table" then expect(got.revision, expected.revision, step[1] .. "'s revision") end
  return true
end

--- Applies a step that is known to have happened to the model.
function methods:assume(step) act(self.model, step) end

local function names_of(armed)
  local list = {}
  for name in pairs(armed) do list[#list + 1] = name end
  table.sort(list)
  return list
end

local function leases_of(store)
  local leases = {}
  for _, id in ipairs(store:leases()) do
    leases[tostring(id)] = { ttl = store:lease_by_id(id):remaining(), keys = store:lease_by_id(id):keys() }
  end
  return leases
end

local function look(store, alarms)
  local status = store:status()
  local seen = { revision = status.revision, compact_revision = status.compact_revision, keys = status.keys,
    leases = leases_of(store), alarms = alarms, at = {} }
  for revision = math.max(status.compact_revision, 1), status.revision do
    seen.at[revision] = assert(store:range("", { prefix = true, revision = revision })).kvs
  end
  return seen
end

--- Returns a text about the difference between the store and its model, without the step in doubt; nil if there is
-- none. The hash covers the remaining history, so compaction is completed first.
function methods:difference()
  local store, model = self.store, self.model
  while store:step(0) do end
  local words = difference(look(store, store:alarms()), look(model, names_of(model.armed)), "the store")
  if words then return words end
  return difference(store:hash_kv().hash, model:hash_kv().hash, "the hash")
end

--- Raises a text if the store is neither the acknowledged state nor that state with the step in doubt.
function methods:check()
  local words = self:difference()
  if not words then return end
  if not self.doubtful then error(words, 0) end
  act(self.model, self.doubtful)
  self.doubtful = nil
  local others = self:difference()
  if others then error(words .. "; or, if what was in doubt has happened, " .. others, 0) end
end

--- Closes the store, and opens it again.
function methods:reopen()
  self:close()
  self.has_failed = false
  return self:open()
end

--- Removes the directory of a store.
local function remove(path)
  for _, name in ipairs(FILES) do os.remove(path .. "/" .. name) end
  for i = 0, SEGMENTS - 1 do os.remove(path .. "/journal-" .. i) end
  os.remove(path)
end

return { new = new, act = act, remove = remove }
