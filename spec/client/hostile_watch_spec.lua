--- Servers that send wrong answers to watches: a watch fails with a clear error, or resumes. It never returns events
-- out of order, and does not affect other watches.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local raw = require "spec.support.raw"
local resident = require "spec.support.resident"

local RANGE, WATCH = raw.RANGE, raw.WATCH
local STATUS = "/etcdserverpb.Maintenance/Status"
local PATIENT = 60 -- seconds, where something comes
local MIB = 1024 * 1024

local function header(revision, cluster)
  return { cluster_id = cluster or 1, member_id = 2, revision = revision, raft_term = 1 }
end

local function event(revision)
  return { kv = { key = "a", value = "v" .. revision, create_revision = 2, mod_revision = revision, version = 1 } }
end

local function created(revision, id, cluster)
  return { header = header(revision, cluster), watch_id = id or 0, created = true }
end

local function events(id, ...)
  local list = {}
  for i, revision in ipairs { ... } do list[i] = event(revision) end
  return { header = header(select("#", ...) > 0 and select(-1, ...) or 1), watch_id = id, events = list }
end

local function expect_error(code, words, value, err)
  assert.is_nil(value)
  assert.truthy(type(err) == "table" and err.code, tostring(err))
  assert.same({ code, true }, { err.code, err.message:find(words, 1, true) ~= nil }, tostring(err))
  return err
end

describe("a watch of a hostile server #plain", function() -- there is no TLS in virtual time
  local peer

  network.in_virtual_time()
  before_each(function() peer = imposter.start {} end)

  local function connect(opts) return network.connect(peer.url, opts or { timeout = PATIENT }) end

  it("continues on another call if its own stays silent after a progress request", function()
    peer:behave { [STATUS] = { "reply", { version = "3.5.21" } },
      [WATCH] = { "in_turn", { "watch", { created(5) } }, { "watch", { created(5), events(0, 6) } } } }
    local client, found = connect(), nil
    local w = assert(client:watch("a"))
    for _ = 1, 2000 do
      for call in pairs(client.transport.watch_calls.calls) do call.inspect_at = 0 end -- it is inspected now
      client.transport:look_at_all()
      found = w:next(0.01)
      if found then break end
    end
    assert.equal(6, found and found.mod_revision)
  end)

  --- A client whose first Watch call is answered by the first script, and so on.
  local function received(...)
    local turns = { "in_turn" }
    for i, script in ipairs { ... } do turns[i + 1] = { "watch", script } end
    peer:behave { [WATCH] = turns }
    return connect()
  end

  --- The revisions of the next events.
  local function revisions(one, n)
    local list = {}
    for i = 1, n do list[i] = assert(one:next(PATIENT)).mod_revision end
    return list
  end

  local function expect_recovery(client)
    peer:behave { [WATCH] = { "watch", { created(9), events(0, 10) } } }
    assert.same({ 10 }, revisions(assert(client:watch("a")), 1))
  end

  it("is refused, with reasons of every kind", function()
    local refusals = {
      { "rpc error: code = PermissionDenied desc = etcdserver: permission denied", "permission_denied",
        "etcdserver: permission denied" },
      { "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token", "unauthenticated",
        "etcdserver: invalid auth token" },
      { "rpc error: code = InvalidArgument desc = etcdserver: user name is empty", "invalid_argument",
        "etcdserver: user name is empty" },
      { "rpc error: code = Nonsense desc = what", "failed_precondition", "what" },
      { "mvcc: watcher range is empty", "empty_range", "mvcc: watcher range is empty" },
      { "because", "failed_precondition", "because" },
    }
    for _, refusal in ipairs(refusals) do
      for _, id in ipairs { -1, 0 } do
        local client = received { { header = header(5), watch_id = id, created = true, canceled = true,
          cancel_reason = refusal[1] } }
        local err = expect_error(refusal[2], refusal[3], client:watch("a"))
        assert.equal(refusal[3], err.message)
        client:close()
      end
    end
    expect_recovery(connect())
  end)

  it("is ended, with a reason or by compaction", function()
    local client = received { created(5), events(0, 6),
      { header = header(7), watch_id = 0, canceled = true,
        cancel_reason = "rpc error: code = PermissionDenied desc = no" } }
    local one = assert(client:watch("a"))
    assert.same({ 6 }, revisions(one, 1))
    expect_error("permission_denied", "no", one:next(PATIENT))
    expect_error("permission_denied", "no", one:next(PATIENT))
    assert.equal("permission_denied", one:error().code)

    client = received { created(5), { header = header(9), watch_id = 0, canceled = true, compact_revision = 7 } }
    one = assert(client:watch("a", { start_revision = 2 }))
    assert.equal(7, expect_error("compacted", "has been compacted", one:next(PATIENT)).compact_revision)
    expect_recovery(connect())
  end)

  it("gets answers for unknown watches: it fails, and this server is no longer trusted", function()
    for _, lie in ipairs {
      { created(5, 1) },                                        -- another one was not requested
      { events(0, 7, 6) },                                      -- backwards
      { { header = header(6), watch_id = 0, events = { {} } } }, -- of no revision
      { { bytes = "\255" } },
      { { header = header(6), watch_id = 0, created = true, events = { event(6) } } },
    } do
      local client = received({ created(5), lie[1] }, { created(9), events(0, 10) })
      local one = assert(client:watch("a"))
      expect_error("malformed", "the server's answer is malformed", one:next(PATIENT))
      assert.same({ 10 }, revisions(assert(client:watch("a")), 1)) -- on another call
      assert.equal(8, peer:await("calls[1].reset", function() client.transport:look() end))
      client:close()
      peer:close()
      peer = imposter.start {}
    end
  end)

  it("continues elsewhere after a reset, and does not reconnect too often", function()
    local client = received({ created(5), events(0, 6), { reset = "internal_error" } },
      { created(6), events(0, 7), { status = { 14, "etcdserver: no leader" } } },
      { created(7), events(0, 8), { close = "reset" } }, { created(8), events(0, 9) })
    assert.same({ 6, 7, 8, 9 }, revisions(assert(client:watch("a")), 4))
    assert.same({ 7, 8, 9 }, { peer.calls[2].messages[1].create_request.start_revision,
      peer.calls[3].messages[1].create_request.start_revision,
      peer.calls[4].messages[1].create_request.start_revision })
  end)

  describe("whose server returns with another history", function()
    --- Two calls, the second of which is answered like this; a linearizable read finds the server at a revision.
    local function resumed(second, revision)
      peer:behave {
        [WATCH] = { "in_turn", { "watch", { created(5), events(0, 6), { reset = "internal_error" } } },
          type(second) == "string" and second or { "watch", second } },
        [RANGE] = revision and { "reply", { header = header(revision) } } or { "status", 14, "etcdserver: no leader" },
      }
      local one = assert(connect():watch("a"))
      assert.same({ 6 }, revisions(one, 1))
      return one
    end

    it("of another cluster: the watch fails", function()
      local one = resumed({ created(50, 0, 2), events(0, 51) }, 50)
      expect_error("cluster_changed", "another cluster", one:next(PATIENT))
    end)

    it("at a lower revision, as a read confirms: the watch fails", function()
      expect_error("regressed", "set back to an older state", resumed({ created(3), events(0, 7) }, 3):next(PATIENT))
      assert.equal(RANGE, peer.calls[#peer.calls].path)
      assert.is_nil(peer.calls[#peer.calls].messages[1].serializable)
    end)

    it("at a lower revision, as the server is only behind: the watch continues", function()
      assert.same({ 7 }, revisions(resumed({ created(3), events(0, 7) }, 6), 1))
    end)

    it("at a lower revision, and cannot be read: the watch is tried again, and not too often", function()
      local one = resumed([[
        local header, id = { cluster_id = 1, member_id = 2, revision = 3, raft_term = 1 }, 0
        local kv = { key = "a", value = "v7", create_revision = 2, mod_revision = 7, version = 1 }
        for request in stream.receive, stream do
          if request.create_request then
            id = id + 1
            stream:message { header = header, watch_id = id, created = true }
            stream:message { header = header, watch_id = id, events = { { kv = kv } } }
          end
        end
      ]], nil)
      expect_error("timeout", "timed out", one:next(0.5))
      assert.is_true(#peer.calls < 50)
      peer:behave { [RANGE] = { "reply", { header = header(6) } } }
      assert.same({ 7 }, revisions(one, 1))
    end)
  end)

  it("is refused permanently after a reconnection: the watch reports that", function()
    local client = received({ created(5), events(0, 6), { status = { 7, "etcdserver: permission denied" } } })
    local one = assert(client:watch("a"))
    assert.same({ 6 }, revisions(one, 1))
    expect_error("permission_denied", "etcdserver: permission denied", one:next(PATIENT))
  end)

  it("trusts the server's progress only after the server has reported its version", function()
    peer:behave { [STATUS] = { "reply", { version = "three" } }, [WATCH] = { "watch", { created(5) } },
      [RANGE] = { "reply", { header = header(6) } } }
    local one = assert(connect():watch("a"))
    expect_error("unsupported", "cannot be trusted", one:sync(PATIENT))
    peer:behave { [STATUS] = { "reply", "\255" } }
    expect_error("unsupported", "cannot be trusted", one:sync(PATIENT))
  end)

  describe("with a flood", function()
    local BOUND = 9 * MIB

    --- Floods the watch with an answer, in Lua text, until the client has enough, while the spec does something. In
    -- `latency` seconds 250 KB come.
    local function flood(answer, fn, latency, bound, opts)
      peer:behave { [WATCH] = ([[
        local header = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }
        local function event(n)
          return { kv = { key = "a", value = ("v"):rep(1000), create_revision = 2, mod_revision = n, version = 1 } }
        end
        stream:receive()
        stream:message { header = header, watch_id = 0, created = true }
        local n = 5
        while not stream.record.reset do
          local list = {}
          for i = 1, 100 do
            n = n + 1
            list[i] = h2.message(stream:encode(%s))
          end
          stream:data(table.concat(list))
          conn:drain()
        end
      ]]):format(answer) }
      peer:slow(latency)
      local client = connect(opts)
      local one = assert(client:watch("a"))
      collectgarbage()
      collectgarbage()
      local heap, before = collectgarbage("count"), resident.now()
      resident.reset_peak()
      fn(one)
      local taken = resident.peak() - before
      if resident.is_reliable then assert.is_true(taken < (bound or BOUND), ("%d bytes were taken"):format(taken)) end
      one:close()
      collectgarbage()
      collectgarbage()
      assert.is_true(collectgarbage("count") - heap < 4096) -- an imposter keeps a MiB of a connection
      client:close()
      peer:close()
    end

    local function wait(one) expect_error("timeout", "timed out", one:next(0.5)) end

    it("of events of other watches", function()
      flood("{ header = header, watch_id = 77, events = { event(n) } }", wait, 0.01)
    end)

    it("of ends of other watches", function()
      flood("{ header = header, watch_id = n, canceled = true, cancel_reason = 'no' }", wait, 0.05)
    end)

    it("of progress", function()
      flood("{ header = { revision = n }, watch_id = 0 }", wait, 0.05)
    end)

    it("of create answers", function()
      flood("{ header = header, watch_id = n, created = true }", function(one)
        expect_error("malformed", "the server's answer is malformed", one:next(PATIENT))
      end, 0.01)
    end)

    it("of fragments without an end", function()
      flood("{ header = header, watch_id = 0, fragment = true, events = { event(6) } }", function(one)
        expect_error("answer_too_large", "larger than max_message", one:next(PATIENT))
      end, 0.01, nil, { timeout = PATIENT, max_message = MIB })
    end)

    -- 1 MiB waits in the watch, as much in the window of its call, and as much in a message.
    it("of events that are not read", function()
      flood("{ header = header, watch_id = 0, events = { event(n) } }", function(one)
        keywatch.sleep(0.5)
        assert.same({ 6, 7, 8 }, revisions(one, 3))
      end, 0.01, 24 * MIB)
    end)

    it("of an answer of any size", function()
      peer:behave { [WATCH] = { "sequence", { "watch", { created(5) } }, { "endless" } } }
      local one = assert(connect():watch("a"))
      expect_error("answer_too_large", "larger than max_message", one:next(PATIENT))
    end)
  end)
end)

describe("a watch in virtual time #plain", function() -- there is no TLS in virtual time
  --- Runs fn(client, world) in a world whose server answers Watch by handler(call).
  local function run(handler, fn)
    testing.run(function(world)
      world.server.server:mount("etcdserverpb.Watch", {
        Watch = { stream = true, request = "WatchRequest", response = "WatchResponse", handler = handler },
      })
      fn(world:client(), world)
    end)
  end

  --- Answers each create request, and then ends the watch with `reason`, if fn(n) is true for the n-th one.
  local function ending(reason, fn)
    local counts = { creates = 0 }
    return counts, function(call)
      for request in call:messages() do
        if request.create_request then
          counts.creates = counts.creates + 1
          call:send(created(5, counts.creates))
          if fn(counts.creates) then
            call:send { header = header(5), watch_id = counts.creates, canceled = true, cancel_reason = reason }
          else
            call:send(events(counts.creates, 6))
          end
        end
      end
    end
  end

  it("that is ended repeatedly without a reason is created at longer and longer intervals", function()
    local counts, handler = ending(nil, function() return true end)
    run(handler, function(client)
      local one = assert(client:watch("a"))
      assert.equal("timeout", select(2, one:next(60)).code)
      assert(counts.creates > 20 and counts.creates < 100, counts.creates)
      assert.same({ "waiting", "keywatch: the server has ended the watch without a reason" },
        { client:state().state, client:state().why })
    end)
  end)

  it("that is ended for a temporary reason continues, without delaying others", function()
    for _, reason in ipairs { "rpc error: code = Unavailable desc = etcdserver: no leader",
      "rpc error: code = ResourceExhausted desc = etcdserver: too many requests" } do
      local _, handler = ending(reason, function(n) return n < 5 end)
      run(handler, function(client)
        assert.equal(6, assert(assert(client:watch("a")):next(60)).mod_revision)
        assert.equal(6, assert(assert(client:watch("b")):next(0)).mod_revision)
      end)
    end
  end)

  --- Answers create requests. The answer for the key "large", with `size` bytes, is sent as long as is_large(n) is true
  -- for the n-th request for this key; otherwise, and for other keys, a small one is sent. Sends progress of no watch.
  local function oversizing(size, is_large)
    local counts, last = { large = 0, calls = 0 }, 0
    return counts, function(call)
      counts.calls = counts.calls + 1
      for request in call:messages() do
        local key = request.create_request and request.create_request.key
        if key then
          last = last + 1
          call:send(created(6, last))
          local value = "small"
          if key == "large" then
            counts.large = counts.large + 1
            value = is_large(counts.large) and ("x"):rep(size) or value
          end
          if request.create_request.start_revision <= 6 then
            call:send { header = header(6), watch_id = last, events = {
              { kv = { key = key, value = value, create_revision = 6, mod_revision = 6, version = 1 } },
            } }
          end
        end
      end
    end
  end

  for _, case in ipairs { { "once: all continue", 1 }, { "always: it fails, and the others continue", math.huge } } do
    it("gets an answer that is larger than max_message, among others, " .. case[1], function()
      local counts, handler = oversizing(300000, function(n) return n <= case[2] end)
      testing.run(function(world)
        world.server.server:mount("etcdserverpb.Watch", {
          Watch = { stream = true, request = "WatchRequest", response = "WatchResponse", handler = handler },
        })
        local client = world:client { max_message = 200000 }
        local others = {}
        for i = 1, 12 do others[i] = assert(client:watch("other" .. i, { start_revision = 2 })) end
        local one = assert(client:watch("large", { start_revision = 2 }))
        for i = 1, 12 do
          assert.equal("small", assert(others[i]:next(60)).value)
          assert.equal("timeout", select(2, others[i]:next(1)).code)
        end
        if case[2] == 1 then
          assert.equal("small", assert(one:next(60)).value)
        else
          expect_error("answer_too_large", "larger than max_message: raise this option", one:next(60))
        end
        assert(counts.calls < 15, counts.calls)
      end)
    end)
  end

  it("whose call ends with a status that has no reason waits, and reports that", function()
    run(function() return true end, function(client)
      local one, err = client:watch("a", { timeout = 10 })
      assert.is_nil(one)
      assert.same({ "unavailable", "keywatch: the server has ended the call" }, { err.code, err.message })
    end)
  end)
end)
