--- Large answers to ranges, which are made page by page.

local core = require "keywatch.core"

local pair = require "spec.support.pair"

local KEYS = core.probe and 100 or 35000 -- some turns, the last page not full

describe("a large range", function()
  local host, client

  before_each(function()
    host = pair.host { max_txn_ops = KEYS }
    client = host:client()
    local puts = {}
    for i = 1, KEYS do puts[i] = { put = ("k%05d"):format(i), value = ("v%d"):format(i) } end
    assert(host.store:txn { success = puts })
  end)

  after_each(function()
    if core.probe then core.probe.check(host.store) end
    host:close()
  end)

  local function start(request)
    request.key, request.range_end = "k", "l"
    local call = client:start("Range", nil, core.encode("RangeRequest", request))
    client.client:half_close(call)
    client:push()
    return call
  end

  --- One turn of the server; whether it wants another one at once.
  local function turn()
    return host.server:step(host.now) == host.now
  end

  local function finish(call)
    host:pump()
    client:take()
    local back = client.returns[call]
    return back[1] and core.decode("RangeResponse", back[1]), back.status, back.text
  end

  local function assert_whole(answer, count)
    assert.equal(count, #answer.kvs)
    for i, kv in ipairs(answer.kvs) do assert(kv.key == ("k%05d"):format(i) and kv.value == ("v%d"):format(i)) end
  end

  it("has the requested keys and order", function()
    local answer = client:unary("Range", { key = "k", range_end = "l" })
    assert.same({ 2, KEYS, nil }, { answer.header.revision, answer.count, answer.more })
    assert_whole(answer, KEYS)
    for _, limit in ipairs { KEYS - 1, KEYS, KEYS + 1, KEYS - 10 } do
      answer = client:unary("Range", { key = "k", range_end = "l", limit = limit })
      assert.equal(KEYS, answer.count)
      assert.equal(limit < KEYS, answer.more or false)
      assert_whole(answer, math.min(limit, KEYS))
    end
    answer = client:unary("Range", { key = "k", range_end = "l", keys_only = true })
    assert.equal(KEYS, #answer.kvs)
    assert.same({ key = "k00001", create_revision = 2, mod_revision = 2, version = 1 }, answer.kvs[1])
    answer = client:unary("Range", { key = "k", range_end = "l", sort_target = "KEY", sort_order = "DESCEND" })
    assert.equal(("k%05d"):format(KEYS), answer.kvs[1].key)
  end)

  it("is of one revision, whatever is written between its pages", function()
    local call, turns = start {}, 0
    while turn() do
      turns = turns + 1
      host.store:put(("k%05d"):format(KEYS - turns), "changed")
      host.store:delete(("k%05d"):format(KEYS - turns - 10))
      host.store:put(("k%05d+"):format(KEYS - 5), "new")
    end
    assert.is_true(turns > 2)
    local answer = finish(call)
    assert.equal(KEYS, answer.count)
    assert_whole(answer, KEYS)
  end)

  it("ends at the deadline of its call, without an answer", function()
    local call = client:start("Range", { ["grpc-timeout"] = "1S" },
      core.encode("RangeRequest", { key = "k", range_end = "l" }))
    client.client:half_close(call)
    client:push()
    assert.is_true(turn())
    host.now = host.now + 2000
    host.ends[1].peer:step(host.now)
    assert.is_false(turn())
    assert.equal(4, (select(2, finish(call))))
    assert.equal(0, #client.returns[call])
    assert.equal(KEYS, client:unary("Range", { key = "k", range_end = "l" }).count)
  end)

  it("lets other calls run", function()
    local call = start {}
    turn()
    local other = host:client()
    local answer = other:start("Range", nil, core.encode("RangeRequest", { key = "k00001" }))
    other.client:half_close(answer)
    other:push()
    turn()
    other:pull()
    other:take()
    assert.equal(0, other.returns[answer].status)
    assert_whole(finish(call), KEYS)
  end)

  it("begins again if its revision is compacted", function()
    local call = start {}
    turn()
    host.store:put("k00001", "v1")
    host.store:compact(3, { physical = true })
    local answer = finish(call)
    assert.equal(3, answer.header.revision)
    assert_whole(answer, KEYS)
  end)

  if core.probe then
    it("fails if it cannot begin again without memory #starved", function()
      local statuses = {}
      for n = 1, 12 do
        local call = start {}
        turn()
        local revision = host.store:put("k00001", "v1").revision
        host.store:compact(revision, { physical = true })
        core.probe.fail_core(n)
        turn() -- starts over
        core.probe.fail_none()
        local answer, status = finish(call)
        if answer then assert_whole(answer, KEYS) end
        statuses[status] = true
      end
      assert.same({ [0] = true, [8] = true }, statuses)
    end)
  end

  it("fails if the requested revision is compacted", function()
    local call = start { revision = 2 }
    turn()
    host.store:put("k00001", "v1")
    host.store:compact(3, { physical = true })
    local answer, status, text = finish(call)
    assert.is_nil(answer)
    assert.same({ 11, "etcdserver: mvcc: required revision has been compacted" }, { status, text })
  end)

  it("ends when its call is cancelled", function()
    local call = start {}
    turn()
    client.client:cancel(call)
    host:pump()
    assert.is_false(turn())
    assert.equal(KEYS, host:client():unary("Range", { key = "k", range_end = "l" }).count)
  end)
end)
