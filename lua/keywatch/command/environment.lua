-- SPDX-License-Identifier: MIT
--- environment: flags as variables of the environment, as etcd has them. --max-txn-ops is ETCD_MAX_TXN_OPS, and one
-- that is empty is not there.

local flags = require "keywatch.command.flags"

local PREFIX = "ETCD_"

local function variable_of(name)
  return PREFIX .. name:upper():gsub("-", "_")
end

--- The names of all variables with the prefix, in order. Lua itself cannot list them: where there is no /proc, none.
local function names()
  local list = {}
  local file = io.open("/proc/self/environ", "rb")
  if not file then return list end
  for name in file:read("*a"):gmatch("([^=%z]+)=%Z*") do
    if name:sub(1, #PREFIX) == PREFIX then list[#list + 1] = name end
  end
  file:close()
  table.sort(list)
  return list
end

--- Reads variables by { [name of a flag] = kind }. Returns { [name of a flag] = value }; or nil and a sentence that
-- says what is wrong.
local function read(known)
  local values = {}
  for flag, kind in pairs(known) do
    local text = os.getenv(variable_of(flag)) or ""
    if text ~= "" then
      local parsed, wanted = flags.parse(kind, text)
      if parsed == nil then return nil, ("%s must be %s, not '%s'"):format(variable_of(flag), wanted, text) end
      values[flag] = parsed
    end
  end
  return values
end

--- The variables that are of no flag, in order.
local function unknown(known)
  local is_known, list = {}, {}
  for flag in pairs(known) do is_known[variable_of(flag)] = true end
  for _, name in ipairs(names()) do
    if not is_known[name] then list[#list + 1] = name end
  end
  return list
end

return { read = read, unknown = unknown, variable_of = variable_of }
