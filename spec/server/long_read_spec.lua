--- Calls that only read, and take more than one turn: they delay no other call, and see one state.

local core = require "keywatch.core"
local probe = core.probe

local directory = require "spec.support.directory"
local pair = require "spec.support.pair"

local MANY = probe and 100 or 6000 -- keys: more than one turn visits
local ALL = { key = "k", range_end = "l" }
local LONG = { key = "k", range_end = "l", sort_target = "VALUE", sort_order = "DESCEND", limit = 1 }

local function name(i) return ("k%06d"):format(i) end

local function ranges(n)
  local ops = {}
  for i = 1, n do ops[i] = { request_range = LONG } end
  return ops
end

local CALLS = {
  LeaseTimeToLive = { ID = 7, keys = true },
  LeaseLeases = {},
  Txn = {
    compare = { { key = "k", range_end = "l", target = "VERSION", version = 1, result = "EQUAL" } },
    success = ranges(4),
  },
}

describe("a long read", function()
  local host, store, client, other

  local function open(options)
    host = pair.host(options)
    store, client, other = host.store, host:client(), host:client()
    store:lease(1000, { id = 7 })
    for i = 1, MANY do
      store:put(name(i), "old", { lease = 7 })
      store:lease(10 + (i * 7) % 1000, { id = 100 + i })
    end
    host:pump()
  end

  before_each(function() open() end)

  after_each(function()
    host:check()
    host:close()
    directory.remove_all()
  end)

  local function turn() host.server:step(host.now) end

  local function finish(call)
    for _ = 1, 100000 do
      if call:look() ~= nil then break end
      turn()
    end
    return call:look()
  end

  for method, request in pairs(CALLS) do
    it("lets writes overtake it: " .. method, function()
      local call, puts = client:begin(method, request), 0
      for i = 1, 100000 do
        turn()
        if call:look() ~= nil then break end
        assert.is_false(store:is_busy())
        assert.is_not_nil((other:begin("Put", { key = "other", value = tostring(i) }):look()))
        assert.is_not_nil((other:begin("Range", { key = name(1) }):look()))
        puts = puts + 1
      end
      assert.is_true(puts > 2)
      assert.is_table((call:look()))
    end)

    it("ends with its stream: " .. method, function()
      local call = client:begin(method, request)
      turn()
      host:check()
      assert.is_nil((call:look()))
      client.client:cancel(call.number)
      client:push()
      host:check()
      assert.is_not_nil(finish(other:begin("LeaseLeases")))
    end)
  end

  it("lists the keys of a lease in order, and leases in the order of their expiry", function()
    local keys = finish(client:begin("LeaseTimeToLive", { ID = 7, keys = true })).keys
    assert.equal(MANY, #keys)
    for i, key in ipairs(keys) do assert.equal(name(i), key) end
    local leases = finish(client:begin("LeaseLeases")).leases
    assert.equal(MANY + 1, #leases)
    local before = 0
    for _, lease in ipairs(leases) do
      local ttl = lease.ID == 7 and 1000 or 10 + ((lease.ID - 100) * 7) % 1000
      assert.is_true(before <= ttl)
      before = ttl
    end
  end)

  it("has every lease, and every key of a lease, that existed during the whole read", function()
    local lists = { client:begin("LeaseLeases"), client:begin("LeaseTimeToLive", { ID = 7, keys = true }) }
    for i = 1, MANY / 2 do
      if lists[1]:look() ~= nil and lists[2]:look() ~= nil then break end
      store:lease_revoke(100 + 2 * i)
      store:delete(name(2 * i))
      store:lease(500, { id = 1000000 + i })
      store:put("knew" .. i, "", { lease = 7 })
      turn()
    end
    local ids, keys = {}, {}
    for _, lease in ipairs(finish(lists[1]).leases) do
      assert.is_nil(ids[lease.ID])
      ids[lease.ID] = true
    end
    for _, key in ipairs(finish(lists[2]).keys) do
      assert.is_nil(keys[key])
      keys[key] = true
    end
    for i = 1, MANY, 2 do
      assert.is_true(ids[100 + i])
      assert.is_true(keys[name(i)])
    end
  end)

  it("reports a missing lease if the lease ends during the read", function()
    local call = client:begin("LeaseTimeToLive", { ID = 7, keys = true })
    turn()
    assert.is_nil((call:look()))
    assert(store:lease_revoke(7))
    local answer = finish(call)
    assert.equal(-1, answer.TTL)
    assert.is_nil(answer.keys)
  end)

  it("never sees a part of a long write", function()
    local delete = client:begin("DeleteRange", ALL)
    local list = other:begin("LeaseTimeToLive", { ID = 7, keys = true })
    local txn = other:begin("Txn", { success = { { request_range = ALL } } })
    assert.equal(MANY, #finish(txn).responses[1].response_range.kvs)
    assert.is_not_nil(finish(delete))
    assert.equal(0, #(finish(list).keys or {}))
  end)

  it("shares the work of a turn with all other reads", function()
    if not probe then return end
    local calls = {}
    for i = 1, 8 do calls[i] = client:begin("LeaseLeases") end
    local _, turns = nil, 0
    repeat
      turns = turns + 1
      turn()
    until calls[8]:look() ~= nil
    local alone = client:begin("LeaseLeases")
    local count = 0
    while alone:look() == nil do
      count = count + 1
      turn()
    end
    assert.is_true(turns > 6 * count)
  end)
end)
