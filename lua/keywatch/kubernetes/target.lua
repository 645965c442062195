-- SPDX-License-Identifier: MIT
--- target: what the path and the method of a request of Kubernetes' API mean.
--
--   /api/v1/…   /apis/GROUP/VERSION/…   followed by
--   PLURAL   PLURAL/NAME   PLURAL/NAME/SUBRESOURCE   and the same behind namespaces/NAMESPACE/
--
-- A target is { group, version, plural, namespace, name, subresource }; the last three may be nil.

local core = require "keywatch.core"

local ITEM_VERBS = { GET = "get", HEAD = "get", PUT = "update", PATCH = "patch", DELETE = "delete" }
local LIST_VERBS = { GET = "list", HEAD = "list", POST = "create", DELETE = "deletecollection" }
local OF_NAMESPACE = { status = true, finalize = true } -- namespaces/NAME/status is about the namespace itself
local MAX_SEGMENTS = 12

--- Returns the segments of a path, decoded; nil if one of them cannot be a name.
local function split(path)
  local list = {}
  for text in path:gmatch("/([^/]*)") do
    local segment = core.percent_decode(text)
    if segment == "" or segment == "." or segment == ".." or segment:find("[/%z]") then return nil end
    list[#list + 1] = segment
    if #list > MAX_SEGMENTS then return nil end
  end
  return list
end

--- Returns the target of a path; nil if it is about no resource.
local function parse(path)
  local list = split(path)
  if not list then return nil end
  local group, version, at
  if list[1] == "api" then
    group, version, at = "", list[2], 3
  elseif list[1] == "apis" then
    group, version, at = list[2], list[3], 4
  end
  if not at or not list[at] then return nil end
  local target = { group = group, version = version }
  if list[at] == "namespaces" and list[at + 2] and not OF_NAMESPACE[list[at + 2]] then
    target.namespace, at = list[at + 1], at + 2
  end
  target.plural, target.name, target.subresource = list[at], list[at + 1], list[at + 2]
  if list[at + 3] then return nil end
  return target
end

--- Returns the verb of a request: "get", "list", "watch", "create", "update", "patch", "delete" or "deletecollection";
-- nil if there is none.
local function verb_of(target, method, is_watch)
  if target.name then return ITEM_VERBS[method] end
  local verb = LIST_VERBS[method]
  return verb == "list" and is_watch and "watch" or verb
end

return { parse = parse, verb_of = verb_of }
