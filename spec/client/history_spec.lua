--- The same random history at keywatch and at a real etcd, through the client: every answer is equal, field by field,
-- and so are the messages of watch streams, except for spec/support/known_differences.lua. spec/crash/crash_spec.lua
-- checks the watches of clients, at both servers.
--
-- A failure prints the operation, its number and both answers. KW_SEED=… repeats it, KW_DOSE=n makes n
-- times as many operations, in rounds of which each begins with empty servers.

local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local new_history = require("spec.support.history").new
local new_messages = require("spec.support.messages").new
local new_random = require("spec.support.random").new
local new_request = require("spec.support.request").new
local process = require "spec.support.process"
local twins = require "spec.support.twins"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()
local operations = 4000 * dose.factor

local ROUND = 5000        -- operations
local COMPACT_FROM = 0.3  -- of a round: until then all of history is there
local MOST_WATCHES = 40   -- on a stream
local BULK, BULK_VALUE = 15, 56000 -- puts, and their bytes: more than 512 KiB above the most of a request
local EXPIRY = 5          -- seconds: time enough to bind keys to a lease

-- So long and so far from each other that none ends, or overtakes another, during the history.
local TTLS = { 3600, 3600, 36000, 360000, 3600000, 9000000000, 9000000001 }

local WEIGHTS = {
  { 30, "put" }, { 8, "delete" }, { 23, "txn" }, { 3, "fleeting" },
  { 6, "get" }, { 14, "range" }, { 4, "each" }, { 3, "hash_kv" }, { 1, "compact" },
  { 4, "lease" }, { 1, "brief_lease" }, { 3, "keepalive" }, { 1, "revoke" },
  { 2, "remaining" }, { 2, "lease_keys" }, { 1, "leases" },
}

local round = {}
round.__index = round

local function new_round(number, n)
  local random = new_random(seed + number)
  local history = new_history(random, { ttls = TTLS, weights = WEIGHTS, oversize = twins.TOO_LARGE })
  return setmetatable({
    random = random,
    n = n,
    world = twins.start(),
    messages = new_messages(random, history),
  }, round)
end

-- {====== Requests ======

local act = {}

function act.ask(self)
  local world = self.world
  local asked = self.messages:next(world)
  local is_compaction = asked.verb == "compact" or asked.verb == "call" and asked[1]:match("Compact$")
  if is_compaction and world.n < self.n * COMPACT_FROM then return act.hash(self) end
  if asked.verb == "keepalive" and self.random:one_in(2) then asked.verb = "keepalive_message" end
  world:ask(asked)
end

function act.ask_odd(self) self.world:ask(self.messages:next_odd()) end

--- At several revisions, of which some cannot be read.
function act.hash(self)
  local world = self.world
  local last, compacted = world.revision, world.compact_revision
  local any = self.random:between(1, last)
  for _, revision in ipairs { 0, 1, compacted, compacted + 1, any, last - 1, last, last + 1 } do
    world:ask(new_request("call", "/etcdserverpb.Maintenance/HashKV", { revision = revision }))
  end
end

function act.create(self)
  local world = self.world
  if #world.streams == 0 or #world.streams < 3 and self.random:one_in(20) then world:open_stream() end
  local stream = self.random:pick(world.streams)
  if #stream:ids() < MOST_WATCHES then stream:create(self.messages:create_request(world)) end
end

function act.cancel(self)
  local stream = #self.world.streams > 0 and self.random:pick(self.world.streams)
  local ids = stream and stream:ids() or {}
  if self.random:one_in(5) and stream then return stream:cancel_none(77) end
  if #ids > 0 then stream:cancel(self.random:pick(ids)) end
end

function act.close_stream(self)
  local streams = self.world.streams
  if #streams > 0 then table.remove(streams, self.random:between(1, #streams)):close() end
end

--- So much at once that it is sent in fragments to watches that want them.
function act.bulk(self)
  local world = self.world
  local start = world.revision + 1
  for i = 1, BULK do world:ask(new_request("put", "c/" .. i, self.random:bytes(8):rep(BULK_VALUE / 8))) end
  if #world.streams == 0 then world:open_stream() end
  local stream = self.random:pick(world.streams)
  for _, wants_fragments in ipairs { true, false } do
    local watch = stream:create { key = "c", range_end = "d", start_revision = start, fragment = wants_fragments,
      prev_kv = self.random:one_in(2) }
    stream:cancel(watch.id)
  end
  world:ask(new_request("delete", "c/", { prefix = true }))
end

function act.settle(self) self.world:settle() end

local ACTS = {
  { 1000, "ask" }, { 4, "ask_odd" }, { 2, "hash" }, { 20, "create" }, { 8, "cancel" }, { 1, "close_stream" },
  { 15, "settle" }, { 1, "bulk" },
}

--- A lease that ends by itself, with keys.
function round:expire()
  local world = self.world
  for alarm in pairs { no_space = true, corrupt = true } do
    if world.armed[alarm] then world:ask(new_request("disarm", alarm)) end
  end
  world:ask(new_request("lease", EXPIRY, { id = 12345 }))
  for _, key in ipairs { "b", "a", "c/1" } do world:ask(new_request("put", key, "until then", { lease = 12345 })) end
  world.revision = world.revision + 1
  world:settle()
  world:ask(new_request("leases"))
end

-- }======

function round:run()
  while self.world.n < self.n do act[self.random:weighted(ACTS)](self) end
  self:expire()
  act.hash(self)
end

--- Runs a round; raises what differs, and how to repeat it. In a large dose it prints how much was compared.
local function run_round(number, n)
  local one = new_round(number, n)
  local world = one.world
  local ok, failure = pcall(one.run, one)
  local is_stopped, why = pcall(world.stop, world)
  if not ok then
    error(("%s\nto repeat: KW_SEED=%d KW_HISTORY=%d spec/run rock-lua5.4 -- spec/client/history_spec.lua"):format(
      tostring(failure), seed + number, n), 0)
  end
  if not is_stopped then error(why, 0) end
  if dose.factor > 1 then
    print(("round %d: %d operations, %d events, %d and %d fragments"):format(number, world.n, world.n_events,
      world.n_fragments.keywatch, world.n_fragments.etcd))
  end
end

describe("the same history #once #slow", function()
  after_each(function()
    process.end_all()
    directory.remove_all()
  end)

  it("has the same answers and the same events with keywatch and with etcd", function()
    for number = 0, math.ceil(operations / ROUND) - 1 do
      run_round(number, math.min(ROUND, operations - number * ROUND))
    end
  end)
end)
