--- A write in progress: its changes share one main revision and are numbered by `sub`; later operations see the changes
-- of earlier ones.

local int64 = require "spec.support.int64"
local selection = require "spec.support.model.selection"
local span = require "spec.support.model.span"

local methods = {}
local meta = { __index = methods }

local function new(model) return setmetatable({ model = model, main = model.revision + 1, sub = 0 }, meta) end

--- Returns the revision for reads of the write itself: the new one after the first change.
function methods:revision() return self.sub > 0 and self.main or self.main - 1 end

--- Writes a record; without a kv, a tombstone.
function methods:record(key, kv)
  local history = self.model.history
  history[#history + 1] = { main = self.main, sub = self.sub, key = key, kv = kv }
  self.sub = self.sub + 1
end

local function successor(previous, key, main)
  if not previous then return { key = key, create_revision = main, mod_revision = main, version = 1 } end
  return {
    key = key,
    create_revision = previous.create_revision,
    mod_revision = main,
    version = previous.version + 1,
  }
end

--- Puts a key. Returns the answer, or nil and a code if the key is missing: the write itself may have deleted it.
function methods:put(key, value, options)
  local previous = self.model:kv_at(self.main, key)
  if not previous and (options.ignore_value or options.ignore_lease) then return nil, "key_not_found" end
  local kv = successor(previous, key, self.main)
  kv.value = options.ignore_value and previous.value or value
  kv.lease = options.ignore_lease and previous.lease or int64.canonical(options.lease or 0)
  self:record(key, kv)
  return { revision = self:revision(), prev_kv = options.prev_kv and previous or nil }
end

function methods:delete(key, options)
  local kvs = self.model:kvs_at(self.main, span.new(key, options))
  for _, kv in ipairs(kvs) do self:record(kv.key, nil) end
  return { revision = self:revision(), deleted = #kvs, prev_kvs = options.prev_kv and kvs or nil }
end

function methods:range(key, options)
  local at = options.revision or 0
  if at == 0 then at = self:revision() end
  local found = self.model:kvs_at(at, span.new(key, options))
  if options.count_only then return { revision = self:revision(), kvs = {}, count = #found, more = false } end
  local kvs, more = selection.select(found, options)
  return { revision = self:revision(), kvs = kvs, count = #found, more = more }
end

--- Commits the changes. A write without changes does not change the revision.
function methods:commit()
  self.model.revision = self:revision()
  return self.model.revision
end

--- Undoes the changes.
function methods:roll_back()
  local history = self.model.history
  for _ = 1, self.sub do history[#history] = nil end
end

return { new = new }
