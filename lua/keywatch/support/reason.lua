-- SPDX-License-Identifier: MIT
--- reason: the text with which a server cancels a watch. etcd may put a gRPC status in front of it:
--
--   rpc error: code = PermissionDenied desc = etcdserver: permission denied

local grpc_status = require "keywatch.support.grpc_status"

local STATUS_OF_GO_NAME = { -- the names that etcd writes are those of Go's gRPC
  Canceled = grpc_status.CANCELLED,
  Unknown = grpc_status.UNKNOWN,
  InvalidArgument = grpc_status.INVALID_ARGUMENT,
  DeadlineExceeded = grpc_status.DEADLINE_EXCEEDED,
  NotFound = grpc_status.NOT_FOUND,
  AlreadyExists = grpc_status.ALREADY_EXISTS,
  PermissionDenied = grpc_status.PERMISSION_DENIED,
  ResourceExhausted = grpc_status.RESOURCE_EXHAUSTED,
  FailedPrecondition = grpc_status.FAILED_PRECONDITION,
  Aborted = grpc_status.ABORTED,
  OutOfRange = grpc_status.OUT_OF_RANGE,
  Unimplemented = grpc_status.UNIMPLEMENTED,
  Internal = grpc_status.INTERNAL,
  Unavailable = grpc_status.UNAVAILABLE,
  DataLoss = grpc_status.DATA_LOSS,
  Unauthenticated = grpc_status.UNAUTHENTICATED,
}

--- Returns the gRPC status of a reason, and the text behind it. The status is FAILED_PRECONDITION if the reason has
-- none, or one that gRPC does not have.
local function parse(text)
  local name, rest = text:match("^rpc error: code = (%a+) desc = (.*)$")
  return STATUS_OF_GO_NAME[name] or grpc_status.FAILED_PRECONDITION, rest or text
end

return { parse = parse }
