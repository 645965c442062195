-- SPDX-License-Identifier: MIT
--- status_error: the errors of Kubernetes, with its texts. Each is an error of keywatch, whose code is one of
-- keywatch's and whose message is Kubernetes' text, with these fields:
--
--   http_status   the status of the answer
--   reason        Kubernetes' reason, such as "NotFound"
--   details       the details of a Status: { name, group, kind, uid, causes, retryAfterSeconds }; nil if there are none
--   causes        details.causes: a list of { reason, message, field }; nil if there are none
--   retry_after   the seconds after which the client should try again; nil if there are none
--   continue      of an expired list: the token with which the client may continue
--
-- Functions that are about an object take its kind (kind.lua), and its name or nil.

local errors = require "keywatch.support.errors"
local go_text = require "keywatch.kubernetes.go_text"
local value = require "keywatch.kubernetes.value"

local CONFLICT = "the object has been modified; please apply your changes to the latest version and try again"
local quoted = go_text.quoted

local MAX_CAUSES = 8 -- in the message; details have all
local DEFAULT_RETRY = 1 -- seconds

-- {====== Making ======

--- Returns an error. `fields` has its details, or is nil.
local function make(code, http_status, reason, message, fields)
  local err = errors.new(code, message and go_text.utf8(message))
  err.http_status, err.reason, err.details = http_status, reason, fields
  if fields then err.causes, err.retry_after = fields.causes, fields.retryAfterSeconds end
  return err
end

--- Returns the details of an error about an object of a kind.
local function details_of(kind, name)
  return { name = name and go_text.utf8(name), group = kind.group ~= "" and kind.group or nil, kind = kind.plural }
end

-- }======

-- {====== About objects ======

local function not_found(kind, name)
  local message = ("%s %s not found"):format(kind.name, quoted(name or ""))
  return make("not_found", 404, "NotFound", message, details_of(kind, name))
end

local function already_exists(kind, name)
  local message = ("%s %s already exists"):format(kind.name, quoted(name or ""))
  return make("already_exists", 409, "AlreadyExists", message, details_of(kind, name))
end

--- `message` says why; nil if the object was modified.
local function conflict(kind, name, message)
  message = ("Operation cannot be fulfilled on %s %s: %s"):format(kind.name, quoted(name or ""), message or CONFLICT)
  return make("aborted", 409, "Conflict", message, details_of(kind, name))
end

--- Returns the causes as Kubernetes writes a list of errors: without repetitions, in brackets if there are several.
local function text_of_causes(causes)
  local list, is_known = {}, {}
  for _, cause in ipairs(causes) do
    local text = cause.field and cause.field ~= "" and cause.field .. ": " .. cause.message or cause.message
    if not is_known[text] then
      list[#list + 1], is_known[text] = text, true
    end
    if #list == MAX_CAUSES and causes[MAX_CAUSES + 1] then
      list[#list + 1] = "..."
      break
    end
  end
  return list[2] and "[" .. table.concat(list, ", ") .. "]" or list[1]
end

--- `causes` is a list of { reason, message, field }.
local function invalid(kind, name, causes)
  local qualified = kind.group ~= "" and kind.kind .. "." .. kind.group or kind.kind
  local message = ("%s %s is invalid"):format(qualified, quoted(name or ""))
  if causes[1] then message = message .. ": " .. text_of_causes(causes) end
  local details = details_of(kind, name)
  details.kind, details.causes = kind.kind, value.array(causes)
  return make("invalid_argument", 422, "Invalid", message, details)
end

--- The kind does not have this verb, such as "patch".
local function method_not_allowed(kind, verb)
  local message = ("%s is not supported on resources of kind %s"):format(verb, quoted(kind.name))
  return make("unimplemented", 405, "MethodNotAllowed", message, details_of(kind))
end

-- }======

-- {====== About requests ======

local function bad_request(message)
  return make("invalid_argument", 400, "BadRequest", message)
end

--- The patch of a request cannot be applied. The cause is what kubectl shows.
local function unprocessable(message)
  return make("invalid_argument", 422, "Invalid", message,
    { causes = value.array { { reason = "UnexpectedServerResponse", message = message } } })
end

local function unsupported_media_type(accepted)
  local message = "the body of the request was in an unknown format - accepted media types include: "
    .. (accepted or "application/json, application/yaml")
  return make("invalid_argument", 415, "UnsupportedMediaType", message)
end

local function not_acceptable(accepted)
  local message = "only the following media types are accepted: " .. (accepted or "application/json")
  return make("invalid_argument", 406, "NotAcceptable", message)
end

--- `why` is a sentence, or the largest request in bytes, or nil.
local function too_large(why)
  if type(why) == "number" then why = ("limit is %d"):format(why) end
  local message = "Request entity too large" .. (why and ": " .. why or "")
  return make("request_too_large", 413, "RequestEntityTooLarge", message)
end

local function unauthorized()
  return make("unauthenticated", 401, "Unauthorized", "Unauthorized")
end

--- Returns what a user may not do, as a sentence.
local function denial(attributes)
  local user, verb = quoted(attributes.user or ""), attributes.verb
  if not attributes.resource then return ("User %s cannot %s path %s"):format(user, verb, quoted(attributes.path)) end
  local resource = attributes.resource .. (attributes.subresource and "/" .. attributes.subresource or "")
  local text = ("User %s cannot %s resource %s in API group %s"):format(user, verb, quoted(resource),
    quoted(attributes.group or ""))
  if attributes.namespace and attributes.namespace ~= "" then
    return ("%s in the namespace %s"):format(text, quoted(attributes.namespace))
  end
  return text .. " at the cluster scope"
end

--- `attributes` are { user = a name, verb, group, resource, subresource, namespace, name }, or { user, verb, path } of
-- a path that is not about resources. `reason` is that of the authorizer, or nil.
local function forbidden(attributes, reason)
  local text = denial(attributes)
  if reason and reason ~= "" then text = text .. ": " .. reason end
  if not attributes.resource then return make("permission_denied", 403, "Forbidden", "forbidden: " .. text) end
  local group = attributes.group ~= "" and attributes.group or nil
  local noun = attributes.resource .. (group and "." .. group or "")
  if attributes.name then noun = noun .. " " .. quoted(attributes.name) end
  local name = attributes.name and go_text.utf8(attributes.name)
  local details = { name = name, group = group, kind = attributes.resource }
  return make("permission_denied", 403, "Forbidden", ("%s is forbidden: %s"):format(noun, text), details)
end

--- The server itself does not allow a request about an object, whoever makes it.
local function refused(kind, name, why)
  local message = ("%s %s is forbidden: %s"):format(kind.name, quoted(name or ""), why)
  return make("permission_denied", 403, "Forbidden", message, details_of(kind, name))
end

-- }======

-- {====== About revisions and the server ======

--- `continue` is a token for the rest of the list, or nil.
local function expired(message, continue)
  local err = make("compacted", 410, "Expired", message)
  err.continue = continue
  return err
end

--- A revision was asked for that is still to come.
local function too_large_revision(asked, current)
  local message = ("Timeout: Too large resource version: %s, current: %s"):format(tostring(asked), tostring(current))
  local cause = { reason = "ResourceVersionTooLarge", message = "Too large resource version" }
  return make("future_revision", 504, "Timeout", message,
    { causes = value.array { cause }, retryAfterSeconds = DEFAULT_RETRY })
end

local function timeout(message, seconds)
  return make("timeout", 504, "Timeout", "Timeout: " .. (message or "request did not complete within the allowed time"),
    { retryAfterSeconds = seconds or DEFAULT_RETRY })
end

local function too_many_requests(message, seconds)
  return make("too_many_requests", 429, "TooManyRequests", message or "too many requests, please try again later",
    { retryAfterSeconds = seconds or DEFAULT_RETRY })
end

local function unavailable(message)
  message = message or "the server is currently unable to handle the request"
  return make("unavailable", 503, "ServiceUnavailable", message, { retryAfterSeconds = DEFAULT_RETRY })
end

local function internal(message)
  message = message or "see the log of the server"
  return make("internal", 500, "InternalError", "Internal error occurred: " .. message,
    { causes = value.array { { message = message } } })
end

local function full(message)
  return make("no_space", 507, "InsufficientStorage", message)
end

-- }======

-- {====== Other errors ======

-- By the code of an error of keywatch: a function of its message.
local by_code = {
  compacted = expired, no_space = full, timeout = timeout, deadline_exceeded = timeout, cancelled = timeout,
}
for _, code in ipairs { "unavailable", "closed", "stopped", "storage", "out_of_memory", "read_only", "corrupt" } do
  by_code[code] = unavailable
end
for _, code in ipairs { "too_many_requests", "resource_exhausted", "full", "too_many_ops", "too_many_snapshots" } do
  by_code[code] = too_many_requests
end
for _, code in ipairs { "request_too_large", "answer_too_large" } do
  by_code[code] = function() return too_large() end
end

--- Returns the error of Kubernetes for any error. The text of an error that is not one of keywatch stays here: it may
-- have positions in the program's code. Keeps `maybe_done`.
local function from(err)
  if type(err) == "table" and err.http_status then return err end
  local code = errors.code_of(err)
  local convert = type(code) == "string" and by_code[code]
  local message = type(err) == "table" and type(err.grpc_status) == "number" and tostring(err.message) or nil
  local made = convert and convert(message) or internal(message)
  if message and err.maybe_done then made.maybe_done = true end
  return made
end

--- Returns an error as a Status, a table for keywatch.json.
local function to_status(err)
  err = from(err)
  return {
    kind = "Status", apiVersion = "v1", metadata = { continue = err.continue }, status = "Failure",
    message = err.message, reason = err.reason, details = err.details, code = err.http_status,
  }
end

-- }======

return {
  not_found = not_found, already_exists = already_exists, conflict = conflict, invalid = invalid,
  method_not_allowed = method_not_allowed, bad_request = bad_request, unprocessable = unprocessable,
  unsupported_media_type = unsupported_media_type, not_acceptable = not_acceptable, too_large = too_large,
  unauthorized = unauthorized,
  forbidden = forbidden, refused = refused, expired = expired, too_large_revision = too_large_revision,
  timeout = timeout, too_many_requests = too_many_requests, unavailable = unavailable, internal = internal,
  from = from, to_status = to_status,
}
