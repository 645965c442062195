-- SPDX-License-Identifier: MIT
--- selector_text: the text forms of selectors, as Kubernetes has them.
--
--   labels   "app=web,tier in (a, b),env!=test,!old,version,generation>3"
--   fields   "spec.nodeName=n1,status.phase!=Running"
--
-- Of labels, names and values are everything between blanks and the signs = ! ( ) , > <. Of fields, a value is
-- everything up to the next comma; a backslash escapes each comma, equals sign and backslash of the value.
--
-- A parser returns a list of requirements { name, operator, values }; or nil and the reason, as a predicate.

local OPERATORS = { ["="] = "in", ["=="] = "in", ["!="] = "notin", ["in"] = "in", ["notin"] = "notin" }
local BOUNDS = { [">"] = true, ["<"] = true }

-- {====== Labels ======

--- Returns the tokens of a text: { text, at, is_word }. The last one is the end, an empty text.
local function tokens_of(text)
  local list, at = {}, 1
  while true do
    at = text:find("%S", at)
    if not at then break end
    local word = text:match("^[^%s=!(),<>]+", at)
    local found = word or text:match("^[=!]=", at) or text:sub(at, at)
    list[#list + 1] = { text = found, at = at, is_word = word ~= nil }
    at = at + #found
  end
  list[#list + 1] = { text = "", at = #text + 1, is_word = false }
  return list
end

--- Raises the reason, as a table.
local function refuse(token, wanted)
  local found = token.text == "" and "ends" or ("has '%s'"):format(token.text)
  error({ why = ("%s at byte %d, where %s is expected"):format(found, token.at, wanted) }, 0)
end

local reader_methods = {}
local reader_mt = { __index = reader_methods }

--- Returns the next token without taking it.
function reader_methods:peek()
  return self.tokens[self.index]
end

--- Takes the next token if it is this sign. Returns true if it was.
function reader_methods:take(sign)
  local token = self:peek()
  if token.is_word or token.text ~= sign then return false end
  self.index = self.index + 1
  return true
end

--- Takes a sign. Raises if another token is next.
function reader_methods:expect(sign, wanted)
  if not self:take(sign) then refuse(self:peek(), wanted) end
end

--- Takes a word and returns it. Raises if a sign is next.
function reader_methods:word(wanted)
  local token = self:peek()
  if not token.is_word then refuse(token, wanted) end
  self.index = self.index + 1
  return token.text
end

--- Takes the value after a sign; the empty one if there is none.
function reader_methods:value()
  return self:peek().is_word and self:word() or ""
end

--- Takes the values in parentheses. Returns a list. As in Kubernetes, a missing value is the empty one.
function reader_methods:values()
  self:expect("(", "'('")
  local list = {}
  repeat list[#list + 1] = self:value() until not self:take(",")
  self:expect(")", "',' or ')'")
  return list
end

--- True if a text is a whole number of 64 bits.
local function is_whole(text)
  if not text:find("^[+-]?%d+$") then return false end -- first, since the next pattern is slow on other long texts
  local sign, digits = text:match("^([+-]?)0*(%d+)$")
  local most = sign == "-" and "9223372036854775808" or "9223372036854775807"
  return #digits < #most or #digits == #most and digits <= most
end

--- Takes the number after > or <. Raises if it is not an integer.
function reader_methods:bound()
  local token = self:peek()
  local text = self:word("a whole number")
  if not is_whole(text) then refuse(token, "a whole number") end
  return text
end

--- Takes a requirement.
function reader_methods:requirement()
  if self:take("!") then return { name = self:word("a name"), operator = "not exists", values = {} } end
  local name, token = self:word("a name"), self:peek()
  local sign = token.text
  if BOUNDS[sign] then
    self.index = self.index + 1
    return { name = name, operator = sign, values = { self:bound() } }
  end
  local operator = OPERATORS[sign]
  if not operator then return { name = name, operator = "exists", values = {} } end
  self.index = self.index + 1
  return { name = name, operator = operator, values = token.is_word and self:values() or { self:value() } }
end

--- Returns the requirements of a text. Raises the reason if the text is malformed.
local function read_all(text)
  local self = setmetatable({ tokens = tokens_of(text), index = 1 }, reader_mt)
  local list = {}
  if self:peek().text == "" then return list end
  repeat list[#list + 1] = self:requirement() until not self:take(",")
  if self:peek().text ~= "" then refuse(self:peek(), "',' or the end") end
  return list
end

--- Parses a label selector.
local function labels(text)
  local ok, found = pcall(read_all, text)
  if ok then return found end
  if type(found) ~= "table" or not found.why then error(found, 0) end
  return nil, found.why
end

-- }======

-- {====== Fields ======

local ESCAPES = { ["\\"] = true, [","] = true, ["="] = true }

--- Returns the parts of a text between the commas that have no backslash before them, and where each begins.
local function terms_of(text)
  local list, from, at = {}, 1, 1
  while at <= #text + 1 do
    local char = text:sub(at, at)
    if char == "," or at > #text then
      list[#list + 1] = { text = text:sub(from, at - 1), at = from }
      from = at + 1
    end
    at = at + (char == "\\" and 2 or 1)
    if at > #text + 1 and from <= #text then at = #text + 1 end -- the last byte is a backslash
    if from > #text + 1 then break end
  end
  return list
end

--- Returns a value without its escapes; or nil and the reason. `at` is its position in the whole text.
local function unescape(value, at)
  local parts, i = {}, 1
  while i <= #value do
    local char = value:sub(i, i)
    if char == "=" then return nil, ("has '=' at byte %d, which needs a backslash"):format(at + i - 1) end
    if char == "\\" then
      i = i + 1
      char = value:sub(i, i)
      if not ESCAPES[char] then
        return nil, ("has a backslash at byte %d, which stands only before ',', '=' and '\\'"):format(at + i - 2)
      end
    end
    parts[#parts + 1] = char
    i = i + 1
  end
  return table.concat(parts)
end

--- Returns a text without the blanks around it.
local function trim(text)
  local first, last = text:find("%S"), #text
  if not first then return "" end
  while text:find("^%s", last) do last = last - 1 end
  return text:sub(first, last)
end

--- Returns the requirement of a term; or nil and the reason.
local function field_requirement(term)
  local name, sign, value = term.text:match("^([^=!]*)([=!]=)(.*)$")
  if not name then name, sign, value = term.text:match("^([^=!]*)(=)(.*)$") end
  if not name then return nil, ("has '%s' at byte %d, which has no '=', '==' or '!='"):format(term.text, term.at) end
  local trimmed = trim(name)
  if trimmed == "" then return nil, ("has no name at byte %d"):format(term.at) end
  local plain, why = unescape(value, term.at + #name + #sign)
  if not plain then return nil, why end
  return { name = trimmed, operator = OPERATORS[sign], values = { plain } }
end

--- Parses a field selector. As in Kubernetes, empty terms are skipped.
local function fields(text)
  local list = {}
  for _, term in ipairs(terms_of(text)) do
    if term.text:find("%S") then
      local one, why = field_requirement(term)
      if not one then return nil, why end
      list[#list + 1] = one
    end
  end
  return list
end

-- }======

return { labels = labels, fields = fields, is_whole = is_whole }
