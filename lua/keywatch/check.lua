-- SPDX-License-Identifier: MIT
--- check: arguments of the methods that are written in Lua. Each raises where the method was called.

local LEVEL = 3 -- the caller of the method that checks

--- The object before the colon must have metatable `mt`, or, where that is nil, be a store or a client.
local function self(object, name, mt)
  local ok
  if mt then
    ok = getmetatable(object) == mt
  else
    local meta = getmetatable(object)
    local name_of = type(meta) == "table" and meta.__name
    ok = name_of == "keywatch.store" and type(object) == "userdata" or name_of == "keywatch.client"
  end
  if not ok then error(("bad self to '%s': call methods with a colon"):format(name), LEVEL) end
end

local function argument(ok, number, name, wanted, value)
  if ok then return end
  error(("bad argument #%d to '%s' (%s expected, got %s)"):format(number, name, wanted, type(value)), LEVEL)
end

local function options(opts, name)
  if opts == nil or type(opts) == "table" then return opts or {} end
  error(("%s: options must be a table, not a %s"):format(name, type(opts)), LEVEL)
end

--- A time to wait: seconds, or nil.
local function timeout(seconds, name)
  return argument(seconds == nil or type(seconds) == "number" and seconds == seconds, 1, name, "number of seconds",
    seconds)
end

--- Options of a method, each of a type that stands by its name in `types`; `level` is how far up its caller is.
local function known(opts, name, types, level)
  for option, value in pairs(opts) do
    local wanted = types[option]
    if not wanted then error(("%s: there is no option '%s'"):format(name, tostring(option)), level) end
    if type(value) ~= wanted or value ~= value then
      local found = value ~= value and "NaN" or "a " .. type(value)
      error(("%s: option '%s' must be a %s, not %s"):format(name, option, wanted, found), level)
    end
  end
end

local TIMES = { timeout = "number", deadline = "number" }

--- The options of a method that knows of nothing but its time.
local function times(opts, name)
  if opts == nil then return {} end
  if type(opts) ~= "table" then error(("%s: options must be a table, not a %s"):format(name, type(opts)), LEVEL) end
  known(opts, name, TIMES, LEVEL + 1)
  return opts
end

--- What a function of the core that was called as another method has raised, in the words of that method.
local function renamed(err, name)
  if type(err) ~= "string" then return err end
  return (err:gsub("^bad argument #(%d+) to '%?'", function(number)
    return ("bad argument #%d to '%s'"):format(math.max(1, number - 1), name)
  end))
end

return {
  renamed = renamed, self = self, argument = argument, options = options, timeout = timeout, known = known,
  times = times,
}
