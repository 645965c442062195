-- SPDX-License-Identifier: MIT
--- Configuration with a history: update a key without losing a concurrent update, read an old state, and roll back.

local keywatch = require "keywatch"

local store = keywatch.open()

--- Replaces a value by change(value). If another writer changes the key in between, tries again with the new value.
local function update(key, change)
  while true do
    local kv = store:get(key)
    local result = assert(store:txn {
      compare = { { key = key, mod_revision = kv and kv.mod_revision or 0 } },
      success = { { put = key, value = change(kv and kv.value) } },
    })
    if result.succeeded then return result.revision end
    print("the key has changed since: retry")
  end
end

--- Prints all keys at a revision; nil is the newest.
local function show(what, revision)
  local parts = {}
  for kv in store:each("app/", { prefix = true, revision = revision }) do
    table.insert(parts, kv.key:sub(5) .. "=" .. kv.value)
  end
  print(("%s: %s"):format(what, table.concat(parts, " ")))
end

store:put("app/workers", "4")
store:put("app/mode", "safe")
local good = store:status().revision

local disturbed = false
update("app/workers", function(value)
  if not disturbed then
    disturbed = true
    store:put("app/workers", "6") -- another writer, between our read and our write
  end
  return ("%d"):format(tonumber(value) + 1)
end)
store:put("app/mode", "fast")
show("now", nil)
show("then", good)

-- Rolls back: puts every key again with its old value, in one revision. The history stays.
local ops = {}
for kv in store:each("app/", { prefix = true, revision = good }) do
  table.insert(ops, { put = kv.key, value = kv.value })
end
assert(store:txn { success = ops })
show("rolled back", nil)

-- The history uses memory until it is compacted.
store:compact(store:status().revision)
local _, err = store:get("app/workers", { revision = good })
print(("revision %d: %s"):format(good, tostring(err)))
