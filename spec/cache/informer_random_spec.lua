--- Informers at random: keys are written, values are bad, the network fails, the history is compacted under the watch,
-- servers are stopped, killed, restored and replaced; and handlers come late, are slow, raise, and are removed, by
-- themselves, too.
--
-- What each handler was told is compared with all that was written (see handler_judge.lua). When it is quiet, each
-- informer has what its server has. Many short programs run in virtual time; and a long one runs with a server of its
-- own, keywatch's or an etcd, which is killed, behind a proxy. KW_DOSE=n does n times as much, and tells how often
-- each thing has happened.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local directory = require "spec.support.directory"
local informing = require "spec.cache.informing"
local judging = require "spec.cache.handler_judge"
local dose = require "spec.support.dose"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"

local PREFIX, MARK = "/in/", "/in/mark"
local KEYS = 8
local MOST_INFORMERS, MOST_JUDGES = 3, 6
local LEAST_LOST = 5 -- revisions that a restore loses: so many that those who come back notice it
local BOUND = 2000   -- bytes of the queue of a slow handler: it is full after about twenty changes

-- {====== What happens in both worlds ======

local methods = {}
local act = {}

function methods:count(what, n) self.seen[what] = (self.seen[what] or 0) + (n or 1) end

function methods:key() return PREFIX .. self.random:between(1, KEYS) end

--- A value: most are good.
function methods:value()
  local kind = self.random:weighted { { 8, "good" }, { 1, "bad" }, { 1, "hidden" } }
  return self.ledger:text(kind)
end

function methods:put(key, text)
  self.ledger:note(key, text, assert(self:writer():put(key, text)).revision)
end

function act.put(self) self:put(self:key(), self:value()) end

function act.delete(self)
  local key = self:key()
  local found = assert(self:writer():delete(key))
  if found.deleted > 0 then self.ledger:note(key, nil, found.revision) end
end

function act.txn(self)
  local ops, used = {}, {}
  for _ = 1, self.random:between(2, 4) do
    local key = self:key()
    if not used[key] then
      ops[#ops + 1] = self.random:one_in(3) and { delete = key } or { put = key, value = self:value() }
    end
    used[key] = true
  end
  local result = assert(self:writer():txn { success = ops })
  for _, op in ipairs(ops) do self.ledger:note(op.put or op.delete, op.value, result.revision) end
end

--- A key changes often, while slow handlers work on one change: their queues come to their bounds.
function act.burst(self)
  local key = self:key()
  self.is_bursting = true
  for _ = 1, self.random:between(20, 60) do self:put(key, self:value()) end
  self.is_bursting = false
end

--- A key is deleted and created again.
function act.again(self)
  local key = self:key()
  local found = assert(self:writer():delete(key))
  if found.deleted > 0 then self.ledger:note(key, nil, found.revision) end
  self:put(key, self:value())
end

-- Informers and handlers ----------------------------------------------------------------------------------------------

--- One of the ways to an informer: each once, and then any.
local function pick_door(self)
  for _, door in ipairs { "client", "alone", "cache" } do
    if not self.seen["informer of " .. door] then return door end
  end
  return self.random:pick { "client", "client", "alone", "cache" }
end

function act.open_informer(self)
  if #self.informers >= MOST_INFORMERS then return false end
  local door = pick_door(self)
  local x, opts = self.client, {}
  for option, given in pairs(self.options) do opts[option] = given end
  if door == "alone" then opts.shared = false end
  if door == "cache" then
    self.cache = self.cache or assert(self.client:cache(PREFIX))
    x = self.cache
  end
  local informer = assert(x:informer(PREFIX, opts))
  table.insert(self.informers, { name = door, informer = informer })
  self:count("informer of " .. door)
end

function act.close_informer(self)
  if #self.informers < 2 then return false end
  local one = table.remove(self.informers, self.random:between(1, #self.informers))
  for i = #self.judges, 1, -1 do
    local judge = self.judges[i]
    if judge.informer == one.informer then
      judge:sample()
      judge.is_closed = true
      table.remove(self.judges, i)
      table.insert(self.finished, judge)
    end
  end
  one.informer:close()
end

--- What a handler does in a call, beside noting it.
function methods:work(judge_of, is_slow)
  local random = self.random
  return function()
    if is_slow then
      repeat self:pause() until not self.is_bursting
    end
    if random:one_in(40) then
      self:count("handlers that raise")
      error("broken on purpose", 0)
    elseif random:one_in(150) and not judge_of().is_closed then
      self:count("handlers that remove themselves")
      self:forget(judge_of())
    elseif random:one_in(150) and #self.judges > 0 then
      self:count("handlers that remove others")
      self:forget(random:pick(self.judges))
    end
  end
end

--- Removes a handler. Its last calls are judged later.
function methods:forget(judge)
  for i, one in ipairs(self.judges) do
    if one == judge then table.remove(self.judges, i) end
  end
  judge:sample()
  judge.is_closed = true
  judge.handler:close()
  table.insert(self.finished, judge)
end

--- Adds a handler to an informer, which is an item of self.informers. Returns its judge.
function methods:add_judge(one, is_slow, at_bound)
  local random = self.random
  local judge
  judge = judging.open(one.name, one.informer, self.ledger, {
    at_bound = at_bound,
    max_bytes = is_slow and BOUND or nil,
    resync = random:one_in(4) and self.resync or nil,
    work = self:work(function() return judge end, is_slow),
  })
  judge.is_of_cache = one.name == "cache"
  if judge.is_of_cache and self.cache_gap then table.insert(judge.gaps, self.cache_gap) end
  table.insert(self.judges, judge)
  self:count(("handlers, %s, %s"):format(is_slow and "slow" or "fast", at_bound))
  if one.informer:has_synced() then self:count("handlers that come late") end
  return judge
end

function act.add_handler(self)
  if #self.judges >= MOST_JUDGES then return false end
  if #self.informers == 0 then act.open_informer(self) end
  local random = self.random
  local one = random:pick(self.informers)
  local is_slow = random:one_in(2)
  self:add_judge(one, is_slow, random:one_in(2) and "coalesce" or "wait")
end

function act.remove_handler(self)
  if #self.judges < 2 then return false end
  self:forget(self.random:pick(self.judges))
end

--- A key changes until a handler coalesces. The handler is alone: informers wait for others that are full.
function act.coalesce(self)
  while #self.judges > 0 do self:forget(self.judges[1]) end
  self:settle()
  local judge = self:add_judge(self.random:pick(self.informers), true, "coalesce")
  self:settle()
  local key, deadline = self:key(), keywatch.now() + self.patience
  self.is_bursting = true
  while not judge.is_closed and judge.handler:status().coalesced == 0 and keywatch.now() < deadline do
    self:put(key, self.ledger:text("good"))
    keywatch.sleep(0)
  end
  self.is_bursting = false
  if judge.is_closed then return false end -- by itself, before
  self:forget(judge)
end

-- When it is quiet ----------------------------------------------------------------------------------------------------

function methods:sample()
  for _, judge in ipairs(self.judges) do judge:sample() end
end

--- What was told of a judge that is over.
function methods:tally(judge)
  for what, n in pairs(judge.counts) do self:count("told: " .. what, n) end
  local status = judge.handler:status()
  if status.coalesced > 0 then self:count("coalesced", status.coalesced) end
  if judge.opts.max_bytes and judge.opts.at_bound == "wait" and status.most_queued_bytes >= BOUND then
    self:count("handlers at their bound, waited for")
  end
end

--- Waits until it is quiet, and judges everything.
function methods:settle()
  self:clear()
  if #self.informers == 0 then act.open_informer(self) end
  local text = self.ledger:text("good")
  self:put(MARK, text)
  local deadline = keywatch.now() + self.patience
  for _, one in ipairs(self.informers) do
    local object
    repeat
      object = one.informer:has_synced() and one.informer:get(MARK) or nil
      if not (object and object.text == text) then
        self:sample()
        if keywatch.now() > deadline then
          local status = one.informer:status()
          error(("an informer of %s does not come to %s: %s at %s, %s"):format(one.name, text, status.phase,
            tostring(status.revision), tostring(status.trouble)), 0)
        end
        keywatch.sleep(self.step)
      end
    until object and object.text == text
  end
  -- A handler may remove others as long as something is told.
  repeat
    local judges = {}
    for _, judge in ipairs(self.judges) do judges[#judges + 1] = judge end
    for _, judge in ipairs(judges) do
      while not judge.is_closed and not pcall(judging.await, { judge }, MARK, text, self.step, self.step) do
        if keywatch.now() > deadline then judging.await({ judge }, MARK, text, 0, self.step) end
      end
    end
    local is_over = true
    for _, judge in ipairs(judges) do is_over = is_over and not judge.is_closed end
  until is_over
  for _, judge in ipairs(self.judges) do judge:judge(true) end
  for _, judge in ipairs(self.finished) do
    judge:finish(self.patience)
    self:tally(judge)
  end
  self.finished, self.cache_gap = {}, nil
  for _, one in ipairs(self.informers) do judging.judge_informer(one.informer, self.ledger) end
  self:count("settled")
end

--- The history was compacted, or a watch is refused: a cache may read anew, and tell its watches the difference. Its
-- informers have no gap then, and cannot know of it.
function methods:expect_cache_gap()
  if not self.cache then return end
  local revision = self.cache:status().revision
  self.cache_gap = self.cache_gap or { after = revision, ending = math.huge } -- until it is quiet
  for _, list in ipairs { self.judges, self.finished } do
    for _, judge in ipairs(list) do
      if judge.is_of_cache then table.insert(judge.gaps, self.cache_gap) end
    end
  end
end

function methods:finish()
  self:settle()
  for _, judge in ipairs(self.judges) do self:tally(judge) end
  for _, one in ipairs(self.informers) do one.informer:close() end
  if self.cache then self.cache:close() end
end

local COMMON = {
  { 40, "put" }, { 12, "delete" }, { 12, "txn" }, { 3, "burst" }, { 6, "again" },
  { 4, "open_informer" }, { 2, "close_informer" }, { 10, "add_handler" }, { 5, "remove_handler" },
}

-- What must have happened in every run.
local RESULTS = {
  "told: add", "told: update", "told: delete", "told: error", "told: initial", "told: missed", "told: gaps",
  "told: strict", "coalesced", "handlers that come late", "handlers that raise", "informer of client",
  "informer of alone", "informer of cache",
}

local function report(seen)
  local lines = {}
  for what, n in pairs(seen) do lines[#lines + 1] = ("  %-40s %d"):format(what, n) end
  table.sort(lines)
  return table.concat(lines, "\n")
end

local function missing(seen, lists)
  for _, list in ipairs(lists) do
    for _, what in ipairs(list) do
      what = type(what) == "table" and what[2] or what
      if (seen[what] or 0) == 0 then return what end
    end
  end
end

local function new_program(class, seed, seen)
  return setmetatable({
    random = new_random(seed), ledger = judging.new_ledger(), options = judging.options(), seen = seen,
    informers = {}, judges = {}, finished = {},
  }, { __index = function(_, name) return class[name] or methods[name] end })
end

--- Does an act. Returns false if there was nothing to do it with.
local function step(self, name, acts)
  self.doing = name
  local has_done = (acts[name] or act[name])(self) ~= false
  if has_done then self:count(name) end
  self:sample()
  return has_done
end

-- What an act that cannot be done now needs to be done before.
local NEEDED = {
  add_handler = "remove_handler", remove_handler = "add_handler",
  open_informer = "close_informer", close_informer = "open_informer",
}

-- Acts that bring about a result for certain.
local ON_PURPOSE = { coalesced = "coalesce" }

-- }======

-- {====== In virtual time ======

local virtual = { patience = 5000, step = 0.05, resync = 7 }
local fault = {}

function virtual:writer() return self.world.server.store end
function virtual:pause() keywatch.sleep(self.world.random() * 3) end

function virtual:clear()
  local server = self.world.server
  for _, rule in ipairs(self.rules) do rule:stop() end
  self.rules = {}
  server:start()
  server:join()
  server:slow(0)
  self.world:join(self.client)
end

function fault.sleep(self) keywatch.sleep(self.world.random() * 5) end
function fault.turn() keywatch.sleep(0) end
function fault.cut(self) self.world.server:cut() end
function fault.stop(self) self.world.server:stop() end
function fault.start(self) self.world.server:start() end
function fault.slow(self) self.world.server:slow(0, self.world.random()) end
function fault.isolate(self) self.world:isolate(self.client) end
function fault.join(self) self.world:join(self.client) end

for _, kind in ipairs { "refuse", "delay", "hang", "lose_request", "lose_answer", "mute" } do
  fault[kind] = function(self)
    local rule = { kind, method = { "get", "watch" }, count = self.random:between(1, 3) }
    if kind == "refuse" then
      self:expect_cache_gap()
      rule.error = self.random:pick { "too_many_requests", "unavailable", "permission_denied", "compacted" }
    end
    if kind == "refuse" and rule.error == "compacted" then rule.method = "get" end
    if kind == "delay" then rule.seconds = { 0, 20 } end
    table.insert(self.rules, self.world:fault(rule))
  end
end

--- The client is cut off until what it needs is compacted.
function fault.miss(self)
  self.world.server:stop()
  for _ = 1, self.random:between(1, 10) do act[self.random:pick { "put", "delete", "txn", "again" }](self) end
  self.is_compacted = true
  self:expect_cache_gap()
  self.world.server:compact()
  fault.sleep(self)
  self.world.server:start()
end

function fault.compact(self)
  self.is_compacted = true
  self:expect_cache_gap()
  local now = self:writer():status().revision
  return self.world.server:compact(self.random:between(math.max(2, now - 5), now)) ~= nil
end

function fault.restore(self)
  if self.is_compacted then return false end
  for _ = 1, LEAST_LOST do act.put(self) end
  self:settle()
  local now = self:writer():status().revision
  local revision = now - self.random:between(LEAST_LOST, math.min(30, now - 1))
  if revision < 1 then return false end
  assert(self.world.server:restore(revision))
  self.ledger:restore(revision)
  self:settle()
end

--- Another server, with some of the same values.
function fault.replace(self)
  local content = self.ledger.epochs[self.ledger.epoch].content
  self.world.server:replace()
  self.is_compacted = false
  self.ledger:replace()
  local keys = {}
  for key in pairs(content) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do
    if self.random:one_in(2) then self:put(key, content[key].text) end
  end
  self:settle()
end

local VIRTUAL = {
  { 20, "sleep" }, { 20, "turn" }, { 4, "cut" }, { 3, "stop" }, { 6, "start" }, { 2, "slow" }, { 3, "isolate" },
  { 6, "join" }, { 2, "refuse" }, { 2, "delay" }, { 1, "hang" }, { 1, "lose_request" }, { 1, "lose_answer" },
  { 1, "mute" }, { 3, "miss" }, { 3, "compact" }, { 2, "restore" }, { 1, "replace" },
}

--- One program. Every other one has no gap: there everything must be told exactly once.
local function run_virtual(seed, seen)
  local acts = {}
  for _, entry in ipairs(COMMON) do acts[#acts + 1] = entry end
  for _, entry in ipairs(VIRTUAL) do
    local makes_gap = entry[2] == "miss" or entry[2] == "compact" or entry[2] == "restore" or entry[2] == "replace"
    if seed % 2 == 0 or not makes_gap then acts[#acts + 1] = entry end
  end
  local self = new_program(virtual, seed, seen)
  testing.run(function(world)
    self.world, self.rules = world, {}
    self.client = world:client()
    for _ = 1, 5 do act.put(self) end
    act.open_informer(self)
    for n = 1, 60 do
      step(self, self.random:weighted(acts), fault)
      if n % 30 == 0 then self:settle() end
    end
    self:finish()
    for what, n in pairs(world.counts) do self:count("fault: " .. what, n) end
  end, { seed = seed % 2 ^ 31, leftovers = "cancel", idle = 20000 })
end

local FAULTS = { "fault: cut", "fault: stop", "fault: isolate", "fault: refuse", "fault: delay", "fault: hang",
  "fault: lose_request", "fault: lose_answer", "fault: mute", "fault: compact", "fault: restore", "fault: replace",
  "told: resync", "handlers that remove themselves", "handlers that remove others",
  "handlers at their bound, waited for" }

describe("informers at random, in virtual time,", function()
  before_each(informing.begin)
  after_each(informing.finish)

  it("tell each handler what it must know, and have what the server has", function()
    local least, most = network.IS_FAST and 4 or 20, network.IS_FAST and 40 or 120
    local seen, n = {}, 0
    repeat
      n = n + 1
      local seed = network.SEED + n
      local ok, failure = pcall(run_virtual, seed, seen)
      if not ok then
        error(("%s\nto repeat: KW_SEED=%d\n%s"):format(tostring(failure), seed - 1, report(seen)), 0)
      end
      local is_enough = n >= least * network.FAULTS
        and (network.IS_FAST or not missing(seen, { COMMON, VIRTUAL, RESULTS, FAULTS }))
    until is_enough or n >= most * network.FAULTS
    if dose.factor > 1 then print(("%d programs in virtual time\n%s"):format(n, report(seen))) end
    if not network.IS_FAST then
      local never = missing(seen, { COMMON, VIRTUAL, RESULTS, FAULTS })
      assert(not never, ("this never happened: %s\n%s"):format(tostring(never), report(seen)))
    end
  end)
end)

-- }======

-- {====== With servers and a proxy ======

local real = { patience = network.PATIENCE, step = 0.001, resync = 0.05 }
local trouble = {}
local DIRECTIONS = { "to_server", "to_client", "both" }
local STEPS = { keywatch = network.IS_FAST and 150 or 250, etcd = 150 }
local SETTLE_EVERY = 25

function real:writer() return self.direct end
function real.pause() keywatch.sleep(0.001) end

function real:clear()
  self.proxy:restore()
  self.proxy:accept_again()
end

function real:kill()
  self.server.process:signal("sigkill")
  self.server.process:wait()
end

--- Starts a server where the last one was.
function real:start_again(path, ...)
  self.path = path
  local before = self.server
  self.server = network.start(self.kind, { path = path, port = before.port, peer_port = before.peer_port, ... })
  self.direct = network.connect(self.server.url)
  assert(self.direct:get("any", { timeout = network.PATIENCE }) or true)
end

function real:go_dark()
  self.proxy:refuse()
  self.proxy:cut()
end

function trouble.turn() keywatch.sleep(0.001) end

function trouble.cut(self)
  self.proxy:cut { how = self.random:pick { "close", "reset", "shutdown" }, direction = self.random:pick(DIRECTIONS) }
end

function trouble.cut_later(self) self.proxy:cut_once(self.random:between(0, 3000), self.random:pick(DIRECTIONS)) end
function trouble.split(self) self.proxy:split(self.random:between(2, 40), self.random:pick(DIRECTIONS)) end
function trouble.delay(self) self.proxy:delay(self.random:between(1, 20), self.random:pick(DIRECTIONS)) end
function trouble.stall(self) self.proxy:stall(self.random:pick(DIRECTIONS)) end
function trouble.blackhole(self) self.proxy:blackhole() end
function trouble.refuse(self) self:go_dark() end
function trouble.clear(self) self:clear() end

function trouble.compact(self)
  local now = self.ledger.epochs[self.ledger.epoch].revision
  self:expect_cache_gap()
  local ok, err = self.direct:compact(self.random:between(math.max(2, now - 10), now))
  if not ok and err.code == "compacted" then return false end
  assert(ok, err)
end

--- The client is cut off until what it needs is compacted.
function trouble.miss(self)
  if #self.judges == 0 then act.add_handler(self) end
  self:settle()
  self:go_dark()
  for i = 1, 2 do self:put(PREFIX .. i, self.ledger:text("good")) end
  for _ = 1, self.random:between(3, 10) do act[self.random:pick { "put", "delete", "txn", "again" }](self) end
  self:expect_cache_gap()
  local ok, err = self.direct:compact(self.ledger.epochs[self.ledger.epoch].revision)
  if not ok and err.code ~= "compacted" then error(err, 0) end
  self:settle()
end

function trouble.kill(self)
  self:kill()
  self:start_again(self.path)
end

--- Keeps the state of the server, loses some changes, and goes on with what was kept.
function trouble.restore(self)
  local path = directory.new()
  local revision = self.ledger.epochs[self.ledger.epoch].revision
  self:kill()
  process.run { "cp", "-r", self.path .. "/.", path }
  self:start_again(self.path)
  for _ = 1, LEAST_LOST do self:put(self:key(), self:value()) end
  self:settle()
  self:go_dark()
  self:kill()
  self.ledger:restore(revision)
  self:start_again(path)
  self:settle()
end

function trouble.another_cluster(self)
  self:settle()
  self:go_dark()
  self:kill()
  self.ledger:replace()
  self:start_again(directory.new(), "--initial-cluster-token", "other" .. self.ledger.epoch)
  for _ = 1, self.random:between(0, 5) do act.put(self) end
  self:settle()
end

local REAL = {
  { 15, "turn" }, { 6, "cut" }, { 3, "cut_later" }, { 3, "split" }, { 2, "delay" }, { 3, "stall" }, { 1, "blackhole" },
  { 2, "refuse" }, { 8, "clear" }, { 3, "compact" }, { 2, "miss" }, { 1, "kill" }, { 1, "restore" },
  { 1, "another_cluster" },
}

--- The acts of a run: each at least once, in no order.
local function plan(self, steps)
  local all, names = {}, {}
  for _, list in ipairs { COMMON, REAL } do
    for _, entry in ipairs(list) do all[#all + 1] = entry end
  end
  for i = 1, steps do names[i] = all[i] and all[i][2] or self.random:weighted(all) end
  for i = steps, 2, -1 do
    local other = self.random:between(1, i)
    names[i], names[other] = names[other], names[i]
  end
  return names
end

local function run_real(self, steps)
  self.path = directory.new()
  self.server = network.start(self.kind, { path = self.path })
  self.direct = network.connect(self.server.url)
  self.proxy = proxy.start(self.server.url)
  self.client = network.connect(self.proxy.url)
  for _ = 1, 5 do act.put(self) end
  for _ = 1, MOST_INFORMERS do act.open_informer(self) end
  for _ = 1, 3 do act.add_handler(self) end
  for i, name in ipairs(plan(self, steps)) do
    step(self, name, trouble)
    if i % SETTLE_EVERY == 0 then self:settle() end
  end
  -- What chance has left out is done now.
  local n = 0
  repeat
    local never = missing(self.seen, { COMMON, REAL, RESULTS })
    if never then
      local name = ON_PURPOSE[never] or (act[never] or trouble[never]) and never or self.random:pick { "burst", "miss",
        "add_handler", "remove_handler", "open_informer", "close_informer" }
      if not step(self, name, trouble) and NEEDED[name] then step(self, NEEDED[name], trouble) end
      self:settle()
    end
    n = n + 1
  until not never or n > 200
  self:finish()
  local never = missing(self.seen, { COMMON, REAL, RESULTS })
  if never then error("this never happened: " .. never, 0) end
end

network.of_each(function(kind, tag)
  describe(("informers of %s at random %s #slow"):format(kind, tag), function()
    before_each(function()
      informing.begin()
      network.begin()
    end)

    after_each(function()
      network.finish()
      informing.finish()
      directory.remove_all()
    end)

    it("tell each handler what it must know, through a proxy and killed servers", function()
      local self = new_program(real, network.SEED, {})
      self.kind = kind
      local ok, failure = pcall(run_real, self, STEPS[kind] * network.FAULTS)
      if not ok then
        error(("%s, in %s\nto repeat: KW_SEED=%d\n%s"):format(tostring(failure), tostring(self.doing), network.SEED,
          report(self.seen)), 0)
      end
      if dose.factor > 1 then print(("informers of %s\n%s"):format(kind, report(self.seen))) end
    end)
  end)
end)

-- }======
