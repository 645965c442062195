-- SPDX-License-Identifier: MIT
--- reason: the text with which a server cancels a watch. etcd may put a gRPC status in front of it:
--
--   rpc error: code = PermissionDenied desc = etcdserver: permission denied

local grpc_status = require "keywatch.support.grpc_status"

local STATUS_OF_GO_NAME = { Canceled = grpc_status.CANCELLED } -- the names that etcd writes are those of Go's gRPC
for name, status in pairs(grpc_status) do
  local go_name = name:lower():gsub("_?(%a)(%a*)", function(first, rest) return first:upper() .. rest end)
  STATUS_OF_GO_NAME[go_name] = status
end

--- Returns the gRPC status of a reason, and the text after it. The status is FAILED_PRECONDITION if the reason has
-- none, or an unknown one.
local function parse(text)
  local name, rest = text:match("^rpc error: code = (%a+) desc = (.*)$")
  return STATUS_OF_GO_NAME[name] or grpc_status.FAILED_PRECONDITION, rest or text
end

return { parse = parse }
