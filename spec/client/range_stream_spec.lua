--- Readers of whole ranges: `each`, caches, and watches with `initial`. After the first page they read a stream if the
-- server has KV.RangeStream; they request pages if it has not, or if the stream ends early.

local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local keywatch = require "keywatch"
local range_stream = require "keywatch.client.range_stream"

local dose = require "spec.support.dose"
local network = require "spec.support.network"
local server = require "spec.support.server"
local within = require "spec.support.within"

local PATIENCE = 60
local KEYS = dose.is_small and 2600 or 3500 -- some pages
local UNIMPLEMENTED, UNAVAILABLE = 12, 14
local KIB = 1024

local function collect()
  if rawget(_G, "jit") then jit.flush() end -- compiled code references objects
  collectgarbage()
  collectgarbage()
end

local function fill(owner, n, value)
  for from = 1, n, 100 do
    local puts = {}
    for i = from, math.min(n, from + 99) do table.insert(puts, { put = ("k%05d"):format(i), value = value or "v" }) end
    assert(owner:txn { success = puts })
  end
end

local function expect_all(keys)
  assert.equal(KEYS, #keys)
  for i, key in ipairs(keys) do assert(key == ("k%05d"):format(i), key) end
end

-- Each reads all keys below "k", at one revision, and returns them.
local readers = {}

function readers.each(client, between)
  local keys = {}
  for kv in client:each("k", { prefix = true }) do
    table.insert(keys, kv.key)
    if #keys == 1 and between then between() end
  end
  return keys
end

function readers.namespace(client, between)
  local keys = {}
  for kv in client:namespace("k0"):each("", { prefix = true }) do
    table.insert(keys, "k0" .. kv.key)
    if #keys == 1 and between then between() end
  end
  return keys
end

function readers.cache(client, between)
  local keys, cache = {}, assert(client:cache("k"))
  if between then between() end
  assert(cache:wait_ready(PATIENCE))
  for _, kv in ipairs(cache:range("k", { prefix = true }).kvs) do table.insert(keys, kv.key) end
  cache:close()
  return keys
end

function readers.watch(client, between)
  local keys, watch = {}, assert(client:watch("k", { prefix = true, initial = true }))
  for event in watch:events() do
    if event.type == "synced" then break end
    if event.initial then table.insert(keys, event.key) end
    if #keys == 1 and between then between() end
  end
  watch:close()
  return keys
end

for kind, tag in pairs { keywatch = "#plain", etcd = "#once" } do -- there is no TLS in virtual time
  describe(("a reader of a range of %s %s"):format(kind, tag), function()
    local world, peer, client, calls

    if kind == "etcd" then
      setup(function()
        peer = server.start { kind = kind }
        local filler = keywatch.connect(peer.url)
        fill(filler, KEYS)
        filler:close()
      end)
      after_each(network.finish)
      teardown(function() peer:stop() end)
    else
      network.in_virtual_time(function(one)
        world, peer = one, one.server
        fill(peer.store, KEYS)
      end)
    end

    before_each(function()
      calls = { Range = 0, RangeStream = 0 }
      client = network.connect(peer.url, { timeout = PATIENCE, on_call = function(call)
        local name = call.method:match("[^/]*$")
        if calls[name] then calls[name] = calls[name] + 1 end
      end })
    end)

    for name, read in pairs(readers) do
      it(("gets all keys by %s, with a stream where there is one"):format(name), function()
        expect_all(read(client))
        assert.equal(1, calls.RangeStream)
        if kind == "keywatch" then assert.equal(1, calls.Range) else assert.is_true(calls.Range > 1) end
        expect_all(read(client))
        assert.equal(kind == "keywatch" and 2 or 1, calls.RangeStream) -- a server that has none is asked once
      end)
    end

    it("asks for pages if their size is given", function()
      local n = 0
      for _ in client:each("k", { prefix = true, page = 1000 }) do n = n + 1 end
      assert.same({ KEYS, 0, math.ceil(KEYS / 1000) }, { n, calls.RangeStream, calls.Range })
    end)

    it("respects its limit", function()
      for _, limit in ipairs { 999, 1000, 1001, 2345, KEYS, KEYS + 1 } do
        local n = 0
        for _ in client:each("k", { prefix = true, limit = limit }) do n = n + 1 end
        assert.equal(math.min(limit, KEYS), n)
      end
    end)

    if kind == "etcd" then return end

    it("asks a server again on a new connection", function()
      expect_all(readers.each(client))
      world:cut(client)
      expect_all(readers.each(client))
      assert.equal(2, calls.RangeStream)
    end)

    for name, read in pairs(readers) do
      it(("gets all keys by %s when connections are cut in the middle"):format(name), within.task(function()
        peer:slow(0.002)
        local is_over = false
        local cutting = keywatch.spawn(function()
          for i = 1, 1000 do
            keywatch.sleep(0.004 + i % 7 / 1000)
            if is_over or world.counts.cut == 5 then return end
            world:cut(client)
          end
        end)
        expect_all(read(client))
        is_over = true
        assert(cutting:join())
        assert.is_true(world.counts.cut > 1)
      end))
    end
  end)
end

describe("a range stream of a client #plain", function() -- there is no TLS in virtual time
  local world, store, client, connection

  network.in_virtual_time(function(one)
    world = one
    store, client = world.server.store, world:client()
  end)

  local function start(n, value) fill(store, n, value) end

  --- Takes some kvs of `each`. Returns the iterator.
  local function take(n)
    local iterator = client:each("k", { prefix = true })
    for _ = 1, n do assert(iterator()) end
    connection = client.transport.connection
    return iterator
  end

  it("is of one revision, whatever is written during the stream", function()
    start(KEYS)
    for _, name in ipairs { "each", "namespace", "watch" } do
      expect_all(readers[name](client, function()
        store:delete("k02400")
        store:put("k02450+", "new")
      end))
      store:delete("k02450+")
      store:put("k02400", "v")
    end
  end)

  it("is cancelled when its reader is collected", function()
    start(KEYS, ("v"):rep(1000))
    take(1001)
    assert.equal(1, connection.count)
    collect()
    for _ = 1, 20 do keywatch.sleep(0.001) end
    assert.equal(0, connection.count)
    while world.server.server.object:held() > 64 * KIB do keywatch.sleep(0.001) end
    assert.equal(1, client:range("k00001").count)
  end)

  it("is cancelled when its watch or its cache is closed", function()
    start(KEYS, ("v"):rep(1000))
    local watch = assert(client:watch("k", { prefix = true, initial = true }))
    for _ = 1, 1001 do assert(watch:next(PATIENCE)) end
    connection = client.transport.connection
    assert.is_not_nil(watch.rest.receiver)
    watch:close()
    assert.is_nil(watch.rest.receiver)
    local cache = assert(client:cache("k"))
    while not (cache.feed.rest and cache.feed.rest.receiver) do keywatch.sleep(0) end
    cache:close()
    assert.is_nil(cache.feed.rest.receiver)
    assert.equal(1, client:range("k00001").count)
  end)

  it("takes a bounded amount while it is not read, and other calls are answered #slow", function()
    start(3500, ("v"):rep(4 * KIB)) -- 14 MB
    local iterator = take(1001)
    for _ = 1, 50 do
      keywatch.sleep(0.001)
      assert.equal(1, client:range("k00001").count)
    end
    local first_page = 1000 * 4.2 * KIB
    assert.is_true(connection.received < first_page + 4 * KIB * KIB)
    local n = 1001
    for _ in iterator do n = n + 1 end
    assert.equal(3500, n)
  end)

  it("fails as pages do if a compaction has overtaken it, and a cache starts over", function()
    start(KEYS, ("v"):rep(4 * KIB))
    local iterator = take(1001)
    store:put("other", "x")
    store:compact(store:status().revision)
    local ok, err = pcall(function() for _ in iterator do end end)
    assert.same({ false, "compacted" }, { ok, err.code })
    expect_all(readers.cache(client, function()
      for _ = 1, 3 do
        keywatch.sleep(0.001)
        store:compact(store:put("other", "x").revision)
      end
    end))
  end)

  it("ends with its client", function()
    start(KEYS, ("v"):rep(4 * KIB))
    local iterator = take(1001)
    client:close()
    local ok, err = pcall(function() for _ in iterator do end end)
    assert.same({ false, "closed" }, { ok, err.code })
  end)
end)

describe("the rest of a range", function()
  --- Returns a rest of a connection that receives what is given: bytes of RangeResponses, true for what is none, or
  -- { status, text }; and the transport. Then nothing comes any more.
  local function rest_of(...)
    local items, at, log = { ... }, 0, {}
    local connection = {
      metadata = {},
      endpoint = {},
      cancel = function() table.insert(log, "cancel") end,
      sentinel = function() end,
      begin = function()
        table.insert(log, "call")
        return 7
      end,
      core = {
        receive = function()
          at = at + 1
          local item = items[at]
          if type(item) == "table" then return false, item[1], item[2] end
          return item
        end,
      },
    }
    local transport = { connection = connection, reads = { metadata_of = function() return {} end } }
    local rest = range_stream.new_rest()
    rest:note(connection, "")
    return rest, transport, log, connection
  end

  local function chunk(response) return core.encode("RangeResponse", response) end

  local FIRST = chunk { kvs = { { key = "a", value = "1", create_revision = 2, mod_revision = 2, version = 1 } } }
  local LAST = chunk { header = { revision = 5 }, count = 1 }

  it("gives messages as pages, and marks the last one", function()
    local rest, transport, log = rest_of(FIRST, chunk {}, FIRST, LAST, FIRST)
    local list = {}
    for i = 1, 3 do list[i] = { rest:take(transport, "", function() end) } end
    assert.same({ { FIRST, false }, { FIRST, false }, { LAST, true } }, list)
    assert.same({ "call", "cancel" }, log)
  end)

  it("has the reader ask for a page when a stream ends early", function()
    for _, case in ipairs {
      { 1, FIRST, { UNAVAILABLE, "cut" } },
      { 1, FIRST, { 0 } },
      { 1, FIRST, true },
      { 0, true },
      { 0, chunk {}, { 0 } },
      { 0, { 0 } },
      { 0, { UNAVAILABLE, "cut" } },
    } do
      local rest, transport, log, connection = rest_of(compat.unpack(case, 2))
      for _ = 1, case[1] do assert.equal(FIRST, (rest:take(transport, "", function() end))) end
      assert.is_false((rest:take(transport, "", function() end)))
      assert.same({ "call", "cancel" }, log)
      assert.is_falsy(connection.lacks_range_stream)
      if case[1] == 0 then -- a stream that was of no use is not begun again
        assert.is_false((rest:take(transport, "", function() end)))
        assert.equal(2, #log)
      end
    end
  end)

  it("remembers for a connection that its server has no range streams", function()
    local rest, transport, log, connection = rest_of { UNIMPLEMENTED, "unknown method" }
    assert.is_false((rest:take(transport, "", function() end)))
    assert.is_true(connection.lacks_range_stream)
    local other = range_stream.new_rest()
    other:note(connection, "")
    assert.is_false((other:take(transport, "", function() end)))
    assert.same({ "call", "cancel" }, log)
  end)

  it("does not stream from another connection than the one of the last page", function()
    local rest, transport, log = rest_of(FIRST)
    transport.connection = {}
    assert.is_false((rest:take(transport, "", function() end)))
    assert.same({}, log)
  end)
end)
