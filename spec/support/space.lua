--- The sizes of records and leases: db_size_in_use is a fixed size plus, for each record, its bytes and a fixed
-- overhead; each lease, and each key of a lease, has a fixed size. The constants are measured with a store.

local message = require("spec.support.model.hash").message

local function size_in_use(store) return store:status().db_size_in_use end

--- Returns functions for the sizes of stores of `keywatch`.
local function new(keywatch)
  local store = keywatch.open()
  local empty = size_in_use(store)
  store:put("a", "")
  local kv = store:get("a")
  local overhead = size_in_use(store) - empty - #message { key = "a", kv = kv }
  local with_record = size_in_use(store)
  local lease = store:lease(10)
  local of_lease = size_in_use(store) - with_record
  store:put("b", "", { lease = lease })
  local of_key = size_in_use(store) - with_record - of_lease - overhead - #message { key = "b", kv = store:get("b") }
  store:close()

  local space = {}

  --- Returns the size of a list of records.
  function space.cost(records)
    local sum = 0
    for _, record in ipairs(records) do sum = sum + overhead + #message(record) end
    return sum
  end

  --- Returns the size of the leases of a model, with their keys.
  function space.cost_of_leases(model)
    local sum = of_lease * #model:leases()
    for _, one in ipairs(model:all_kvs()) do sum = sum + (one.lease ~= 0 and of_key or 0) end
    return sum
  end

  --- Returns the size of a store with only these records, and no leases.
  function space.size(records) return empty + space.cost(records) end

  return space
end

return { new = new }
