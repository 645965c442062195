-- SPDX-License-Identifier: MIT
--- A gateway in OpenResty: requests are forwarded by routes that are stored in keywatch.
--
-- A route is a key below /gateway/routes/. Its value is JSON: {"path": "/shop/", "upstream": "127.0.0.1:8081"}. The
-- route with the longest path that the path of a request begins with is used. Each worker has a copy of all routes,
-- which follows the keys over one connection. No request waits for the keywatch server, and requests are forwarded
-- while it is down.

local json = require "keywatch.json"
local keywatch = require "keywatch"

local PREFIX = "/gateway/routes/"

local gateway = {}

local cache  -- of the routes
local routes -- by name: { path, upstream }
local sorted -- the routes, those with long paths first; nil after a change

--- Returns the route of a value. A value that is not a route raises: keywatch logs that, and the route stays as it was.
local function decode(value)
  local route = assert(json.decode(value))
  if type(route.path) ~= "string" or type(route.upstream) ~= "string" then error("no route: " .. value, 0) end
  return route
end

--- Begins to follow the routes. Called in init_worker_by_lua: if the server is down, the worker starts after a second
-- with the routes that the file has.
function gateway.start()
  local endpoints = {}
  for url in (os.getenv("KEYWATCH") or "http://127.0.0.1:2379"):gmatch("[^,]+") do table.insert(endpoints, url) end
  local client = keywatch.connect(endpoints)
  cache = client:cache(PREFIX, { file = ngx.config.prefix() .. "routes.kept", timeout = 1 })
  routes = cache:table { relative = true, decode = decode, on_change = function() sorted = nil end }
  local ok, err = cache:wait_ready()
  if not ok then ngx.log(ngx.WARN, "the gateway starts without routes: ", tostring(err)) end
end

local function sort()
  sorted = {}
  for _, route in pairs(routes) do table.insert(sorted, route) end
  table.sort(sorted, function(a, b) return #a.path > #b.path end)
end

--- Chooses the upstream of a request, in access_by_lua.
function gateway.route()
  if not sorted then sort() end
  local uri = ngx.var.uri
  for _, route in ipairs(sorted) do
    if uri:sub(1, #route.path) == route.path then
      ngx.var.upstream = route.upstream
      return
    end
  end
  ngx.exit(ngx.HTTP_NOT_FOUND)
end

--- Tells how many routes there are, at which revision, and how old they are.
function gateway.status()
  local status = cache:status()
  ngx.header.content_type = "application/json"
  ngx.say(json.encode {
    routes = status.keys, revision = status.revision, age = status.age,
    trouble = status.trouble and tostring(status.trouble),
  })
end

return gateway
