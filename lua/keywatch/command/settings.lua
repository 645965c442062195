-- SPDX-License-Identifier: MIT
--- settings: the values of a command's flags, from the command line, the environment and a configuration file.
--
-- The variable ETCD_MAX_TXN_OPS sets --max-txn-ops. An empty variable is ignored. A flag on the command line overrides
-- its variable; etcd would refuse to start. If there is a configuration file, the values of flags and variables are
-- ignored, but must be valid.

local config_file = require "keywatch.command.config_file"
local flags = require "keywatch.command.flags"

local FILE = "config-file" -- the flag that names the file
local PREFIX = "ETCD_"     -- the default prefix of variables

-- {====== Variables of the environment ======

--- Returns the variable of a flag.
local function variable_of(prefix, name)
  return prefix .. name:upper():gsub("-", "_")
end

--- Returns the names of all variables with the prefix, sorted. Reads /proc, since Lua cannot list variables; without
-- /proc the list is empty.
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

--- Reads variables. `known` is { [flag] = kind }. Returns { [flag] = value }; or nil and a sentence with the reason.
local function read_variables(prefix, known)
  local values = {}
  for flag, kind in pairs(known) do
    local text = os.getenv(variable_of(prefix, flag)) or ""
    if text ~= "" then
      local parsed, expected = flags.parse(kind, text)
      if parsed == nil then
        return nil, ("%s must be %s, not '%s'"):format(variable_of(prefix, flag), expected, text)
      end
      values[flag] = parsed
    end
  end
  return values
end

--- Returns the names of the variables with the prefix that set no flag, sorted.
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
    origins = {}, -- by flag: the setting as the user wrote it, see name_of
    unused = {},  -- texts for the log: overridden settings
    unknown = {}, -- names of variables that set no flag
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

--- Adds the value of a variable. If the flag is on the command line, notes the variable as unused.
local function add_variable(self, flag, value)
  local variable = variable_of(self.prefix, flag)
  if self.values[flag] == nil then
    self.values[flag], self.origins[flag] = value, variable
  else
    table.insert(self.unused, ("%s (overridden by --%s)"):format(variable, flag))
  end
end

--- Removes the settings of the command line and of variables, and notes them as unused.
local function remove_others(self, path)
  for flag, origin in pairs(self.origins) do
    if flag ~= FILE then table.insert(self.unused, ("%s (overridden by %s)"):format(origin, path)) end
  end
  self.values, self.origins = {}, {}
end

--- Replaces all settings by those of the file. Returns nil; or a sentence with the reason if the file is unusable.
local function add_file(self, path, known)
  local values, fault = config_file.read(path, without(known, { FILE }))
  if not values then return ("%s %s: %s"):format(self:name_of(FILE), path, fault) end
  remove_others(self, path)
  for flag, value in pairs(values) do
    self.values[flag], self.origins[flag] = value, ("'%s' in %s"):format(flag, path)
  end
end

--- Adds the settings of variables; if a file is named, replaces all settings by those of the file. Returns nil; or a
-- sentence with the reason if a variable or the file is unusable.
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
-- `command_line_only` lists flags such as --help: they can be set only on the command line, and if one is set,
-- variables and file are not read. `prefix` is the prefix of the variables, ETCD_ by default.
local function read(arguments, known, command_line_only, prefix)
  local self = new(prefix or PREFIX)
  local values, fault = flags.read(arguments, known)
  if not values then return nil, fault end
  for flag, value in pairs(values) do add_flag(self, flag, value) end
  for _, flag in ipairs(command_line_only) do
    if values[flag] then return self end
  end
  fault = add_others(self, without(known, command_line_only))
  if fault then return nil, fault end
  return self
end

return { read = read }
