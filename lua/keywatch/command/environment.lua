-- SPDX-License-Identifier: MIT
--- environment: reads flags from environment variables, as etcd does: ETCD_MAX_TXN_OPS means --max-txn-ops. An empty
-- variable counts as absent. Variables of a command have a prefix, an argument of each function.

local flags = require "keywatch.command.flags"

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
local function read(prefix, known)
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
local function unknown(prefix, known)
  local is_known, list = {}, {}
  for flag in pairs(known) do is_known[variable_of(prefix, flag)] = true end
  for _, name in ipairs(names(prefix)) do
    if not is_known[name] then list[#list + 1] = name end
  end
  return list
end

return { read = read, unknown = unknown, variable_of = variable_of }
