-- SPDX-License-Identifier: MIT
--- key_order: the order of keys and names, which is bytewise. Lua's own `<` depends on the locale.

--- True if string `a` comes before string `b`, byte by byte.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

--- Returns the range_end of all keys that begin with `prefix`: the first key after them, or "\0" (no end) if there is
-- none, because `prefix` is empty or made of 0xff bytes.
local function prefix_end(prefix)
  local stem = prefix:gsub("\255+$", "")
  if stem == "" then return "\0" end
  return stem:sub(1, -2) .. string.char(stem:byte(-1) + 1)
end

return { is_before = is_before, prefix_end = prefix_end }
