-- SPDX-License-Identifier: MIT
--- refusal: an error that a service answers with: a gRPC status and a text.

--- Returns a refusal.
local function new(grpc_status, message)
  return { grpc_status = grpc_status, message = message }
end

return {
  INVALID_ARGUMENT = 3,
  NOT_FOUND = 5,
  RESOURCE_EXHAUSTED = 8,
  FAILED_PRECONDITION = 9,
  ABORTED = 10,
  UNIMPLEMENTED = 12,
  UNKNOWN = 2,
  new = new,
}
