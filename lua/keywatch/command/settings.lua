-- SPDX-License-Identifier: MIT
--- settings: the values of a command's flags, from the command line, the environment and a configuration file.
--
-- ETCD_MAX_TXN_OPS stands for --max-txn-ops; an empty variable counts as absent. A flag overrides its variable; etcd
-- would refuse to start. If there is a file, only the file counts.

local config_file = require "keywatch.command.config_file"
local flags = require "keywatch.command.flags"

local FILE = "config-file" -- the flag that names the file
local PREFIX = "ETCD_"     -- of variables, unless the command has another one

-- {====== Variables of the environment ======

--- Returns the variable of a flag.
local function variable_of(prefix, name)
  return prefix .. name:upper():gsub("-", "_")
end

--- Returns the names of all variables with the prefix, sorted. They come from /proc, since Lua cannot list variables.
-- Without /proc the list is empty.
local function names(prefix)
  local list = {}
  local file = io.open("/proc/self/environ", "rb")
  if not file then return list end
  for name in file:read("*a"):gmatch("([^=%z]+)=%Z*") do
    if name:sub(1, #prefix) == prefix then list[#list + 1] = name end
  end
  file:close()
  table.sort(list)
  return list
end

--- Reads variables. `known` is { [flag] = kind }. Returns { [flag] = value }; or nil and a sentence that says what is
-- wrong.
local function read_variables(prefix, known)
  local values = {}
  for flag, kind in pairs(known) do
    local text = os.getenv(variable_of(prefix, flag)) or ""
    if text ~= "" then
      local parsed, wanted = flags.parse(kind, text)
      if parsed == nil then return nil, ("%s must be %s, not '%s'"):format(variable_of(prefix, flag), wanted, text) end
      values[flag] = parsed
    end
  end
  return values
end

--- Returns the variables with the prefix that belong to no flag, sorted.
local function unknown_variables(prefix, known)
  local is_known, list = {}, {}
  for flag in pairs(known) do is_known[variable_of(prefix, flag)] = true end
  for _, name in ipairs(names(prefix)) do
    if not is_known[name] then list[#list + 1] = name end
  end
  return list
end

-- }======

local settings_methods = {}
local settings_mt = { __index = settings_methods }

--- Returns the name of a setting as the user wrote it, for error texts: a flag, a variable, or a name in a file.
function settings_methods:name_of(flag)
  return self.origins[flag] or "--" .. flag
end

local function new(prefix)
  return setmetatable({
    prefix = prefix, -- of variables
    values = {},  -- by flag
    origins = {}, -- names as the user wrote them, by flag
    unused = {},  -- flags and variables that another setting overrides, each with that setting
    unknown = {}, -- variables without a flag
  }, settings_mt)
end

--- Returns a copy of the known flags without some of them.
local function without(known, absent)
  local rest = {}
  for flag, kind in pairs(known) do rest[flag] = kind end
  for _, flag in ipairs(absent) do rest[flag] = nil end
  return rest
end

--- Adds the value of a flag on the command line.
local function add_flag(self, flag, value)
  self.values[flag], self.origins[flag] = value, "--" .. flag
end

--- Adds the value of a variable, unless the flag is on the command line.
local function add_variable(self, flag, value)
  local variable = variable_of(self.prefix, flag)
  if self.values[flag] == nil then
    self.values[flag], self.origins[flag] = value, variable
  else
    table.insert(self.unused, variable .. " beside --" .. flag)
  end
end

--- Removes all settings that are not from the file: they have no effect.
local function remove_others(self, path)
  for flag, origin in pairs(self.origins) do
    if flag ~= FILE then table.insert(self.unused, origin .. " beside " .. path) end
  end
  self.values, self.origins = {}, {}
end

--- Replaces all settings by those of the file. Returns a sentence with the reason; or nil.
local function add_file(self, path, known)
  local values, fault = config_file.read(path, without(known, { FILE }))
  if not values then return ("%s %s: %s"):format(self:name_of(FILE), path, fault) end
  remove_others(self, path)
  for flag, value in pairs(values) do
    self.values[flag], self.origins[flag] = value, ("'%s' in %s"):format(flag, path)
  end
end

--- Adds the settings of the environment, and of the file, if there is one. Returns a sentence with the reason;
-- or nil.
local function add_others(self, known)
  local values, fault = read_variables(self.prefix, known)
  if not values then return fault end
  for flag, value in pairs(values) do add_variable(self, flag, value) end
  self.unknown = unknown_variables(self.prefix, known)
  if self.values[FILE] then fault = add_file(self, self.values[FILE], known) end
  table.sort(self.unused)
  return fault
end

--- Reads all settings. `known` is { [flag] = kind }. Returns settings; or nil and a sentence with the reason.
-- `alone` lists flags such as --help: they count only on the command line, and then environment and file are not read.
-- `prefix` is that of the variables, ETCD_ unless given.
local function read(arguments, known, alone, prefix)
  local self = new(prefix or PREFIX)
  local values, fault = flags.read(arguments, known)
  if not values then return nil, fault end
  for flag, value in pairs(values) do add_flag(self, flag, value) end
  for _, flag in ipairs(alone) do
    if values[flag] then return self end
  end
  fault = add_others(self, without(known, alone))
  if fault then return nil, fault end
  return self
end

return { read = read }
