--- Everything that can be seen of a store, as one plain table: two of them are alike if nothing happened in between.

local function leases_of(store)
  local leases = {}
  for i, id in ipairs(store:leases()) do
    local lease = store:lease_by_id(id)
    leases[i] = { id = id, remaining = lease:remaining(), keys = lease:keys() }
  end
  return leases
end

local function of(store)
  return {
    status = store:status(), -- first: it tells the size before anything else is asked
    hash = store:hash_kv(),
    kvs = store:range("", { prefix = true }).kvs,
    leases = leases_of(store),
    alarms = store:alarms(),
    deadline = store:deadline(),
  }
end

return { of = of }
