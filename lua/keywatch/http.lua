-- SPDX-License-Identifier: MIT
--- http: the HTTP client, the public module keywatch.http. See docs/http_client.md.

local clients = require "keywatch.http.client"

local default -- the client of `request`

--- Makes a request by a client with default options, which all callers share. See client:request.
local function request(url, opts)
  default = default or clients.new()
  local answer, err = default:request(url, opts)
  if err ~= nil then return nil, err end
  return answer
end

return { client = clients.new, request = request }
