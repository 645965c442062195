--- Stores with more keys than one turn visits, for operations that take several turns.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"

local AT_ONCE = 100 -- puts of one transaction

--- The functions that open a store, by its kind. Call directory.remove_all after the use.
local kinds = {
  memory = function() return keywatch.open() end,
  disk = function() return keywatch.open { path = directory.new() } end,
}

--- Returns the key of a number. Keys have the order of their numbers.
local function name(i) return ("k%06d"):format(i) end

--- Puts the keys of the numbers up to `n`, with the value "old"; under a lease, if one is given,
-- and with a prefix before their names.
local function fill(store, n, lease, prefix)
  local ops = {}
  for i = 1, n do
    ops[#ops + 1] = { put = (prefix or "") .. name(i), value = "old", lease = lease }
    if #ops == AT_ONCE or i == n then
      assert(store:txn { success = ops })
      ops = {}
    end
  end
end

return { kinds = kinds, name = name, fill = fill }
