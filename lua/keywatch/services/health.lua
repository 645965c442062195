-- SPDX-License-Identifier: MIT
--- health: gRPC's own service for those who ask whether anybody is there.

local refusal = require "keywatch.services.refusal"

local function check(_, request)
  if (request.service or "") ~= "" then return nil, refusal.new(refusal.NOT_FOUND, "unknown service") end
  return { status = "SERVING" }
end

return {
  ["/grpc.health.v1.Health/Check"] = { "HealthCheckRequest", "HealthCheckResponse", check },
}
