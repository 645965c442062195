-- SPDX-License-Identifier: MIT
--- watch_start: where a watch begins, by Kubernetes' rules of resourceVersion and sendInitialEvents.
--
--   sendInitialEvents  resourceVersion
--   none               none, "0"        the present state, then changes
--                      N                changes after N, which may be still to come
--   true               none, "0", N     the state, the newest, any, or one of N or later; a bookmark; then changes
--   false              none, "0"        changes from now on
--                      N                changes after N

local query = require "keywatch.kubernetes.query"
local reads = require "keywatch.kubernetes.reads"
local status_error = require "keywatch.kubernetes.status_error"

local NOT_OLDER = "NotOlderThan"

local function invalid(field, message)
  return status_error.invalid(reads.LIST_OPTIONS, nil,
    { { reason = "FieldValueForbidden", message = "Forbidden: " .. message, field = field } })
end

--- Returns the error of contradictory options; nil if they are good.
local function option_error(q, sends_initial)
  local match = q.resourceVersionMatch
  if match == "" then match = nil end
  if sends_initial == nil then
    return match and invalid("resourceVersionMatch",
      "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
  end
  if match ~= NOT_OLDER then
    return invalid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
  end
end

--- Returns the plan of a watch for the parameters of a query; or nil and an error.
local function plan(q)
  local sends_initial = query.boolean(q.sendInitialEvents)
  local err = option_error(q, sends_initial)
  if err then return nil, err end
  local revision, why = reads.revision_of(q.resourceVersion)
  if revision == false then return nil, why end
  local bookmarks = query.boolean(q.allowWatchBookmarks) or false
  local has_state = sends_initial or sends_initial == nil and (revision or 0) == 0
  return { sends_initial = sends_initial, revision = revision, has_state = has_state, bookmarks = bookmarks,
    ends_state = sends_initial and bookmarks or false }
end

--- Begins a watch of a resource: returns { revision, list }, see watch_stream.lua, or { err }. May wait.
local function begin(made, resource, namespace, filter)
  local revision = made.revision
  if made.has_state then
    local list, err = resource.reads:list { namespace = namespace, filter = filter,
      resource_version = revision and ("%d"):format(revision) or nil }
    if not list then return { err = err } end
    return { revision = list.revision, list = list }
  end
  if (revision or 0) > 0 then return { revision = revision } end
  local ok, err = resource.history:wait_ready(reads.PATIENCE)
  if not ok then return { err = err } end
  if revision == 0 then return { revision = resource.history.revision } end
  local now
  now, err = resource.reads:list { namespace = namespace, limit = 1 } -- the newest state
  if not now then return { err = err } end
  return { revision = now.revision }
end

return { plan = plan, begin = begin }
