-- SPDX-License-Identifier: MIT
--- replay: gives a store the content and the revisions that another store had at a revision, by repeating every change
-- in order.
--
-- Compacted changes are not known. They are replaced by other changes that lead to the same content at the compacted
-- revision: each kv is put as often, and at such revisions, that its version, create_revision and mod_revision are
-- right. These changes are compacted in the new store, too, so that no reader sees them.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local TTL = 60 -- seconds, for a lease that has ended, and whose TTL is no longer known

--- Returns options for the new store, since a change may have been larger than a transaction.
local function options()
  return { max_txn_ops = 2 ^ 31 - 1, max_request_bytes = 2 ^ 31 - 1 }
end

--- Returns the lease of a kv, or nil, and grants it in the new store, unless it exists there. Its time to live is that
-- of the other store's lease.
local function lease_of(from, to, kv, known)
  local name = tostring(kv.lease)
  if not kv.lease or name == "0" then return nil end
  if known[name] then return kv.lease end
  known[name] = true
  local info = from:lease_time_to_live(kv.lease)
  local ttl = info and info.granted_ttl and info.granted_ttl > 0 and info.granted_ttl or TTL
  assert(to:lease_grant(ttl, { id = kv.lease }))
  return kv.lease
end

--- Returns the op that makes the change of an event. A delete before a put of the same key was one up to the last key,
-- since no other one is allowed there; so it has deleted all keys from this one on.
local function op_of(from, to, event, known, is_put_later)
  if event.type == "delete" then return { delete = event.key, from_key = is_put_later } end
  return { put = event.key, value = event.value, lease = lease_of(from, to, event, known) }
end

--- Returns the transaction that makes the changes of a batch of events. A revision can put a key and then delete it,
-- which only nested transactions can do.
local function txn_of(from, to, batch, known)
  local ops, put_at = {}, {}
  for i, event in ipairs(batch.events) do put_at[event.key] = event.type == "put" and i or put_at[event.key] end
  for i, event in ipairs(batch.events) do
    local is_put_later = (put_at[event.key] or 0) > i
    ops[i] = { txn = { success = { op_of(from, to, event, known, is_put_later) } } }
  end
  return { success = ops }
end

-- {====== Compacted changes ======

local FILLER = "\0keywatch-testing" -- key that is changed at revisions of which no other change is left

--- Adds an op to those of a revision.
local function plan(ops, revision, op)
  ops[revision] = ops[revision] or {}
  table.insert(ops[revision], op)
end

--- Plans the puts of a kv: the first one at its create_revision, the last one at its mod_revision.
local function plan_kv(ops, from, to, kv, known)
  local lease = lease_of(from, to, kv, known)
  for i = 0, kv.version - 2 do plan(ops, kv.create_revision + i, { put = kv.key, value = "" }) end
  plan(ops, kv.mod_revision, { put = kv.key, value = kv.value, lease = lease })
end

--- Brings an empty store to the content that `from` had at its compacted revision. Returns true; or nil and an error.
local function copy_compacted(from, to, last, known)
  if last < 2 then return true end
  local found, err = from:range("", { prefix = true, revision = last })
  if not found then return nil, err end
  local ops = {}
  for _, kv in ipairs(found.kvs) do plan_kv(ops, from, to, kv, known) end
  if last > 2 then
    plan(ops, 2, { put = FILLER, value = "" })
    plan(ops, last, { delete = FILLER })
  end
  for revision = 2, last do assert(to:txn { success = ops[revision] or { { put = FILLER, value = "" } } }) end
  return to:compact(last)
end

-- }======

--- Returns the next batch of a watch without waiting; or nil and an error.
local function next_batch(watch, from, now)
  local batch, err = watch:batch(0)
  while not batch and err and err.code == "timeout" and core.inner.step(from, now) do batch, err = watch:batch(0) end
  return batch, err
end

--- Repeats the changes of `from` in the empty store `to`, up to a revision. Returns true; or nil and an error.
local function copy(from, to, revision, now)
  local known, at = {}, math.max(1, from:status().compact_revision)
  if revision < at then return nil, core.new_error("compacted") end
  for _, id in ipairs(assert(from:leases())) do lease_of(from, to, { lease = id }, known) end
  local ok, why = copy_compacted(from, to, at, known)
  if not ok then return nil, why end
  if revision == at then return true end
  local watch, trouble = from:watch("", { prefix = true, start_revision = at + 1 })
  if not watch then return nil, trouble end
  while at < revision do
    local batch, err = next_batch(watch, from, now)
    if not batch then
      watch:close()
      return nil, err
    end
    at = assert(to:txn(txn_of(from, to, batch, known))).revision
    if at ~= batch.revision then
      check.misuse("restore: the changes of revision %d have got revision %d in the new store", batch.revision, at)
    end
  end
  watch:close()
  return true
end

return { options = options, copy = copy }
