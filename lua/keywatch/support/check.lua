-- SPDX-License-Identifier: MIT
--- check: checks of arguments. Misuse raises an error with the position of the line that called keywatch, however deep
-- in keywatch it is detected.

local compat = require "keywatch.support.compat"

local HOME = debug.getinfo(1, "S").source:match("^(@.*/)support/") -- the folder of keywatch's modules

--- Returns the position of the line that called keywatch, as "file:line"; nil if unknown. Lua keeps no frame of a
-- function that has called keywatch by a tail call: the position is then in the caller of that function.
local function where()
  for level = 2, math.huge do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    local is_ours = HOME and info.source:sub(1, #HOME) == HOME
    if info.currentline > 0 and not is_ours then return ("%s:%d"):format(info.short_src, info.currentline) end
  end
end

--- Returns the name of a function in a table, or nil. May be called by a finalizer.
local name_in = compat.interpreted(function(found, fn)
  for name, value in pairs(type(found) == "table" and found or {}) do
    if rawequal(value, fn) then return name end
  end
end)

--- Returns the name of a public function, which was called with `first`: a function of the module, or a method of
-- `first`. Returns nil if the function is neither.
local function public_name(fn, first)
  local mt = debug.getmetatable(first)
  return name_in(package.loaded.keywatch, fn) or name_in(type(mt) == "table" and rawget(mt, "__index"), fn)
end

local methods_by_fn = setmetatable({}, { __mode = "k" }) -- names of methods: see `class`

--- Returns the name of a called function for an error: its public name, or else the caller's name for it. The function
-- of a for loop has no name of its own. Returns nil if there is no name.
local function called_name(info, first)
  if info.name and info.name:find("for ", 1, true) then return "the for loop" end -- each VM describes it differently
  return methods_by_fn[info.func] or public_name(info.func, first) or info.name
end

--- Returns the position of the line that has called keywatch, as "file:line", and the name of the called function: in a
-- suspended coroutine, or if `thread` is nil, in the caller's coroutine. Either is nil if unknown. A public function
-- must not wait by a tail call, because Lua would keep no frame of the function.
local function call_site(thread)
  local name
  for level = thread and 0 or 2, math.huge do
    local info, _, first
    if thread then info = debug.getinfo(thread, level, "Slnf") else info = debug.getinfo(level, "Slnf") end
    if not info then return nil, name end
    local is_ours = HOME and info.source:sub(1, #HOME) == HOME
    if is_ours then
      if thread then _, first = debug.getlocal(thread, level, 1) else _, first = debug.getlocal(level, 1) end
      name = called_name(info, first)
    elseif info.currentline > 0 then
      return ("%s:%d"):format(info.short_src, info.currentline), name
    end
  end
end

--- Returns the name of the function of keywatch that was called from outside, or nil if unknown.
local function caller()
  local _, name = call_site()
  return name
end

--- Returns the same position as the beginning of an error's text: "file:line: ", or "".
local function position()
  local found = where()
  return found and found .. ": " or ""
end

--- Raises a text at the line that called keywatch.
local function misuse(text, ...)
  if select("#", ...) > 0 then text = text:format(...) end
  error(position() .. text, 0)
end

--- Rewrites an error text of a core function as a text about the method `name`.
local function renamed(err, name)
  return (err:gsub("^bad argument #(%d+) to '%?'", function(number)
    return ("bad argument #%d to '%s'"):format(math.max(1, number - 1), name)
  end))
end

--- Raises the error of a function that was called on behalf of the method `name`. A text means misuse: it gets the
-- position of the line that called keywatch, and `name` instead of the method `other`. Other errors are raised
-- unchanged.
local function raise_again(err, name, other)
  if type(err) ~= "string" then error(err, 0) end
  local at = position()
  if err:sub(1, #at) == at then err = err:sub(#at + 1) end
  if other then err = err:gsub("^" .. other .. ": ", name .. ": ") end
  error(at .. renamed(err, name), 0)
end

--- Returns the results of a pcall, or raises its error as misuse of `name`.
local function returned(name, ok, ...)
  if ok then return ... end
  raise_again((...), name)
end

--- Calls a function of the core. Misuse in the core is raised at the line that called keywatch, as misuse of `name`.
local function call(name, fn, ...)
  return returned(name, pcall(fn, ...))
end

--- Returns the results of a public function: one, or nil and an error. May be a tail call: it raises nothing.
local function results(result, err)
  if err == nil then return result end
  return nil, err
end

--- Returns the noun for a value: "store" for a store, and so on for each object of keywatch; the type for other values.
local function noun_of(value)
  local mt = debug.getmetatable(value)
  local name = type(value) ~= "string" and type(mt) == "table" and rawget(mt, "__name")
  return type(name) == "string" and name:match("^keywatch%.([%l_]+)$") or type(value)
end

--- Returns a value as it is shown in an error text.
local function shown(value)
  if value ~= value then return "nan" end
  if type(value) == "number" then return tostring(value) end
  if type(value) == "string" then return "'" .. value .. "'" end
  local noun = noun_of(value)
  return (noun:find("^[aeio]") and "an " or "a ") .. noun:gsub("_", " ")
end

local EXACT = 2 ^ 53 -- below this a double represents every whole number exactly

--- Returns a value that is not an id, as it is shown in an error text.
local function shown_id(value)
  local is_rounded = type(value) == "number" and value % 1 == 0 and (value >= EXACT or value <= -EXACT)
  return shown(value) .. (is_rounded and ", which is not exact: give a decimal string" or "")
end

local store_likes = {} -- as keys: metatables of objects that have the methods of a store

--- Adds a metatable of objects that have the methods of a store. Returns it.
local function store_like(mt)
  store_likes[mt] = true
  return mt
end

--- True if an object has the methods of a store.
local function is_store_like(object)
  local meta = getmetatable(object)
  if type(meta) ~= "table" then return false end
  return store_likes[meta] or meta.__name == "keywatch.store" and type(object) == "userdata"
end

--- Raises if a method was not called with a colon: its object must have the metatable `mt`, or, if that is nil, the
-- methods of a store.
local function self(object, name, mt)
  local ok
  if mt then ok = getmetatable(object) == mt else ok = is_store_like(object) end
  if not ok then misuse("bad self to '%s': call methods with a colon", name) end
end

--- True if a value can be called.
local function is_callable(value)
  local mt = getmetatable(value)
  return type(value) == "function" or type(mt) == "table" and mt.__call ~= nil
end

--- Returns the methods and the metatable of a class of objects. A function that is added to the methods accepts only
-- such objects: a call without a colon raises.
local function class(title)
  local methods = {}
  local mt = { __name = title, __index = methods }
  return setmetatable(methods, { __newindex = function(_, name, fn)
    methods_by_fn[fn] = name
    rawset(methods, name, function(object, ...)
      if getmetatable(object) ~= mt then self(object, name, mt) end
      return fn(object, ...)
    end)
  end }), mt
end

--- Raises unless `ok`: the argument of this number is wrong.
local function argument(ok, number, name, wanted, value)
  if ok then return end
  local found = type(value) == "number" and "not " .. shown(value) or "got " .. noun_of(value)
  misuse("bad argument #%d to '%s' (%s expected, %s)", number, name, wanted, found)
end

--- Raises unless the first argument is a revision, or nil.
local function revision(value, name)
  local is_whole = type(value) == "number" and value >= 0 and value % 1 == 0
  argument(value == nil or is_whole, 1, name, "revision", value)
  if is_whole and value >= EXACT and not rawget(math, "type") then
    misuse("bad argument #1 to '%s' (%s is not exact)", name, shown(value))
  end
end

--- Raises if the timeout argument is not a number of seconds or nil.
local function timeout(seconds, name, number)
  if seconds == nil or type(seconds) == "number" and seconds == seconds then return end
  argument(false, number or 1, name, "a number of seconds", seconds)
end

local function is_number(value) return type(value) == "number" and value == value end
local function is_positive(value) return is_number(value) and value > 0 end
local function is_not_negative(value) return is_number(value) and value >= 0 end
local function is_whole(value) return is_number(value) and value >= 0 and value % 1 == 0 end
local function is_text(value) return type(value) == "string" and value ~= "" and not value:find("\0", 1, true) end

-- Kinds of options: the description of a valid value, and a function that is true for one.
local KINDS = {
  any = { "a value", function() return true end },
  seconds = { "a number of seconds", is_number },
  ["some seconds"] = { "more than 0 seconds", is_positive },
  ["boolean or seconds"] = {
    "a boolean, or more than 0 seconds", function(value) return type(value) == "boolean" or is_positive(value) end,
  },
  number = { "a number", is_number },
  ["finite number"] = { "a finite number", function(value) return is_number(value) and value - value == 0 end },
  ["positive number"] = { "a positive number", function(value) return is_positive(value) and value < math.huge end },
  positive = { "positive", is_positive },
  ["0 or more"] = { "0 or more", is_not_negative },
  ["0 seconds or more"] = {
    "0 seconds or more", function(value) return is_not_negative(value) and value < math.huge end,
  },
  text = { "a string that is not empty, and has no zero byte", is_text },
  path = { "a path", is_text },
  store = { "a store, a client, or an object with their methods", is_store_like },
  ttl = {
    "a whole number of seconds of at least 1", function(value) return is_whole(value) and value >= 1 end,
  },
  count = { "a whole number of at least 1", function(value) return is_whole(value) and value >= 1 end },
  amount = { "a whole number of at least 0", function(value) return is_whole(value) and value < EXACT end },
  revision = { "a revision", function(value) return is_whole(value) and value < 2 ^ 63 end },
}
for _, name in ipairs { "boolean", "string", "table", "function" } do
  KINDS[name] = { "a " .. name, function(value) return type(value) == name end }
end

--- Returns the kind of an option whose value is one of some texts.
local function one_of(...)
  local is_one, quoted = {}, {}
  for i, text in ipairs { ... } do is_one[text], quoted[i] = true, "'" .. text .. "'" end
  local words = table.concat(quoted, ", "):gsub(", ([^,]*)$", " or %1")
  return { words, function(value) return is_one[value] == true end }
end

--- Returns the kind of an option whose value is a list of at least `least` elements, for each of which a function is
-- true.
local function list_of(words, is_element, least)
  return { words, function(value)
    local n = 0
    for i, element in pairs(type(value) == "table" and value or {}) do
      if type(i) ~= "number" or not is_element(element) then return false end
      n = n + 1
    end
    return type(value) == "table" and n == #value and n >= (least or 0)
  end }
end

--- Raises if an option does not have a kind, which is the name of one of KINDS, or a table like those in KINDS.
local function check_kind(option, value, kind, name)
  kind = KINDS[kind] or kind
  if not kind[2](value) then misuse("%s: option '%s' must be %s, not %s", name, option, kind[1], shown(value)) end
end

--- Raises if an option is not listed in `kinds`, or does not have its kind.
local function known(opts, name, kinds)
  for option, value in pairs(opts) do
    if not kinds[option] then misuse("%s: there is no option '%s'", name, tostring(option)) end
    check_kind(option, value, kinds[option], name)
  end
end

--- Raises if an option that is listed in `kinds` is present and does not have its kind. Other options are checked
-- elsewhere.
local function some(opts, name, kinds)
  for option, kind in pairs(kinds) do
    if opts[option] ~= nil then check_kind(option, opts[option], kind, name) end
  end
end

--- Raises if one of these options is absent.
local function needed(opts, name, ...)
  for _, option in ipairs { ... } do
    if opts[option] == nil then misuse("%s: option '%s' is needed", name, option) end
  end
end

--- Returns a copy of a table of options, without the option `without`, if given.
local function copy(opts, without)
  local own = {}
  for name, value in next, opts do own[name] = value end
  if without then own[without] = nil end
  return own
end

--- Returns the options table of a method, {} if it is nil. Raises if it is not a table; with `kinds`, also raises like
-- `known`.
local function options(opts, name, kinds)
  if opts == nil then return {} end
  if type(opts) ~= "table" then misuse("%s: options must be a table, not a %s", name, type(opts)) end
  if kinds then known(opts, name, kinds) end
  return opts
end

local TIMES = { timeout = "seconds", deadline = "seconds" }

--- Returns the options of a method that has only `timeout` and `deadline`. Raises if there are others.
local function times(opts, name)
  return options(opts, name, TIMES)
end

local LIST_OPTIONS = { timeout = "seconds" }

--- Checks a list, which may have the field `timeout`. Returns its length. Raises if the list has a hole, or another
-- field.
local function list(found, name)
  argument(noun_of(found) == "table", 1, name, "table", found)
  local n, highest = 0, 0
  for key, value in pairs(found) do
    if type(key) == "number" and key >= 1 and key % 1 == 0 then
      n, highest = n + 1, math.max(highest, key)
    else
      known({ [key] = value }, name, LIST_OPTIONS)
    end
  end
  if n == highest then return n end
  local hole = 1
  while found[hole] ~= nil do hole = hole + 1 end
  misuse("%s: the list has a hole at %d", name, hole)
end

return {
  class = class,
  store_like = store_like, is_store_like = is_store_like, misuse = misuse, raise_again = raise_again, call = call,
  results = results, self = self, argument = argument, options = options, timeout = timeout, known = known,
  one_of = one_of, list_of = list_of, some = some, needed = needed, copy = copy,
  times = times, list = list, shown = shown, shown_id = shown_id, revision = revision, where = where,
  caller = caller, call_site = call_site, is_callable = is_callable,
}
