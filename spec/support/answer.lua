--- Short forms of the answers of a store, and stores with keys, for specs.

--- Returns the code of a failure: code(store:get("")). Other results have no code.
local function code(answer, err)
  if answer ~= nil then return "no failure" end
  return err and err.code or "nothing"
end

--- Returns the keys of a range answer, or of a list of kvs, as one string: "a b c".
local function keys(answer)
  local list = {}
  for i, kv in ipairs(answer.kvs or answer) do list[i] = kv.key end
  return table.concat(list, " ")
end

--- Returns the keys that an iterator of kvs returns, in the same form.
local function keys_of_each(next_kv)
  local list = {}
  for kv in next_kv do list[#list + 1] = kv end
  return keys(list)
end

--- Puts keys into a store, in this order, each with its own name as the value. Returns the store.
local function fill(store, ...)
  for _, key in ipairs { ... } do store:put(key, key) end
  return store
end

return { code = code, keys = keys, keys_of_each = keys_of_each, fill = fill }
