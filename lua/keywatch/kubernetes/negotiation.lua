-- SPDX-License-Identifier: MIT
--- negotiation: chooses the form of an answer by the header Accept: the objects as they are, tables for people, or only
-- the metadata.
--
--   application/json                                          objects
--   application/json;as=Table;v=v1;g=meta.k8s.io              tables; also v1beta1
--   application/json;as=PartialObjectMetadata;v=v1;g=…        metadata; PartialObjectMetadataList means the same

local MAX_BYTES, MAX_CLAUSES = 8192, 64

local JSON = { ["*/*"] = true, ["application/*"] = true, ["application/json"] = true }
local FORMS = { Table = "Table", PartialObjectMetadata = "PartialObjectMetadata",
  PartialObjectMetadataList = "PartialObjectMetadata" }
local VERSIONS = { v1 = true, v1beta1 = true }

local ACCEPTED = "application/json, application/json;as=Table;v=v1;g=meta.k8s.io, "
  .. "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

--- Returns a clause of the header: { media =, order =, q =, and its parameters }.
local function parse_clause(text, order)
  local clause = { media = text:match("^%s*([^;%s]*)"):lower(), order = order, q = 1 }
  for name, value in text:gmatch(";%s*([%w-]+)%s*=%s*\"?([^;\"%s]*)") do clause[name] = value end
  clause.q = tonumber(clause.q) or 1
  return clause
end

--- Returns the clauses of the header, the preferred ones first.
local function clauses_of(accept)
  local list = {}
  for text in accept:sub(1, MAX_BYTES):gmatch("[^,]+") do
    list[#list + 1] = parse_clause(text, #list)
    if #list == MAX_CLAUSES then break end
  end
  table.sort(list, function(a, b)
    if a.q ~= b.q then return a.q > b.q end
    return a.order < b.order
  end)
  return list
end

--- Returns the form that a clause asks for: { as =, version = }, without fields for objects; nil if there is none.
local function form_of(clause)
  if not JSON[clause.media] or clause.q == 0 then return nil end
  if not clause.as then return {} end
  local as = FORMS[clause.as]
  if not as or clause.g ~= "meta.k8s.io" or not VERSIONS[clause.v] then return nil end
  return { as = as, version = clause.v }
end

--- Returns the form of an answer: { as = "Table" or "PartialObjectMetadata", version = "v1" or "v1beta1" }, or {} for
-- objects. Returns nil if the client accepts none.
local function choose(accept)
  if accept == nil or accept == "" then return {} end
  for _, clause in ipairs(clauses_of(accept)) do
    local form = form_of(clause)
    if form then return form end
  end
end

--- True if the client accepts JSON, or has said nothing.
local function accepts_json(accept)
  if accept == nil or accept == "" then return true end
  for _, clause in ipairs(clauses_of(accept)) do
    if JSON[clause.media] and clause.q > 0 then return true end
  end
  return false
end

return { choose = choose, accepts_json = accepts_json, ACCEPTED = ACCEPTED }
