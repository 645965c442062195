-- SPDX-License-Identifier: MIT
--- pattern_syntax: reads regular expressions, in the syntax of Go, which Kubernetes uses. Returns a tree of nodes:
--
--   { op = "set", ranges }              one character; `ranges` are pairs of code points { from, to }
--   { op = "cat", ... }                 one after the other
--   { op = "alt", ... }                 one of them
--   { op = "repeat", node, min, max }   `max` is nil if there is no limit
--   { op = "assert", kind }             "begin", "end" of the text; "line begin", "line end"; "word", "not word"
--
-- Whether repetitions are lazy makes no difference here. Refused: lookaround, back references (Go has neither), and
-- classes of Unicode such as \pL.

local LAST = 0x10FFFF -- the greatest code point
local MAX_REPEAT = 1000 -- as in Go
local MAX_DEPTH = 200 -- of groups
local MAX_LENGTH = 10000 -- bytes of a pattern

-- {====== Sets of characters ======

local DIGITS = { { 0x30, 0x39 } }
local SPACES = { { 0x09, 0x0A }, { 0x0C, 0x0D }, { 0x20, 0x20 } }
local WORDS = { { 0x30, 0x39 }, { 0x41, 0x5A }, { 0x5F, 0x5F }, { 0x61, 0x7A } }
local UPPER, LOWER = { 0x41, 0x5A }, { 0x61, 0x7A }

local NAMED = {
  alnum = { { 0x30, 0x39 }, UPPER, LOWER }, alpha = { UPPER, LOWER }, ascii = { { 0, 0x7F } },
  blank = { { 0x09, 0x09 }, { 0x20, 0x20 } }, cntrl = { { 0, 0x1F }, { 0x7F, 0x7F } }, digit = DIGITS,
  graph = { { 0x21, 0x7E } }, lower = { LOWER }, print = { { 0x20, 0x7E } },
  punct = { { 0x21, 0x2F }, { 0x3A, 0x40 }, { 0x5B, 0x60 }, { 0x7B, 0x7E } },
  space = { { 0x09, 0x0D }, { 0x20, 0x20 } }, upper = { UPPER }, word = WORDS,
  xdigit = { { 0x30, 0x39 }, { 0x41, 0x46 }, { 0x61, 0x66 } },
}

--- Returns ranges sorted, and joined where they overlap.
local function joined(ranges)
  table.sort(ranges, function(a, b) return a[1] < b[1] end)
  local list = {}
  for _, range in ipairs(ranges) do
    local last = list[#list]
    if last and range[1] <= last[2] + 1 then
      last[2] = math.max(last[2], range[2])
    else
      list[#list + 1] = { range[1], range[2] }
    end
  end
  return list
end

--- Returns all characters that are not in ranges.
local function negated(ranges)
  local list, from = {}, 0
  for _, range in ipairs(joined(ranges)) do
    if range[1] > from then list[#list + 1] = { from, range[1] - 1 } end
    from = range[2] + 1
  end
  if from <= LAST then list[#list + 1] = { from, LAST } end
  return list
end

--- Adds to ranges the part of a range that has letters between two code points, `distance` further.
local function add_folded(ranges, range, letters, distance)
  local from, to = math.max(range[1], letters[1]), math.min(range[2], letters[2])
  if from <= to then ranges[#ranges + 1] = { from + distance, to + distance } end
end

--- Returns ranges with the other case of all letters of ASCII.
local function folded(ranges)
  local list = {}
  for _, range in ipairs(ranges) do
    list[#list + 1] = range
    add_folded(list, range, UPPER, 32)
    add_folded(list, range, LOWER, -32)
  end
  return joined(list)
end

local CLASSES = {
  d = DIGITS, s = SPACES, w = WORDS, D = negated(DIGITS), S = negated(SPACES), W = negated(WORDS),
}
local NOT_NEWLINE, ANY = negated { { 0x0A, 0x0A } }, { { 0, LAST } }

-- }======

-- {====== The reader ======

local reader_methods = {}
local reader_mt = { __index = reader_methods }

--- Raises the reason why a pattern is refused, as a table.
local function refuse(text, ...)
  error({ why = text:format(...) }, 0)
end

--- Takes what a Lua pattern matches next. Returns its captures, or nil.
function reader_methods:take(pattern)
  local from, stop, a, b = self.text:find("^" .. pattern, self.at)
  if not from then return nil end
  self.at = stop + 1
  return a or self.text:sub(from, stop), b
end

--- True if the pattern is read to its end.
function reader_methods:is_done()
  return self.at > #self.text
end

--- Takes a character of UTF-8. Returns its code point.
function reader_methods:character()
  local text = self:take "[%z\1-\127]" or self:take "[\194-\244][\128-\191]*"
  if not text then refuse("is not UTF-8") end
  local a, b, c, d = text:byte(1, 4)
  if #text == 1 then return a end
  if #text == 2 then return (a - 0xC0) * 64 + b - 0x80 end
  if #text == 3 then return ((a - 0xE0) * 64 + b - 0x80) * 64 + c - 0x80 end
  if #text == 4 then return (((a - 0xF0) * 64 + b - 0x80) * 64 + c - 0x80) * 64 + d - 0x80 end
  refuse("is not UTF-8")
end

local CONTROLS = { a = 7, f = 12, n = 10, r = 13, t = 9, v = 11 }

--- Takes what follows a backslash, of a single character. Returns its code point.
function reader_methods:escape()
  local hex = self:take "x(%x%x)" or self:take "x{(%x+)}"
  if hex then
    if #hex > 6 or tonumber(hex, 16) > LAST then refuse("has an escape of no character: \\x{%s}", hex) end
    return tonumber(hex, 16)
  end
  local octal = self:take "0[0-7]?[0-7]?"
  if octal then return tonumber(octal, 8) end
  local name = self:take "[afnrtv]"
  if name then return CONTROLS[name] end
  local sign = self:take "[!-/:-@%[-`{-~]"
  if sign then return sign:byte() end
  if self:take "[1-9]" then refuse("has a back reference, which is not supported") end
  if self:take "[pP]" then refuse("has a class of Unicode, such as \\pL, which is not supported") end
  refuse("has an unknown escape: \\%s", self.text:sub(self.at, self.at))
end

--- Returns a set as a node.
function reader_methods:set(ranges)
  return { op = "set", ranges = self.flags.i and folded(ranges) or ranges }
end

-- }======

-- {====== Classes in brackets ======

--- Adds the ranges of a list to another one.
local function append(list, ranges)
  for _, range in ipairs(ranges) do list[#list + 1] = { range[1], range[2] } end
end

--- Takes a class inside of brackets, such as \d or [:alpha:], and adds it to a list. Returns false if there is none.
function reader_methods:inner_class(list)
  local letter = self:take "\\([dswDSW])"
  if letter then
    append(list, CLASSES[letter])
    return true
  end
  local sign, name = self:take "%[:(^?)(%a+):%]"
  if not sign then return false end
  if not NAMED[name] then refuse("has an unknown class: [:%s:]", name) end
  append(list, sign == "^" and negated(NAMED[name]) or NAMED[name])
  return true
end

--- Takes a character inside of brackets.
function reader_methods:inner_character()
  if self:is_done() then refuse("has a bracket that is not closed") end
  return self:take "\\" and self:escape() or self:character()
end

--- Takes the rest of a class, after its bracket. Returns a node.
function reader_methods:class()
  local is_negated, list = self:take "%^", {}
  if self:take "]" then list[1] = { 0x5D, 0x5D } end
  while not self:take "]" do
    if not self:inner_class(list) then
      local from = self:inner_character()
      local to = from
      if self.text:find("^%-[^%]]", self.at) then
        self.at = self.at + 1
        to = self:inner_character()
      end
      if to < from then refuse("has a range whose end is before its beginning") end
      list[#list + 1] = { from, to }
    end
  end
  local ranges = joined(list)
  if self.flags.i then ranges = folded(ranges) end
  return { op = "set", ranges = is_negated and negated(ranges) or ranges }
end

-- }======

-- {====== Terms ======

--- Takes the rest of an escape that is a term. Returns a node.
function reader_methods:escaped_term()
  local letter = self:take "[dswDSW]"
  if letter then return self:set(CLASSES[letter]) end
  if self:take "b" then return { op = "assert", kind = "word" } end
  if self:take "B" then return { op = "assert", kind = "not word" } end
  if self:take "A" then return { op = "assert", kind = "begin" } end
  if self:take "z" then return { op = "assert", kind = "end" } end
  local code = self:escape()
  return self:set { { code, code } }
end

--- Takes the rest of \Q, up to \E. Returns a node.
function reader_methods:literal()
  local node = { op = "cat" }
  while not self:is_done() and not self:take "\\E" do
    local code = self:character()
    node[#node + 1] = self:set { { code, code } }
  end
  return node
end

--- Sets flags, such as "i-s".
function reader_methods:set_flags(text)
  local flags, is_on = {}, true
  for name, is_set in pairs(self.flags) do flags[name] = is_set end
  for name in text:gmatch "." do
    if name == "-" then is_on = false else flags[name] = is_on end
  end
  self.flags = flags
end

--- Takes the rest of a group, after its parenthesis. Returns a node.
function reader_methods:group()
  local before = self.flags
  if self:take "%?" then
    if self:take "<?[=!]" then refuse("has a lookahead or a lookbehind, which is not supported") end
    if not self:take "P?<[A-Za-z0-9_]+>" then
      local flags, sign = self:take "([imsU-]*)([:)])"
      if not flags then refuse("has an unknown group: (?%s", self.text:sub(self.at, self.at)) end
      self:set_flags(flags)
      if sign == ")" then return { op = "cat" } end
    end
  end
  self.depth = self.depth + 1
  if self.depth > MAX_DEPTH then refuse("has groups that are nested too deeply") end
  local node = self:alternatives()
  if not self:take "%)" then refuse("has a parenthesis that is not closed") end
  self.depth, self.flags = self.depth - 1, before
  return node
end

--- Takes a term without its repetition. Returns a node.
function reader_methods:atom()
  if self:take "%(" then return self:group() end
  if self:take "%[" then return self:class() end
  if self:take "%." then return { op = "set", ranges = self.flags.s and ANY or NOT_NEWLINE } end
  if self:take "%^" then return { op = "assert", kind = self.flags.m and "line begin" or "begin" } end
  if self:take "%$" then return { op = "assert", kind = self.flags.m and "line end" or "end" } end
  if self:take "\\Q" then return self:literal() end
  if self:take "\\" then
    if self:is_done() then refuse("ends in a backslash") end
    return self:escaped_term()
  end
  if self.text:find("^[*+?]", self.at) then refuse("repeats nothing at byte %d", self.at) end
  local code = self:character()
  return self:set { { code, code } }
end

--- Takes a repetition. Returns its bounds; or nil if there is none.
function reader_methods:bounds()
  if self:take "%*" then return 0, nil end
  if self:take "%+" then return 1, nil end
  if self:take "%?" then return 0, 1 end
  local exact = self:take "{(%d+)}"
  local least, most = exact, exact
  if not least then least, most = self:take "{(%d+),(%d*)}" end
  if not least then return nil end
  least, most = tonumber(least), tonumber(most)
  if least > MAX_REPEAT or most and (most > MAX_REPEAT or most < least) then
    refuse("has a repetition that is not from 0 to %d", MAX_REPEAT)
  end
  return least, most
end

--- Takes a term. Returns a node.
function reader_methods:term()
  local node = self:atom()
  local least, most = self:bounds()
  if not least then return node end
  self:take "%?"
  if self:bounds() then refuse("repeats a repetition before byte %d", self.at) end
  return { op = "repeat", node, min = least, max = most }
end

--- Takes terms up to the next | or ). Returns a node.
function reader_methods:sequence()
  local node = { op = "cat" }
  while not self:is_done() and not self.text:find("^[|)]", self.at) do node[#node + 1] = self:term() end
  return node
end

--- Takes alternatives up to the next ). Returns a node.
function reader_methods:alternatives()
  local node = { op = "alt", self:sequence() }
  while self:take "|" do node[#node + 1] = self:sequence() end
  return node[2] and node or node[1]
end

-- }======

--- Reads a whole pattern. Raises the reason if it is refused.
local function read(text)
  if #text > MAX_LENGTH then refuse("has more than %d bytes", MAX_LENGTH) end
  local self = setmetatable({ text = text, at = 1, depth = 0, flags = {} }, reader_mt)
  local node = self:alternatives()
  if not self:is_done() then refuse("has a ')' without '(' at byte %d", self.at) end
  return node
end

--- Returns the tree of a pattern; or nil and the reason why it is refused, as a predicate.
local function parse(text)
  local ok, found = pcall(read, text)
  if ok then return found end
  if type(found) ~= "table" or not found.why then error(found, 0) end
  return nil, found.why
end

return { parse = parse }
