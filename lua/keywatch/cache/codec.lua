-- SPDX-License-Identifier: MIT
--- codec: converts values to objects and back: "json", or a table of two functions, `decode` and `encode`.
--
-- The codec "json" uses the module cjson (lua-cjson), which is loaded at the first use. JSON's null is cjson.null.

local check = require "keywatch.support.check"

local NO_JSON = "%s: the codec 'json' needs the module cjson: install Debian's package lua-cjson, or the rock lua-cjson"

--- Returns the codec "json". Raises if cjson is not installed, or was found and cannot be loaded.
local function json(name)
  local ok, cjson = pcall(require, "cjson")
  if not ok and tostring(cjson):find("module 'cjson' not found", 1, true) then check.misuse(NO_JSON, name) end
  if not ok then error(cjson, 0) end
  return { decode = cjson.decode, encode = cjson.encode }
end

--- Returns the codec of the option `codec` of a method, or nil if there is none: values stay strings. Raises if the
-- option is invalid.
local function of(given, name)
  if given == nil then return nil end
  if given == "json" then return json(name) end
  if type(given) ~= "table" then
    check.misuse("%s: option 'codec' must be 'json' or a table of functions, not %s", name, check.shown(given))
  end
  for field, value in pairs(given) do
    if field ~= "decode" and field ~= "encode" then
      check.misuse("%s: option 'codec' has '%s', and may have 'decode' and 'encode'", name, tostring(field))
    end
    if type(value) ~= "function" then
      check.misuse("%s: option 'codec' has '%s', which must be a function, not %s", name, field, check.shown(value))
    end
  end
  if not given.decode then check.misuse("%s: option 'codec' has no function 'decode'", name) end
  return given
end

return { of = of }
