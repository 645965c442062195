--- Clients with shorter pauses between attempts than by default, for specs in which many attempts fail.

local SPEED = 20

local random = math.random

local haste = {}

function haste.begin()
  rawset(math, "random", function(...)
    if select("#", ...) > 0 then return random(...) end
    return random() / SPEED
  end)
end

function haste.stop() rawset(math, "random", random) end

return haste
