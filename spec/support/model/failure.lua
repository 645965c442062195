--- The errors of a store, with etcd's texts.

local known = {
  empty_key = { 3, "etcdserver: key is not provided" },
  key_not_found = { 3, "etcdserver: key not found" },
  value_provided = { 3, "etcdserver: value is provided" },
  lease_provided = { 3, "etcdserver: lease is provided" },
  too_many_ops = { 3, "etcdserver: too many operations in txn request" },
  duplicate_key = { 3, "etcdserver: duplicate key given in txn request" },
  request_too_large = { 3, "etcdserver: request is too large" },
  compacted = { 11, "etcdserver: mvcc: required revision has been compacted" },
  future_revision = { 11, "etcdserver: mvcc: required revision is a future revision" },
  no_space = { 8, "etcdserver: mvcc: database space exceeded" },
  lease_not_found = { 5, "etcdserver: requested lease not found" },
  lease_exists = { 9, "etcdserver: lease already exists" },
  lease_ttl_too_large = { 11, "etcdserver: too large lease TTL" },
  corrupt = { 15, "etcdserver: corrupt cluster" },
  invalid_sort = { 3, "etcdserver: invalid sort option" },
  too_many_requests = { 8, "etcdserver: too many requests" },
  read_only = { 9, "keywatch: a replica accepts changes only from its server" },
  stale_revision = { 9, "keywatch: revision is not newer than the replica's own" },
}

--- Returns the error object for a code; only "compacted" has a `compact_revision`.
local function new(code, compact_revision)
  local status, message = known[code][1], known[code][2]
  if code ~= "compacted" then compact_revision = nil end
  return { code = code, grpc_status = status, message = message, compact_revision = compact_revision }
end

return { new = new, known = known }
