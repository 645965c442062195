-- SPDX-License-Identifier: MIT
--- methods: the methods that are answered in Lua, which are those of keywatch's own services and those that the user
-- mounts; and the user's middleware.
--
-- A method is { handler =, is_stream =, takes_one =, request =, response =, max_bytes =, max_fields = }. `request` and
-- `response` say how messages are decoded and encoded: by the name of a message, by a function, or, if nil, not at all.
-- `takes_one`: the client of a stream sends only one request.
-- `max_bytes` and `max_fields` are the limits for each request: the core refuses a longer one before it has arrived
-- completely, and a message with more fields and list items is not decoded.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local SERVICES = { "auth", "cluster", "election", "health", "lock", "maintenance" } -- modules in services/

local MAX_BYTES, MAX_FIELDS = 65536, 4096 -- defaults; a message of this many fields is decoded in less than 1 ms
local SERVICE_BYTES = 4096 -- default for keywatch's own services: as much as the core charges for a waiting call
local MOST_BYTES = 2 ^ 31 -- more than any connection accepts

local is_message = {}
for _, name in ipairs(core.messages) do is_message[name] = true end

local function is_count(value) return type(value) == "number" and value >= 1 and value == math.floor(value) end
local function is_codec(value) return type(value) == "function" or is_message[value] == true end

local CODEC = { "the name of a message, or a function", is_codec }
local LIMIT = { "a whole number above 0, or math.huge", is_count }

-- The fields of a method, and of middleware, as the user writes them: see check.known.
local METHOD_FIELDS = {
  handler = "function", stream = "boolean", request = CODEC, response = CODEC, max_bytes = LIMIT, max_fields = LIMIT,
}
local MIDDLEWARE_FIELDS = { before = "function", message = "function", after = "function" }

--- Returns a method from the user's definition: a function, or a table.
local function read_method(name, given)
  if type(name) ~= "string" then check.misuse("mount: the key of a method must be its name, a string") end
  if type(given) == "function" then given = { handler = given } end
  if type(given) ~= "table" or given.handler == nil then
    check.misuse("mount: %s must be a function, or a table with a function 'handler'", name)
  end
  check.known(given, "mount: " .. name, METHOD_FIELDS)
  return {
    handler = given.handler,
    is_stream = given.stream == true,
    request = given.request,
    response = given.response,
    max_bytes = given.max_bytes or MAX_BYTES,
    max_fields = given.max_fields or MAX_FIELDS,
  }
end

--- Returns middleware from the user's definition.
local function read_middleware(given)
  check.known(given, "use", MIDDLEWARE_FIELDS)
  return { before = given.before, message = given.message, after = given.after }
end

local function add(server, path, method)
  server.methods[path] = method
  method.max_fields = math.min(method.max_fields, MOST_BYTES)
  server.object:mount(path, method.is_stream, method.takes_one, math.min(method.max_bytes, MOST_BYTES))
end

--- Adds the user's service: all of its methods, or, if one is wrong, none.
local function mount(server, service, given)
  local read = {}
  for name, method in pairs(given) do read[("/%s/%s"):format(service, name)] = read_method(name, method) end
  for path, method in pairs(read) do add(server, path, method) end
end

--- Adds keywatch's own services. Their handlers get the server as their first argument.
local function mount_services(server)
  for _, name in ipairs(SERVICES) do
    for path, entry in pairs(require("keywatch.server.services." .. name)) do
      local handler = entry[3]
      add(server, path, {
        request = entry[1],
        response = entry[2],
        is_stream = entry.is_stream,
        takes_one = entry.takes_one,
        max_bytes = entry.max_bytes or SERVICE_BYTES,
        max_fields = MAX_FIELDS,
        handler = entry.is_stream and function(call) return handler(server, call) end
          or function(request, call) return handler(server, request, call) end,
      })
    end
  end
end

return { mount = mount, mount_services = mount_services, read_middleware = read_middleware }
