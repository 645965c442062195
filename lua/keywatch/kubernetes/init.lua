-- SPDX-License-Identifier: MIT
--- keywatch.kubernetes: resources of your own, as Kubernetes' API serves them. See docs/kubernetes.md.

local api = require "keywatch.kubernetes.api"
local builtin = require "keywatch.kubernetes.builtin"
local check = require "keywatch.support.check"

local OF_API = { store = true, resources = true, compact = true, history_bytes = true } -- options; others are of serve

--- Opens an API, and serves it. Returns the API, and its server; or nil and an error.
local function serve(opts)
  local of_api, of_serve = {}, {}
  for name, value in pairs(check.options(opts, "serve")) do (OF_API[name] and of_api or of_serve)[name] = value end
  local opened = api.open(of_api)
  local ok, server, err = pcall(opened.serve, opened, of_serve)
  if ok and server then return opened, server end
  opened:close()
  if not ok then error(server, 0) end
  return nil, err
end

return { api = api.open, serve = serve, builtin = builtin }
