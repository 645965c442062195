--- Clients of Kubernetes' API in virtual time: requests whose answers are decoded, and watches whose events are read
-- one by one.

local http = require "keywatch.http"
local json = require "keywatch.json"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"
local testing = require "keywatch.testing"

local kube = {}
kube.__index = kube

kube.WIDGET = {
  group = "demo.example", version = "v1", kind = "Widget", plural = "widgets", short_names = { "wd" }, status = true,
  scale = { replicas = ".spec.replicas", status_replicas = ".status.replicas" },
  schema = { type = "object", properties = {
    spec = { type = "object", properties = { size = { type = "integer", maximum = 100 }, color = { type = "string" },
      replicas = { type = "integer" } } },
    status = { type = "object", properties = { replicas = { type = "integer" } } },
  } },
  columns = {
    { name = "Size", type = "integer", path = ".spec.size" },
    { name = "Color", type = "string", path = ".spec.color", priority = 1 },
  },
}
kube.ALL = "/apis/demo.example/v1/widgets"
kube.ONES = "/apis/demo.example/v1/namespaces/default/widgets"
kube.TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
kube.METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

--- Returns an object.
function kube.widget(name, spec, more)
  local metadata = { name = name }
  for key, value in pairs(more or {}) do metadata[key] = value end
  return { apiVersion = "demo.example/v1", kind = "Widget", metadata = metadata, spec = spec or { size = 1 } }
end

-- {====== Requests ======

--- Makes a request. `body`: a table is sent as JSON. Returns { status, headers, body, text }: the body is decoded.
function kube:ask(method, path, body, headers)
  local sent = { accept = "application/json" }
  if type(body) == "table" then body, sent["content-type"] = json.encode(body), "application/json" end
  for name, value in pairs(headers or {}) do sent[name] = value end
  local answer = assert(self.http:request(self.url .. path, { method = method, body = body, headers = sent }))
  return { status = answer.status, headers = answer.headers, text = answer.body,
    body = json.decode(answer.body) or nil }
end

function kube:get(path, headers) return self:ask("GET", path, nil, headers) end

--- Creates a widget. Returns its revision.
function kube:create(name, spec, more)
  local answer = self:ask("POST", kube.ONES, kube.widget(name, spec, more))
  assert(answer.status == 201, answer.text)
  return answer.body.metadata.resourceVersion
end

--- Changes the size of a widget. Returns its revision.
function kube:resize(name, size)
  local answer = self:ask("PATCH", kube.ONES .. "/" .. name, { spec = { size = size } },
    { ["content-type"] = "application/merge-patch+json" })
  assert(answer.status == 200, answer.text)
  return answer.body.metadata.resourceVersion
end

function kube:delete(name)
  local answer = self:ask("DELETE", kube.ONES .. "/" .. name)
  assert(answer.status == 200, answer.text)
end

-- }======

-- {====== Watches ======

local watch_methods = {}
local watch_mt = { __index = watch_methods }

--- Opens a watch of a path with a query.
function kube:watch(query, headers, path)
  local exchange = assert(self.http:open(self.url .. (path or kube.ALL) .. "?watch=true&" .. (query or ""),
    { headers = headers or { accept = "application/json" } }))
  return setmetatable({ exchange = exchange, rest = "", answer = assert(exchange:answer()), parts = 0 }, watch_mt)
end

--- Waits for the next event, and returns it decoded; nil at the end; or nil and an error.
function watch_methods:next(timeout)
  while true do
    local line, rest = self.rest:match "^([^\n]*\n)(.*)$"
    if line then
      self.rest, self.line = rest, line
      return assert(json.decode(line))
    end
    local part, err = self.exchange:read(timeout or 10)
    if not part then return nil, err end
    self.rest, self.parts = self.rest .. part, self.parts + 1
  end
end

--- Returns the next event as a text: type, name and size; "end" at the end, or the code of an error.
function watch_methods:say(timeout)
  local event, err = self:next(timeout)
  if not event then return err and err.code or "end" end
  local object = event.object
  if event.type == "ERROR" then return ("ERROR %d %s"):format(object.code, object.reason) end
  if event.type == "BOOKMARK" then
    return "BOOKMARK " .. object.metadata.resourceVersion .. (object.metadata.annotations and " end" or "")
  end
  return ("%s %s %s"):format(event.type, object.metadata.name, tostring(object.spec and object.spec.size))
end

function watch_methods:close() self.exchange:close() end

-- }======

--- Returns a function for `it`: calls fn(kube, world) in virtual time, with an API mounted on the world's server.
-- `opts` are those of api:mount, and `resources`.
function kube.within(fn, opts)
  opts = opts or {}
  return function()
    testing.run(function(world)
      local server = world.server
      local api = kubernetes.api { store = server.store, resources = opts.resources or { kube.WIDGET },
        history_bytes = opts.history_bytes, compact = false }
      api:mount(server.server, { tokens = opts.tokens, authorize = opts.authorize, anonymous = opts.anonymous })
      local client = http.client { timeout = 600, stall = 1e6 }
      local self = setmetatable({ http = client, url = server.url, api = api, server = server, store = server.store },
        kube)
      local ok, err = pcall(fn, self, world)
      client:close()
      api:close()
      keywatch.sleep(0)
      if not ok then error(err, 0) end
    end, { limit = 7 * 86400, idle = 7200 })
  end
end

return kube
