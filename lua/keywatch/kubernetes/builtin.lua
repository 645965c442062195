-- SPDX-License-Identifier: MIT
--- builtin: kinds of Kubernetes' own that controllers, leader election and kubectl expect: namespaces, configmaps,
-- secrets, events, leases and pods. They have no schema: what Kubernetes checks in their fields is not checked, except
-- the data of configmaps and secrets. Nothing acts on them: no pod is started.
--
-- Events are those of the core group, which clients fall back to where events.k8s.io is not served.

local field_path = require "keywatch.kubernetes.field_path"
local go_text = require "keywatch.kubernetes.go_text"
local kinds = require "keywatch.kubernetes.kind"
local labels = require "keywatch.kubernetes.label"
local turn = require "keywatch.kubernetes.turn"
local value = require "keywatch.kubernetes.value"

local MAX_CAUSES = 100
local MAX_DATA = 1024 * 1024 -- bytes of the values of a configmap or a secret

-- {====== Checks and defaults ======

--- Returns the number of bytes of a base64 text; nil if it is none.
local function decoded_length(text)
  local packed = text:find("[\r\n]") and text:gsub("[\r\n]", "") or text
  if #packed % 4 ~= 0 or not packed:find("^[A-Za-z0-9+/]*=?=?$") then return nil end
  return #packed / 4 * 3 - #packed:match("=*$")
end

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local digits = {} -- by a number of 12 bits: its two characters of base64
for i = 0, 4095 do
  local high, low = math.floor(i / 64) + 1, i % 64 + 1
  digits[i] = ALPHABET:sub(high, high) .. ALPHABET:sub(low, low)
end

--- Returns a text as base64. Lets other tasks run.
local function base64(text)
  local parts, padding, work = {}, -#text % 3, turn.begin {}
  for i = 1, #text, 3 do
    turn.count(work)
    local a, b, c = text:byte(i, i + 2)
    b, c = b or 0, c or 0
    parts[#parts + 1] = digits[a * 16 + math.floor(b / 16)]
    parts[#parts + 1] = digits[b % 16 * 256 + c]
  end
  local whole = table.concat(parts)
  return whole:sub(1, #whole - padding) .. ("="):rep(padding)
end

--- Adds a cause to a list, which is bounded.
local function add(causes, field, found, why)
  if #causes >= MAX_CAUSES then return end
  causes[#causes + 1] = { reason = "FieldValueInvalid", field = field, message = ("Invalid value: %s: %s"):format(
    go_text.of(found), why) }
end

--- Adds the causes of the member `name` of an object, whose values must be strings. size_of(text) returns the bytes of
-- a value, or nil if it is malformed. Returns the bytes of all values.
local function check_data(causes, object, name, size_of)
  local data, bytes, work = object[name], 0, turn.begin {}
  if value.is_nothing(data) then return 0 end
  if not value.is_object(data) then
    add(causes, name, value.type_of(data), "must be an object")
    return 0
  end
  for key, text in next, data do
    turn.count(work)
    local field = ("%s[%s]"):format(name, key)
    local why = labels.key_trouble(key)
    if why then add(causes, field, key, why) end
    local size = type(text) == "string" and size_of(text)
    if not size then
      add(causes, field, text, size_of == string.len and "must be a string" or "must be a string of base64")
    end
    bytes = bytes + (size or 0)
  end
  return bytes
end

--- Adds the cause of too much data.
local function check_size(causes, bytes)
  if bytes <= MAX_DATA then return end
  causes[#causes + 1] = { reason = "FieldValueTooLong", field = "", message = ("Too long: must have at most %d bytes")
    :format(MAX_DATA) }
end

local function check_config_map(object)
  local causes = {}
  local bytes = check_data(causes, object, "data", string.len)
  check_size(causes, bytes + check_data(causes, object, "binaryData", decoded_length))
  return causes
end

local function check_secret(object)
  local causes = {}
  check_size(causes, check_data(causes, object, "data", decoded_length))
  return causes
end

--- Moves stringData to data.
local function default_secret(object)
  local plain = object.stringData
  if value.is_nothing(object.type) then object.type = "Opaque" end
  if not value.is_object(plain) then return end
  object.stringData = nil
  if not value.is_object(object.data) then object.data = {} end
  for key, text in next, plain do object.data[key] = type(text) == "string" and base64(text) or text end
end

--- Sets the phase of a namespace.
local function default_namespace(object)
  if not value.is_object(object.status) then object.status = {} end
  if value.is_nothing(object.status.phase) then object.status.phase = "Active" end
end

--- Sets the phase of a pod.
local function default_pod(object)
  if not value.is_object(object.status) then object.status = {} end
  if value.is_nothing(object.status.phase) then object.status.phase = "Pending" end
end

-- }======

-- {====== Columns ======

--- Returns a column whose cell is read by a function of the object and the present time.
local function computed(name, kind, read, priority)
  return { name = name, type = kind, format = "", priority = priority or 0, description = name, read = read }
end

--- Returns the number of members of the fields of an object.
local function count(...)
  local names = { ... }
  return function(object)
    local n = 0
    for _, name in ipairs(names) do
      for _ in next, value.is_object(object[name]) and object[name] or {} do n = n + 1 end
    end
    return n
  end
end

local AGE = { name = "Age", type = "date", path = ".metadata.creationTimestamp" }

--- Returns a declared column of a field.
local function field(name, path, kind)
  return { name = name, type = kind or "string", path = path }
end

--- Returns the containers of a pod that are ready, and all: "1/2".
local function ready_containers(object)
  local containers = field_path.get(object, { "spec", "containers" })
  local statuses = field_path.get(object, { "status", "containerStatuses" })
  local n = 0
  for _, one in ipairs(value.is_array(statuses) and statuses or {}) do
    if type(one) == "table" and one.ready == true then n = n + 1 end
  end
  return ("%d/%d"):format(n, value.is_array(containers) and #containers or 0)
end

--- Returns the phase of a pod, or that it ends.
local function pod_status(object)
  if object.metadata.deletionTimestamp then return "Terminating" end
  return field_path.get(object, { "status", "phase" })
end

--- Returns the object that an event is about: "widget/a".
local function involved(object)
  local about = value.is_object(object.involvedObject) and object.involvedObject or {}
  return ("%s/%s"):format(tostring(about.kind or ""):lower(), tostring(about.name or ""))
end

-- }======

local EVENT_TTL = 3600 -- seconds, as of apiserver
local LEASES = "coordination.k8s.io"

-- By plural: the declaration, and the fields of the kind that a declaration does not have.
local DECLARATIONS = {
  namespaces = {
    { kind = "Namespace", scope = "Cluster", short_names = { "ns" }, selectable = { ".status.phase" }, status = true,
      columns = { field("Status", ".status.phase"), AGE } },
    { name_trouble = labels.label_trouble, default = default_namespace },
  },
  configmaps = {
    { kind = "ConfigMap", short_names = { "cm" }, columns = { AGE } },
    { check = check_config_map, computed = { [2] = computed("Data", "string", count("data", "binaryData")) } },
  },
  secrets = {
    { kind = "Secret", selectable = { ".type" }, columns = { field("Type", ".type"), AGE } },
    { check = check_secret, default = default_secret, computed = { [3] = computed("Data", "string", count "data") } },
  },
  events = {
    { kind = "Event", short_names = { "ev" },
      selectable = { ".involvedObject.kind", ".involvedObject.namespace", ".involvedObject.name", ".involvedObject.uid",
        ".involvedObject.apiVersion", ".involvedObject.resourceVersion", ".involvedObject.fieldPath", ".reason",
        ".type", ".reportingComponent" },
      columns = { field("Last Seen", ".lastTimestamp", "date"), field("Type", ".type"), field("Reason", ".reason"),
        field("Message", ".message") } },
    { ttl = EVENT_TTL, computed = { [5] = computed("Object", "string", involved) } },
  },
  leases = {
    { group = LEASES, kind = "Lease", columns = { field("Holder", ".spec.holderIdentity"), AGE } },
    { prefix = "/registry/leases/" },
  },
  pods = {
    { kind = "Pod", short_names = { "po" }, categories = { "all" }, status = true,
      selectable = { ".spec.nodeName", ".spec.restartPolicy", ".spec.schedulerName", ".spec.serviceAccountName",
        ".status.phase", ".status.podIP", ".status.nominatedNodeName" },
      columns = { AGE } },
    { default = default_pod, computed = { [2] = computed("Ready", "string", ready_containers),
      [3] = computed("Status", "string", pod_status) } },
  },
}

--- Returns the kind of a plural.
local function make(plural)
  local declared, own = DECLARATIONS[plural][1], DECLARATIONS[plural][2]
  declared.group, declared.version, declared.plural = declared.group or "", "v1", plural
  local kind = kinds.new(declared, "builtin")
  kind.is_builtin, kind.is_strategic = true, true
  kind.check, kind.default, kind.name_trouble = own.check, own.default, own.name_trouble
  kind.prefix, kind.ttl = own.prefix or kind.prefix, own.ttl
  for at = 2, #kind.columns + 1 do
    local column = own.computed and own.computed[at]
    if column then table.insert(kind.columns, at, column) end
  end
  return kind
end

local builtin = {}
for plural in pairs(DECLARATIONS) do builtin[plural] = make(plural) end

return builtin
