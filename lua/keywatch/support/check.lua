-- SPDX-License-Identifier: MIT
--- check: arguments of the functions that are written in Lua. Misuse is raised with the position of the line that
-- called into keywatch, however deep inside of keywatch it is found.

local HOME = debug.getinfo(1, "S").source:match("^(@.*/)support/") -- what the sources of our modules begin with

--- Where keywatch was called from: "file:line: ", or "" if that is not known.
local function position()
  for level = 2, math.huge do
    local info = debug.getinfo(level, "Sl")
    if not info then return "" end
    local is_ours = HOME and info.source:sub(1, #HOME) == HOME
    if info.currentline > 0 and not is_ours then return ("%s:%d: "):format(info.short_src, info.currentline) end
  end
end

--- Raises a text at the caller of keywatch.
local function misuse(text, ...)
  if select("#", ...) > 0 then text = text:format(...) end
  error(position() .. text, 0)
end

--- What a function of the core that was called as another method has raised, in the words of that method.
local function renamed(err, name)
  return (err:gsub("^bad argument #(%d+) to '%?'", function(number)
    return ("bad argument #%d to '%s'"):format(math.max(1, number - 1), name)
  end))
end

--- Raises what a function has raised that was called for the method `name`. A text is misuse: it gets the position of
-- the caller, once, and is of `name` where it is of the method `other`.
local function raise_again(err, name, other)
  if type(err) ~= "string" then error(err, 0) end
  local where = position()
  if err:sub(1, #where) == where then err = err:sub(#where + 1) end
  if other then err = err:gsub("^" .. other .. ": ", name .. ": ") end
  error(where .. renamed(err, name), 0)
end

local function relay(name, ok, ...)
  if ok then return ... end
  raise_again((...), name)
end

--- Calls a function of the core; what it raises as misuse is raised at the caller of keywatch, as misuse of `name`.
local function call(name, fn, ...)
  return relay(name, pcall(fn, ...))
end

--- A value in an error's text.
local function shown(value)
  if value ~= value then return "nan" end
  if type(value) == "number" then return tostring(value) end
  if type(value) == "string" then return "'" .. value .. "'" end
  return "a " .. type(value)
end

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
  if not ok then misuse("bad self to '%s': call methods with a colon", name) end
end

local function argument(ok, number, name, wanted, value)
  if ok then return end
  local found = type(value) == "number" and "not " .. shown(value) or "got " .. type(value)
  misuse("bad argument #%d to '%s' (%s expected, %s)", number, name, wanted, found)
end

local function options(opts, name)
  if opts == nil or type(opts) == "table" then return opts or {} end
  misuse("%s: options must be a table, not a %s", name, type(opts))
end

--- A time to wait, as an argument: seconds, or nil.
local function timeout(seconds, name, number)
  argument(seconds == nil or type(seconds) == "number" and seconds == seconds, number or 1, name, "a number of seconds",
    seconds)
end

local WORDS = { seconds = "a number of seconds", boolean = "a boolean", string = "a string", table = "a table" }

local function is_of(value, kind)
  if kind == "seconds" then return type(value) == "number" and value == value end
  return type(value) == kind
end

--- Options of a method, each of a kind that stands by its name in `kinds`: a type, or "seconds".
local function known(opts, name, kinds)
  for option, value in pairs(opts) do
    local kind = kinds[option]
    if not kind then misuse("%s: there is no option '%s'", name, tostring(option)) end
    if not is_of(value, kind) then
      misuse("%s: option '%s' must be %s, not %s", name, option, WORDS[kind], shown(value))
    end
  end
end

local TIMES = { timeout = "seconds", deadline = "seconds" }

--- The options of a method that knows of nothing but its time.
local function times(opts, name)
  opts = options(opts, name)
  known(opts, name, TIMES)
  return opts
end

return {
  misuse = misuse, raise_again = raise_again, call = call, self = self, argument = argument, options = options,
  timeout = timeout, known = known, times = times, shown = shown,
}
