--- What happens to a cluster, and to its clients' way to it: one fault after the other, at random, until time is up.
--
-- Faults are dealt from a shuffled deck, so that each kind comes as often as any other. A fault begins, lasts for a
-- while, and is healed before the next one begins: members are started or continued, the network is mended, and all
-- members serve.

local keywatch = require "keywatch"

local MOST_EXTRA = 120 -- seconds that a run takes longer if too little has happened
local POLL = 0.02 -- seconds between two looks at members that are to serve again

local faults_methods = {}
local faults_mt = { __index = faults_methods }

--- Faults of a cluster. `used` returns the number of the member that a client is connected to, or nil.
local function new(cluster, random, used)
  return setmetatable({ cluster = cluster, random = random, used = used, deck = {}, counts = {} }, faults_mt)
end

local function used_of(self)
  return self.used() or self.random:between(1, #self.cluster.members)
end

--- The number of the leader, and that of another member.
local function roles_of(self)
  local leader = self.cluster:leader() or self.random:between(1, #self.cluster.members)
  return leader, leader % #self.cluster.members + 1
end

local function others_of(self, i)
  local list = {}
  for j = 1, #self.cluster.members do
    if j ~= i then list[#list + 1] = j end
  end
  return list
end

--- Each begins a fault, and returns what heals it.
local KINDS = {}

local function kill(self, ...)
  local killed = { ... }
  for _, i in ipairs(killed) do self.cluster:kill(i) end
  return function()
    for _, i in ipairs(killed) do self.cluster:launch(i) end
  end
end

local function pause(self, ...)
  local paused = { ... }
  for _, i in ipairs(paused) do self.cluster:pause(i) end
  return function()
    for _, i in ipairs(paused) do self.cluster:resume(i) end
  end
end

local function cut(self, i, how)
  self.cluster:cut(i, how)
  return function() self.cluster:mend(i) end
end

KINDS["the leader is killed"] = function(self) return kill(self, (roles_of(self))) end
KINDS["a follower is killed"] = function(self) return kill(self, select(2, roles_of(self))) end
KINDS["the member in use is killed"] = function(self) return kill(self, used_of(self)) end
KINDS["the leader is stopped"] = function(self) return pause(self, (roles_of(self))) end
KINDS["a follower is stopped"] = function(self) return pause(self, select(2, roles_of(self))) end
KINDS["the member in use is cut off"] = function(self) return cut(self, used_of(self), "refuse") end
KINDS["the member in use is a black hole"] = function(self) return cut(self, used_of(self), "blackhole") end

KINDS["the member in use has no leader"] = function(self)
  local others = others_of(self, used_of(self))
  return pause(self, others[1], others[2])
end

KINDS["both others are killed"] = function(self)
  local others = others_of(self, used_of(self))
  return kill(self, others[1], others[2])
end

KINDS["a member is stopped and another cut off"] = function(self)
  local leader, other = roles_of(self)
  local resume, mend = pause(self, leader), cut(self, other, "refuse")
  return function()
    resume()
    mend()
  end
end

local NAMES = {}
for name in pairs(KINDS) do NAMES[#NAMES + 1] = name end
table.sort(NAMES)

local function deal(self)
  if #self.deck == 0 then
    for _, name in ipairs(NAMES) do table.insert(self.deck, self.random:between(1, #self.deck + 1), name) end
  end
  return table.remove(self.deck)
end

--- Waits until all members serve; in a task.
function faults_methods:wait_ready()
  for i = 1, #self.cluster.members do
    while not self.cluster:is_ready(i) do keywatch.sleep(POLL) end
  end
end

--- One fault, from its begin to the end of its effects.
function faults_methods:strike()
  local name = deal(self)
  self.counts[name] = (self.counts[name] or 0) + 1
  local heal = KINDS[name](self)
  keywatch.sleep(self.random:between(300, 2200) / 1000)
  heal()
  self:wait_ready()
  keywatch.sleep(self.random:between(0, 400) / 1000)
end

--- Faults until `seconds` are over, at least one of each kind, and until `is_enough` returns true, though not forever;
-- unless `is_over` does.
function faults_methods:run(seconds, is_over, is_enough)
  local deadline, n = keywatch.now() + seconds, 0
  local last = deadline + MOST_EXTRA
  while not is_over() and (n < #NAMES or keywatch.now() < deadline or not is_enough() and keywatch.now() < last) do
    self:strike()
    n = n + 1
  end
end

--- The names of the kinds that never occurred.
function faults_methods:missing()
  local list = {}
  for _, name in ipairs(NAMES) do
    if not self.counts[name] then list[#list + 1] = name end
  end
  return list
end

function faults_methods:report()
  local lines = {}
  for i, name in ipairs(NAMES) do lines[i] = ("  %d times %s"):format(self.counts[name] or 0, name) end
  return table.concat(lines, "\n")
end

return { new = new }
