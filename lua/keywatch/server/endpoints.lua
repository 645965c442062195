-- SPDX-License-Identifier: MIT
--- endpoints: the HTTP endpoints for monitoring systems, with etcd's paths and answers: /health, /livez, /readyz,
-- /metrics, /version and /debug/vars.

local alarm_names = require "keywatch.server.alarm_names"
local core = require "keywatch.core"
local metrics = require "keywatch.server.metrics"
local metrics_text = require "keywatch.support.metrics_text"
local routes = require "keywatch.server.routes"
local variables = require "keywatch.server.variables"
local versions = require "keywatch.server.versions"

local JSON = { ["content-type"] = "application/json" }

--- Returns why the server is not healthy; nil if it is. Alarms in the set `excluded` do not count.
local function reason(server, excluded)
  if server.trouble.failure then return server.trouble.failure end
  for _, name in ipairs(server.store:alarms()) do
    if not excluded[alarm_names[name]] then return "ALARM " .. alarm_names[name] end
  end
end

--- Returns the set of the values of the parameter `exclude` of a request, which may occur several times.
local function excluded_by(request)
  local set = {}
  for name in ("&" .. request.query_text):gmatch("&exclude=([^&]*)") do set[name] = true end
  return set
end

--- Returns the handler of an endpoint that always excludes the alarms of a list.
local function health(server, always)
  return function(request)
    local excluded = excluded_by(request)
    for _, name in ipairs(always) do excluded[name] = true end
    local why = reason(server, excluded)
    local result = why and "failures" or "success"
    server.health_checks[result] = server.health_checks[result] + 1
    local text = ('{"health":"%s","reason":%s}'):format(not why, core.json_encode(metrics_text.to_utf8(why or "")))
    return why and 503 or 200, why and text .. "\n" or text
  end
end

--- Sets the text of the endpoint /version. Without the option `cors`, with which answers to pages differ, the core
-- answers GET and HEAD alone, until there is middleware.
local function set_version(server, text)
  server.version_text = text
  if not server.origins.has_origins then server.object:fix_answer("/version", JSON["content-type"], text) end
end

local function mount_version(server)
  local function version() return 200, server.version_text, JSON end
  for _, method in ipairs { "GET", "HEAD" } do routes.add(server.routes, method, "/version", version, true) end
  set_version(server, ('{"etcdserver":"%s","etcdcluster":"%s"}'):format(versions.server, versions.storage))
end

--- Returns the text of the metrics. It is made once for all requests that have arrived by then: a text takes
-- milliseconds, so many texts would delay other requests for long.
local function shared_text(server, request)
  local asked = request.server -- `server`, or its monitor
  if request.id > asked.metrics_newest then
    asked.metrics_newest = asked.object:newest_call()
    asked.metrics_text = metrics.text(server)
  end
  return asked.metrics_text
end

--- Returns the handlers of the endpoints that the listeners of `listen_metrics` have, too, by path.
local function monitoring(server)
  return {
    ["/health"] = health(server, {}),
    ["/livez"] = health(server, { "NOSPACE" }),
    ["/readyz"] = health(server, {}),
    ["/metrics"] = function(request) return 200, shared_text(server, request), metrics_text.HEADERS end,
  }
end

--- Adds the endpoints to the handlers of a server.
local function mount(server)
  for path, handler in pairs(monitoring(server)) do
    routes.add(server.routes, "GET", path, handler, path ~= "/metrics") -- a text of which takes a millisecond
  end
  mount_version(server)
  routes.add(server.routes, "GET", "/debug/vars", function() return 200, variables.text(server), JSON end)
end

return { mount = mount, monitoring = monitoring, set_version = set_version }
