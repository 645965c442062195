-- SPDX-License-Identifier: MIT
--- access: who makes a request, and whether the request is allowed.
--
-- A user is { name =, groups = a list }. Users come from client certificates that the server has verified (the common
-- name; organizations are groups), and from bearer tokens, by a function of the program. Without both a request is
-- anonymous, which is allowed unless there are tokens.
--
-- authorize(attributes) returns true; or anything else and a reason, which refuses. Attributes are { user = a name,
-- groups, verb, group, version, resource, subresource, namespace, name }; or { user, groups, verb, path } if the path
-- is not about a resource. It may wait.

local json = require "keywatch.json"
local status_error = require "keywatch.kubernetes.status_error"

local ANONYMOUS = { name = "system:anonymous", groups = { "system:unauthenticated" } }
local AUTHENTICATED = "system:authenticated"
local MAX_REVIEW = 65536 -- bytes

local OPTIONS = { tokens = "function", authorize = "function", anonymous = "boolean" }

local access_methods = {}
local access_mt = { __index = access_methods }

--- Returns the rules for the options { tokens, authorize, anonymous }.
local function new(opts)
  return setmetatable({ tokens = opts.tokens, authorize = opts.authorize,
    allows_anonymous = opts.anonymous == nil and not opts.tokens or opts.anonymous == true }, access_mt)
end

-- {====== Authentication ======

--- Returns a user with the group of all users that are known.
local function known(name, groups)
  local all = {}
  for i, group in ipairs(groups or {}) do all[i] = group end
  all[#all + 1] = AUTHENTICATED
  return { name = name, groups = all }
end

--- Returns the user of a bearer token; nil if there is none.
local function user_of_token(self, token)
  if not self.tokens then return nil end
  local found = self.tokens(token)
  if type(found) == "string" then return known(found) end
  if type(found) ~= "table" or type(found.name) ~= "string" then return nil end
  return known(found.name, found.groups)
end

--- Returns the user of a request without impersonation; or nil and an error.
local function authenticate(self, request)
  if request.common_name then return known(request.common_name, request.organizations) end
  local credentials = request.headers.authorization
  if credentials then
    local token = credentials:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+(%S+)%s*$")
    local user = token and user_of_token(self, token)
    if user then return user end
    if self.tokens then return nil, status_error.unauthorized() end
  end
  if self.allows_anonymous then return ANONYMOUS end
  return nil, status_error.unauthorized()
end

--- True if a request asks to act as another user.
local function impersonates(request)
  for name in pairs(request.headers) do
    if name:find("^impersonate%-") then return true end
  end
  return false
end

--- Returns the user of a request; or nil and an error.
function access_methods:authenticate(request)
  local user, err = authenticate(self, request)
  if not user or not impersonates(request) then return user, err end
  return nil, status_error.forbidden({ user = user.name, verb = "impersonate", resource = "users", group = "" },
    "impersonation is not supported")
end

-- }======

-- {====== Authorization ======

--- Returns true; or false and the reason, which may be nil.
local function is_allowed(self, attributes)
  if not self.authorize then return true end
  local ok, reason = self.authorize(attributes)
  if ok == true then return true end
  return false, type(reason) == "string" and reason or nil
end

--- Returns nil if a request is allowed, or an error.
function access_methods:refusal(attributes)
  local ok, reason = is_allowed(self, attributes)
  if ok then return nil end
  return status_error.forbidden(attributes, reason)
end

-- }======

--- Returns the attributes that a SelfSubjectAccessReview asks about; nil if it asks about nothing.
local function reviewed(spec, user)
  local about, path = spec.resourceAttributes, spec.nonResourceAttributes
  if type(about) == "table" then
    return { user = user.name, groups = user.groups, verb = about.verb or "", group = about.group or "",
      version = about.version, resource = about.resource or "", subresource = about.subresource,
      namespace = about.namespace, name = about.name }
  end
  if type(path) == "table" then
    return { user = user.name, groups = user.groups, verb = path.verb or "", path = path.path or "" }
  end
end

--- Answers a SelfSubjectAccessReview of a user. Returns a table; or nil and an error.
function access_methods:review(request, user)
  local text = request:body(MAX_REVIEW)
  local review = json.decode(text)
  local spec = type(review) == "table" and review.spec
  local attributes = type(spec) == "table" and reviewed(spec, user)
  if not attributes then
    return nil, status_error.bad_request("a SelfSubjectAccessReview needs spec.resourceAttributes or "
      .. "spec.nonResourceAttributes")
  end
  local ok, reason = is_allowed(self, attributes)
  return { kind = "SelfSubjectAccessReview", apiVersion = "authorization.k8s.io/v1", metadata = {}, spec = spec,
    status = { allowed = ok, reason = reason } }
end

return { new = new, OPTIONS = OPTIONS }
