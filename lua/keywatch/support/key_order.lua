-- SPDX-License-Identifier: MIT
--- key_order: the order of keys and names, which is that of their bytes. Lua's own `<` follows the locale.

--- True if string `a` comes before string `b`, byte by byte.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

return { is_before = is_before }
