-- SPDX-License-Identifier: MIT
--- json_text: changes members of a JSON object in its text, and leaves every other byte unchanged. Decoding and
-- encoding the whole object would change large numbers, empty lists and the order of members.
--
-- The texts are those of RFC 8259 in UTF-8, nested at most MAX_DEPTH deep. Everything else is refused, even if some
-- decoders accept it: in a text that is not understood, a wrong part could be changed. Names of members are compared
-- after their escapes were resolved. If a name occurs several times the last member counts, as in
-- keywatch.json.
--
-- An item is a member of an object, or an element of a list: { name = of a member, first = index of its first byte,
-- value = index of its value, after = index after it }. Items are in a list, in order, with the field `closing`, the
-- index of the closing bracket. No function is recursive, so a text cannot overflow the stack.

local MAX_DEPTH = 1000 -- of nested values, as in keywatch.json

-- {====== Scanning ======

local SPECIAL = '["\\%z\1-\31\128-\255]' -- bytes of a string that need special handling

-- The pattern that must follow a first byte of UTF-8, by that byte.
local UTF8 = {}
for byte = 0xC2, 0xDF do UTF8[byte] = "^[\128-\191]" end
for byte = 0xE0, 0xEF do UTF8[byte] = "^[\128-\191][\128-\191]" end
UTF8[0xE0], UTF8[0xED] = "^[\160-\191][\128-\191]", "^[\128-\159][\128-\191]"
for byte = 0xF0, 0xF4 do UTF8[byte] = "^[\128-\191][\128-\191][\128-\191]" end
UTF8[0xF0], UTF8[0xF4] = "^[\144-\191][\128-\191][\128-\191]", "^[\128-\143][\128-\191][\128-\191]"

local CLOSING = { ["{"] = "}", ["["] = "]" }
local WORDS = { ["true"] = true, ["false"] = true, ["null"] = true }

--- Returns the index after blanks.
local function skip_blanks(text, at)
  return text:find("[^ \t\r\n]", at) or #text + 1
end

--- Returns the index after an escape that begins at a backslash, or nil. Halves of surrogate pairs are refused.
local function skip_escape(text, at)
  if text:find('^["\\/bfnrt]', at + 1) then return at + 2 end
  local hex = text:match("^u(%x%x%x%x)", at + 1)
  local code = hex and tonumber(hex, 16)
  if not code or code >= 0xDC00 and code <= 0xDFFF then return nil end
  if code < 0xD800 or code > 0xDFFF then return at + 6 end
  return text:find("^\\u[dD][c-fC-F]%x%x", at + 6) and at + 12 or nil
end

--- Returns the index after a string that begins at a quotation mark; nil if the string is incomplete.
local function skip_string(text, at)
  if text:sub(at, at) ~= '"' then return nil end
  at = at + 1
  while at do
    at = text:find(SPECIAL, at)
    local byte = at and text:byte(at)
    if byte == 34 then return at + 1 end
    if byte == 92 then
      at = skip_escape(text, at)
    elseif byte then
      local _, last = text:find(UTF8[byte] or "^[^%z\1-\255]", at + 1)
      at = last and last + 1
    end
  end
  return nil
end

--- Returns the index after a number or a word, or nil.
local function skip_word(text, at)
  local word = text:match("^[%w%.%+%-]+", at)
  if not word then return nil end
  if not WORDS[word] then
    local fraction = word:match("^%-?0(.*)$") or word:match("^%-?[1-9]%d*(.*)$")
    local exponent = fraction and (fraction:match("^%.%d+(.*)$") or fraction)
    if not exponent or exponent ~= "" and not exponent:find("^[eE][%+%-]?%d+$") then return nil end
  end
  return at + #word
end

--- Returns the index of the value of a member that begins at an index, or nil.
local function skip_name(text, at)
  local after = skip_string(text, at)
  local colon = after and skip_blanks(text, after)
  if not colon or text:sub(colon, colon) ~= ":" then return nil end
  return skip_blanks(text, colon + 1), after
end

--- Returns the index after the value at an index, at this depth of the text; or nil if there is no complete value.
local function skip_value(text, at, depth)
  local closing, n = {}, 0 -- of the objects and lists around the value
  while at do
    local mark = text:sub(at, at)
    local bracket, is_done = CLOSING[mark], true
    if bracket then
      if depth + n >= MAX_DEPTH then return nil end
      at = skip_blanks(text, at + 1)
      n = n + 1
      closing[n] = bracket
      is_done = text:sub(at, at) == bracket
      if not is_done and bracket == "}" then at = skip_name(text, at) end
    elseif mark == '"' then
      at = skip_string(text, at)
    else
      at = skip_word(text, at)
    end
    while at and is_done do
      if n == 0 then return at end
      at = skip_blanks(text, at)
      mark = text:sub(at, at)
      if mark == closing[n] then
        n, at = n - 1, at + 1
      elseif mark == "," then
        at, is_done = skip_blanks(text, at + 1), false
        if closing[n] == "}" then at = skip_name(text, at) end
      else
        return nil
      end
    end
  end
  return nil
end

-- }======

-- {====== Strings ======

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

--- Returns a code point in UTF-8.
local function utf8_of(code)
  local char, floor = string.char, math.floor
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
    0x80 + code % 64)
end

--- Returns the string of which a text, without its quotation marks, is the JSON.
local function unescape(text)
  if not text:find("\\", 1, true) then return text end
  local parts, at = {}, 1
  while at <= #text do
    local from = text:find("\\", at, true)
    if not from then break end
    parts[#parts + 1] = text:sub(at, from - 1)
    local after = skip_escape(text, from)
    local mark = text:sub(from + 1, from + 1)
    if mark ~= "u" then
      parts[#parts + 1] = ESCAPES[mark] or mark
    else
      local code = tonumber(text:sub(from + 2, from + 5), 16)
      if after == from + 12 then
        code = 0x10000 + (code - 0xD800) * 1024 + tonumber(text:sub(from + 8, from + 11), 16) - 0xDC00
      end
      parts[#parts + 1] = utf8_of(code)
    end
    at = after
  end
  return table.concat(parts) .. text:sub(at)
end

--- Returns the JSON of a string; nil if that is not UTF-8.
local function quote(text)
  local quoted = '"' .. text:gsub('[%z\1-\31"\\]', function(byte)
    return ("\\u%04x"):format(byte:byte())
  end) .. '"'
  return skip_string(quoted, 1) == #quoted + 1 and quoted or nil
end

-- }======

-- {====== Reading ======

--- Returns the items of the object or list at an index, at this depth of the text; or nil if there is none, or if it is
-- incomplete.
local function items_of(text, at, depth)
  local bracket = CLOSING[text:sub(at, at)]
  if not bracket then return nil end
  local items, is_object = { closing = nil }, bracket == "}"
  at = skip_blanks(text, at + 1)
  local is_last = text:sub(at, at) == bracket
  while not is_last do
    local item, name_end = { name = nil, first = at, value = at, after = nil }, nil
    if is_object then item.value, name_end = skip_name(text, at) end
    item.after = item.value and skip_value(text, item.value, depth + 1)
    if not item.after then return nil end
    if is_object then item.name = unescape(text:sub(at + 1, name_end - 2)) end
    items[#items + 1] = item
    at = skip_blanks(text, item.after)
    local mark = text:sub(at, at)
    is_last = mark == bracket
    if not is_last then
      if mark ~= "," then return nil end
      at = skip_blanks(text, at + 1)
    end
  end
  items.closing = at
  return items
end

--- Returns the items of a text that is one JSON object, and the index of its first byte; or nil if the text is not an
-- object.
local function open(text)
  local at = skip_blanks(text, 1)
  local items = text:sub(at, at) == "{" and items_of(text, at, 0)
  if not items or skip_blanks(text, items.closing + 1) <= #text then return nil end
  return items, at
end

--- Returns the last member of a name, or nil.
local function find(items, name)
  for i = #items, 1, -1 do
    if items[i].name == name then return items[i] end
  end
end

--- Returns the JSON of an item's value.
local function value_of(text, item)
  return text:sub(item.value, item.after - 1)
end

--- Returns the value of an item if it is a string, else nil.
local function string_of(text, item)
  if text:sub(item.value, item.value) ~= '"' then return nil end
  return unescape(text:sub(item.value + 1, item.after - 2))
end

-- }======

-- {====== Changing ======

--- Returns a text in which the value of an item is replaced by another, which is JSON.
local function replace(text, item, value)
  return text:sub(1, item.value - 1) .. value .. text:sub(item.after)
end

--- Returns a text with another item, which is JSON, at the end of an object or a list.
local function append(text, items, json)
  local last = items[#items]
  local from = last and last.after or items.closing
  return text:sub(1, from - 1) .. (last and "," or "") .. json .. text:sub(from)
end

--- Returns a text without the items for which must_go(item) is true.
local function remove(text, items, must_go)
  local parts, last = {}, nil
  for i, item in ipairs(items) do
    if not must_go(item) then
      parts[#parts + 1] = text:sub(last and items[i - 1].after or item.first, item.first - 1)
      parts[#parts + 1] = text:sub(item.first, item.after - 1)
      last = item
    end
  end
  if not items[1] then return text end
  return text:sub(1, items[1].first - 1) .. table.concat(parts) .. text:sub(items[#items].after)
end

-- }======

return {
  open = open, items_of = items_of, find = find, value_of = value_of, string_of = string_of, replace = replace,
  append = append, remove = remove, quote = quote, MAX_DEPTH = MAX_DEPTH,
}
