--- Random faults of a proxy on the connections of a client, one at a time.

local methods = {}
local meta = { __index = methods }

local DIRECTIONS = { "to_server", "to_client", "both" }

local function new(proxy, random)
  return setmetatable({
    proxy = proxy,
    random = random,
    is_dark = false, -- nothing is delivered until clear()
  }, meta)
end

local KINDS = {
  { 6, function(self, direction)
    self.proxy:cut { how = self.random:pick { "close", "reset", "shutdown" }, direction = direction }
  end },
  { 2, function(self, direction) self.proxy:cut_once(self.random:between(0, 3000), direction) end },
  { 3, function(self, direction) self.proxy:split(self.random:between(1, 40), direction) end },
  { 2, function(self, direction) self.proxy:delay(self.random:between(1, 20), direction) end },
  { 1, function(self, direction) self.proxy:throttle(self.random:between(50000, 500000), direction) end },
  { 3, function(self, direction)
    self.is_dark = true
    self.proxy:stall(direction)
  end },
  { 2, function(self)
    self.is_dark = true
    self.proxy:refuse()
    self.proxy:cut()
  end },
  { 2, function(self)
    self.is_dark = true
    self.proxy:blackhole()
  end },
}

--- Delivers everything again. Discarded bytes stay lost.
function methods:clear()
  self.is_dark = false
  self.proxy:restore()
  self.proxy:accept_again()
end

--- Begins or ends a fault.
function methods:change()
  if self.is_dark or self.random:one_in(6) then return self:clear() end
  self.random:weighted(KINDS)(self, self.random:pick(DIRECTIONS))
end

return { new = new }
