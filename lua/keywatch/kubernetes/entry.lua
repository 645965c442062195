-- SPDX-License-Identifier: MIT
--- entry: one stored object: { key, text, revision }. `key` is "namespace/name", or "name" of a cluster-scoped kind.
-- `revision` is 0 for an object that was not stored, because its writer has asked for a dry run.
--
-- The stored text is compact JSON: apiVersion, kind and metadata first, then the other members sorted by name, and
-- inside of them everything sorted. It has no resourceVersion, which is that of the store, and is inserted as the first
-- member of metadata when the object is served. Texts of other writers, in any order and with any blanks, are served,
-- too.
--
-- Entries are immutable, and shared by all readers, and so are their decoded objects. A decoded object is kept only as
-- long as a reader has it: tables take many times the memory of their text.

local check = require "keywatch.support.check"
local errors = require "keywatch.support.errors"
local json = require "keywatch.json"
local json_text = require "keywatch.support.json_text"
local status_error = require "keywatch.kubernetes.status_error"
local value = require "keywatch.kubernetes.value"

local decode, encode = json.decode, json.encode
local find, sub = string.find, string.sub

local HEAD = '^{"apiVersion":"[^"\\]*","kind":"[^"\\]*","metadata":{'
local DECODING, ENCODING = { integers = "error" }, { sort_keys = true }

local objects = setmetatable({}, { __mode = "kv" }) -- by entry: its decoded object

-- {====== Reading ======

--- Returns the error of an entry whose text is not an object.
local function bad_text(entry, why)
  local err = status_error.internal(("the stored object %s cannot be decoded"):format(check.shown(entry.key)))
  err.why = why and errors.text_of(why)
  return err
end

--- Returns the entry of a stored text. `object` is the decoded text, with its resourceVersion, or nil.
local function of(key, text, revision, object)
  local entry = { key = key, text = text, revision = revision }
  if object then objects[entry] = object end
  return entry
end

--- Returns the text of a resourceVersion as a member of metadata.
local function version_member(entry)
  return ('"resourceVersion":"%d"'):format(entry.revision)
end

--- Returns what `text_of` returns, for the text of another writer.
local function foreign_text(entry)
  local text, member = entry.text, version_member(entry)
  local items = json_text.open(text)
  if not items then return nil, bad_text(entry) end
  local metadata = json_text.find(items, "metadata")
  if not metadata then return json_text.append(text, items, '"metadata":{' .. member .. "}") end
  local inner = sub(text, metadata.value, metadata.value) == "{" and json_text.items_of(text, metadata.value)
  if not inner then return nil, bad_text(entry) end
  local own = sub(text, metadata.value, metadata.after - 1)
  own = json_text.remove(own, assert(json_text.open(own)), function(item) return item.name == "resourceVersion" end)
  local rest = own:match("^{%s*(.*)$")
  return json_text.replace(text, metadata, "{" .. member .. (sub(rest, 1, 1) == "}" and "" or ",") .. rest)
end

--- Returns the JSON text of an object as it is served, with its resourceVersion; or nil and an error.
local function text_of(entry)
  local text = entry.text
  if entry.revision == 0 then return text end
  local _, last = find(text, HEAD)
  if not last or find(text, '"resourceVersion"', last, true) then return foreign_text(entry) end
  local is_empty = sub(text, last + 1, last + 1) == "}"
  return sub(text, 1, last) .. version_member(entry) .. (is_empty and "" or ",") .. sub(text, last + 1)
end

--- Returns the decoded object of an entry as a new table, which belongs to the caller; or nil and an error.
local function copy(entry)
  local object, why = decode(entry.text, DECODING)
  if not value.is_object(object) then return nil, bad_text(entry, why) end
  local metadata = object.metadata
  if metadata == nil then
    metadata = {}
    object.metadata = metadata
  elseif not value.is_object(metadata) then
    return nil, bad_text(entry)
  end
  metadata.resourceVersion = entry.revision > 0 and ("%d"):format(entry.revision) or nil
  return object
end

--- Returns the decoded object of an entry, which must not be changed; or nil and an error.
local function object(entry)
  local found = objects[entry]
  if found then return found end
  local made, err = copy(entry)
  if not made then return nil, err end
  objects[entry] = made
  return made
end

-- }======

--- Returns the text of an object as it is stored; or nil and an error.
local function encoded(found)
  local metadata = check.copy(found.metadata)
  metadata.resourceVersion, metadata.managedFields, metadata.selfLink = nil, nil, nil
  local rest = check.copy(found)
  rest.apiVersion, rest.kind, rest.metadata = nil, nil, nil
  local api_version, why = encode(found.apiVersion)
  local kind, wrong = encode(found.kind)
  local inner, bad = encode(metadata, ENCODING)
  local others, err = encode(rest, ENCODING)
  if not (api_version and kind and inner and others) then return nil, why or wrong or bad or err end
  return ('{"apiVersion":%s,"kind":%s,"metadata":%s%s%s'):format(api_version, kind, inner, others == "{}" and "" or ",",
    sub(others, 2))
end

return { of = of, json = text_of, copy = copy, object = object, encode = encoded }
