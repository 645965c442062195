-- SPDX-License-Identifier: MIT
--- yaml: YAML to the values of keywatch.json, by lyaml's parser if it is installed. Sequences are arrays, and null is
-- json.null. Scalars without quotes have the types of YAML 1.1, as in Kubernetes: yes, no, on and off are booleans.
-- Aliases and tags are refused.

local json = require "keywatch.json"

local MAX_DEPTH, MAX_NODES = 100, 1000000

--- Returns lyaml's parser; nil if it is not installed.
local function parser()
  local ok, yaml = pcall(require, "yaml")
  return ok and type(yaml) == "table" and yaml.parser or nil
end

-- {====== Scalars ======

local WORDS = { [""] = json.null, ["~"] = json.null, null = json.null }
for _, word in ipairs { "true", "yes", "on", "y" } do WORDS[word] = true end
for _, word in ipairs { "false", "no", "off", "n" } do WORDS[word] = false end
for word, value in pairs { ["null"] = json.null, ["true"] = true, ["false"] = false, yes = true, no = false, on = true,
  off = false } do
  WORDS[word:upper()], WORDS[word:sub(1, 1):upper() .. word:sub(2)] = value, value
end

--- Returns the number that a text without quotes means; nil if it is none.
local function number_of(text)
  local digits = text:gsub("_", "")
  if digits:find("^[-+]?[1-9]%d*$") or digits:find("^[-+]?0$") then
    local value = tonumber((digits:gsub("^%+", "")))
    return value
  end
  if digits:find("^0x%x+$") then return tonumber(digits) end
  if digits:find("^0o?[0-7]+$") then return tonumber((digits:gsub("^0o?", "")), 8) end
  if digits:find("^[-+]?%d*%.?%d+[eE]?[-+]?%d*$") or digits:find("^[-+]?%d+%.%d*[eE]?[-+]?%d*$") then
    return tonumber((digits:gsub("^%+", "")))
  end
end

--- Returns the value of a scalar.
local function scalar(event)
  if not event.plain_implicit then return event.value end
  local word = WORDS[event.value]
  if word ~= nil then return word end
  local number = number_of(event.value)
  if number == nil then return event.value end
  return number
end

-- }======

local function refuse(event, why)
  local mark = event.start_mark or { line = 0 }
  error({ why = ("line %d: %s"):format((mark.line or 0) + 1, why) }, 0)
end

local read_value

local function read_sequence(reader, depth)
  local list = json.array()
  while true do
    local event = reader.next()
    if event.type == "SEQUENCE_END" then return list end
    list[#list + 1] = read_value(reader, event, depth + 1)
  end
end

local function read_mapping(reader, depth)
  local object = {}
  while true do
    local event = reader.next()
    if event.type == "MAPPING_END" then return object end
    if event.type ~= "SCALAR" then refuse(event, "a name must be a string") end
    if event.value == "<<" and event.plain_implicit then refuse(event, "merge keys are not supported") end
    if object[event.value] ~= nil then refuse(event, ("the name %q occurs twice"):format(event.value)) end
    object[event.value] = read_value(reader, reader.next(), depth + 1)
  end
end

function read_value(reader, event, depth)
  reader.nodes = reader.nodes + 1
  if depth > MAX_DEPTH then refuse(event, "the document is nested too deeply") end
  if reader.nodes > MAX_NODES then refuse(event, "the document is too large") end
  if event.tag and event.tag ~= "!" then refuse(event, "tags are not supported") end
  if event.type == "SCALAR" then return scalar(event) end
  if event.type == "SEQUENCE_START" then return read_sequence(reader, depth) end
  if event.type == "MAPPING_START" then return read_mapping(reader, depth) end
  refuse(event, "aliases are not supported")
end

--- Returns the documents of a text.
local function read_all(text, parse)
  local reader, list = { next = parse(text), nodes = 0 }, {}
  while true do
    local event = reader.next()
    if event == nil or event.type == "STREAM_END" then return list end
    if event.type ~= "STREAM_START" and event.type ~= "DOCUMENT_START" and event.type ~= "DOCUMENT_END" then
      list[#list + 1] = read_value(reader, event, 1)
    end
  end
end

--- Returns the documents of a text as a list; or nil and a reason. Returns nil alone if lyaml is not installed.
local function decode_all(text)
  local parse = parser()
  if not parse then return nil end
  local ok, found = pcall(read_all, text, parse)
  if ok then return found end
  if type(found) == "table" and found.why then return nil, found.why end
  return nil, (tostring(found):gsub("^.-:%d+: ", ""))
end

--- Returns the only document of a text; or nil and a reason. Returns nil alone if lyaml is not installed.
local function decode(text)
  local list, why = decode_all(text)
  if not list then return nil, why end
  if not list[1] then return nil, "there is no document" end
  if list[2] ~= nil then return nil, "there are several documents" end
  return list[1]
end

return { decode = decode, decode_all = decode_all }
