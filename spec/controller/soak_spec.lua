--- A controller at random, while everything fails: see soaking.lua. Many short programs run in virtual time; a long one
-- runs with processes: `keywatch run examples/replicas.lua`, twice, behind proxies, with a server that is killed,
-- keywatch's or an etcd. KW_DOSE=n does n times as much, and tells how often each thing has happened.

local keywatch = require "keywatch"
local log = require "keywatch.support.log"

local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local process = require "spec.support.process"
local program = require "spec.support.program"
local proxies = require "spec.support.proxy"
local replicas = require "spec.controller.replicas"
local soaking = require "spec.controller.soaking"
local vm = require "spec.support.vm"
local weathers = require "spec.support.weather"

local function report(counts)
  local lines = {}
  for what, n in pairs(counts) do lines[#lines + 1] = ("  %-44s %d"):format(what, n) end
  table.sort(lines)
  return table.concat(lines, "\n")
end

-- {====== In virtual time ======

local ROUNDS = network.IS_FAST and 4 or 40
local MOST = 10 -- times as many programs, until everything has happened

-- Prints what a program writes, and when, in a process whose tables have other addresses.
local PROGRAM = [[
  require("keywatch.support.log").write = function() end
  local junk = {}
  for i = 1, %d do junk[i] = { tostring(i) } end
  print(require("spec.controller.soaking").run(%d, {}))
]]

describe("a controller at random, in virtual time,", function()
  local write_line = log.write
  before_each(function() log.write = function() end end)
  after_each(function() log.write = write_line end)

  it("comes to what is wished, whatever happens", function()
    local n, rounds = 0, ROUNDS * network.FAULTS
    local all = occurrences.await(network.IS_FAST and {} or soaking.MUST_HAPPEN, rounds, function(i)
      local counts, seed = {}, network.SEED + i
      local ok, failure = pcall(soaking.run, seed, counts)
      if not ok then
        error(("%s\nto repeat: KW_SEED=%d\n%s"):format(tostring(failure), seed - 1, report(counts)), 0)
      end
      n = i
      return counts
    end, MOST * rounds)
    if dose.factor > 1 then print(("%d programs in virtual time\n%s"):format(n, report(all))) end
  end)

  it("does the same for the same seed, in every process", function()
    for seed = network.SEED % 1000, network.SEED % 1000 + 2 do -- a controller alone, an elector, and a manager
      local status, first = program.run(PROGRAM:format(0, seed))
      assert.equal(0, status, first)
      local _, second = program.run(PROGRAM:format(1000, seed))
      assert.equal(first, second)
      assert(#first > 500, first) -- the shortest one has 861 bytes
      local _, other = program.run(PROGRAM:format(0, seed + 3))
      assert.not_equal(first, other)
    end
  end)
end)

-- }======

-- {====== With processes ======

local ELECTION, TTL, RESYNC = "replicas", "2s", "1"
local LOST = 400       -- revisions that a restore loses
local STEP = 0.02      -- seconds between two looks
local SETTLE_EVERY = 20
local STEPS = 20

local real = {}
real.__index = real

function real:count(what, n) self.counts[what] = (self.counts[what] or 0) + (n or 1) end
function real:writer() return self.direct end

-- Servers and processes -----------------------------------------------------------------------------------------------

--- Starts a server where the last one was.
function real:start_again(path)
  local before = self.server
  self.path = path
  self.server = network.start(self.kind, { path = path, port = before.port, peer_port = before.peer_port })
  assert(self.direct:get("any", { timeout = network.PATIENCE }) or true)
end

function real:kill_server()
  self.server.process:signal("sigkill")
  self.server.process:wait()
end

--- Starts one of the two processes, behind its proxy.
function real:start_process(place)
  self.started = self.started + 1
  place.process = process.start({ vm.interpreter, "bin/keywatch", "run", "examples/replicas.lua", "--endpoints",
    place.proxy.url, "--election", ELECTION, "--id", "process " .. self.started, "--ttl", TTL, "--", RESYNC },
    { env = vm.environment() })
end

--- The place of the process that leads, or nil.
function real:leading()
  local kv = self.direct:election(ELECTION):leader()
  for _, place in ipairs(self.places) do
    if kv and place.process.name:find("--id " .. kv.value .. " ", 1, true) then return place end
  end
end

--- Ends a process, and starts another one in its place.
function real:replace_process(place, signal)
  if place.is_stopped then place.process:signal("sigcont") end
  place.is_stopped = false
  place.process:signal(signal)
  place.process:wait()
  self:start_process(place)
end

--- Everything passes again, and everybody runs.
function real:clear()
  for _, place in ipairs(self.places) do
    place.weather:clear()
    place.proxy:cut() -- connections that have lost something would stay silent
    if place.is_stopped then place.process:signal("sigcont") end
    place.is_stopped = false
    if place.process.status then error("a controller has ended: " .. place.process:transcript(), 0) end
  end
end

--- Returns what still differs from what is wished, or nil, and then who leads: a world may need no work for a while
-- after its leader was killed.
function real:difference()
  local difference = replicas.difference(self.direct, self.wished)
  if difference then return difference end
  local kv, err = self.direct:election(ELECTION):leader()
  assert(not err, err)
  if not kv then return "nobody leads" end
  return nil, kv.value
end

--- Waits until the world is as it is wished, and somebody leads.
function real:settle()
  self:clear()
  local deadline = keywatch.now() + network.PATIENCE
  local difference, leader = self:difference()
  while difference and keywatch.now() < deadline do
    keywatch.sleep(STEP)
    difference, leader = self:difference()
  end
  if difference then
    local texts = { "at rest: " .. difference }
    for _, place in ipairs(self.places) do texts[#texts + 1] = place.process:transcript() end
    error(table.concat(texts, "\n"), 0)
  end
  if leader ~= self.leader then self:count("leaders") end
  self.leader = leader
  self:count("settled")
end

-- What happens --------------------------------------------------------------------------------------------------------

local trouble = {}

function trouble.sleep(self) keywatch.sleep(self.random:between(1, 100) / 1000) end
function trouble.weather(self) self.random:pick(self.places).weather:change() end
function trouble.clear(self) self:clear() end
function trouble.kill_any(self) self:replace_process(self.random:pick(self.places), "sigkill") end
function trouble.stop_any(self) self:replace_process(self.random:pick(self.places), "sigterm") end

function trouble.kill_leader(self)
  local place = self:leading()
  if not place then return false end
  self:replace_process(place, "sigkill")
end

--- The leader stands still, until it is quiet: its lease expires, and it knows nothing of that.
function trouble.pause_leader(self)
  local place = self:leading()
  if not place or place.is_stopped then return false end
  place.process:signal("sigstop")
  place.is_stopped = true
end

function trouble.kill_server(self)
  self:kill_server()
  self:start_again(self.path)
end

--- Compacts what the processes need that are cut off.
function trouble.miss(self)
  for _, place in ipairs(self.places) do
    place.proxy:refuse()
    place.proxy:cut()
    place.weather.is_dark = true
  end
  for _ = 1, self.random:between(2, 6) do self:happen(soaking.people, soaking.PEOPLE) end
  local ok, err = self.direct:compact(assert(self.direct:get("any") == nil and self.direct:status()).revision)
  assert(ok or err.code == "compacted", err)
end

--- Keeps the state of the server, loses some changes, and goes on with what was kept. Nobody can tell that a server was
-- restored if the server has come again to the revision that was seen last: so many are lost, and both informers of
-- each process have seen the last ones.
function trouble.restore(self)
  self:settle()
  local path = directory.new()
  self:kill_server()
  process.run { "cp", "-r", self.path .. "/.", path }
  self:start_again(self.path)
  for i = 1, LOST do assert(self.direct:put("/other", tostring(i))) end
  for _ = 1, 5 do self:happen(soaking.people, soaking.PEOPLE) end
  assert(self.direct:put("/sets/last", replicas.parent(1, "red")))
  self.wished["/sets/last"] = { n = 1, image = "red" }
  self:settle()
  self:kill_server()
  self:start_again(path)
  self.wished = soaking.wishes(self.direct)
  self:settle()
end

local TROUBLE = {
  { 20, "sleep" }, { 14, "weather" }, { 5, "clear" }, { 1, "kill_any" }, { 1, "stop_any" }, { 2, "kill_leader" },
  { 2, "pause_leader" }, { 2, "kill_server" }, { 2, "miss" }, { 1, "restore" },
}

function real:happen(acts, list, name)
  name = name or self.random:weighted(list)
  self.doing = name
  if acts[name](self) ~= false then self:count(name) end
end

--- Returns the first of a list that has not happened yet, or nil.
function real:missing(list)
  for _, entry in ipairs(list) do
    if not self.counts[entry[2]] then return entry[2] end
  end
end

--- Makes what is still missing happen: a leader is there, and the people do other things, too.
function real:make_up()
  local of_people, of_trouble = self:missing(soaking.PEOPLE), self:missing(TROUBLE)
  self:settle()
  for i = 1, 3 do self:happen(soaking.people, soaking.PEOPLE, i == 3 and of_people or nil) end
  if of_trouble then self:happen(trouble, TROUBLE, of_trouble) end
end

local HAS_TO_HAPPEN = { "settled", "leaders" }
for _, list in ipairs { soaking.PEOPLE, TROUBLE } do
  for _, entry in ipairs(list) do table.insert(HAS_TO_HAPPEN, entry[2]) end
end

--- Makes so many steps: each trouble is tried at least once, in no order; and then others, for what has not happened.
local function run_real(self, steps)
  self.path = directory.new()
  self.server = network.start(self.kind, { path = self.path })
  self.direct = network.connect(self.server.url)
  for i = 1, 2 do
    local proxy = proxies.start(self.server.url)
    self.places[i] = { proxy = proxy, weather = weathers.new(proxy, self.random), process = nil, is_stopped = false }
    self:start_process(self.places[i])
  end
  local plan = {}
  for i = 1, steps do plan[i] = TROUBLE[i] and TROUBLE[i][2] or self.random:weighted(TROUBLE) end
  for i = steps, 2, -1 do
    local other = self.random:between(1, i)
    plan[i], plan[other] = plan[other], plan[i]
  end
  occurrences.await(HAS_TO_HAPPEN, steps, function(i)
    local before = {}
    for what, n in pairs(self.counts) do before[what] = n end
    if plan[i] then
      for _ = 1, 3 do self:happen(soaking.people, soaking.PEOPLE) end
      self:happen(trouble, TROUBLE, plan[i])
      if i % SETTLE_EVERY == 0 then self:settle() end
    else
      self:make_up()
    end
    local now = {}
    for what, n in pairs(self.counts) do now[what] = n - (before[what] or 0) end
    return now
  end, MOST * steps)
  self:settle()
  for _, place in ipairs(self.places) do
    place.process:expect_error("is running") -- one that has just begun does not catch signals yet
    place.process:signal("sigterm")
    local status = place.process:wait()
    assert(status == 0, place.process:transcript())
  end
end

describe("a controller at random, in processes, #once", function()
  before_each(network.begin)
  after_each(function()
    network.finish()
    directory.remove_all()
  end)

  for _, kind in ipairs { "keywatch", "etcd" } do
    it("comes to what is wished, whatever happens, with a server of " .. kind, function()
      local self = setmetatable({
        kind = kind, random = new_random(network.SEED), counts = {}, wished = {}, places = {}, started = 0,
      }, real)
      local ok, failure = pcall(run_real, self, STEPS * network.FAULTS)
      if not ok then
        error(("%s, in %s\nto repeat: KW_SEED=%d\n%s"):format(tostring(failure), tostring(self.doing), network.SEED,
          report(self.counts)), 0)
      end
      if dose.factor > 1 then print(("processes and %s\n%s"):format(kind, report(self.counts))) end
    end)
  end
end)

-- }======
