-- SPDX-License-Identifier: MIT
--- form: how objects of a kind are written for a client: as they are, as rows of a table, or only their metadata. See
-- negotiation.lua.
--
-- All watches of the same form get the same bytes, so that an event is encoded once.

local entries = require "keywatch.kubernetes.entry"
local json = require "keywatch.json"
local timestamp = require "keywatch.kubernetes.timestamp"

local GROUP = "meta.k8s.io/"
local SORTED = { sort_keys = true }
local INCLUDES = { None = true, Metadata = true, Object = true }
local END_OF_INITIAL = ',"annotations":{"k8s.io/initial-events-end":"true"}'

local function encode(value) return json.encode(value, SORTED) end

-- {====== Objects ======

local objects = {}

--- Returns the text of an object.
function objects.item(_, entry) return entries.json(entry) end

objects.list_item = objects.item

--- Returns the object of an event of a watch. `is_first`: it is the first one that its client gets.
function objects.shown(_, entry) return entries.json(entry) end

--- Returns kind and version of a list.
function objects.list_kind(self) return self.kind.list_kind, self.kind.api_version end

--- Returns the members of a list before its metadata, behind its kind and version.
function objects.list_head() return "" end

function objects.list_name() return "items" end

--- Returns the object of a bookmark.
function objects.bookmark(self, revision, annotations)
  return ('{"kind":%s,"apiVersion":%s,"metadata":{"resourceVersion":"%d"%s}}'):format(encode(self.kind.kind),
    encode(self.kind.api_version), revision, annotations)
end

-- }======

-- {====== Metadata ======

local metadata = setmetatable({}, { __index = objects })

function metadata.item(self, entry)
  return ('{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":%s}'):format(GROUP .. self.version,
    encode(entries.object(entry).metadata))
end

metadata.list_item = metadata.item

function metadata.shown(self, entry) return self:item(entry) end

function metadata.list_kind(self) return "PartialObjectMetadataList", GROUP .. self.version end

function metadata.bookmark(self, revision, annotations)
  return ('{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":{"resourceVersion":"%d"%s}}'):format(
    GROUP .. self.version, revision, annotations)
end

-- }======

-- {====== Tables ======

local tables = setmetatable({}, { __index = objects })

--- Returns the text of the definitions of a kind's columns.
local function definitions_of(kind)
  local list = json.array()
  for i, column in ipairs(kind.columns) do
    list[i] = { name = column.name, type = column.type, format = column.format, description = column.description,
      priority = column.priority }
  end
  return encode(list)
end

--- Returns the text of the object of a row.
local function row_object(self, entry)
  if self.include == "None" then return nil end
  if self.include == "Object" then return entries.json(entry) end
  return metadata.item(self, entry)
end

--- Returns the text of a row.
function tables.list_item(self, entry)
  local object, now = entries.object(entry), timestamp.now()
  local cells = {}
  for i, column in ipairs(self.kind.columns) do
    local cell = column.read(object, now)
    cells[i] = cell == nil and "null" or encode(cell)
  end
  local shown = row_object(self, entry)
  return ('{"cells":[%s]%s}'):format(table.concat(cells, ","), shown and ',"object":' .. shown or "")
end

--- Returns a table of rows.
local function table_of(self, revision, definitions, rows, annotations)
  return ('{"kind":"Table","apiVersion":"%s","metadata":{"resourceVersion":"%s"%s},"columnDefinitions":%s,"rows":[%s]}')
    :format(GROUP .. self.version, revision, annotations or "", definitions or "null", rows)
end

function tables.item(self, entry)
  return table_of(self, entry.revision, self.definitions, self:list_item(entry))
end

function tables.shown(self, entry, is_first)
  return table_of(self, entry.revision, is_first and self.definitions, self:list_item(entry))
end

function tables.list_kind(self) return "Table", GROUP .. self.version end

function tables.list_head(self) return '"columnDefinitions":' .. self.definitions .. "," end

function tables.list_name() return "rows" end

function tables.bookmark(self, revision, annotations)
  return table_of(self, ("%d"):format(revision), nil, "", annotations)
end

-- }======

-- {====== Lists and events ======

local form_mt = {}
for _, methods in ipairs { objects, metadata, tables } do form_mt[methods] = { __index = methods } end

--- Returns the text of a list before its first item. `list` has the fields revision, continue and remaining.
function objects.begin(self, list)
  local kind, version = self:list_kind()
  local fields = ('"resourceVersion":"%d"'):format(list.revision)
  if list.continue then fields = fields .. ',"continue":' .. encode(list.continue) end
  if list.remaining then fields = ('%s,"remainingItemCount":%d'):format(fields, list.remaining) end
  return ('{"kind":%s,"apiVersion":%s,"metadata":{%s},%s"%s":['):format(encode(kind), encode(version), fields,
    self:list_head(), self:list_name())
end

objects.finish = "]}\n"

--- Returns the line of an event of a watch.
function objects.event(self, name, entry, is_first)
  return ('{"type":"%s","object":%s}\n'):format(name, self:shown(entry, is_first))
end

--- Returns the line of a bookmark. `is_end`: it is the one behind the initial events.
function objects.bookmark_line(self, revision, is_end)
  return ('{"type":"BOOKMARK","object":%s}\n'):format(self:bookmark(revision, is_end and END_OF_INITIAL or ""))
end

-- }======

local METHODS = { Table = tables, PartialObjectMetadata = metadata }

--- Returns the form of a kind for what negotiation.choose has returned. `include` is the query's includeObject. Returns
-- nil if there is no such form.
local function new(kind, chosen, include)
  include = include ~= nil and include ~= "" and include or "Metadata"
  if chosen.as == "Table" and not INCLUDES[include] then return nil end
  local methods = METHODS[chosen.as] or objects
  return setmetatable({
    kind = kind,
    version = chosen.version,
    include = include,
    -- Forms with the same id write the same bytes.
    id = chosen.as == "Table" and ("Table %s %s"):format(chosen.version, include)
      or chosen.as and chosen.as .. " " .. chosen.version or "",
    has_head = chosen.as == "Table", -- the first event of a watch differs from the others
    definitions = chosen.as == "Table" and definitions_of(kind) or nil,
  }, form_mt[methods])
end

return { new = new }
