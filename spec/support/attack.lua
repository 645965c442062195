--- A server under attack. Besides the attackers there is a witness: a well-behaved client that must be served.

local busted = require "busted"

local raw = require "spec.support.raw"
local server = require "spec.support.server"

local attack = {}
attack.__index = attack

--- Starts the server, with server.start's options. Its store is in memory, so that its whole cost is memory.
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

--- Records memory and descriptors, with which later ones are compared.
function attack:mark()
  self.peer:reset_peak()
  self.resident = self.peer:resident()
  self.descriptors = self.peer:descriptors()
end

--- Connects an attacker, with raw.connect's options, which sends `bytes` at once.
function attack:connect(bytes, options)
  local attacker = raw.connect(self.peer.port, options)
  table.insert(self.attackers, attacker)
  if bytes then attacker:send(bytes) end
  return attacker
end

--- Closes all attackers, and waits until the server has no more descriptors than before.
function attack:close_attackers()
  for _, attacker in ipairs(self.attackers) do attacker:close() end
  self.attackers = {}
  raw.turn_until(function() return self.peer:descriptors() <= self.descriptors end, "the end of all connections")
end

--- Expects that the server runs, serves the witness, has never taken more than `bytes` of memory, and closes the
-- sockets of all attackers.
function attack:expect_healthy(bytes)
  self.witness:ask()
  local taken = self.peer:peak() - self.resident
  self:close_attackers()
  if not self.peer:is_running() then error("the server has ended: " .. self.peer:log(), 2) end
  if taken > bytes then error(("the server took %d bytes, and not %d at most"):format(taken, bytes), 2) end
end

function attack:finish()
  for _, attacker in ipairs(self.attackers) do attacker:close() end
  self.witness:close()
  self.peer:stop()
end

--- For the calling block of tests: starts one server under attack, and calls set(target). After each test all attackers
-- are disconnected.
function attack.for_each_test(set)
  local target
  busted.setup(function()
    target = attack.start()
    set(target)
  end)
  busted.before_each(function() target:mark() end)
  busted.after_each(function() target:close_attackers() end)
  busted.teardown(function()
    if target then target:finish() end
  end)
end

return attack
