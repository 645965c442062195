-- SPDX-License-Identifier: MIT
--- discovery: the documents in which clients find the resources: /api, /apis, /apis/GROUP, /apis/GROUP/VERSION and
-- /version. They are made once.

local json = require "keywatch.json"

local VERBS = { "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch" }
local SUBRESOURCE_VERBS = { "get", "patch", "update" }

local AUTHORIZATION = "authorization.k8s.io"

local function encode(document)
  return json.encode(document, { sort_keys = true }) .. "\n"
end

local function status_of(kind)
  return { name = kind.plural .. "/status", singularName = "", namespaced = kind.is_namespaced, kind = kind.kind,
    verbs = SUBRESOURCE_VERBS }
end

local function scale_of(kind)
  return { name = kind.plural .. "/scale", singularName = "", namespaced = kind.is_namespaced, kind = "Scale",
    group = "autoscaling", version = "v1", verbs = SUBRESOURCE_VERBS }
end

--- Returns a list; nil if it is empty.
local function names(list)
  return list and list[1] and list or nil
end

--- Adds the resources of a kind to a list.
local function add_kind(list, kind)
  list[#list + 1] = { name = kind.plural, singularName = kind.singular, namespaced = kind.is_namespaced,
    kind = kind.kind, verbs = VERBS, shortNames = names(kind.short_names), categories = names(kind.categories) }
  if kind.has_status then list[#list + 1] = status_of(kind) end
  if kind.scale then list[#list + 1] = scale_of(kind) end
end

--- Returns the resource lists by "GROUP/VERSION", or "v1" of the core group, and the groups in the order of the kinds.
local function gather(kinds)
  local lists, groups, known = {}, {}, {}
  local function add_version(group, version)
    local api_version = group == "" and version or group .. "/" .. version
    if not lists[api_version] then
      lists[api_version] = json.array()
      if not known[group] then
        known[group] = { name = group, versions = json.array() }
        groups[#groups + 1] = known[group]
      end
      table.insert(known[group].versions, { groupVersion = api_version, version = version })
    end
    return lists[api_version]
  end
  for _, kind in ipairs(kinds) do add_kind(add_version(kind.group, kind.version), kind) end
  table.insert(add_version(AUTHORIZATION, "v1"), { name = "selfsubjectaccessreviews",
    singularName = "selfsubjectaccessreview", namespaced = false, kind = "SelfSubjectAccessReview",
    verbs = { "create" } })
  return lists, groups
end

--- Returns the document of a group.
local function describe(group, is_alone)
  return { kind = is_alone and "APIGroup" or nil, apiVersion = is_alone and "v1" or nil, name = group.name,
    versions = group.versions, preferredVersion = group.versions[1] }
end

--- Returns the document /version: an apiserver's fields. `extra` has more fields.
local function version(extra)
  local document = { major = "1", minor = "26", gitVersion = "v1.26.0+keywatch", gitCommit = "", gitTreeState = "clean",
    buildDate = "1970-01-01T00:00:00Z", goVersion = "", compiler = "lua", platform = "any" }
  for name, value in pairs(extra or {}) do document[name] = value end
  return encode(document)
end

--- Returns the texts of all documents by path, except /version.
local function documents(kinds)
  local lists, groups = gather(kinds)
  local texts, listed, core_versions = {}, json.array(), json.array()
  for _, group in ipairs(groups) do
    if group.name == "" then
      for i, one in ipairs(group.versions) do core_versions[i] = one.version end
    else
      listed[#listed + 1] = describe(group)
      texts["/apis/" .. group.name] = encode(describe(group, true))
    end
    for _, one in ipairs(group.versions) do
      texts[(group.name == "" and "/api/" or "/apis/") .. one.groupVersion] = encode { kind = "APIResourceList",
        apiVersion = "v1", groupVersion = one.groupVersion, resources = lists[one.groupVersion] }
    end
  end
  texts["/api"] = encode { kind = "APIVersions", apiVersion = "v1", versions = core_versions,
    serverAddressByClientCIDRs = json.array() }
  texts["/apis"] = encode { kind = "APIGroupList", apiVersion = "v1", groups = listed }
  return texts
end

return { documents = documents, version = version }
