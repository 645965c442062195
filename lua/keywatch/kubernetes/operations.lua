-- SPDX-License-Identifier: MIT
--- operations: what requests about resources do, by verb and subresource.
--
-- An operation gets what handler.lua knows about a request: { request, query, user, target, resource, kind, form,
-- filter, streams }. It returns the text of an object, the status of the answer and warnings; or nil and an error; or
-- true if it has sent the answer.

local body = require "keywatch.kubernetes.body"
local driver = require "keywatch.task.driver"
local entries = require "keywatch.kubernetes.entry"
local go_text = require "keywatch.kubernetes.go_text"
local json = require "keywatch.json"
local list_stream = require "keywatch.kubernetes.list_stream"
local query = require "keywatch.kubernetes.query"
local status_error = require "keywatch.kubernetes.status_error"
local value = require "keywatch.kubernetes.value"
local watch_start = require "keywatch.kubernetes.watch_start"

local LEAST_TIMEOUT = 1800 -- seconds of a watch; at random up to twice as many

-- {====== Keys and texts ======

--- Returns the key of the object that a request is about.
local function key_of(asked)
  local target = asked.target
  return target.namespace and target.namespace .. "/" .. target.name or target.name
end

--- Returns the results of an operation for those of a function of the registry.
local function shown(asked, status, entry, warnings)
  if not entry then return nil, warnings end
  return asked.form:item(entry), status, warnings
end

--- Returns the options of a write by its query; or nil and an error.
local function options_of(asked)
  local opts, err = query.write_options(asked.query)
  if not opts then return nil, err end
  opts.user, opts.subresource = asked.user, asked.target.subresource
  return opts
end

-- }======

-- {====== Reading ======

--- Returns the entry that a request is about; or nil and an error.
local function find(asked)
  local entry, err = asked.resource.reads:get(key_of(asked), asked.query.resourceVersion)
  if entry or err then return entry, err end
  return nil, status_error.not_found(asked.kind, asked.target.name)
end

local function get(asked)
  return shown(asked, 200, find(asked))
end

--- Returns the options of a list; or nil and an error.
local function list_options(asked)
  local q, filter = asked.query, asked.filter
  local limit, err = query.whole(q, "limit")
  if err then return nil, err end
  return {
    namespace = asked.target.namespace, filter = filter, limit = limit, continue = q.continue,
    resource_version = q.resourceVersion, resource_version_match = q.resourceVersionMatch,
  }
end

local function list(asked)
  local opts, err = list_options(asked)
  if not opts then return nil, err end
  local found
  found, err = asked.resource.reads:list(opts)
  if not found then return nil, err end
  return list_stream.send(asked.request, asked.form, found)
end

--- Returns the seconds after which a watch ends: those of the query, or a random number; or nil and an error.
local function watch_timeout(asked)
  local seconds, err = query.timeout(asked.query)
  if seconds or err then return seconds, err end
  return LEAST_TIMEOUT * (1 + driver.random())
end

local function watch(asked)
  local timeout, err = watch_timeout(asked)
  local plan, filter, target = nil, asked.filter, asked.target
  if timeout then plan, err = watch_start.plan(asked.query) end
  if not plan then return nil, err end
  asked.streams:serve(asked.request, {
    namespace = target.namespace or filter and asked.kind.is_namespaced and filter.namespace or nil,
    name = filter and filter.name, filter = filter, form = asked.form, timeout = timeout,
    bookmarks = plan.bookmarks, ends_state = plan.ends_state,
  }, function() return watch_start.begin(plan, asked.resource, target.namespace, filter) end)
  return true
end

-- }======

-- {====== Writing ======

local function create(asked)
  local opts, err = options_of(asked)
  local object
  if opts then object, err = body.object(asked.request) end
  if not object then return nil, err end
  return shown(asked, 201, asked.resource.registry:create(asked.target.namespace, object, opts))
end

--- Reads the options and the object of an update. Returns them; or nil and an error.
local function read_update(asked)
  local opts, err = options_of(asked)
  local object
  if opts then object, err = body.object(asked.request) end
  if not object then return nil, err end
  return opts, object
end

local function update(asked)
  local opts, object = read_update(asked)
  if not opts then return nil, object end
  return shown(asked, 200, asked.resource.registry:update(key_of(asked), object, opts))
end

--- Reads the options, the type and the value of a patch. Returns them; or nil and an error.
local function read_patch(asked)
  local opts, err = options_of(asked)
  if not opts then return nil, err end
  local kind, given = body.patch(asked.request)
  if not kind then return nil, given end
  return opts, kind, given
end

local function patch(asked)
  local opts, kind, given = read_patch(asked)
  if not opts then return nil, kind end
  return shown(asked, 200, asked.resource.registry:patch(key_of(asked), kind, given, opts))
end

-- }======

-- {====== Deleting ======

local DELETE_OPTIONS = { group = "meta.k8s.io", kind = "DeleteOptions", plural = "deleteoptions" }
local FIELDS = { dryRun = "array", preconditions = "object", propagationPolicy = "string",
  orphanDependents = "boolean" }
local POLICIES = { Background = true, Foreground = true, Orphan = true }

--- Reads the DeleteOptions of a body. Returns its fields that are not null; or nil and an error. A field of a wrong
-- type is not ignored: without it the deletion would be another one.
local function read_delete_options(request)
  local given, err = body.optional(request)
  if not given then return nil, err end
  local fields = {}
  for name, wanted in pairs(FIELDS) do
    local found = given[name]
    if not value.is_nothing(found) then
      if value.type_of(found) ~= wanted then
        return nil, status_error.bad_request(("%s of the DeleteOptions must have the type %s"):format(name, wanted))
      end
      fields[name] = found
    end
  end
  return fields
end

--- Returns how dependents are deleted, or nil; or nil and an error.
local function propagation_of(given, q)
  local policy = given.orphanDependents and "Orphan" or given.propagationPolicy or q.propagationPolicy
  if policy == nil or policy == "" then return nil end
  if POLICIES[policy] then return policy end
  return nil, status_error.invalid(DELETE_OPTIONS, nil, { { reason = "FieldValueNotSupported",
    field = "propagationPolicy",
    message = ('Unsupported value: %s: supported values: "Background", "Foreground", "Orphan"'):format(
      go_text.quoted(policy:sub(1, 100))),
  } })
end

--- Returns the options of a deletion, those of the body before those of the query; or nil and an error.
local function delete_options(asked)
  local q = asked.query
  local given, err = read_delete_options(asked.request)
  if not given then return nil, err end
  local is_dry, propagation
  is_dry, err = query.dry_run(given.dryRun or { q.dryRun })
  if err then return nil, err end
  propagation, err = propagation_of(given, q)
  if err then return nil, err end
  return { dry_run = is_dry, user = asked.user, preconditions = given.preconditions, propagation = propagation }
end

--- Returns the Status of an object that is deleted.
local function deleted_status(kind, entry)
  local metadata = entries.object(entry).metadata
  return json.encode({ kind = "Status", apiVersion = "v1", metadata = {}, status = "Success", details = {
    name = metadata.name, group = kind.group ~= "" and kind.group or nil, kind = kind.plural, uid = metadata.uid,
  } }, { sort_keys = true })
end

local function delete(asked)
  local opts, err = delete_options(asked)
  if not opts then return nil, err end
  local entry, is_gone = asked.resource.registry:delete(key_of(asked), opts)
  if not entry then return nil, is_gone end
  if not is_gone then return shown(asked, 200, entry) end
  return deleted_status(asked.kind, entry), 200
end

local function delete_collection(asked)
  local opts, err = delete_options(asked)
  local selected
  if opts then selected, err = list_options(asked) end
  if not selected then return nil, err end
  for name, chosen in pairs(selected) do opts[name] = chosen end
  local all
  all, err = asked.resource.registry:delete_collection(opts)
  if not all then return nil, err end
  return list_stream.send_all(asked.request, asked.form, all, asked.resource.history.revision)
end

-- }======

-- {====== Scale ======

--- Returns the results of an operation for those of a function of the registry about a Scale.
local function shown_scale(scale, warnings)
  if not scale then return nil, warnings end
  return json.encode(scale, { sort_keys = true }), 200, warnings
end

local function get_scale(asked)
  return shown_scale(asked.resource.registry:scale(key_of(asked)))
end

local function update_scale(asked)
  local opts, object = read_update(asked)
  if not opts then return nil, object end
  return shown_scale(asked.resource.registry:update_scale(key_of(asked), object, opts))
end

local function patch_scale(asked)
  local opts, kind, given = read_patch(asked)
  if not opts then return nil, kind end
  return shown_scale(asked.resource.registry:patch_scale(key_of(asked), kind, given, opts))
end

-- }======

local OPERATIONS = {
  [""] = { get = get, list = list, watch = watch, create = create, update = update, patch = patch, delete = delete,
    deletecollection = delete_collection },
  status = { get = get, update = update, patch = patch },
  scale = { get = get_scale, update = update_scale, patch = patch_scale },
}

--- Returns the operation of a request; nil if there is none.
local function find_operation(asked)
  return OPERATIONS[asked.target.subresource or ""][asked.verb]
end

return { find = find_operation }
