--- Makes a range answer from the found kvs: filter, sort, limit, strip.

local fields = {
  key = "key",
  version = "version",
  create = "create_revision",
  mod = "mod_revision",
  value = "value",
}

local function given(bound) return bound ~= nil and bound ~= 0 end

local function is_between(number, low, high)
  return not (given(low) and number < low) and not (given(high) and number > high)
end

local function has_filter(options)
  return given(options.min_mod_revision) or given(options.max_mod_revision)
    or given(options.min_create_revision) or given(options.max_create_revision)
end

local function passes(kv, options)
  return is_between(kv.mod_revision, options.min_mod_revision, options.max_mod_revision)
    and is_between(kv.create_revision, options.min_create_revision, options.max_create_revision)
end

local function filtered(kvs, options)
  local kept = {}
  for _, kv in ipairs(kvs) do
    if passes(kv, options) then kept[#kept + 1] = kv end
  end
  return kept
end

local function first(kvs, n)
  local head = {}
  for i = 1, math.min(n, #kvs) do head[i] = kvs[i] end
  return head
end

--- Sorts kvs by the target, and by key if that is equal.
local function sorted(kvs, target, descending)
  local field = fields[target]
  local list = first(kvs, #kvs)
  table.sort(list, function(a, b)
    if a[field] == b[field] then return a.key < b.key end
    if descending then return a[field] > b[field] end
    return a[field] < b[field]
  end)
  return list
end

local function without_value(kv)
  local bare = {}
  for name, field in pairs(kv) do bare[name] = field end
  bare.value = ""
  return bare
end

local function without_values(kvs)
  local bare = {}
  for i, kv in ipairs(kvs) do bare[i] = without_value(kv) end
  return bare
end

--- Returns the kvs of the answer, and whether there are more. `kvs` are in key order.
--
-- Without an order and without filters the limit applies before the sort: then only the first limit + 1 keys are
-- sorted, by a target other than the key.
local function select(kvs, options)
  local limit, order, target = options.limit or 0, options.sort_order or "none", options.sort_target or "key"
  if limit > 0 and order == "none" and not has_filter(options) then kvs = first(kvs, limit + 1) end
  kvs = filtered(kvs, options)
  if order ~= "none" or target ~= "key" then kvs = sorted(kvs, target, order == "descend") end
  local more = limit > 0 and #kvs > limit
  if more then kvs = first(kvs, limit) end
  if options.keys_only then kvs = without_values(kvs) end
  return kvs, more
end

return { select = select }
