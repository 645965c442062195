-- SPDX-License-Identifier: MIT
--- random: random numbers that depend only on a seed, and are the same on every Lua VM.
--
-- Two multiplicative generators are combined (L'Ecuyer 1988). Their products are less than 2^53, so that doubles hold
-- them exactly. The period is about 2.3e18.

local check = require "keywatch.support.check"

local M1, A1 = 2147483563, 40014
local M2, A2 = 2147483399, 40692
local WARM = 10 -- numbers that are discarded, because similar seeds begin alike

local random_methods = {}
local random_mt = { __name = "keywatch.random", __index = random_methods }

--- Returns a source of random numbers for a seed, a whole number.
local function new(seed)
  local self = setmetatable({ one = seed % (M1 - 1) + 1, two = seed % (M2 - 1) + 1 }, random_mt)
  for _ = 1, WARM do self:unit() end
  return self
end

--- Returns a number, at least 0 and less than 1.
function random_methods:unit()
  self.one = self.one * A1 % M1
  self.two = self.two * A2 % M2
  return (self.one - self.two) % (M1 - 1) / (M1 - 1)
end

--- Called like math.random: random() returns a number, at least 0 and less than 1; random(n) a whole number from 1 to
-- n; and random(m, n) one from m to n.
function random_mt:__call(m, n)
  if m == nil then return self:unit() end
  if n == nil then m, n = 1, m end
  check.argument(type(m) == "number" and m % 1 == 0, 1, "random", "whole number", m)
  check.argument(type(n) == "number" and n % 1 == 0, 2, "random", "whole number", n)
  if n < m then check.misuse("random: there is no number from %s to %s", m, n) end
  return m + math.floor(self:unit() * (n - m + 1))
end

return { new = new }
