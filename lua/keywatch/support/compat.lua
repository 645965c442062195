-- SPDX-License-Identifier: MIT
--- compat: every difference between Lua 5.4 and LuaJIT that is visible in Lua.

--- Returns an object that calls a function when it is collected, in the middle of any code.
local function sentinel(fn)
  local new = rawget(_G, "newproxy")
  if not new then return setmetatable({}, { __gc = fn }) end
  local proxy = new(true)
  getmetatable(proxy).__gc = fn
  return proxy
end

--- Returns a function that makes sentinels which share one finalizer: guard(state) returns an object, and fn(state) is
-- called when that object is collected. The state must not refer to the object.
local function guard(fn)
  local new = rawget(_G, "newproxy")
  if not new then
    local mt = { __gc = function(self) fn(self.state) end }
    return function(state) return setmetatable({ state = state }, mt) end
  end
  local first, states = new(true), setmetatable({}, { __mode = "k" })
  getmetatable(first).__gc = function(self)
    local state = states[self]
    if state ~= nil then fn(state) end
  end
  return function(state)
    local proxy = new(first)
    states[proxy] = state
    return proxy
  end
end

local companions = setmetatable({}, { __mode = "k" }) -- by object; in LuaJIT only a private key
local get_environment, set_environment = rawget(debug, "getfenv"), rawget(debug, "setfenv")

--- Returns the table of an object's companions. In LuaJIT a weak table would keep an object alive to which its own
-- value refers. Therefore in LuaJIT the table is stored in the object, or in the environment of a userdata.
local function companions_of(object)
  local found
  if not set_environment then
    found = companions[object] or {}
    companions[object] = found
  elseif type(object) == "table" then
    found = rawget(object, companions) or {}
    rawset(object, companions, found)
  else
    found = get_environment(object)
    if not rawget(found, companions) then
      found = { [companions] = true }
      set_environment(object, found)
    end
  end
  return found
end

--- Returns a table that lives as long as an object, a table or a userdata, and may refer to the object. Callers that
-- pass the same name get the same table.
local function companion(object, name)
  local all = companions_of(object)
  all[name] = all[name] or {}
  return all[name]
end

--- Makes LuaJIT interpret a function and never compile it. Returns the function. There are two reasons. Compiled code
-- runs no hooks; in interpreted code a debug hook that was set during a call of C runs as soon as the call returns.
-- And in a finalizer, a compiled loop over pairs does not end in LuaJIT 2.1 of 2023.
local function interpreted(fn)
  local jit = rawget(_G, "jit")
  if jit then jit.off(fn) end
  return fn
end

--- True if the caller is the main program, and not a coroutine.
local function is_main()
  local co, is_main_coroutine = coroutine.running()
  return co == nil or is_main_coroutine == true
end

--- Returns the function of LuaJIT's library coroutine. nginx replaces some of them by its own functions, which work
-- only for coroutines of a request, and keeps LuaJIT's functions under other names.
local function plain(name)
  return rawget(coroutine, "_" .. name) or coroutine[name]
end

local type_of_number = rawget(math, "type")

--- True if a number is an integer of Lua 5.4. The numbers of LuaJIT are floats.
local function is_integer(value)
  return type_of_number ~= nil and type_of_number(value) == "integer"
end

local PAUSE = 150 -- percent of the memory in use at which the next collection begins
local STEP_MULTIPLIER = 4 -- the least work of the collector for each allocated byte

--- Makes the garbage collector work in small steps, for a process or a thread that only serves. The interpreter of Lua
-- 5.4 chooses the generational mode, in which each collection is a single step, which takes 30 ms if thousands of
-- calls wait. LuaJIT's steps are small.
local function collect_in_steps()
  if not rawget(_G, "jit") then collectgarbage("incremental", PAUSE, STEP_MULTIPLIER) end
end

return {
  collect_in_steps = collect_in_steps,
  is_integer = is_integer,
  interpreted = interpreted,
  is_main = is_main,
  sentinel = sentinel,
  guard = guard,
  companion = companion,
  has_one_hook = rawget(_G, "jit") ~= nil, -- one debug hook for all coroutines
  create = plain "create",
  resume = plain "resume",
  status = plain "status",
  yield = plain "yield",
  unpack = rawget(table, "unpack") or rawget(_G, "unpack"),
}
