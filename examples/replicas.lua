-- SPDX-License-Identifier: MIT
--- A controller that keeps N children for every parent. Run it twice, and one of the two works; kill that one, and the
-- other one takes over:
--
--   keywatch run examples/replicas.lua --endpoints http://127.0.0.1:2379 --election replicas
--
--   /sets/web            {"replicas": 3, "image": "web:1"}: written by people, and deleted with
--                        controller.ownership.delete
--   /parts/web/1 … 3     {"image": "web:1", "metadata": {"owner": "/sets/web"}}: written by the controller
--
-- Each call looks at the parent and at its children as they are now, and writes what is missing, wrong or too much. A
-- call never asks what has happened. So it does not matter which changes it was not there for.

local controller = require "keywatch.controller"
local json = require "keywatch.json"

local FINALIZER = "replicas"
local TIMES = { timeout = 5 }

--- Writes, if all compares hold. Returns what reconcile returns: if another program has written first, a retry.
local function write(store, compare, operations)
  if #operations == 0 then return true end
  local result, err = store:txn({ compare = compare, success = operations }, TIMES)
  if not result then return nil, err end
  return result.succeeded or { again = true }
end

--- Deletes the children that are no longer wanted.
local function delete_children(store, have, want)
  local compare, operations = {}, {}
  for key, child in pairs(have) do
    if not want[key] then
      compare[#compare + 1] = { key = key, mod_revision = child.revision }
      operations[#operations + 1] = { delete = key }
    end
  end
  return write(store, compare, operations)
end

--- Writes the children that are missing, or differ, if the parent is still what it was.
local function put_children(store, parent_key, parent_revision, have, want)
  local compare, operations = { { key = parent_key, mod_revision = parent_revision } }, {}
  for key, image in pairs(want) do
    local child = have[key]
    if not child or child.image ~= image then
      compare[#compare + 1] = { key = key, mod_revision = child and child.revision or 0 }
      local value = json.encode { image = image, metadata = { owner = parent_key } }
      operations[#operations + 1] = { put = key, value = value }
    end
  end
  return write(store, compare, operations)
end

--- Lets a parent go, once no child is left. The informer may be behind: this asks the store.
local function finish_deletion(store, key, prefix)
  local left, err = store:range(prefix, { prefix = true, limit = 1, timeout = TIMES.timeout })
  if not left then return nil, err end
  if #left.kvs > 0 then return { again = true } end
  local done
  done, err = controller.ownership.remove_finalizer(store, key, FINALIZER, TIMES)
  return done ~= nil, err
end

--- `resync` is an argument of the command line, after --: seconds after which every parent is reconciled again. A
-- server that was restored from a backup may have lost children without an event.
return function(manager, resync)
  local sets = manager:add(manager.store:informer("/sets/", { codec = "json" }))
  local parts = manager:add(manager.store:informer("/parts/", {
    codec = "json", indexes = { owner = controller.ownership.owner_of },
  }))

  local function reconcile(key, context)
    local store, set, revision = context.store, sets:get(key)
    local prefix, have, want = key:gsub("^/sets/", "/parts/") .. "/", {}, {}
    for child_key, child in parts:by_index("owner", key) do
      local _, child_revision = parts:get(child_key)
      have[child_key] = { image = child.image, revision = child_revision }
    end

    local is_wanted = set and not controller.ownership.is_deleting(set)
    if is_wanted and not controller.ownership.has_finalizer(set, FINALIZER) then
      local done, err = controller.ownership.add_finalizer(store, key, FINALIZER, TIMES)
      return done ~= nil, err -- the change of the parent is the next request
    end
    if is_wanted then
      for i = 1, set.replicas do want[prefix .. i] = set.image end
    end

    local outcome, err = delete_children(store, have, want)
    if outcome ~= true then return outcome, err end
    if is_wanted then return put_children(store, key, revision, have, want) end
    if controller.ownership.has_finalizer(set, FINALIZER) then return finish_deletion(store, key, prefix) end
  end

  manager:add(controller.new {
    name = "replicas",
    sources = { { sets, resync = tonumber(resync) or 600 }, { parts, owner = true } },
    reconcile = reconcile,
    workers = 2,
    timeout = 30,
  })
end
