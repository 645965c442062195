--- What records cost: db_size_in_use is a fixed size and, for each record, its bytes and a fixed overhead. The two
-- are found by asking a store.

local message = require("spec.support.model.hash").message

local function size_in_use(store)
  return store:status().db_size_in_use
end

--- A measure for stores that keywatch.open makes.
local function new(keywatch)
  local store = keywatch.open()
  local empty = size_in_use(store)
  store:put("a", "")
  local kv = store:get("a")
  local overhead = size_in_use(store) - empty - #message { key = "a", kv = kv }
  store:close()

  local space = {}

  --- What a list of records costs.
  function space.cost(records)
    local sum = 0
    for _, record in ipairs(records) do sum = sum + overhead + #message(record) end
    return sum
  end

  --- The size of a store that has these records and no others.
  function space.size(records)
    return empty + space.cost(records)
  end

  return space
end

return { new = new }
