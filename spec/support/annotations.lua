--- Parses the LuaCATS annotations of a file to tables: the part of the language that types/ uses.
--
--   classes[name]   { parents = { name… }, fields = { [name] = field }, methods = { [name] = method } }
--   aliases[name]   list of types
--   a field         { type =, is_optional = }
--   a method        { params = { [name] = type }, returns = { type… } }

local annotations = {}
annotations.__index = annotations

local function new_class(parents)
  local class = { parents = {}, fields = {}, methods = {} }
  for parent in parents:gmatch("[%w_.]+") do table.insert(class.parents, parent) end
  return class
end

--- Gives a class the methods of its parents that it does not declare itself.
local function inherit(self, class)
  for _, parent in ipairs(class.parents) do
    local above = self.classes[parent]
    inherit(self, above)
    for name, method in pairs(above.methods) do class.methods[name] = class.methods[name] or method end
  end
end

--- Returns the rules for lines of annotations and code: { pattern, function of its captures }. The first match counts.
local function readers(self)
  local class, alias -- to which the next lines add
  local variables = {} -- the classes of local tables
  local fn = { params = {}, returns = {} } -- of the next function

  local function finish(owner, name)
    local methods = variables[owner].methods
    methods[name] = fn
    fn = { params = {}, returns = {} }
  end

  return {
    { "^%-%-%-@class ([%w_.]+):?(.*)", function(name, parents)
      class = new_class(parents)
      self.classes[name] = class
    end },
    { "^%-%-%-@field private ", function() end },
    { "^%-%-%-@field ([%w_]+)(%??) (%S+)", function(name, mark, kind)
      class.fields[name] = { type = kind, is_optional = mark == "?" }
    end },
    { "^%-%-%-@alias ([%w_.]+) ?(%S*)", function(name, kind)
      alias = kind ~= "" and { kind } or {}
      self.aliases[name] = alias
    end },
    { "^%-%-%-| (%S+)", function(kind) table.insert(alias, kind) end },
    { "^%-%-%-@param ([%w_]+)%?? (%S+)", function(name, kind) fn.params[name] = kind end },
    { "^%-%-%-@return (fun%(.*)", function(kind) table.insert(fn.returns, kind) end },
    { "^%-%-%-@return (%S+)", function(kind) table.insert(fn.returns, kind) end },
    { "^local ([%w_]+) = {}", function(name) variables[name] = class end },
    { "^function ([%w_]+)[.:]([%w_]+)", finish },
  }
end

function annotations.read(path)
  local self = setmetatable({ classes = {}, aliases = {} }, annotations)
  local rules = readers(self)
  for line in io.lines(path) do
    for _, rule in ipairs(rules) do
      if line:find(rule[1]) then
        rule[2](line:match(rule[1]))
        break
      end
    end
  end
  for _, class in pairs(self.classes) do inherit(self, class) end
  return self
end

--- Returns the fields of a class, with those of its parents.
function annotations:fields(name)
  local all = {}
  local class = assert(self.classes[name], name)
  for _, parent in ipairs(class.parents) do
    for field, info in pairs(self:fields(parent)) do all[field] = info end
  end
  for field, info in pairs(class.fields) do all[field] = info end
  return all
end

local function split(kind)
  local parts = {}
  for part in kind:gmatch("[^|]+") do table.insert(parts, part) end
  return parts
end

local basic = {
  any = function() return true end,
  boolean = function(v) return type(v) == "boolean" end,
  integer = function(v) return type(v) == "number" and v % 1 == 0 end,
  number = function(v) return type(v) == "number" end,
  string = function(v) return type(v) == "string" end,
  table = function(v) return type(v) == "table" end,
}

local function list_trouble(self, value, kind, where)
  if type(value) ~= "table" then return where .. " is not a list" end
  local n = 0
  for _ in pairs(value) do n = n + 1 end
  if n ~= #value then return where .. " has more than a list has" end
  for i = 1, n do
    local trouble = self:trouble(value[i], kind, ("%s[%d]"):format(where, i))
    if trouble then return trouble end
  end
end

local function class_trouble(self, value, name, where)
  if type(value) ~= "table" then return ("%s is a %s, and no %s"):format(where, type(value), name) end
  local fields = self:fields(name)
  for field in pairs(value) do
    if not fields[field] then return ("%s has a field '%s' that %s has not"):format(where, field, name) end
  end
  for field, info in pairs(fields) do
    local kind = info.is_optional and info.type .. "?" or info.type
    local trouble = self:trouble(value[field], kind, where .. "." .. field)
    if trouble then return trouble end
  end
end

local function union_trouble(self, value, kinds, where)
  for _, kind in ipairs(kinds) do
    if not self:trouble(value, kind, where) then return nil end
  end
  return ("%s is %s, and none of %s"):format(where, tostring(value), table.concat(kinds, ", "))
end

--- Returns why a value is not of a type, or nil if it is.
function annotations:trouble(value, kind, where)
  if kind:find("^fun%(") then return type(value) ~= "function" and where .. " is not a function" or nil end
  local inner = kind:match("^(.*)%?$")
  if inner then return value ~= nil and self:trouble(value, inner, where) or nil end
  if kind:find("|", 1, true) then return union_trouble(self, value, split(kind), where) end
  if kind:find("%[%]$") then return list_trouble(self, value, kind:sub(1, -3), where) end
  if basic[kind] then return not basic[kind](value) and ("%s is a %s"):format(where, type(value)) or nil end
  if self.aliases[kind] then return union_trouble(self, value, self.aliases[kind], where) end
  if self.classes[kind] then return class_trouble(self, value, kind, where) end
  local literal = kind:match('^"(.*)"$') or kind == "true"
  if kind == "false" then literal = false end
  return value ~= literal and ("%s is not %s"):format(where, kind) or nil
end

local samples = {
  any = { 1 },
  boolean = { true, false },
  integer = { 1 },
  number = { 1, 1.5 },
  string = { "x" },
  ["function"] = { function() end },
}

--- Returns sample values of a type, with every literal of an alias. `others` has the values of all other types.
function annotations:samples(kind, others)
  local literal = kind:match('^"(.*)"$')
  if literal then return { literal } end
  if kind:find("%[%]$") then return { {} } end
  if others[kind] or samples[kind] then return others[kind] or samples[kind] end
  local all = {}
  for _, part in ipairs(self.aliases[kind] or split(kind)) do
    assert(part ~= kind, "no sample of " .. kind)
    for _, value in ipairs(self:samples(part, others)) do table.insert(all, value) end
  end
  return all
end

return annotations
