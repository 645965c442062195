--- A cache of a real etcd of three members, which are killed in turn: it has what the cluster has, and its watches see
-- all of it.

local keywatch = require "keywatch"

local cluster = require "spec.support.cluster"
local difference = require("spec.support.difference").difference
local judge = require "spec.cache.judge"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local truths = require "spec.cache.truth"

local PATIENCE = network.PATIENCE
local PREFIX = "/in/"
local WRITES = 15 -- while a member is gone, and after it is back

describe("a cache of a cluster #once #slow", function()
  local members, writer, cache, random, truth

  before_each(function()
    network.begin()
    members = cluster.start()
    random = new_random(network.SEED)
    writer = network.connect(members.urls)
    truth = truths.new(writer)
    cache = assert(network.connect(members.urls):cache(PREFIX))
    assert(cache:wait_ready(PATIENCE))
  end)

  after_each(function()
    cache:close()
    network.finish()
    members:stop()
  end)

  local function is_inside(key) return key:sub(1, #PREFIX) == PREFIX end

  --- Writes until the write is done: without a leader it may fail, and may have happened.
  local function write()
    local key = random:one_in(6) and "/other" or PREFIX .. random:between(1, 8)
    local deadline = keywatch.now() + PATIENCE
    repeat
      local done
      if random:one_in(4) then done = writer:delete(key) else done = writer:put(key, tostring(random:next())) end
      assert(done or keywatch.now() < deadline, "nothing can be written")
    until done
  end

  local function kvs_of(reader)
    local kvs = {}
    for kv in reader:each(PREFIX, { prefix = true }) do kvs[kv.key] = kv end
    return kvs
  end

  it("has what the cluster has, whichever member is killed", function()
    local last
    for _ = 1, WRITES do write() end
    local slow = judge.open(cache, truth, PREFIX, { prefix = true }, is_inside)
    local quick = judge.open(cache, truth, PREFIX, { prefix = true, initial = true }, is_inside)
    for i = 1, #members.members do
      members:kill(i)
      for _ = 1, WRITES do
        write()
        quick:read(10, truth)
      end
      members:launch(i)
      members:wait_ready(i)
      for _ = 1, WRITES do write() end
      last = assert(writer:put(PREFIX .. "last", tostring(i), { timeout = PATIENCE })).revision
      assert(cache:wait_for(last, PATIENCE))
      assert.is_nil(difference(kvs_of(cache), kvs_of(writer), "the cache"))
      quick:finish(truth, last)
    end
    slow:finish(truth, last)
    assert.same({ nil, nil }, { slow.error, quick.error })
    assert.is_true(slow.n > WRITES and quick.n > WRITES)
  end)
end)
