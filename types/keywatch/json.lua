---@meta keywatch.json
-- SPDX-License-Identifier: MIT
-- JSON in LuaCATS annotations, for lua-language-server. This file is not executed.

---JSON from and to Lua values, exact in both directions.
---@class keywatch.json
---@field null lightuserdata the value of null: true in conditions, equal to cjson.null and ngx.null
local json = {}

---Decodes a JSON text.
---@param text string
---@param opts? keywatch.json.DecodeOptions
---@return any value nil if the text was refused
---@return keywatch.Error? err "malformed", "out_of_range", "resource_exhausted" or "out_of_memory"
---@nodiscard
function json.decode(text, opts) end

---Encodes a value as a JSON text.
---@param value any
---@param opts? keywatch.json.EncodeOptions
---@return string? text
---@return keywatch.Error? err "invalid_argument", "resource_exhausted" or "out_of_memory"
---@nodiscard
function json.encode(value, opts) end

---Marks a table as an array, which is encoded as [] when it is empty.
---@param list? table a new table unless given
---@return table list
function json.array(list) end

---@class keywatch.json.DecodeOptions
---@field depth? integer maximum nesting of objects and arrays; 1000, which is also the highest allowed value
---@field max_bytes? integer the longest text; 64 MiB
---@field integers? "string"|"number"|"error" what becomes of an integer that a Lua number cannot hold; "string"
---@field duplicates? "last"|"error" which member of a name counts; "last"
---@field ordered? boolean whether objects keep the order of their members when they are encoded again; false

---@class keywatch.json.EncodeOptions
---@field depth? integer maximum nesting of objects and arrays; 1000, which is also the highest allowed value
---@field max_bytes? integer the longest text; 64 MiB
---@field sort_keys? boolean whether the members of objects are sorted by name; false
---@field indent? integer blanks for each level, each item on a line of its own; 0: all in one line

return json
