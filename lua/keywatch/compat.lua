-- SPDX-License-Identifier: MIT
--- compat: every difference between Lua 5.4 and LuaJIT that Lua sees.

return {
  unpack = rawget(table, "unpack") or rawget(_G, "unpack"),
}
