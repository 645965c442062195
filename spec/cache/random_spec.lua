--- Caches at random: a writer changes keys, leases end, histories are compacted; the network is bad, the server is
-- killed, restored from an older state, and replaced by another one; and local watches are opened, read slowly, and
-- closed.
--
-- What each watch has seen is compared with all that the server has had (see truth.lua and judge.lua). When it is
-- quiet, the cache has what the server has, and its tables, too. KW_DOSE=n goes on for n times as long, and tells how
-- often each thing has happened.

local keywatch = require "keywatch"

local difference = require("spec.support.difference").difference
local directory = require "spec.support.directory"
local judge = require "spec.cache.judge"
local dose = require "spec.support.dose"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local truths = require "spec.cache.truth"

local PATIENCE = network.PATIENCE
local PREFIX, MARK = "/in/", "/in/mark"
local KEYS = 12
local MOST_WATCHES = 12
local STEPS = { keywatch = network.IS_FAST and 250 or 500, etcd = 250 }
local MOST_TIMES = 10  -- as many steps, until everything has happened
local SETTLE_EVERY = 25
local LEAST_LOST = 5   -- revisions that a restore loses: so many that those who come back notice it
local HISTORY = 1500   -- bytes of a cache's history: slow watches are left behind
local SMALL_QUEUE = 500 -- bytes of the queue of a slow watch

local methods = {}
local meta = { __index = methods }

function methods:count(what, n)
  self.seen[what] = (self.seen[what] or 0) + (n or 1)
end

-- {====== Servers ======

--- Connects a client of its own, which knows the truth of the server as it is now.
function methods:begin_truth(older, revision)
  self.direct = network.connect(self.server.url)
  assert(self.direct:get("any", { timeout = PATIENCE }) or true)
  self.truth = truths.new(self.direct, older, revision)
  self.leases = {}
end

function methods:kill()
  self.server.process:signal("sigkill")
  self.server.process:wait()
end

--- Starts a server where the last one was.
function methods:start_again(path, ...)
  self.path = path
  local before = self.server
  self.server = network.start(self.kind, { path = path, port = before.port, peer_port = before.peer_port, ... })
end

--- Caches hear nothing any more, and all that they can have heard is known.
function methods:go_dark()
  self.proxy:refuse()
  self.proxy:cut()
  return self.truth:learn()
end

--- Everything passes again.
function methods:clear()
  self.proxy:restore()
  self.proxy:accept_again()
end

-- }======

-- {====== What is compared ======

local function is_inside(key) return key:sub(1, #PREFIX) == PREFIX end

--- Turns the loop until it is so.
function methods:await(is_so, what)
  local deadline = keywatch.now() + PATIENCE
  while not is_so() do
    if keywatch.now() > deadline then
      local status = self.cache:status()
      error(("%s: revision %d, %s, %s"):format(what, status.revision, status.phase, tostring(status.trouble)), 0)
    end
    keywatch.sleep(0.001)
  end
end

local function kvs_of(reader)
  local kvs = {}
  for kv in reader:each(PREFIX, { prefix = true }) do kvs[kv.key] = kv end
  return kvs
end

--- The table has the values of the kvs.
local function compare_table(target, kvs)
  local values = {}
  for key, kv in pairs(kvs) do values[key] = kv.value end
  local words = difference(target, values, "the table")
  if words then error(words, 0) end
end

--- Waits until it is quiet, and compares everything.
function methods:settle()
  self:clear()
  self.n_marks = self.n_marks + 1
  local mark = ("mark %d"):format(self.n_marks)
  local revision = assert(self.direct:put(MARK, mark)).revision
  self:await(function()
    local kv = self.cache:is_ready() and self.cache:get(MARK)
    return kv and kv.value == mark
  end, "the cache does not come to revision " .. revision)
  self.truth:learn()
  self.truth:end_gaps(self.cache:status().revision)
  local kvs = kvs_of(self.direct)
  local words = difference(kvs_of(self.cache), kvs, "the cache")
  if words then error(words, 0) end
  if self.table then compare_table(self.table, kvs) end
  for _, one in ipairs(self.watches) do one:finish(self.truth, self.cache:status().revision) end
  self:forget_failed()
  self:count("settled")
end

--- Counts what a watch has seen.
function methods:tally(one)
  self:count("events", one.n)
  self:count("revisions told as a difference", one.n_skipped)
  if one.error then self:count("failed: " .. one.error) end
end

function methods:forget_failed()
  local left = {}
  for _, one in ipairs(self.watches) do
    if one.error then self:tally(one) else left[#left + 1] = one end
  end
  self.watches = left
end

-- }======

-- {====== What happens ======

local act = {}

function methods:key()
  if self.random:one_in(8) then return "/other/" .. self.random:between(1, 3) end
  return PREFIX .. self.random:between(1, KEYS)
end

function methods:value()
  return ("v"):rep(self.random:between(0, 100)) .. self.random:between(1, 1000)
end

function act.put(self) assert(self.direct:put(self:key(), self:value())) end
function act.delete(self) assert(self.direct:delete(self:key())) end
function act.delete_many(self) assert(self.direct:delete(PREFIX .. "1", { prefix = true })) end

function act.txn(self)
  local ops, used = {}, {}
  for _ = 1, self.random:between(2, 5) do
    local key = self:key()
    if not used[key] then
      ops[#ops + 1] = self.random:one_in(3) and { delete = key } or { put = key, value = self:value() }
    end
    used[key] = true
  end
  assert(self.direct:txn { success = ops })
end

function act.lease(self)
  local lease = assert(self.direct:lease(600))
  for _ = 1, 3 do assert(self.direct:put(self:key(), self:value(), { lease = lease })) end
  table.insert(self.leases, lease)
end

function act.revoke(self)
  if #self.leases == 0 then act.lease(self) end
  assert(table.remove(self.leases):revoke())
end

function act.compact(self)
  local now = self.truth:learn()
  local revision = self.random:between(math.max(2, now - 20), now)
  local ok, err = self.direct:compact(revision)
  if not ok and err.code == "compacted" then return false end -- it was before
  assert(ok, err)
  self.truth:compacted(revision, self.cache:status().revision)
end

--- The cache is cut off until what it needs is compacted.
function act.miss(self)
  self:settle()
  self:watch_all()
  self:go_dark()
  for i = 1, 2 do assert(self.direct:put(PREFIX .. "1", tostring(i))) end
  for _ = 1, self.random:between(3, 12) do act[self.random:pick { "put", "delete", "txn" }](self) end
  local now = self.truth:learn()
  self.truth:compacted(now, self.cache:status().revision)
  assert(self.direct:compact(now))
  self:settle()
end

-- The network --------------------------------------------------------------------------------------------------------

local DIRECTIONS = { "to_server", "to_client", "both" }

function act.cut(self)
  self.proxy:cut { how = self.random:pick { "close", "reset", "shutdown" }, direction = self.random:pick(DIRECTIONS) }
end

function act.cut_later(self) self.proxy:cut_once(self.random:between(0, 3000), self.random:pick(DIRECTIONS)) end
function act.split(self) self.proxy:split(self.random:between(2, 40), self.random:pick(DIRECTIONS)) end
function act.one_byte(self) self.proxy:split(1, self.random:pick(DIRECTIONS)) end
function act.delay(self) self.proxy:delay(self.random:between(1, 20), self.random:pick(DIRECTIONS)) end
function act.stall(self) self.proxy:stall(self.random:pick(DIRECTIONS)) end
function act.blackhole(self) self.proxy:blackhole() end
function act.clear(self) self:clear() end

function act.refuse(self)
  self.proxy:refuse()
  self.proxy:cut()
end

-- Servers ------------------------------------------------------------------------------------------------------------

function act.kill(self)
  self:kill()
  self:start_again(self.path)
  assert(self.direct:get("any", { timeout = PATIENCE }) or true)
end

--- Keeps the state of the server. Nothing of it ends by itself.
function act.snapshot(self)
  if self.ending or self.snapshot and not self.random:one_in(4) then return false end
  while #self.leases > 0 do act.revoke(self) end
  local path = directory.new()
  local revision = self.truth:learn()
  self:kill()
  process.run { "cp", "-r", self.path .. "/.", path }
  self.snapshot = { path = path, revision = revision, truth = self.truth }
  self:start_again(self.path)
  assert(self.direct:get("any", { timeout = PATIENCE }) or true)
end

function act.restore(self)
  if self.ending then return false end
  if not self.snapshot then act.snapshot(self) end
  local snapshot = self.snapshot
  self:settle()
  self:watch_all()
  for _ = 1, LEAST_LOST do act.put(self) end
  self:settle()
  if self:go_dark() < snapshot.revision + LEAST_LOST then return false end
  self:kill()
  self.snapshot = nil
  self:start_again(snapshot.path)
  self:begin_truth(snapshot.truth, snapshot.revision)
  self:settle()
end

function act.another_cluster(self)
  if self.ending then return false end
  self:settle()
  self:watch_all()
  self:go_dark()
  self:kill()
  self.snapshot = nil
  self:start_again(directory.new(), "--initial-cluster-token", "other" .. self.n_marks)
  self:begin_truth()
  for _ = 1, self.random:between(0, 5) do act.put(self) end
  self:settle()
end

-- Who watches --------------------------------------------------------------------------------------------------------

--- A part of the prefix: a key, some of the keys, or all.
function methods:span()
  local random = self.random
  local key = PREFIX .. random:between(1, KEYS)
  return random:weighted {
    { 3, function() return PREFIX, { prefix = true }, is_inside end },
    { 1, function() return key, {}, function(other) return other == key end end },
    { 1, function()
      return PREFIX .. "1", { range_end = PREFIX .. "3" }, function(other)
        return other >= PREFIX .. "1" and other < PREFIX .. "3"
      end
    end },
  }()
end

function methods:watch(how)
  if not self.cache:is_ready() then self:settle() end
  while #self.watches >= MOST_WATCHES do act.close_watch(self) end
  local random, status = self.random, self.cache:status()
  local key, opts, contains = self:span()
  opts.prev_kv, opts.progress = random:one_in(3), random:one_in(3)
  if random:one_in(2) then opts.max_bytes = SMALL_QUEUE end
  how(opts, status)
  table.insert(self.watches, judge.open(self.cache, self.truth, key, opts, contains))
end

--- Opens a watch of all.
function methods:watch_all()
  if not self.cache:is_ready() then self:settle() end
  table.insert(self.watches, judge.open(self.cache, self.truth, PREFIX, { prefix = true }, is_inside))
end

function act.watch(self) self:watch(function() end) end
function act.watch_initial(self) self:watch(function(opts) opts.initial = true end) end

function act.watch_past(self)
  self:watch(function(opts, status)
    opts.start_revision = self.random:between(math.max(2, status.compact_revision - 3), status.revision + 1)
  end)
end

function act.read(self)
  if #self.watches == 0 then self:watch_all() end
  for _ = 1, 3 do self.random:pick(self.watches):read(self.random:between(1, 10), self.truth) end
  self:forget_failed()
end

function act.close_watch(self)
  if #self.watches == 0 then self:watch_all() end
  local one = table.remove(self.watches, self.random:between(1, #self.watches))
  one.watch:close()
  self:tally(one)
end

function act.table(self)
  self.table = self.cache:table { on_change = function() self:count("changes of tables") end }
end

--- The cache ends, and so do its watches.
function act.reopen(self)
  for _, one in ipairs(self.watches) do
    one.watch:close()
    self:tally(one)
  end
  self.cache:close()
  self.watches, self.table = {}, nil
  self.cache = assert(self.client:cache(PREFIX, { history_bytes = self.random:one_in(2) and HISTORY or nil }))
end

-- How often each happens at random, beside once in every run.
local ACTS = {
  { 120, "put" }, { 30, "delete" }, { 5, "delete_many" }, { 40, "txn" }, { 6, "lease" }, { 5, "revoke" },
  { 6, "compact" }, { 3, "miss" },
  { 8, "cut" }, { 4, "cut_later" }, { 4, "split" }, { 2, "one_byte" }, { 3, "delay" }, { 4, "stall" }, { 3, "refuse" },
  { 2, "blackhole" }, { 10, "clear" },
  { 2, "kill" }, { 2, "snapshot" }, { 1, "restore" }, { 1, "another_cluster" },
  { 14, "watch" }, { 12, "watch_initial" }, { 12, "watch_past" }, { 60, "read" }, { 8, "close_watch" }, { 3, "table" },
  { 2, "reopen" },
}

-- What else must have happened in every run, and with it every act.
local MUST_HAPPEN = {
  "failed: compacted", "failed: regressed", "failed: cluster_changed", "revisions told as a difference", "events",
  "changes of tables",
}
for _, entry in ipairs(ACTS) do table.insert(MUST_HAPPEN, entry[2]) end

-- }======

local function new_world(kind, seed)
  local self = setmetatable({ kind = kind, random = new_random(seed), seen = {}, watches = {}, n_marks = 0 }, meta)
  self.path = directory.new()
  self.server = network.start(kind, { path = self.path })
  self:begin_truth()
  self.proxy = proxy.start(self.server.url)
  self.client = network.connect(self.proxy.url)
  self.cache = assert(self.client:cache(PREFIX, { history_bytes = HISTORY }))
  return self
end

--- A lease ends by itself, and its key with it.
function methods:expire()
  self.ending = assert(self.direct:lease(1))
  assert(self.direct:put(PREFIX .. "lease", "until then", { lease = self.ending }))
end

function methods:await_expiry()
  self:await(function() return not self.direct:get(PREFIX .. "lease") end, "a lease does not end")
  self.ending = nil
end

--- The acts of a run: each at least once, in no order.
function methods:plan(steps)
  local names = {}
  for i = 1, steps do names[i] = ACTS[i] and ACTS[i][2] or self.random:weighted(ACTS) end
  for i = steps, 2, -1 do
    local other = self.random:between(1, i)
    names[i], names[other] = names[other], names[i]
  end
  return names
end

--- Makes so many steps, and then goes on until everything has happened.
function methods:run(steps)
  self:settle()
  local plan, random = self:plan(steps), self.random
  occurrences.await(MUST_HAPPEN, steps, function(step)
    local before = {}
    for what, n in pairs(self.seen) do before[what] = n end
    local name = plan[step] or random:weighted(ACTS)
    if act[name](self) ~= false then self:count(name) end
    if step % SETTLE_EVERY == 0 then self:settle() end
    local now = {}
    for what, n in pairs(self.seen) do now[what] = n - (before[what] or 0) end
    return now
  end, MOST_TIMES * steps)
  self:settle()
  self:expire()
  self:settle()
  self:await_expiry()
  self:settle()
  for _, one in ipairs(self.watches) do self:tally(one) end
end

local function report(seen)
  local lines = {}
  for what, n in pairs(seen) do lines[#lines + 1] = ("  %-40s %d"):format(what, n) end
  table.sort(lines)
  return table.concat(lines, "\n")
end

network.of_each(function(kind, tag)
  describe(("caches of %s at random %s #slow"):format(kind, tag), function()
    before_each(network.begin)
    after_each(function()
      network.finish()
      directory.remove_all()
    end)

    it("have what the server has, and their watches see all of it", function()
      local world = new_world(kind, network.SEED)
      local ok, failure = pcall(world.run, world, STEPS[kind] * network.FAULTS)
      if not ok then
        error(("%s\nto repeat: KW_SEED=%d\n%s"):format(tostring(failure), network.SEED, report(world.seen)), 0)
      end
      if dose.factor > 1 then print(("a cache of %s\n%s"):format(kind, report(world.seen))) end
    end)
  end)
end)
