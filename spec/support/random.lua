--- Random numbers that are the same on every VM: the minimal standard generator, whose products are below 2^53.

local MULTIPLIER = 16807
local MODULUS = 2147483647 -- 2^31 - 1

local methods = {}
local meta = { __index = methods }

local function new(seed)
  local random = setmetatable({ state = math.floor(seed) % (MODULUS - 1) + 1 }, meta)
  for _ = 1, 8 do random:next() end -- separates the sequences of close seeds
  return random
end

function methods:next()
  self.state = self.state * MULTIPLIER % MODULUS
  return self.state
end

--- Returns an integer from low to high.
function methods:between(low, high)
  if low > high then error(("no number from %d to %d"):format(low, high), 2) end
  return low + self:next() % (high - low + 1)
end

--- Returns true once in `n` times.
function methods:one_in(n) return self:between(1, n) == 1 end

--- Returns an item of a list.
function methods:pick(list) return list[self:between(1, #list)] end

--- Returns a value of a list of { weight, value }.
function methods:weighted(list)
  local total = 0
  for _, entry in ipairs(list) do total = total + entry[1] end
  local left = self:between(1, total)
  for _, entry in ipairs(list) do
    left = left - entry[1]
    if left <= 0 then return entry[2] end
  end
end

--- Returns a string of `n` random bytes.
function methods:bytes(n)
  local bytes = {}
  for i = 1, n do bytes[i] = string.char(self:between(0, 255)) end
  return table.concat(bytes)
end

return { new = new }
