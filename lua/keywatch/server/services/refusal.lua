-- SPDX-License-Identifier: MIT
--- refusal: the error of a service that refuses a request: a gRPC status and etcd's text. Also has the statuses.

local grpc_status = require "keywatch.support.grpc_status"

local refusal = {}

for name, number in pairs(grpc_status) do refusal[name] = number end

--- Returns the refusal of a status and a text.
function refusal.new(status, message)
  return { grpc_status = status, message = message }
end

return refusal
