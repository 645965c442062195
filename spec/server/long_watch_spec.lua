--- Watch streams with revisions that are too large to be queued: a response is encoded while the client reads it.

local core = require "keywatch.core"

local pair = require "spec.support.pair"

local table_unpack = table.unpack or unpack -- luacheck: ignore

local N, SIZE = 600, 8192 -- more than 4 MiB
local LIMIT = 2 * 1024 * 1024 -- of a fragment
local HELD = 512 * 1024 -- more than a connection ever holds, of a response of any length

local filler = ("v"):rep(SIZE)

local function key_of(i) return ("k%05d"):format(i) end
local function value_of(i) return i .. filler end

describe("a long response of a watch stream", function()
  local host, client, stream, revision

  local function create(request)
    request.key, request.range_end, request.prev_kv = "k", "l", true
    return stream:ask { create_request = request }
  end

  before_each(function()
    host = pair.host()
    client = host:client()
    stream = client:stream("Watch")
    local ops = {}
    for i = 1, N do
      ops[#ops + 1] = { put = key_of(i), value = value_of(i) }
      if #ops == 100 then
        assert(host.store:txn { success = ops })
        ops = {}
      end
    end
    revision = host.store:status().revision + 1
  end)

  after_each(function()
    if core.probe then core.probe.check(host.store) end
    host:check()
    host:close()
  end)

  local function delete() assert.equal(revision, host.store:delete("k", { prefix = true }).revision) end

  --- Has the client take the beginning of the response, and no more.
  local function begin_response()
    delete()
    host:step()
    assert.is_true(client:pull())
    client.is_deaf = true
    host:pump()
  end

  --- Expects all deletes in events from `from` on. Returns where they end.
  local function expect(events, from)
    for i = from, from + #events - 1 do
      local event = events[i - from + 1]
      assert(event.kv.key == key_of(i) and event.kv.mod_revision == revision and event.type == "DELETE")
      assert(event.prev_kv.value == value_of(i))
    end
    return from + #events
  end

  it("is one message", function()
    create {}
    delete()
    local received = stream:take()
    assert.same({ 1, nil, revision }, { #received, received[1].fragment, received[1].header.revision })
    assert.equal(N + 1, expect(received[1].events, 1))
  end)

  it("is a sequence of fragments, if the client allows them", function()
    create { fragment = true }
    delete()
    local received, at = stream:take(), 1
    assert(#received > 2)
    for i, response in ipairs(received) do
      assert.equal(i < #received, response.fragment or false)
      assert(#stream.raw[i] < LIMIT)
      at = expect(response.events, at)
    end
    assert.equal(N + 1, at)
  end)

  it("takes little memory while the client does not read it", function()
    for _ = 1, 10 do create {} end
    local before = host.server:held()
    begin_response()
    assert(host.server:held() - before < HELD)
    client.is_deaf = false
    local received = stream:take()
    assert.equal(10, #received)
    for i = 1, 10 do assert.equal(N + 1, expect(received[i].events, 1)) end
  end)

  it("lets other calls of its connection be answered", function()
    create {}
    begin_response()
    client.is_deaf = false
    local call = client:begin("Range", { key = "k" })
    host:step()
    local found
    for _ = 1, 1000 do
      found = found or call:look() -- a part of the response has arrived
      if found then break end
    end
    assert.equal(revision, found.header.revision)
    assert.equal(1, #stream:take())
  end)

  it("is followed by the answers to requests that came during it", function()
    create {}
    begin_response()
    stream:send { cancel_request = { watch_id = 0 } }
    stream:send { create_request = { key = "a" } }
    host:pump()
    host.store:put("k", "later")
    host:pump()
    client.is_deaf = false
    local received = stream:take()
    assert.equal(N + 1, expect(received[1].events, 1))
    local canceled, created = received[#received - 1], received[#received]
    assert.same({ true, true, 1 }, { canceled.canceled, created.created, created.watch_id })
    host.store:put("a", "")
    assert.equal("a", stream:take()[1].events[1].kv.key)
  end)

  it("is sent again, without earlier revisions, if its own revision is compacted before it begins", function()
    create {}
    client.is_deaf = true
    delete()
    host:pump()
    host.store:compact(revision, { physical = true })
    client.is_deaf = false
    host:pump() -- the server notices
    local received = stream:take()
    local events = received[#received].events
    assert.same({ 1, N }, { #received, #events })
    assert.same({ nil, revision }, { events[1].prev_kv, events[1].kv.mod_revision })
  end)

  it("ends the stream if it is compacted during it, and the client gets the reason when it reconnects", function()
    create {}
    begin_response()
    host.store:compact(host.store:put("k", "later").revision, { physical = true })
    client.is_deaf = false
    assert.equal(0, #stream:take())
    assert.equal(13, (stream:status()))
    stream = client:stream("Watch")
    local received = create { start_revision = revision }
    assert.same({ true, revision + 1 }, { received[2].canceled, received[2].compact_revision })
  end)

  it("may be cancelled", function()
    for _, give_up in ipairs { stream.cancel, function() client:close() end } do
      create {}
      begin_response()
      client.is_deaf = false
      give_up(stream)
      if give_up == stream.cancel then host:pump() end
      if core.probe then core.probe.check(host.store) end
      if give_up == stream.cancel then
        stream = client:stream("Watch")
        local ops = {}
        for i = 1, N do ops[#ops + 1] = { put = key_of(i), value = value_of(i) } end
        for i = 1, N, 100 do assert(host.store:txn { success = { table_unpack(ops, i, i + 99) } }) end
        revision = host.store:status().revision + 1
      end
    end
    host.ends = {}
  end)

  it("has no gap for other keys that a transaction changes in between", function()
    local others = {}
    for i = 1, 20 do others[i] = { put = ("z%d"):format(i), value = "" } end
    host.store:txn { success = others }
    create {}
    host.store:txn { success = {
      { delete = "k", range_end = key_of(N / 2 + 1) }, { delete = "z", prefix = true },
      { delete = key_of(N / 2 + 1), range_end = "l" },
    } }
    revision = host.store:status().revision
    local received = stream:take()
    assert.same({ 1, N + 1 }, { #received, expect(received[1].events, 1) })
  end)
end)
