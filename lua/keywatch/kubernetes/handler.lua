-- SPDX-License-Identifier: MIT
--- handler: answers the HTTP requests of Kubernetes' API for one server.
--
--   path, method -> target, verb -> user -> is it allowed? -> form -> operation -> answer
--
-- Each failure is answered with a Status. Documents about the API, such as those of discovery, are made once.

local access = require "keywatch.kubernetes.access"
local discovery = require "keywatch.kubernetes.discovery"
local driver = require "keywatch.task.driver"
local endpoints = require "keywatch.server.endpoints"
local errors = require "keywatch.support.errors"
local forms = require "keywatch.kubernetes.form"
local json = require "keywatch.json"
local negotiation = require "keywatch.kubernetes.negotiation"
local openapi = require "keywatch.kubernetes.openapi"
local operations = require "keywatch.kubernetes.operations"
local query = require "keywatch.kubernetes.query"
local routes = require "keywatch.server.routes"
local selector = require "keywatch.kubernetes.selector"
local status_error = require "keywatch.kubernetes.status_error"
local targets = require "keywatch.kubernetes.target"
local watch_stream = require "keywatch.kubernetes.watch_stream"

local OPENAPI = "/openapi/v2"
local REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
local METHODS = { "GET", "POST", "PUT", "PATCH", "DELETE" }
local NOT_FOUND, TEXT = "404 page not found\n", { ["content-type"] = "text/plain; charset=utf-8" }
local PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

local handler_methods = {}
local handler_mt = { __index = handler_methods }

-- {====== Answers ======

local function headers_of(fields)
  local headers = { ["content-type"] = "application/json", ["cache-control"] = "no-cache, private" }
  for name, value in pairs(fields or {}) do headers[name] = value end
  return headers
end

--- Returns the answer for an error.
local function failure(err)
  err = status_error.from(err)
  local status = json.encode(status_error.to_status(err), { sort_keys = true }) .. "\n"
  return err.http_status, status, headers_of { ["retry-after"] = err.retry_after and ("%d"):format(err.retry_after) }
end

--- Returns warnings as values of the header `warning`; nil if there are none.
local function warning_headers(warnings)
  local list = {}
  for i, text in ipairs(warnings or {}) do
    list[i] = ('299 - "%s"'):format(text:gsub("[%c\127-\255]", "?"):gsub('["\\]', "\\%0"))
  end
  return list[1] and list or nil
end

--- Returns the answer with the text of an object.
local function success(status, text, warnings)
  return status, text .. "\n", headers_of { warning = warning_headers(warnings) }
end

-- }======

-- {====== Requests about resources ======

--- Returns the attributes of a request for authorize.
local function attributes_of(asked)
  local target, user = asked.target, asked.user
  return { user = user.name, groups = user.groups, verb = asked.verb, group = target.group, version = target.version,
    resource = target.plural, subresource = target.subresource, namespace = target.namespace, name = target.name }
end

--- Adds what the query of a list, a watch or a deletion of a collection selects. Returns true; or nil and an error.
local function select_objects(asked)
  local q = asked.request.query
  local filter, err = selector.parse(asked.kind, q.labelSelector, q.fieldSelector)
  if filter == false then return nil, err end
  asked.filter = filter
  return true
end

--- Returns the form of a kind, made once; nil if there is none.
local function form_of(self, kind, chosen, include)
  local id = ("%s %s %s %s"):format(kind.name, chosen.as or "", chosen.version or "", chosen.as and include or "")
  local form = self.forms[id]
  if form then return form end
  form = forms.new(kind, chosen, include)
  self.forms[id] = form -- few: includeObject has three values
  return form
end

--- Adds the form of the answer. Returns true; or nil and an error.
local function choose_form(asked)
  local request = asked.request
  local chosen = negotiation.choose(request.headers.accept)
  asked.form = chosen and form_of(asked.handler, asked.kind, chosen, request.query.includeObject)
  if asked.form then return true end
  return nil, status_error.not_acceptable(negotiation.ACCEPTED)
end

--- Returns the answer to an operation: its results are the text of an object, the status and warnings; or nil and an
-- error; or true if the answer was sent.
local function conclude(text, status, warnings)
  if text == true then return nil end
  if not text then return failure(status) end
  return success(status, text, warnings)
end

--- Answers a request whose user is known. Returns status, body and headers; or nothing if the answer was sent.
local function serve_resource(self, asked)
  local err = self.access:refusal(attributes_of(asked))
  if err then return failure(err) end
  local operation = operations.find(asked)
  if not operation then return failure(status_error.method_not_allowed(asked.kind, asked.verb)) end
  local ok
  ok, err = choose_form(asked)
  if ok then ok, err = select_objects(asked) end
  if not ok then return failure(err) end
  return conclude(operation(asked))
end

--- Returns the resource of a target; nil if there is none.
local function resource_of(self, target)
  local resource = self.resources[("%s/%s/%s"):format(target.group, target.version, target.plural)]
  if not resource then return nil end
  local kind, sub = resource.kind, target.subresource
  if target.namespace and not kind.is_namespaced then return nil end
  if kind.is_namespaced and target.name and not target.namespace then return nil end
  if sub == "status" then return kind.has_status and resource or nil end
  if sub == "scale" then return kind.scale and resource or nil end
  return sub == nil and resource or nil
end

--- Answers a request about a resource.
local function serve_target(self, request, user)
  local target = targets.parse(request.path)
  local resource = target and resource_of(self, target)
  if not resource then return 404, NOT_FOUND, TEXT end
  local is_watch = query.boolean(request.query.watch)
  local verb = targets.verb_of(target, request.method, is_watch)
  local kind = resource.kind
  if not verb or verb == "create" and kind.is_namespaced and not target.namespace then
    return failure(status_error.method_not_allowed(kind, request.method))
  end
  return serve_resource(self, { handler = self, request = request, user = user, target = target, resource = resource,
    kind = kind, verb = verb, query = request.query, streams = self.streams[resource] })
end

-- }======

-- {====== Documents ======

--- Returns the openapi document in the form that a request asks for.
local function serve_openapi(self, request)
  self.openapi = self.openapi or openapi.document(self.kinds)
  if (request.headers.accept or ""):find(PROTOBUF, 1, true) then
    self.protobuf = self.protobuf or openapi.to_protobuf(self.openapi)
    return 200, self.protobuf, { ["content-type"] = "application/octet-stream" } -- the other one breaks kubectl
  end
  self.json = self.json or openapi.to_json(self.openapi) .. "\n"
  return 200, self.json, headers_of()
end

--- Returns the path of a document; nil if a request asks for none. Some clients add a slash.
local function document_path(self, request)
  local path = request.path:match "^(.-)/?$"
  return (self.documents[path] or path == OPENAPI) and path or nil
end

--- Answers a request for a document.
local function serve_document(self, request, user, path)
  local err = self.access:refusal { user = user.name, groups = user.groups, verb = request.method:lower(),
    path = request.path }
  if err then return failure(err) end
  if path == OPENAPI then return serve_openapi(self, request) end
  if not negotiation.accepts_json(request.headers.accept) then
    return failure(status_error.not_acceptable "application/json")
  end
  return 200, self.documents[path], headers_of()
end

--- Answers a SelfSubjectAccessReview.
local function serve_review(self, request, user)
  local review, err = self.access:review(request, user)
  if not review then return failure(err) end
  return success(201, json.encode(review, { sort_keys = true }))
end

-- }======

local function dispatch(self, request)
  local user, err = self.access:authenticate(request)
  if not user then return failure(err) end
  if request.path == REVIEWS and request.method == "POST" then return serve_review(self, request, user) end
  local is_read = request.method == "GET" or request.method == "HEAD"
  local path = is_read and document_path(self, request)
  if path then return serve_document(self, request, user, path) end
  return serve_target(self, request, user)
end

--- Answers a request. An error that is raised is logged, and its text stays here.
local function serve(self, request)
  local results = { errors.attempt(dispatch, self, request) }
  if results[1] then return results[2], results[3], results[4] end
  local trouble = results[2]
  if driver.is_cancellation(trouble.err) then error(trouble.err, 0) end
  if request.status then error(trouble.traceback, 0) end
  if type(trouble.err) == "table" and trouble.err.http_status then return failure(trouble.err) end
  self.server.failures:line("%s %s has failed: %s", request.method, request.path, trouble.traceback)
  return failure(status_error.internal())
end

--- Adds the routes of the API to those of a server.
function handler_methods:mount()
  local tree = self.server.routes
  local function answer(request) return serve(self, request) end
  for _, method in ipairs(METHODS) do
    for _, path in ipairs { "/api/{rest...}", "/apis/{rest...}" } do routes.add(tree, method, path, answer) end
  end
  for _, path in ipairs { "/api", "/apis", OPENAPI, "/version/" } do routes.add(tree, "GET", path, answer) end
  local known = self.server.version_text
  if known then -- that of a server of etcd's clients: both kinds of clients find their fields
    endpoints.set_version(self.server, discovery.version(json.decode(known)))
  else
    routes.add(tree, "GET", "/version", answer)
  end
end

--- Ends all watches, in order.
function handler_methods:close()
  for _, stream in pairs(self.streams) do stream:close() end
end

--- Returns the handler of a server for resources: a list of { kind, … }, see api.lua. `opts` are those of access.lua.
local function new(server, resources, opts)
  local kinds, by_path, streams = {}, {}, {}
  for i, resource in ipairs(resources) do
    local kind = resource.kind
    kinds[i], streams[resource] = kind, watch_stream.new(server, resource)
    by_path[("%s/%s/%s"):format(kind.group, kind.version, kind.plural)] = resource
  end
  local documents = discovery.documents(kinds)
  documents["/version"] = discovery.version()
  return setmetatable({
    server = server, kinds = kinds, resources = by_path, streams = streams, documents = documents,
    access = access.new(opts), forms = {}, openapi = nil, json = nil, protobuf = nil, -- made when they are asked for
  }, handler_mt)
end

return { new = new }
