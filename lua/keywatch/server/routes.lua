-- SPDX-License-Identifier: MIT
--- routes: the HTTP handlers of a server, by method and path.
--
-- A pattern is a path: its segments are literal, or parameters as {name}. The last segment may be {name...}, which
-- takes the rest of the path. A literal segment is preferred to a parameter, and a parameter to the rest. Segments are
-- decoded after the path was split, so an encoded slash does not separate segments.
--
-- A node of the tree has the nodes of the next segment: `literal` by text, and `parameter`; and the routes of patterns
-- that end there: `routes`, and `rest` for those that end with {name...}. Routes are by method: { handler =, names =
-- the names of the parameters in order, is_quick = see `add` }.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

--- Returns the segments of a path, still encoded.
local function split(path)
  local list = {}
  for segment in path:gmatch("/([^/]*)") do list[#list + 1] = segment end
  return list
end

local function new_node() return { literal = {}, parameter = nil, rest = {}, routes = {} } end

--- Returns the root of a tree. It also has the routes of the patterns without parameters, by path.
local function new()
  local root = new_node()
  root.paths = {}
  return root
end

--- Returns the node below `node` for a segment of a pattern, and adds the node if it is missing. Adds the name of a
-- parameter to the list `names`.
local function descend(node, segment, names)
  local name = segment:match("^{([%a_][%w_]*)}$")
  if name then
    names[#names + 1] = name
    node.parameter = node.parameter or new_node()
    return node.parameter
  end
  node.literal[segment] = node.literal[segment] or new_node()
  return node.literal[segment]
end

--- Adds a handler to the tree. `is_quick`: it never waits, and the pattern has no parameters. Raises if the pattern is
-- malformed, or has a handler for the method.
local function add(root, method, pattern, handler, is_quick)
  local segments, names, node = split(pattern), {}, root
  if pattern:sub(1, 1) ~= "/" then check.misuse("handle: a path begins with a slash: %s", pattern) end
  local rest = segments[#segments]:match("^{([%a_][%w_]*)%.%.%.}$")
  for i = 1, rest and #segments - 1 or #segments do
    if segments[i]:find("[{}]") and not segments[i]:find("^{[%a_][%w_]*}$") then
      check.misuse("handle: a parameter is a whole segment {name}, or at the end {name...}: %s", pattern)
    end
    node = descend(node, segments[i], names)
  end
  if rest then names[#names + 1] = rest end
  local routes = rest and node.rest or node.routes
  if routes[method] then check.misuse("handle: %s %s has a handler already", method, pattern) end
  routes[method] = { handler = handler, names = names, is_quick = is_quick }
  if #names == 0 and not pattern:find("%", 1, true) then root.paths[pattern] = routes end
end

--- Returns the routes of the pattern that fits best, and adds the values of its parameters to the list `values`; nil if
-- no pattern fits.
local function match(node, segments, i, values)
  local segment = segments[i]
  if not segment then return next(node.routes) and node.routes or nil end
  local text = core.percent_decode(segment)
  local found = node.literal[text] and match(node.literal[text], segments, i + 1, values)
  if found then return found end
  if node.parameter and text ~= "" then
    local n = #values
    values[n + 1] = text
    found = match(node.parameter, segments, i + 1, values)
    if found then return found end
    for k = #values, n + 1, -1 do values[k] = nil end
  end
  if not next(node.rest) then return nil end
  values[#values + 1] = core.percent_decode(table.concat(segments, "/", i))
  return node.rest
end

--- True if the handler of a request never waits.
local function is_quick(root, method, path)
  local routes = root.paths[path]
  return routes and routes[method] and routes[method].is_quick
end

--- Returns the methods of routes in the format of the field `allow`.
local function allowed(routes)
  local list = { "OPTIONS" }
  for method in pairs(routes) do list[#list + 1] = method end
  if routes.GET and not routes.HEAD then list[#list + 1] = "HEAD" end
  table.sort(list)
  return table.concat(list, ", ")
end

--- Returns the parameters of a route by name; nil if it has none.
local function params_of(route, values)
  if #route.names == 0 then return nil end
  local params = {}
  for i, name in ipairs(route.names) do params[name] = values[i] end
  return params
end

--- Finds the handler of a request. Returns the handler and the parameters by name, nil if there are none; nil and the
-- allowed methods if the pattern that fits best has only handlers for other methods; or nil if no pattern fits.
local function find(root, method, path)
  local routes, values = root.paths[path], nil
  if not routes then
    values = {}
    routes = match(root, split(path), 1, values)
  end
  if not routes then return nil end
  local route = routes[method] or method == "HEAD" and routes.GET
  if not route then return nil, allowed(routes) end
  return route.handler, params_of(route, values)
end

return { new = new, add = add, find = find, is_quick = is_quick }
