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

--- True if the caller is the main program, and not a coroutine.
local function is_main()
  local co, is_main_coroutine = coroutine.running()
  return co == nil or is_main_coroutine == true
end

local type_of_number = rawget(math, "type")

--- True if a number is an integer of Lua 5.4. The numbers of LuaJIT are floats.
local function is_integer(value)
  return type_of_number ~= nil and type_of_number(value) == "integer"
end

return {
  is_integer = is_integer,
  is_main = is_main,
  sentinel = sentinel,
  is_yieldable = rawget(coroutine, "isyieldable"), -- nil if the VM has no such function
  unpack = rawget(table, "unpack") or rawget(_G, "unpack"),
}
