--- A server under attack. Besides the attackers there is a witness: a well-behaved client that must be served.

local busted = require "busted"

local raw = require "spec.support.raw"
local server = require "spec.support.server"

local attack = {}
attack.__index = attack

--- Starts the server, with server.start's options. It is in memory, so that all that it takes is there.
function attack.start(options)
  local self = setmetatable({ attackers = {} }, attack)
  options = options or {}
  options.is_in_memory = true
  self.peer = server.start(options)
  self.witness = raw.witness(self.peer.port)
  self.witness:ask()
  self:mark()
  return self
end

--- From here on memory and descriptors are compared with what they are now.
function attack:mark()
  self.peer:reset_peak()
  self.resident = self.peer:resident()
  self.descriptors = self.peer:descriptors()
end

--- An attacker: raw.connect's options, and what it sends at once.
function attack:by(bytes, options)
  local attacker = raw.connect(self.peer.port, options)
  table.insert(self.attackers, attacker)
  if bytes then attacker:send(bytes) end
  return attacker
end

--- Closes all attackers, and waits until the server has no descriptor more than before.
function attack:disperse()
  for _, attacker in ipairs(self.attackers) do attacker:close() end
  self.attackers = {}
  raw.turn_until(function() return self.peer:descriptors() <= self.descriptors end, "the end of all connections")
end

--- The server lives, serves others, has at no time taken more than so many bytes, and nothing of the attackers is left.
function attack:expect_well(bytes)
  self.witness:ask()
  local taken = self.peer:peak() - self.resident
  self:disperse()
  if not self.peer:is_running() then error("the server has ended: " .. self.peer:log(), 2) end
  if taken > bytes then error(("the server took %d bytes, and not %d at most"):format(taken, bytes), 2) end
end

function attack:finish()
  for _, attacker in ipairs(self.attackers) do attacker:close() end
  self.witness:close()
  self.peer:stop()
end

--- For the block of tests that it is called in: one server under attack, and set(siege). After each test all attackers
-- have gone.
function attack.for_each_test(set)
  local siege
  busted.setup(function()
    siege = attack.start()
    set(siege)
  end)
  busted.before_each(function() siege:mark() end)
  busted.after_each(function() siege:disperse() end)
  busted.teardown(function()
    if siege then siege:finish() end
  end)
end

return attack
