-- SPDX-License-Identifier: MIT
--- The store in one minute: write, read, read the past, compare and write in a transaction, expire keys with a lease.

local keywatch = require "keywatch"

local store = keywatch.open()

local function title(text)
  print("\n" .. text)
end

title("Every write has a revision.")
print("  color = blue   at revision " .. store:put("color", "blue").revision)
print("  color = green  at revision " .. store:put("color", "green").revision)

title("Every revision can be read.")
for revision = 1, store:status().revision do
  local kv = store:get("color", { revision = revision })
  print(("  at revision %d color was %s"):format(revision, kv and kv.value or "not there"))
end

title("A transaction compares, then changes many keys in one revision.")
local seen = store:get("color").mod_revision
--- Paints for `who`, unless the color has changed since it was read.
local function claim(who)
  local result = assert(store:txn {
    compare = { { key = "color", mod_revision = seen } },
    success = { { put = "color", value = "red" }, { put = "painter", value = who } },
    failure = { { get = "painter" } },
  })
  if result.succeeded then
    print(("  %s painted it red, at revision %d"):format(who, result.revision))
  else
    print(("  %s came late: %s was first"):format(who, result.responses[1].value))
  end
end
claim("ann")
claim("bob")

title("Keys bound to a lease go with it.")
local lease = store:lease(10)
store:put("online/ann", "yes", { lease = lease })
store:put("online/bob", "yes", { lease = lease })
local function count(prefix)
  return store:range(prefix, { prefix = true, count_only = true }).count
end
print("  at first there are " .. count("online/"))
lease:revoke()
print("  after its end there are " .. count("online/"))

title("In the end there is:")
for kv in store:each("", { prefix = true }) do
  print(("  %-8s = %-6s created at %d, changed at %d"):format(kv.key, kv.value, kv.create_revision, kv.mod_revision))
end
store:close()
