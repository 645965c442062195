-- SPDX-License-Identifier: MIT
--- Configuration with a past: change it without losing another's change, read it as it was, and roll it back.

local keywatch = require "keywatch"

local store = keywatch.open()

--- Puts change(value) in the place of value. Whoever comes between makes it try again with what they left.
local function update(key, change)
  while true do
    local kv = store:get(key)
    local result = assert(store:txn {
      compare = { { key = key, mod_revision = kv and kv.mod_revision or 0 } },
      success = { { put = key, value = change(kv and kv.value) } },
    })
    if result.succeeded then return result.revision end
    print("somebody was faster: again")
  end
end

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
    store:put("app/workers", "6") -- another writer, at the worst moment
  end
  return ("%d"):format(tonumber(value) + 1)
end)
store:put("app/mode", "fast")
show("now", nil)
show("then", good)

-- Back to how it was: every key is put again as it was, in one revision. The past itself stays.
local ops = {}
for kv in store:each("app/", { prefix = true, revision = good }) do
  table.insert(ops, { put = kv.key, value = kv.value })
end
assert(store:txn { success = ops })
show("rolled back", nil)

-- The past costs memory until it is forgotten.
store:compact(store:status().revision)
local _, err = store:get("app/workers", { revision = good })
print(("revision %d: %s"):format(good, tostring(err)))
