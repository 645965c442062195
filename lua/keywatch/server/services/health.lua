-- SPDX-License-Identifier: MIT
--- health: gRPC's health checking service.

local driver = require "keywatch.task.driver"
local refusal = require "keywatch.server.services.refusal"

local function check(_, request)
  if (request.service or "") ~= "" then return nil, refusal.new(refusal.NOT_FOUND, "unknown service") end
  return { status = "SERVING" }
end

--- Sends the status once: it does not change while the server runs. Then waits until the client cancels the call.
local function watch(_, call)
  local request = call:receive()
  local is_known = (request and request.service or "") == ""
  call:send { status = is_known and "SERVING" or "SERVICE_UNKNOWN" }
  driver.get().event():wait()
end

return {
  ["/grpc.health.v1.Health/Watch"] = { "HealthCheckRequest", "HealthCheckResponse", watch,
    is_stream = true, takes_one = true },
  ["/grpc.health.v1.Health/Check"] = { "HealthCheckRequest", "HealthCheckResponse", check },
}
