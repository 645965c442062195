-- SPDX-License-Identifier: MIT
--- settings: what a command is told, from wherever it is told: flags, the environment, and a file.
--
-- A flag wins over its variable, where etcd would not start. A file, if there is one, is all that counts.

local config_file = require "keywatch.command.config_file"
local environment = require "keywatch.command.environment"
local flags = require "keywatch.command.flags"

local FILE = "config-file" -- the flag that names it

local settings_methods = {}
local settings_mt = { __index = settings_methods }

--- How a setting is called where it was made, for a sentence about it.
function settings_methods:name_of(flag)
  return self.origins[flag] or "--" .. flag
end

local function new()
  return setmetatable({
    values = {},  -- by the name of the flag
    origins = {}, -- how they are called, by the same
    unused = {},  -- the flags and variables that something else has put out of effect, with what it is
    unknown = {}, -- variables
  }, settings_mt)
end

--- A copy without some.
local function without(known, absent)
  local rest = {}
  for flag, kind in pairs(known) do rest[flag] = kind end
  for _, flag in ipairs(absent) do rest[flag] = nil end
  return rest
end

local function add_flag(self, flag, value)
  self.values[flag], self.origins[flag] = value, "--" .. flag
end

local function add_variable(self, flag, value)
  local variable = environment.variable_of(flag)
  if self.values[flag] == nil then
    self.values[flag], self.origins[flag] = value, variable
  else
    table.insert(self.unused, variable .. " beside --" .. flag)
  end
end

--- All but the file is put out of effect.
local function put_aside(self, path)
  for flag, origin in pairs(self.origins) do
    if flag ~= FILE then table.insert(self.unused, origin .. " beside " .. path) end
  end
  self.values, self.origins = {}, {}
end

local function add_file(self, path, known)
  local values, fault = config_file.read(path, without(known, { FILE }))
  if not values then return ("%s %s: %s"):format(self:name_of(FILE), path, fault) end
  put_aside(self, path)
  for flag, value in pairs(values) do
    self.values[flag], self.origins[flag] = value, ("'%s' in %s"):format(flag, path)
  end
end

--- What the environment and the file say, where there is one. Returns a sentence that says what is wrong, or nil.
local function add_others(self, known)
  local values, fault = environment.read(known)
  if not values then return fault end
  for flag, value in pairs(values) do add_variable(self, flag, value) end
  self.unknown = environment.unknown(known)
  if self.values[FILE] then fault = add_file(self, self.values[FILE], known) end
  table.sort(self.unused)
  return fault
end

--- Reads all of them by { [name of a flag] = kind }. Returns settings; or nil and a sentence that says what is wrong.
-- `alone` lists flags of the command line alone, with any of which nothing else matters.
local function read(arguments, known, alone)
  local self = new()
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
