--- The memory of all connections of a server has a bound, whatever they do and however many they are. A connection that
-- uses little is not affected by the others.

local core = require "keywatch.core"

local directory = require "spec.support.directory"
local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local paths = pair.paths

local KIB, MIB = 1024, 1024 * 1024
local QUOTA = 8 * MIB
local BASE = 16 * KIB -- csrc/rpc/server.h: what each connection may have beside that, and how long it may be stuck
local STUCK_MS = 5000
local RESOURCE_EXHAUSTED, TOO_MANY = 8, "etcdserver: too many requests"

local function encoded(method, request) return core.encode(pair.request_name(method), request) end

describe("connections together #slow", function()
  local host, witness

  before_each(function()
    host = pair.host(nil, { quota_connection_bytes = QUOTA })
    witness = host:client()
    assert(witness:unary("Put", { key = "witness", value = "w" }))
  end)

  after_each(function() host:close() end)

  local function held() return host.server:held() end

  --- The bound holds, and the witness is served.
  local function expect_healthy()
    local most = QUOTA + host.server:connections() * BASE
    if held() > most then error(("%d bytes are held, and not %d at most"):format(held(), most), 2) end
    assert.equal("w", witness:unary("Range", { key = "witness" }).kvs[1].value)
    assert(witness:unary("Put", { key = "witness", value = "w" }))
  end

  --- A connection that has taken the server's settings.
  local function settled(hello)
    local raw = host:raw(hello)
    host:pump()
    raw:say(h2.settings("ack"))
    return raw
  end

  --- A put that does not come to its end: so much of it comes.
  local function tear(raw, id, size)
    raw:say(h2.request(id, paths.Put), h2.data(id, "\0" .. h2.pack(2 * MIB - 100, 4)))
    local part = ("x"):rep(16 * KIB)
    for _ = 1, size / #part do raw:say(h2.data(id, part)) end
  end

  local function is_refused(raw, id)
    local status, text = raw.reader:status(id)
    if status then assert.same({ RESOURCE_EXHAUSTED, TOO_MANY }, { status, text }) end
    return status ~= nil
  end

  local function is_cut(raw) return raw:is_done() end

  --- Disconnects all clients except the witness. Their memory must be freed.
  local function expect_given_back(before)
    for i = 2, #host.ends do host.ends[i]:close() end
    host.ends = { witness }
    assert.equal(before, held())
  end

  it("have a limit for incomplete requests, and small ones are received", function()
    local before, refused = held(), 0
    local raws = {}
    for i = 1, 40 do
      raws[i] = settled()
      tear(raws[i], 1, 800 * KIB)
      if is_refused(raws[i], 1) then refused = refused + 1 end
      expect_healthy()
    end
    assert(refused > 20 and refused < 40, refused)
    assert(held() > QUOTA / 2, held())
    for _, raw in ipairs(raws) do raw:say(h2.reset(1)) end
    assert(held() < QUOTA / 2, held())
    local last = raws[40]
    last:say(h2.request(3, paths.Put), h2.data_in_parts(3, h2.message(encoded("Put", { key = "large",
      value = ("v"):rep(MIB) })), 16384, { ends = true }))
    assert.equal(0, (last.reader:status(3)))
    expect_given_back(before)
  end)

  it("have a limit for messages that wait for unread answers", function()
    host.store:put("k", ("v"):rep(3000))
    local range = encoded("Range", { key = "k" })
    local before = held()
    for _ = 1, 20 do
      local raw = host:raw(h2.hello { initial_window_size = 0 })
      for i = 1, 500 do raw:send(h2.call(2 * i - 1, paths.Range, range)) end
      host:pump()
      expect_healthy()
    end
    assert(held() > QUOTA / 2, held())
    expect_given_back(before)
  end)

  it("get an error if their own answer exceeds the limit", function()
    for i = 1, 2000 do host.store:put(("small/%04d"):format(i), ("v"):rep(3000)) end
    local all = { key = "small/", range_end = "small0" }
    local _, status, text = witness:unary("Range", all)
    assert.same({ RESOURCE_EXHAUSTED, TOO_MANY }, { status, text })
    local revision = host.store:status().revision
    _, status = witness:unary("Txn", { success = { { request_put = { key = "a" } }, { request_range = all } } })
    assert.equal(RESOURCE_EXHAUSTED, status)
    assert.equal(revision, host.store:status().revision)
    all.limit = 500
    assert.equal(500, #witness:unary("Range", all).kvs)
    expect_healthy()
  end)

  it("are not charged for large values of the store", function()
    for i = 1, 40 do host.store:put(("large/%02d"):format(i), ("v"):rep(MIB)) end
    local answer = witness:unary("Range", { key = "large/", range_end = "large0" })
    assert.equal(40, #answer.kvs)
    expect_healthy()
  end)

  it("are charged for large values that the store reads from its disk", function()
    local durable = pair.host({ path = directory.new() }, { quota_connection_bytes = QUOTA })
    finally(function()
      durable:close()
      directory.remove_all()
    end)
    for i = 1, 40 do assert(durable.store:put(("large/%02d"):format(i), ("v"):rep(MIB))) end
    local client = durable:client()
    local before = durable.server:held()
    local _, status, text = client:unary("Range", { key = "large/", range_end = "large0" })
    assert.same({ RESOURCE_EXHAUSTED, TOO_MANY }, { status, text })
    assert.equal(3, #client:unary("Range", { key = "large/", range_end = "large0", limit = 3 }).kvs)
    local raw = durable:raw(h2.hello { initial_window_size = 0 })
    raw:say(h2.call(1, paths.Range, encoded("Range", { key = "large/", range_end = "large0", limit = 3 })))
    assert.is_true(durable.server:held() > before + 3 * MIB, durable.server:held() - before)
    raw:say(h2.reset(1))
    assert.is_true(durable.server:held() < before + 64 * KIB)
    durable:check()
  end)

  it("have a limit of streams", function()
    local raw = settled()
    local before, opened = held(), nil
    for i = 1, 60000 do
      raw:send(h2.request(2 * i - 1, paths.Watch))
      if i % 100 == 0 then
        host:pump()
        expect_healthy()
        opened = i
        if is_refused(raw, 2 * i - 1) then break end
      end
    end
    assert(opened > 1000 and opened < 20000, opened)
    local watch = witness:stream("Watch")
    assert.is_true(watch:ask({ create_request = { key = "witness" } })[1].created)
    assert.is_nil(watch:take()[1])
    host.store:put("witness", "w")
    assert.equal("w", watch:take()[1].events[1].kv.value)
    watch:cancel()
    raw:close()
    host.ends = { witness }
    host:pump()
    assert(held() < before, held())
  end)

  it("have a limit of watchers", function()
    local before = held()
    local watch, canceled = witness:stream("Watch"), nil
    for i = 1, 40000 do
      watch:send { create_request = { key = "key " .. i } }
      if i % 500 == 0 then
        local answers = watch:take()
        canceled = answers[#answers].canceled and answers[#answers].cancel_reason
        if canceled then break end
      end
    end
    assert.equal(TOO_MANY, canceled)
    assert(held() <= QUOTA)
    watch:cancel()
    expect_healthy()
    assert(held() < before + 64 * KIB, held() - before)
  end)

  it("have a limit for headers", function()
    local before = held()
    for _ = 1, 200 do -- a header block that does not end, of 60 KB in one line, and in many
      local lines = h2.request_lines(paths.Range)
      for i = 1, 1000 do lines[#lines + 1] = { "x" .. i, "y" } end
      local block = h2.block(lines) .. "\0\1a" .. "\127\177\197\1" .. ("b"):rep(20000)
      local raw = host:raw()
      raw:say(h2.frame("headers", 0, 1, block:sub(1, 16384)), h2.frame("continuation", 0, 1, block:sub(16385)))
      expect_healthy()
    end
    assert(held() > QUOTA / 2, held())
    expect_given_back(before)
  end)

  describe("with calls for Lua", function()
    local client

    before_each(function()
      host.server:mount("/spec.Service/Call")
      client = host:client()
    end)

    local function start(request)
      local call = client:start("/spec.Service/Call", nil, request)
      client.client:half_close(call)
      host:pump()
      return call
    end

    local function back(call)
      client:take()
      return client.returns[call]
    end

    it("have a limit for them, and continue when they are received", function()
      local before = held()
      local big, calls = ("x"):rep(MIB), {}
      for i = 1, 10 do calls[i] = start(big) end
      expect_healthy()
      assert.same({ status = RESOURCE_EXHAUSTED, text = TOO_MANY }, back(calls[10]))
      assert.same({}, back(calls[1]))
      local ids = {}
      for id, is_new in host.server.next_news, host.server do
        if is_new then
          assert.equal(big, host.server:receive(id))
          ids[#ids + 1] = id
        end
      end
      local again = start(big)
      local id = host.server:next_news()
      assert.equal(big, host.server:receive(id))
      host.server:send(id, "done")
      for _, one in ipairs(ids) do host.server:finish(one, 0, "") end
      host.server:finish(id, 0, "")
      host:pump()
      assert.same({ "done", status = 0, text = "" }, back(again))
      assert(held() < before + 64 * KIB, held() - before)
    end)

    it("have nothing of calls whose client has gone, though Lua has not noticed", function()
      local before = held()
      for _ = 1, 3 do start(("x"):rep(MIB)) end
      assert(held() > before + 2 * MIB)
      client:close()
      host.ends = { witness }
      assert(held() <= before, held() - before)
      expect_healthy()
    end)
  end)

  describe("with one that is stuck", function()
    local stuck, light

    before_each(function()
      stuck, light = settled(), settled()
      for _ = 1, 20 do settled() end
      for id = 1, 5, 2 do tear(stuck, id, 900 * KIB) end
      tear(stuck, 7, 400 * KIB)
    end)

    it("refuse that one more than its share, while it may recover", function()
      tear(light, 1, 1000 * KIB)
      assert.is_true(is_refused(light, 1))
      assert.is_false(is_cut(stuck))
      expect_healthy()
    end)

    it("drop that one when a lighter one needs the memory", function()
      host.now = host.now + STUCK_MS
      tear(light, 1, 1000 * KIB)
      assert.is_true(is_refused(light, 1))
      assert.is_true(is_cut(stuck))
      tear(light, 3, 1000 * KIB)
      assert.is_false(is_refused(light, 3))
      expect_healthy()
    end)

    it("keep that one when another one would be the heaviest", function()
      host.now = host.now + STUCK_MS
      for id = 1, 5, 2 do stuck:say(h2.reset(id)) end
      host.now = host.now + STUCK_MS
      for id = 1, 9, 2 do tear(light, id, 900 * KIB) end
      assert.is_true(is_refused(light, 9))
      assert.is_false(is_cut(stuck))
    end)

    it("keep that one while there is enough memory", function()
      host.now = host.now + STUCK_MS
      host:step()
      expect_healthy()
      assert.is_false(is_cut(stuck))
    end)
  end)

  -- A stream queues some more events than its window has room for, without a check of the quota.
  it("drop only the heaviest when all are over the limit", function()
    local heavy = host:raw(h2.hello { initial_window_size = 100 } .. h2.window(0, 2 ^ 31 - 1 - 65535))
    local n = 1000
    for i = 1, n do
      heavy:send(h2.request(2 * i - 1, paths.Watch), h2.data(2 * i - 1, h2.message(encoded("Watch",
        { create_request = { key = "busy" .. i } }))))
    end
    host:pump()
    local watch = witness:stream("Watch")
    watch:ask { create_request = { key = "busy", range_end = "busz" } }
    for round = 1, 10 do
      for i = 1, n do host.store:put("busy" .. i, ("%d"):format(round):rep(3000)) end
    end
    local seen = 0
    for _, response in ipairs(watch:take()) do seen = seen + #response.events end
    assert.equal(10 * n, seen)
    assert.is_true(is_cut(heavy))
    expect_healthy()
  end)
end)
