-- SPDX-License-Identifier: MIT
--- body: reads the bodies of requests: JSON, and YAML if lyaml is installed.

local json = require "keywatch.json"
local status_error = require "keywatch.kubernetes.status_error"
local yaml = require "keywatch.kubernetes.yaml"

local MAX_BYTES = 3 * 1024 * 1024 -- as in apiserver
local DECODING = { integers = "error" }

local YAML = { ["application/yaml"] = true, ["application/x-yaml"] = true, ["text/yaml"] = true }
local JSON = { [""] = true, ["application/json"] = true }
local PATCHES = {
  ["application/merge-patch+json"] = "merge", ["application/json-patch+json"] = "json",
  ["application/strategic-merge-patch+json"] = "strategic",
}

--- Returns the media type of a request's body, in lower case, without parameters.
local function media_type(request)
  return (request.headers["content-type"] or ""):match("^%s*([^;%s]*)"):lower()
end

--- Reads the whole body of a request. Returns its text; or nil and an error.
local function read(request)
  local ok, text = pcall(request.body, request, MAX_BYTES)
  if ok then return text end
  if type(text) == "table" and rawget(text, "http_status") == 413 then
    return nil, status_error.too_large(MAX_BYTES)
  end
  error(text, 0)
end

--- Returns the value of a JSON text; or nil and an error.
local function decode_json(text)
  local value, err = json.decode(text, DECODING)
  if err then return nil, status_error.bad_request("the body of the request is not JSON: " .. err.message) end
  return value
end

--- Returns the value of a YAML text; or nil and an error.
local function decode_yaml(text)
  local value, why = yaml.decode(text)
  if value ~= nil then return value end
  if not why then return nil, status_error.unsupported_media_type "application/json" end
  return nil, status_error.bad_request("the body of the request is not YAML: " .. why)
end

--- Returns a value if it is an object; or nil and an error.
local function check_object(value, err)
  if err then return nil, err end
  if type(value) == "table" and not (getmetatable(value) == getmetatable(json.array()) or value[1] ~= nil) then
    return value
  end
  return nil, status_error.bad_request "the body of the request must be an object"
end

--- Reads the object of a request. Returns it; or nil and an error.
local function object(request)
  local media = media_type(request)
  if not JSON[media] and not YAML[media] then return nil, status_error.unsupported_media_type() end
  local text, err = read(request)
  if not text then return nil, err end
  return check_object((YAML[media] and decode_yaml or decode_json)(text))
end

--- Reads the object of a request whose body may be empty, and whose type is ignored. Returns it, or {}; or nil and an
-- error.
local function optional(request)
  local text, err = read(request)
  if not text then return nil, err end
  if not text:find("%S") then return {} end
  if YAML[media_type(request)] then return check_object(decode_yaml(text)) end
  return check_object(decode_json(text))
end

--- Reads a patch. Returns its type, "merge", "json" or "strategic", and its value; or nil and an error.
local function patch(request)
  local kind = PATCHES[media_type(request)]
  if not kind then
    return nil, status_error.unsupported_media_type "application/json-patch+json, application/merge-patch+json"
  end
  local text, err = read(request)
  if not text then return nil, err end
  local value
  value, err = decode_json(text)
  if err then return nil, err end
  return kind, value
end

return { object = object, optional = optional, patch = patch }
