--- The visible state of a store, as one plain table: two states are equal if the store was not changed in between.

local difference = require("spec.support.difference").difference
local rows_of = require "spec.support.rows"

local function leases_of(store)
  local leases = {}
  for i, id in ipairs(store:leases()) do
    local lease = store:lease_by_id(id)
    leases[i] = { id = id, remaining = lease:remaining(), keys = lease:keys() }
  end
  return leases
end

--- The number of disk writes is not part of the state. The sizes of a durable store depend on checkpoints.
local function status_of(store)
  local status = store:status()
  if status.commits then status.db_size, status.db_size_in_use = nil, nil end
  status.commits = nil
  return status
end

--- Returns the state that a client can read. The clock of its server is not part of it.
local function of_client(client)
  local status, leases = client:status(), leases_of(client)
  for _, lease in ipairs(leases) do lease.remaining = nil end
  return {
    revision = status.revision,
    hash = client:hash_kv(),
    kvs = client:range("", { prefix = true }).kvs,
    leases = leases,
  }
end

local function of(store)
  if type(store) == "table" then return of_client(store) end
  return {
    status = status_of(store),
    hash = store:hash_kv(),
    kvs = store:range("", { prefix = true }).kvs,
    leases = leases_of(store),
    alarms = store:alarms(),
    kept = rows_of(store, "t"), -- the table of the specs
    deadline = store.wait == nil and store:deadline() or nil, -- a durable store also has deadlines for checkpoints
  }
end

--- Raises a text about the difference if the state of a store has changed.
local function expect(store, before)
  local words = difference(of(store), before, "the store")
  if words then error("something has changed: " .. words, 2) end
end

--- Returns a string that every change of keys changes. It is much cheaper than `of`.
local function trace(store)
  local hash = assert(store:hash_kv())
  return ("%d at revision %d"):format(hash.hash, hash.revision)
end

return { of = of, expect = expect, trace = trace }
