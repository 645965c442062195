--- Clients that wait less between two attempts than they do by themselves, for specs in which many fail.

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
