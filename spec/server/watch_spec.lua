--- etcdserverpb.Watch, message by message.

local core = require "keywatch.core"

local pair = require "spec.support.pair"
local wire = require "spec.support.wire"

local hex = wire.hex

-- The ids of every header, encoded.
local IDS = "08b298eaf1948386fccd0110cdd2918bd2b881cf8e01"

describe("a watch stream", function()
  local host, client, stream

  local function begin(store_options)
    host = pair.host(store_options)
    client = host:client()
    stream = client:stream("Watch")
  end

  before_each(function() begin() end)
  after_each(function()
    if core.probe then core.probe.check(host.store) end
    host:close()
  end)

  local function put(key, value, opts) return host.store:put(key, value or "v", opts).revision end
  local function create(request) return stream:ask { create_request = request } end
  local function cancel(id) return stream:ask { cancel_request = { watch_id = id } } end
  local function progress() return stream:ask { progress_request = {} } end

  --- Returns a response as one line: its kind, watcher, revision and events.
  local function line(response)
    local words = {}
    for _, flag in ipairs { "created", "canceled", "fragment" } do
      if response[flag] then words[#words + 1] = flag end
    end
    words[#words + 1] = "id " .. (response.watch_id or 0)
    words[#words + 1] = response.header.revision and "at " .. response.header.revision
    if response.compact_revision then words[#words + 1] = "compacted " .. response.compact_revision end
    if response.cancel_reason then words[#words + 1] = response.cancel_reason end
    for _, event in ipairs(response.events or {}) do
      local kv = event.kv
      words[#words + 1] = ("%s %s@%s%s"):format(event.type == "DELETE" and "-" or "+", kv.key, kv.mod_revision,
        event.prev_kv and " was " .. (event.prev_kv.value or "") or "")
    end
    return table.concat(words, " ")
  end

  local function lines(responses)
    local list = {}
    for i, response in ipairs(responses) do list[i] = line(response) end
    return list
  end

  --- The same where there is no order.
  local function sorted(responses)
    local list = lines(responses)
    table.sort(list)
    return list
  end

  --- Checks that events follow each other from a revision on, one for each. Returns the next one.
  local function follow(responses, revision, check)
    for _, response in ipairs(responses) do
      for _, event in ipairs(response.events or {}) do
        assert.equal(revision, event.kv.mod_revision)
        if check then check(event, revision) end
        revision = revision + 1
      end
    end
    return revision
  end

  describe("sends", function()
    it("the same bytes as etcd for a new watch, progress, and a failed watch", function()
      create { key = "foo" }
      assert.equal("0a1a" .. IDS .. "180120021801", hex(stream.raw[1]))
      create { key = "foo", watch_id = 5 }
      create { key = "foo", watch_id = 5 }
      assert.equal("0a1a" .. IDS .. "1801200210ffffffffffffffffff0118012001" .. "3234" ..
        hex("mvcc: duplicate watch ID provided on the WatchStream"), hex(stream.raw[1]))
      for _ = 2, 7 do put("x") end
      progress()
      assert.equal("0a1a" .. IDS .. "1807200210ffffffffffffffffff01", hex(stream.raw[1]))
    end)

    it("the same bytes as etcd for events", function()
      create { key = "foo" }
      put("foo", "bar")
      stream:take()
      assert.equal("0a1a" .. IDS .. "18022002" .. "5a1212100a03666f6f1002180220012a03626172", hex(stream.raw[1]))
      host.store:delete("foo")
      stream:take()
      assert.equal("0a1a" .. IDS .. "18032002" .. "5a0b080112070a03666f6f1803", hex(stream.raw[1]))
    end)

    it("the same bytes as etcd for compacted history", function()
      for _ = 2, 6 do put("a") end
      host.store:compact(5)
      create { key = "a", start_revision = 2 }
      assert.equal("0a18" .. IDS .. "200220012805", hex(stream.raw[2]))
    end)
  end)

  describe("creates", function()
    it("a watch with an id of its choice, from 0 on, without repetition", function()
      assert.same({ "created id 0 at 1" }, lines(create { key = "a" }))
      assert.same({ "created id 1 at 1" }, lines(create { key = "a" }))
      assert.same({ "canceled id 1 at 1" }, lines(cancel(1)))
      assert.same({ "created id 2 at 1" }, lines(create { key = "a" }))
      assert.same({ "created id 3 at 1" }, lines(create { key = "a", watch_id = 3 }))
      assert.same({ "created id 4 at 1" }, lines(create { key = "a" }))
    end)

    it("a watch of the requested id, also of a negative one", function()
      assert.same({ "created id -5 at 1" }, lines(create { key = "a", watch_id = -5 }))
      assert.same({ "created id -1 at 1" }, lines(create { key = "a", watch_id = -1 }))
      assert.same({ "created id 0 at 1" }, lines(create { key = "a" }))
      put("a")
      assert.same({ "id -1 at 2 + a@2", "id -5 at 2 + a@2", "id 0 at 2 + a@2" }, sorted(stream:take()))
      assert.same({ "canceled id -5 at 2" }, lines(cancel(-5)))
    end)

    it("no watch of a used id, of an empty range, or from a negative revision, and continues", function()
      local function failed(reason) return { "created canceled id -1 at 2 " .. reason } end
      create { key = "a", watch_id = 7 }
      put("b")
      assert.same(failed("mvcc: duplicate watch ID provided on the WatchStream"), lines(create { key = "a",
        watch_id = 7 }))
      assert.same(failed("mvcc: watcher range is empty"), lines(create { key = "b", range_end = "a" }))
      assert.same(failed("mvcc: watcher range is empty"), lines(create { key = "b", range_end = "b" }))
      assert.same(failed("etcdserver: mvcc: required revision has been compacted"), lines(create { key = "b",
        start_revision = -1 }))
      put("a")
      assert.same({ "id 7 at 3 + a@3" }, lines(stream:take()))
      assert.is_nil((stream:status()))
    end)

    it("watches in the order of the requests", function()
      stream:send { create_request = { key = "a", watch_id = 3 } }
      stream:send { create_request = { key = "b", range_end = "a" } }
      stream:send { create_request = { key = "a", watch_id = 2 } }
      assert.same({ "created id 3 at 1", "created canceled id -1 at 1 mvcc: watcher range is empty",
        "created id 2 at 1" }, lines(stream:take()))
    end)

    it("a watch of the least key for an empty key", function()
      create {}
      create { range_end = "\0" }
      put("\0")
      put("a")
      assert.same({ "id 0 at 2 + \0@2", "id 1 at 2 + \0@2", "id 1 at 3 + a@3" }, sorted(stream:take()))
    end)

    it("nothing for an empty request", function()
      assert.same({}, stream:ask {})
      assert.is_nil((stream:status()))
    end)
  end)

  describe("delivers", function()
    it("later events, in one response for each revision", function()
      put("a")
      create { key = "a" }
      put("a", "2")
      put("a", "3")
      put("b")
      host.store:delete("a")
      local got = stream:take()
      assert.same({ "id 0 at 3 + a@3", "id 0 at 4 + a@4", "id 0 at 6 - a@6" }, lines(got))
      assert.same({ key = "a", value = "3", create_revision = 2, mod_revision = 4, version = 3 }, got[2].events[1].kv)
      assert.same({ type = "DELETE", kv = { key = "a", mod_revision = 6 } }, got[3].events[1])
    end)

    it("all events of a transaction at once, in its order", function()
      put("c")
      create { key = "a", range_end = "z" }
      host.store:txn { success = { { put = "b", value = "1" }, { put = "a", value = "2" }, { delete = "c" } } }
      assert.same({ "id 0 at 3 + b@3 + a@3 - c@3" }, lines(stream:take()))
    end)
  end)

  describe("whose history is compacted", function()
    before_each(function()
      for _ = 2, 6 do put("a") end
      host.store:compact(5)
    end)

    it("reports that after the watch was created, and keeps its id", function()
      assert.same({ "created id 0 at 6", "canceled id 0 compacted 5" }, lines(create { key = "a", start_revision = 4 }))
      create { key = "a", watch_id = 8, start_revision = 1 }
      assert.same({ "created canceled id -1 at 6 mvcc: duplicate watch ID provided on the WatchStream" },
        lines(create { key = "a", watch_id = 8 }))
      assert.same({}, progress())
      assert.same({ "canceled id 8 at 6" }, lines(cancel(8)))
      assert.same({ "canceled id 0 at 6" }, lines(cancel(0)))
      assert.same({}, cancel(0))
      assert.same({ "created id 8 at 6" }, lines(create { key = "a", watch_id = 8 }))
      put("a")
      assert.same({ "id 8 at 7 + a@7" }, lines(stream:take()))
    end)
  end)

  describe("cancels", function()
    it("an existing watch, and sends nothing for a missing one", function()
      create { key = "a" }
      assert.same({}, cancel(1))
      assert.same({}, cancel(-1))
      assert.same({ "canceled id 0 at 1" }, lines(cancel(0)))
      assert.same({}, cancel(0))
      put("a")
      assert.same({}, stream:take())
      assert.is_nil((stream:status()))
    end)

    it("without any later response of the watch", function()
      create { key = "a" }
      create { key = "a" }
      put("a")
      stream:send { cancel_request = { watch_id = 0 } }
      put("a")
      local got, is_over = lines(stream:take()), false
      for _, words in ipairs(got) do
        assert(not (is_over and words:find("id 0")), words)
        is_over = is_over or words:find("canceled id 0") ~= nil
      end
      assert.is_true(is_over)
      assert.equal("id 1 at 3 + a@3", got[#got])
    end)
  end)

  describe("sends progress", function()
    it("of all watches at once, if all are synced", function()
      assert.same({}, progress())
      create { key = "a" }
      put("b")
      assert.same({ "id -1 at 2" }, lines(progress()))
      create { key = "a", start_revision = 4 }
      assert.same({}, progress())
      cancel(1)
      create { key = "a", start_revision = 3 }
      assert.same({ "id -1 at 2" }, lines(progress()))
      cancel(0)
      cancel(2)
      assert.same({}, progress())
    end)

    it("after the events that it covers", function()
      create { key = "a" }
      put("a")
      stream:send { progress_request = {} }
      put("a")
      assert.same({ "id 0 at 2 + a@2", "id 0 at 3 + a@3", "id -1 at 3" }, lines(stream:take()))
    end)

    it("never after a watch of the past was created, whose events it would cover", function()
      put("b")
      create { key = "a" }
      stream:send { progress_request = {} }
      stream:send { create_request = { key = "b", start_revision = 1 } }
      local is_behind = false
      for _, words in ipairs(lines(stream:take())) do
        assert(not (is_behind and words:find("id %-1")), "progress covers undelivered events")
        if words:find("created id 1") then is_behind = true end
        if words:find("b@2") then is_behind = false end
      end
    end)

    it("periodically, to idle watches that want progress", function()
      create { key = "a", progress_notify = true }
      create { key = "b", progress_notify = true }
      create { key = "c" }
      host.store:step(1)
      put("b")
      stream:take()
      for t = 2, 1400, 10 do host.store:step(t) end
      local count = { 0, 0, 0 }
      for _, response in ipairs(stream:take()) do
        assert.same({ 2 }, { response.header.revision, response.events })
        local i = (response.watch_id or 0) + 1
        count[i] = count[i] + 1
      end
      assert(count[1] == 1 or count[1] == 2)
      assert(count[1] - count[2] == 0 or count[1] - count[2] == 1)
      assert.equal(0, count[3])
    end)
  end)

  describe("sends fragments", function()
    local LIMIT = 200000 + 512 * 1024
    local SIZE = 150000

    local function value_of(i) return ("%x"):format(i):rep(SIZE) end

    before_each(function()
      host:close()
      begin { max_request_bytes = 200000 }
      for i = 2, 11 do put("k" .. i, value_of(i)) end
    end)

    it("of a large response, in parts that follow each other and fit", function()
      create { key = "k", range_end = "l" }
      create { key = "k", range_end = "l", fragment = true, prev_kv = true }
      host.store:delete("k", { prefix = true })
      put("k2", "small")
      local got, keys, parts = stream:take(), {}, {}
      for i, response in ipairs(got) do
        if response.watch_id == 1 and response.header.revision == 12 then
          assert.equal(#parts < 2, response.fragment or false)
          assert(#parts == 0 or got[i - 1].watch_id == 1)
          assert(#stream.raw[i] < LIMIT)
          parts[#parts + 1] = #response.events
          for _, event in ipairs(response.events) do
            keys[#keys + 1] = event.kv.key
            assert.equal(12, event.kv.mod_revision)
            assert(event.prev_kv.value == value_of(tonumber(event.kv.key:sub(2))))
          end
        end
      end
      assert.same({ 4, 4, 2 }, parts)
      assert.same({ "k10", "k11", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9" }, keys)
      assert.equal("id 1 at 13 + k2@13", line(got[#got]))
    end)

    it("of the past", function()
      local got = create { key = "k", range_end = "l", start_revision = 1, fragment = true }
      for i = 2, #got do assert(#stream.raw[i] < LIMIT) end
      assert.equal(12, follow(got, 2, function(event, i) assert(event.kv.value == value_of(i)) end))
      assert.is_nil(got[#got].fragment)
    end)

    it("not to watches that do not want them", function()
      create { key = "k", range_end = "l", prev_kv = true }
      host.store:delete("k", { prefix = true })
      local got = stream:take()
      assert.equal(1, #got)
      assert.equal(10, #got[1].events)
      assert.is_nil(got[1].fragment)
    end)

    it("with a single event whole, however large", function()
      host:close()
      begin()
      create { key = "a", fragment = true, prev_kv = true }
      put("a", ("x"):rep(1500000))
      put("a", ("y"):rep(1500000))
      local got = stream:take()
      assert.equal(2, #got)
      assert.is_nil(got[1].fragment)
      assert.is_nil(got[2].fragment)
      assert.equal(1500000, #got[2].events[1].prev_kv.value)
    end)

    it("of one batch that it shares with watches without fragments", function()
      local streams = {}
      for i = 1, 4 do
        streams[i] = client:stream("Watch")
        streams[i]:ask { create_request = { key = "k", range_end = "l", prev_kv = true, fragment = i % 2 == 0 } }
      end
      host.store:delete("k", { prefix = true })
      for i = 1, 4 do
        local got, n = streams[i]:take(), 0
        for _, response in ipairs(got) do
          for _, event in ipairs(response.events) do
            assert(event.prev_kv.value == value_of(tonumber(event.kv.key:sub(2))))
            n = n + 1
          end
        end
        assert.equal(i % 2 == 0 and 3 or 1, #got)
        assert.equal(10, n)
      end
    end)
  end)

  describe("that is half-closed", function()
    it("continues with its watches", function()
      create { key = "a" }
      stream:half_close()
      put("a")
      assert.same({ "id 0 at 2 + a@2" }, lines(stream:take()))
      put("a")
      assert.same({ "id 0 at 3 + a@3" }, lines(stream:take()))
      assert.is_nil((stream:status()))
    end)

    it("ends without watches", function()
      stream:half_close()
      assert.equal(0, (stream:status()))
    end)
  end)

  it("of a cancelled call costs nothing", function()
    create { key = "a" }
    create { key = "a", range_end = "b", start_revision = 1 }
    stream:cancel()
    put("a")
    host:pump()
    assert.equal("", client.peer:pending())
    local again = client:stream("Watch")
    assert.same({ "created id 0 at 2" }, lines(again:ask { create_request = { key = "a" } }))
  end)

  it("without a reader does not block another stream", function()
    local slow_client = host:client()
    local slow = slow_client:stream("Watch")
    slow:ask { create_request = { key = "k" } }
    slow_client.is_deaf = true
    create { key = "k" }
    local revision = 2
    for i = 1, 3000 do
      put("k", ("%d"):format(i):rep(200))
      if i % 100 == 0 then revision = follow(stream:take(), revision) end
    end
    assert.equal(3002, revision)
    slow_client.is_deaf = false
    assert.equal(3002, follow(slow:take(), 2, function(event, i)
      assert(event.kv.value == ("%d"):format(i - 1):rep(200))
    end))
  end)

  it("without a reader reports that its history was compacted", function()
    create { key = "k" }
    client.is_deaf = true
    for i = 1, 500 do put("k", ("%d"):format(i):rep(4000)) end
    host:pump()
    host.store:compact(400)
    client.is_deaf = false
    local got = stream:take()
    assert.equal("canceled id 0 compacted 400", line(got[#got]))
    assert(follow(got, 2) < 400)
  end)
end)
