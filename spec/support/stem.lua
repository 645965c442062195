--- The common beginning of the names of a method's messages: "Range" for /etcdserverpb.KV/Range.

local STEMS = {
  ["/v3electionpb.Election/Observe"] = "Leader",
  ["/grpc.health.v1.Health/Check"] = "HealthCheck",
  ["/grpc.health.v1.Health/Watch"] = "HealthCheck",
  ["/etcdserverpb.KV/Compact"] = "Compaction",
}

local function stem(path)
  local service, method = path:match("([^./]+)/(%w+)$")
  local is_prefixed = service == "Auth" and not method:find("^Auth")
  return STEMS[path] or (is_prefixed and "Auth" or "") .. method
end

return stem
