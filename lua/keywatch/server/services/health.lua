-- SPDX-License-Identifier: MIT
--- health: gRPC's health checking service.

local refusal = require "keywatch.server.services.refusal"

--- Returns the status of the server, which is serving unless its store takes no writes at all.
local function status_of(server)
  return server.trouble.is_serving and "SERVING" or "NOT_SERVING"
end

local function check(server, request)
  if (request.service or "") ~= "" then return nil, refusal.new(refusal.NOT_FOUND, "unknown service") end
  local result = server.trouble.is_serving and "success" or "failures"
  server.health_checks[result] = server.health_checks[result] + 1
  return { status = status_of(server) }
end

--- Sends the status, and again whenever it changes, until the client cancels the call.
local function watch(server, call)
  local request = call:receive()
  local is_known = (request and request.service or "") == ""
  local sent
  while true do
    local status = is_known and status_of(server) or "SERVICE_UNKNOWN"
    if status ~= sent then
      sent = status
      call:send { status = status }
    else
      server.trouble.changed:wait()
    end
  end
end

return {
  ["/grpc.health.v1.Health/Watch"] = { "HealthCheckRequest", "HealthCheckResponse", watch,
    is_stream = true, takes_one = true },
  ["/grpc.health.v1.Health/Check"] = { "HealthCheckRequest", "HealthCheckResponse", check },
}
