--- The core's side of a client's watches and calls, without sockets: the server's frames are made by hand.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local hand = require "spec.support.hand"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local created, events, progress, canceled = hand.created, hand.events, hand.progress, hand.canceled
local take = hand.take

local WINDOW = 2 ^ 20 -- of a stream

describe("a client's Watch call", function()
  local server, client, call, stream, last_tag

  before_each(function()
    server = hand.new()
    client = server.client
    call, stream = server:watch()
    last_tag = 0
  end)

  after_each(function()
    server:close()
    collectgarbage()
  end)

  local function subscribe(options)
    last_tag = last_tag + 1
    return core.subscription(last_tag, "k", options or {})
  end

  local function attach(options, to)
    local sub = subscribe(options)
    assert.is_true(sub:attach(client, to or call))
    return sub
  end

  --- Watches that have the ids 0, 1, 2, …
  local function open(n, options)
    local list = {}
    for i = 1, n do
      list[i] = attach(options)
      server:answer(stream, created(i - 1, 10))
    end
    server:requests(stream)
    for _ in client.next_watch, client do end -- luacheck: ignore 542
    return unpack(list)
  end

  local function next_of(sub) return (select(2, sub:state())) end

  --- The tags of watches that are ready.
  local function ready()
    local tags = {}
    for tag in client.next_watch, client do tags[#tags + 1] = tag end
    return tags
  end

  --- How the call has ended, from the client's side or the server's; nothing if it has not.
  local function ending()
    for number in client.next, client do
      local message, status, text, is_refused = client:receive(number)
      assert.is_false(message)
      if number == call then return status, text, is_refused end
    end
  end

  describe("whose watches are created", function()
    it("sends create requests with their options", function()
      attach { start_revision = 5, prev_kv = true, no_put = true }
      attach { prefix = true, no_delete = true }
      local first, second = unpack(server:requests(stream))
      assert.same({ key = "k", start_revision = 5, prev_kv = true, filters = { "NOPUT" }, progress_notify = true,
        fragment = true }, first.create_request)
      assert.same({ key = "k", range_end = "l", filters = { "NODELETE" }, progress_notify = true, fragment = true },
        second.create_request)
    end)

    it("matches watch ids to create requests by their order", function()
      local a, b, c = attach(), attach(), attach()
      server:answer(stream, created(7, 10), created(3, 11), created(5, 12))
      assert.same({ "open", "open", "open" }, { (a:state()), (b:state()), (c:state()) })
      assert.same({ 11, 12, 13 }, { next_of(a), next_of(b), next_of(c) })
      server:answer(stream, events(5, { 20 }), events(7, { 21 }), events(3, { 22 }))
      assert.same({ { 21 }, { 22 }, { 20 } }, { take(a), take(b), take(c) })
    end)

    it("reports the watches that were created", function()
      attach()
      local b = attach()
      assert.same({}, ready())
      server:answer(stream, created(0, 10))
      assert.same({ 1 }, ready())
      server:answer(stream, created(1, 10))
      assert.same({ 2 }, ready())
      server:answer(stream, events(1, { 11 }))
      assert.same({}, ready()) -- it is not armed
      b:arm()
      assert.same({ 2 }, ready())
      server:answer(stream, events(1, { 12 }))
      assert.same({}, ready())
    end)

    it("fails with the server on an answer that was not requested", function()
      local a = open(1)
      server:answer(stream, created(1, 10))
      assert.same({ { "failed", "malformed" } }, take(a))
      assert.equal("failed", (a:state()))
      assert.equal(8, server:read().resets[stream])
      assert.equal(13, (ending()))
    end)

    it("refuses the id that stands for all watches, and opens the next watch", function()
      local a, b = attach(), attach()
      server:answer(stream, created(-1, 10), created(0, 10))
      assert.same({ { "failed", "unknown" } }, take(a))
      assert.equal("open", (b:state()))
    end)

    it("reports why a watch is not created, and opens the next one", function()
      local a, b, c = attach(), attach { start_revision = 3 }, attach()
      server:answer(stream, canceled(-1, { created = true, cancel_reason = "no" }),
        canceled(1, { created = true, compact_revision = 8 }), created(2, 10))
      assert.same({ { "failed", "unknown", "no" } }, take(a))
      assert.same({ { "compacted", 8 } }, take(b))
      assert.equal("open", (c:state()))
      assert.same({ 1, 2, 3 }, ready())
    end)

    it("cancels a watch that was closed before it had an id", function()
      local a, b = attach(), attach()
      a:close()
      assert.equal("closed", (a:state()))
      server:requests(stream)
      server:answer(stream, created(5, 10), events(5, { 11 }), created(6, 10), events(6, { 11 }))
      assert.same({ { cancel_request = { watch_id = 5 } } }, server:requests(stream))
      assert.same({ 11 }, take(b))
      assert.same({ "closed" }, { a:take() })
    end)

    it("cancels, once, a watch that was closed after it had an id", function()
      local a, b = open(2)
      a:close()
      a:close()
      b:detach()
      b:detach()
      server:answer(stream, canceled(0), canceled(1))
      assert.same({ { cancel_request = {} }, { cancel_request = { watch_id = 1 } } }, server:requests(stream))
      assert.same({ "idle" }, { (b:state()) })
      assert.equal(0, (select(2, client:inspect(call))))
    end)

    it("fails a watch of another cluster, and cancels it", function()
      local a = open(1)
      server:finish(stream)
      call, stream = server:watch()
      assert.is_true(a:attach(client, call))
      server:requests(stream)
      local answer = created(3, 20)
      answer.header.cluster_id = 78
      server:answer(stream, answer)
      assert.same({ { "failed", "cluster_changed" } }, take(a))
      assert.same({ { cancel_request = { watch_id = 3 } } }, server:requests(stream))
    end)

    it("suspects a server whose revision went back, and gives nothing until that is settled", function()
      local a = open(1)
      server:answer(stream, events(0, { 15 }))
      server:finish(stream)
      call, stream = server:watch()
      assert.is_true(a:attach(client, call))
      assert.equal(16, server:requests(stream)[1].create_request.start_revision)
      server:answer(stream, created(0, 12))
      assert.is_true((select(5, a:state())))
      assert.same({}, take(a))
      a:accept()
      assert.same({ 15 }, take(a))
      a:close()
    end)
  end)

  describe("with events", function()
    it("gives each watch its own events, and drops those of unknown ids", function()
      local a, b = open(2)
      server:answer(stream, events(0, { 11, 11, 12 }), events(9, { 13 }), events(1, { 12 }), events(0, { 14 }))
      assert.same({ 11, 11, 12, 14 }, take(a))
      assert.same({ 12 }, take(b))
      assert.same({ 15, 13 }, { next_of(a), next_of(b) })
    end)

    it("leaves out events that were delivered before", function()
      local a = open(1)
      server:answer(stream, events(0, { 9, 10 }), events(0, { 10, 11, 12 }), events(0, { 12, 12, 13 }),
        events(0, { 13 }),
        events(0, { 5 }), events(0, { 14 }))
      assert.same({ 11, 12, 13, 14 }, take(a))
    end)

    it("gives events that came before its call ended, and names the watches that wait for them", function()
      local a = open(1)
      a:arm()
      server:answer(stream, events(0, { 11 }))
      server:finish(stream, 14, "stopped")
      assert.same({ 1 }, ready())
      assert.equal(14, (ending()))
      assert.same({ 11 }, take(a))
      assert.equal("idle", (a:state()))
      assert.equal(12, next_of(a))
    end)

    it("continues at the same position on another call", function()
      local a, b = open(2)
      server:answer(stream, events(0, { 11 }), events(1, { 11, 12 }))
      server:feed(h2.reset(stream, "internal_error"))
      assert.same({ "idle", "idle" }, { (a:state()), (b:state()) })
      call, stream = server:watch()
      assert.is_true(b:attach(client, call))
      assert.is_true(a:attach(client, call))
      local first, second = unpack(server:requests(stream))
      assert.same({ 13, 12 }, { first.create_request.start_revision, second.create_request.start_revision })
      server:answer(stream, created(0, 14), created(1, 14), events(1, { 12, 13 }), events(0, { 13 }))
      assert.same({ 11, 12, 13 }, take(a))
      assert.same({ 11, 12, 13 }, take(b))
    end)
  end)

  describe("with fragmented answers", function()
    local function piece(id, revisions) return events(id, revisions, { fragment = true }) end

    it("gives a revision whole, or not at all", function()
      local a = open(1)
      a:arm()
      server:answer(stream, piece(0, { 11 }))
      assert.same({}, ready())
      assert.same({}, take(a))
      assert.equal(11, next_of(a))
      server:answer(stream, piece(0, { 11, 12 }))
      assert.same({ 1 }, ready())
      local _, list = a:take()
      assert.equal(2, #list)
      assert.equal(12, next_of(a))
      server:answer(stream, events(0, { 12 }))
      _, list = a:take()
      assert.equal(2, #list)
      assert.equal(13, next_of(a))
      server:answer(stream, piece(0, { 13 }), events(0, { 14 }), events(0, { 15 }))
      assert.same({ 13, 14, 15 }, take(a))
    end)

    it("continues if only an incomplete revision waits, however large", function()
      call, stream = server:watch(2 ^ 26)
      local a = open(1)
      local large = { fragment = true, value = ("x"):rep(700000) }
      server:answer(stream, events(0, { 11, 12 }, large))
      assert.same({ 11 }, take(a))
      server:answer(stream, events(0, { 13 }))
      assert.same({ 12, 13 }, take(a))
    end)

    it("leaves out events that were delivered before, in any fragment", function()
      local a = open(1)
      server:answer(stream, events(0, { 12 }), piece(0, { 11, 12 }), piece(0, { 12 }), events(0, { 12, 13 }))
      assert.same({ 12, 13 }, take(a))
      server:answer(stream, piece(0, { 12 }), events(0, { 13 }))
      assert.same({}, take(a))
      assert.equal(14, next_of(a))
    end)

    it("ignores progress between fragments", function()
      local a, b = open(2)
      client:trust(call)
      server:answer(stream, piece(0, { 11 }), progress(0, 20), progress(-1, 20))
      assert.same({}, take(a))
      assert.same({ { "progress", 20 } }, take(b))
      assert.same({ 11, 21 }, { next_of(a), next_of(b) })
      server:answer(stream, events(0, { 12 }), events(0, { 13 }))
      assert.same({ 11, 12, 13 }, take(a))
    end)

    it("gives nothing of an incomplete revision when the call ends, and requests it again", function()
      local a = open(1)
      server:answer(stream, events(0, { 11 }), piece(0, { 12 }), piece(0, { 13 }))
      server:finish(stream)
      assert.same({ 11, 12 }, take(a))
      assert.equal(13, next_of(a))
      call, stream = server:watch()
      assert.is_true(a:attach(client, call))
      assert.equal(13, server:requests(stream)[1].create_request.start_revision)
      server:answer(stream, created(0, 13), events(0, { 13 }))
      assert.same({ 13 }, take(a))
    end)

    it("gives nothing of an incomplete revision when the watch is canceled, fails or leaves", function()
      local a, b, c = open(3)
      server:answer(stream, piece(0, { 11 }), canceled(0), piece(1, { 11 }), canceled(1, { cancel_reason = "no" }),
        piece(2, { 11 }))
      c:detach()
      server:answer(stream, events(2, { 12 }))
      assert.same({}, take(a))
      assert.same({ { "failed", "unknown", "no" } }, take(b))
      assert.same({}, take(c))
      assert.same({ "idle", "failed", "idle" }, { (a:state()), (b:state()), (c:state()) })
      assert.same({ 11, 11 }, { next_of(a), next_of(c) })
    end)

    it("fails only the watch whose fragments of a revision exceed the limit, and cancels it", function()
      call, stream = server:watch(50000)
      local a, b = open(2)
      local large = { fragment = true, value = ("x"):rep(12000) }
      for _ = 1, 4 do server:answer(stream, events(0, { 11 }, large)) end
      assert.equal("open", (a:state()))
      for _ = 1, 2 do server:answer(stream, events(0, { 11 }, large)) end
      server:answer(stream, events(0, { 17 }), events(1, { 18 }))
      assert.same({ { "failed", "answer_too_large" } }, take(a))
      assert.same({ 18 }, take(b))
      assert.same({ { cancel_request = {} } }, server:requests(stream))
    end)

    it("counts small fragments by the memory that they take", function()
      call, stream = server:watch(50000)
      local a = open(1)
      for _ = 1, 2000 do server:answer(stream, piece(0, { 11 })) end
      assert.same({ { "failed", "answer_too_large" } }, take(a))
    end)
  end)

  describe("with progress", function()
    it("reports progress to the watch that it is for", function()
      local a, b = open(2)
      a:arm()
      b:arm()
      server:answer(stream, progress(1, 20))
      assert.same({ 2 }, ready())
      assert.same({}, take(a))
      assert.same({ { "progress", 20 } }, take(b))
      assert.same({ 11, 21 }, { next_of(a), next_of(b) })
    end)

    it("reports only later progress, and unread progress once", function()
      local a = open(1)
      server:answer(stream, progress(0, 10), progress(0, 3), progress(0, 12), progress(0, 14), events(0, { 15 }),
        progress(0, 15), progress(0, 16), progress(0, 15))
      assert.same({ { "progress", 14 }, 15, { "progress", 16 } }, take(a))
    end)

    it("reports each progress to a watch with progress_notify, and unread progress once", function()
      local a = open(1, { progress = true })
      server:answer(stream, progress(0, 10))
      assert.same({ { "progress", 10 } }, take(a))
      a:arm()
      server:answer(stream, progress(0, 10), progress(0, 10), progress(0, 9))
      assert.same({ 1 }, ready())
      assert.same({ { "progress", 10 } }, take(a))
      server:answer(stream, events(0, { 11 }), progress(0, 11), progress(0, 12))
      assert.same({ 11, { "progress", 12 } }, take(a))
    end)

    it("leaves out events that the progress covers", function()
      local a = open(1)
      server:answer(stream, progress(0, 20), events(0, { 19, 20, 21 }))
      assert.same({ { "progress", 20 }, 21 }, take(a))
    end)

    it("applies progress of all watches only if the server is trusted", function()
      local a, b = open(2)
      client:ask(call)
      server:answer(stream, progress(-1, 20))
      assert.same({ 11, 11 }, { next_of(a), next_of(b) })
      client:trust(call)
      client:ask(call)
      server:answer(stream, progress(-1, 21))
      assert.same({ { "progress", 21 } }, take(a))
      assert.same({ { "progress", 21 } }, take(b))
      assert.same({ { progress_request = {} }, { progress_request = {} } }, server:requests(stream))
    end)

    it("does not apply to a watch the progress that was requested before it was created", function()
      local a = open(1)
      client:trust(call)
      client:ask(call)
      client:ask(call)
      local b = attach { start_revision = 5 }
      server:answer(stream, created(1, 30))
      server:answer(stream, progress(-1, 30))
      assert.same({ 31, 5 }, { next_of(a), next_of(b) })
      server:answer(stream, progress(-1, 31)) -- which is later than its creation
      assert.same({ 32, 32 }, { next_of(a), next_of(b) })
    end)

    it("applies to a watch the progress that was requested after it was created, at the same revision", function()
      local a = open(1)
      client:trust(call)
      client:ask(call)
      local b = attach { start_revision = 5 }
      server:answer(stream, created(1, 30), progress(-1, 30))
      assert.equal(5, next_of(b))
      client:ask(call)
      server:answer(stream, progress(-1, 30))
      assert.same({ 31, 31 }, { next_of(a), next_of(b) })
    end)

    it("is announced at each later revision, if it is followed", function()
      local a = open(1)
      a:follow(true)
      server:answer(stream, events(0, { 11 }))
      assert.same({ 1 }, ready())
      server:answer(stream, progress(0, 12))
      assert.same({ 1 }, ready())
      a:follow(false)
      server:answer(stream, progress(0, 13))
      assert.same({}, ready())
    end)

    it("reports no progress to a watch that is not created yet", function()
      local a = open(1)
      client:trust(call)
      local b = attach { start_revision = 5 }
      server:answer(stream, progress(-1, 20))
      assert.same({ 21, 5 }, { next_of(a), next_of(b) })
    end)
  end)

  describe("that feeds a replica", function()
    local replica, sub

    --- Events of the key "k", one for each of the revisions, as a server has them.
    local function puts(revisions, more)
      local answer = events(0, revisions, more)
      for i, event in ipairs(answer.events) do
        event.kv.create_revision, event.kv.version = 1, revisions[i]
        event.kv.value = event.kv.value or "v" .. revisions[i]
      end
      return answer
    end

    before_each(function()
      replica = assert(core.open { replica = true, now = 0 })
      assert(replica:load_kvs(10, {}))
      sub = subscribe {}
      sub:begin(10, nil)
      replica:feed_from(sub)
      assert.is_true(sub:attach(client, call))
      server:answer(stream, created(0, 10))
      assert.same({ 1 }, ready())
    end)

    after_each(function() replica:close() end)

    local function revision() return replica:status().revision end

    it("moves events and progress into it as they come, without announcements", function()
      server.now = 7
      server:answer(stream, puts { 11 }, puts { 12, 13 })
      assert.same({ 13, "v13", 14 }, { revision(), replica:get("k").value, next_of(sub) })
      assert.equal(7, sub:heard())
      server:answer(stream, progress(0, 20))
      assert.same({ 20, 21 }, { revision(), next_of(sub) })
      assert.same({}, ready())
      assert.is_nil(sub:take())
    end)

    it("leaves out what the replica has", function()
      server:answer(stream, puts { 11, 12 }, puts { 12 }, puts { 11, 12, 13 })
      assert.same({ 13, "v13" }, { revision(), replica:get("k").value })
      local watch, revisions = replica:open_watch("k", { start_revision = 11 }), {}
      repeat
        local _, list = watch:take()
        for _, event in ipairs(list or {}) do revisions[#revisions + 1] = event.mod_revision end
      until not list
      assert.same({ 11, 12, 13 }, revisions)
    end)

    it("waits for the rest of a revision", function()
      server:answer(stream, puts({ 11, 12 }, { fragment = true }))
      assert.equal(11, revision())
      server:answer(stream, puts { 12 })
      assert.equal(12, revision())
    end)

    it("announces the replica's followers", function()
      replica:announce_feed(true)
      server:answer(stream, puts { 11 })
      assert.same({ 1 }, ready())
      replica:announce_feed(false)
      server:answer(stream, puts { 12 })
      assert.same({}, ready())
    end)

    it("announces the replica's watches that wait", function()
      local watch, tag = replica:open_watch("k", {})
      local other = replica:open_watch("other", {})
      other:arm()
      server:answer(stream, puts { 11 })
      assert.same({}, ready())
      assert.equal("events", (watch:take()))
      watch:arm()
      server:answer(stream, puts { 12 })
      assert.same({ 1 }, ready())
      assert.equal(tag, replica:next_ready())
    end)

    it("reports whether a state has changed", function()
      local _, has_changed
      replica:announce_feed(true)
      server:answer(stream, puts { 11 })
      _, has_changed = client:next_watch()
      assert.is_false(has_changed)
      server:answer(stream, canceled(0, { compact_revision = 5 }))
      _, has_changed = client:next_watch()
      assert.is_true(has_changed)
      assert.same({ "compacted", 5 }, { sub:take() })
    end)

    it("leaves failed moves to its owner", function()
      server:answer(stream, puts { 11 }, events(0, { 12 }), puts { 13 })
      assert.equal(11, revision())
      local _, has_changed = client:next_watch()
      assert.is_true(has_changed)
      local n, err = replica:feed(sub)
      assert.same({ nil, "malformed" }, { n, err.code })
    end)

    it("feeds no replica that is closed, or has another watch", function()
      replica:close()
      server:answer(stream, puts { 11 })
      sub:arm()
      assert.same({ 1 }, ready())
      assert.same({ 11 }, take(sub))
      replica = assert(core.open { replica = true, now = 0 })
      assert(replica:load_kvs(11, {}))
      local next_sub = subscribe {}
      replica:feed_from(sub)
      replica:feed_from(next_sub)
      server:answer(stream, puts { 12 })
      assert.same({ 11, { 12 } }, { revision(), take(sub) })
      sub:close()
      next_sub:close()
      assert(replica:apply(12, { { type = "delete", key = "k" } }))
    end)

    it("keeps events for later that come while the replica is in use", function()
      local newproxy = rawget(_G, "newproxy")
      server:answer(stream, puts { 11 })
      local has_run = false
      local function feed()
        has_run = true
        server:answer(stream, puts { 12 })
      end
      local function plant()
        if not newproxy then return setmetatable({}, { __gc = feed }) end
        local proxy = newproxy(true)
        getmetatable(proxy).__gc = feed
      end
      collectgarbage()
      collectgarbage("stop")
      plant()
      collectgarbage("restart")
      repeat replica:range("k") until has_run
      for tag in client.next_watch, client do
        assert.equal(1, tag)
        replica:feed(sub)
      end
      assert.equal(12, revision())
    end)
  end)

  describe("that is not read", function()
    local large = ("x"):rep(4000)

    local function grow(id, from, n)
      for revision = from, from + n - 1 do server:answer(stream, events(id, { revision }, { value = large })):read() end
    end

    local function numbers(from, n)
      local list = {}
      for i = 1, n do list[i] = from + i - 1 end
      return list
    end

    it("is left by the watch, if others share it, which can continue elsewhere", function()
      local a, b = open(2, { max_bytes = 10000 })
      grow(0, 11, 5)
      local state, next_revision, is_lagging, has_room = a:state()
      assert.same({ "idle", 14, true, false }, { state, next_revision, is_lagging, has_room })
      assert.same({ 1 }, ready())
      assert.same({ { cancel_request = {} } }, server:requests(stream))
      server:answer(stream, canceled(0), events(1, { 16 }))
      assert.same({ 16 }, take(b))
      assert.same({ 11, 12, 13 }, take(a))
      assert.same({ true, true }, { select(3, a:state()), (select(4, a:state())) })
      local _, other = server:watch()
      assert.is_true(a:attach(client, call + 1))
      assert.equal(14, server:requests(other)[1].create_request.start_revision)
      assert.is_false((select(3, a:state())))
    end)

    it("is blocked by its own window, if it has one watch, and continues when that is read", function()
      local a = open(1, { max_bytes = 10000 })
      local sent, window = 0, WINDOW
      local function flow()
        while true do
          local answer = h2.message(core.encode("WatchResponse", events(0, { 11 + sent }, { value = large })))
          window = window + (server:read().windows[stream] or 0)
          server.windows[stream] = nil
          if window < #answer then return end
          assert(sent < 10000, "there is no end")
          server:feed(h2.data(stream, answer))
          sent, window = sent + 1, window - #answer
        end
      end
      flow()
      local _, watches, is_held = client:inspect(call)
      assert.same({ 1, true, "open" }, { watches, is_held, (a:state()) })
      local before = sent
      assert.same(numbers(11, before), take(a))
      assert.is_false((select(3, client:inspect(call))))
      flow()
      assert(sent > before)
      assert.same(numbers(11 + before, sent - before), take(a))
    end)

    it("blocks no other call of its connection, even if there are many such calls", function()
      local held = {}
      for i = 1, 9 do -- together they hold more than the window of the connection
        call, stream = server:watch()
        held[i] = open(1, { max_bytes = 10000 })
        grow(0, 11, 250)
        assert.is_true((select(3, client:inspect(call))))
        assert.is_nil(server:read().windows[stream])
      end
      assert(server.windows[0] > 4 * WINDOW)
      call, stream = server:watch()
      local b = open(1)
      grow(0, 11, 200)
      assert.same(numbers(11, 200), take(b))
      for _, sub in ipairs(held) do assert.same(numbers(11, 250), take(sub)) end
    end)

    it("is no longer blocked when its watch has left", function()
      local a = open(1, { max_bytes = 10000 })
      grow(0, 11, 200)
      assert.is_true((select(3, client:inspect(call))))
      server:read()
      a:close()
      assert.is_false((select(3, client:inspect(call))))
      local b = attach()
      server:read()
      assert(server.windows[stream] > WINDOW / 2)
      server:answer(stream, created(1, 300), events(1, { 301 }))
      assert.same({ 301 }, take(b))
    end)

    it("gives all received events when the server has ended it", function()
      local a = open(1, { max_bytes = 10000 })
      grow(0, 11, 8)
      server:finish(stream, 14, "stopped")
      assert.is_nil((ending()))
      local list = take(a)
      server:read()
      assert.same(numbers(11, 8), list)
      assert.equal(14, (ending()))
      assert.equal("idle", (a:state()))
    end)

    it("gives all received events when the server resets it, and requests the rest again", function()
      local a = open(1, { max_bytes = 10000 })
      grow(0, 11, 8)
      server:feed(h2.reset(stream, "internal_error"))
      assert.equal(13, (ending()))
      local heard = take(a)
      assert.same(numbers(11, #heard), heard)
      assert.equal(11 + #heard, next_of(a))
    end)

    it("is left by a watch that has too many events, however small", function()
      local a, b = open(2, { max_bytes = 2 ^ 26 })
      local revisions, last = {}, 10
      while (a:state()) == "open" do
        for i = 1, 1024 do revisions[i] = last + i end
        last = last + 1024
        assert(last < 100000, "there is no end")
        server:answer(stream, events(0, revisions))
      end
      assert.is_true((select(3, a:state())))
      local n = 0
      for _, list in a.take, a do n = n + #list end
      assert.equal(last - 10, n)
      assert.equal("open", (b:state()))
    end)
  end)

  describe("that the server cancels", function()
    it("gives the events before, and then the reason, and nothing after it", function()
      local a, b = open(2)
      server:answer(stream, events(0, { 11 }), canceled(0, { cancel_reason = "no more" }), events(0, { 12 }),
        events(1, { 12 }))
      assert.same({ 1 }, ready())
      assert.same({ 11, { "failed", "unknown", "no more" } }, take(a))
      assert.same({}, { a:take() })
      assert.is_false(a:attach(client, call))
      assert.same({ 12 }, take(b))
    end)

    it("reports the compacted revision", function()
      local a = open(1)
      server:answer(stream, events(0, { 11 }),
        canceled(0, { compact_revision = 40, cancel_reason = "etcdserver: mvcc" }))
      assert.same({ 11, { "compacted", 40 } }, take(a))
      assert.same({}, { a:take() })
      assert.equal("failed", (a:state()))
    end)

    it("is idle without a reason, and can continue", function()
      local a = open(1)
      server:answer(stream, events(0, { 11 }), canceled(0))
      assert.equal("idle", (a:state()))
      assert.same({ 1 }, ready())
      assert.is_true(a:attach(client, call))
      assert.equal(12, server:requests(stream)[1].create_request.start_revision)
      server:answer(stream, created(1, 12), events(1, { 12 }))
      assert.same({ 11, 12 }, take(a))
    end)

    it("takes events and the cancellation from one answer", function()
      local a = open(1)
      local answer = events(0, { 11 })
      answer.canceled, answer.cancel_reason = true, "no"
      server:answer(stream, answer)
      assert.same({ 11, { "failed", "unknown", "no" } }, take(a))
    end)
  end)

  describe("that is malformed", function()
    local MOST = core.id("9223372036854775807")
    local beyond = events(0, { 11 })
    beyond.events[1].kv.mod_revision = MOST

    --- Bytes of an answer with an event.
    local function bytes_of(event) return "\90" .. string.char(#event) .. event end

    -- The input of two watches with the ids 0 and 1: answers, or bytes.
    for title, received in pairs {
      ["events go back"] = { events(0, { 12, 11 }) },
      ["events go back to no revision"] = { events(0, { 12, 0 }) },
      ["events are of no revision"] = { events(0, { 0 }) },
      ["a watch is created that was not asked for"] = { created(5, 10) },
      ["revisions are beyond what there can be"] = { beyond },
      ["a key is a number"] = { bytes_of "\18\4\8\1\24\11" },
      ["a previous kv is torn"] = { bytes_of "\18\2\24\11\26\1\10" },
      ["an answer of another watch is between pieces"] = { events(0, { 12 }, { fragment = true }), events(1, { 12 }) },
      ["an answer of an unknown watch is between fragments"] = { events(0, { 12 }, { fragment = true }), events(9, { 12
      }) },
      ["revisions go back from one piece to the next"] = { events(0, { 15 }, { fragment = true }), events(0, { 12 }) },
    } do
      it("fails all of its watches: " .. title, function()
        local a, b = open(2)
        for _, one in ipairs(received) do
          if type(one) == "table" then server:answer(stream, one) else server:feed(h2.data(stream, h2.message(one))) end
        end
        assert.same({ { "failed", "malformed" } }, take(a))
        assert.same({ { "failed", "malformed" } }, take(b))
        assert.equal(13, (ending()))
      end)
    end

    it("fails watches that get the same id, or are created at an impossible revision", function()
      for _, second in ipairs { created(4, 10), created(3, MOST) } do
        local a, b = attach(), attach()
        server:answer(stream, created(4, 10), second)
        assert.same({ { "failed", "malformed" } }, take(a))
        assert.same({ { "failed", "malformed" } }, take(b))
        call, stream = server:watch()
      end
    end)

    it("fails all of its watches, created or not, and reports that", function()
      local a, b = open(2)
      local c = attach()
      server:answer(stream, events(0, { 11 }))
      server:feed(h2.data(stream, h2.message("\255")))
      assert.same({ 11, { "failed", "malformed" } }, take(a))
      assert.same({ { "failed", "malformed" } }, take(b))
      assert.same({ { "failed", "malformed" } }, take(c))
      assert.same({}, { client:inspect(call) })
      assert.equal(13, (ending()))
      assert.equal(8, server:read().resets[stream])
      server:answer(stream, created(2, 10))
      assert.same({}, take(a))
    end)

    it("does not affect other calls", function()
      local a = open(1)
      local other, its = server:watch()
      local b = attach({}, other)
      server:feed(h2.data(stream, h2.message("\255")))
      server:answer(its, created(0, 10), events(0, { 11 }))
      assert.equal("failed", (a:state()))
      assert.same({ 11 }, take(b))
    end)
  end)

  it("leaves its watches idle, with their queues, when the connection is closed", function()
    local a, b = open(1), attach()
    server:answer(stream, events(0, { 11 }))
    client:close()
    assert.same({ "idle", "idle" }, { (a:state()), (b:state()) })
    assert.same({ 11 }, take(a))
    a:detach()
    a:arm()
    a:close()
    b:close()
  end)

  it("is left by watches that are closed, in any state", function()
    local others = open(1)
    local function large(revision) return events(1, { revision }, { value = ("x"):rep(9000) }) end
    local states = {
      creating = {},
      open = { created(1, 10) },
      ["in the middle of an answer"] = { created(1, 10), events(1, { 11 }, { fragment = true }) },
      ["ready to be read"] = { created(1, 10), events(1, { 11 }), progress(1, 12) },
      canceled = { created(1, 10), canceled(1) },
      failed = { created(1, 10), canceled(1, { cancel_reason = "no" }) },
      lagging = { created(1, 10), large(11), large(12) },
    }
    for name, received in pairs(states) do
      call, stream = server:watch()
      others = { others, (open(1)) }
      local sub = attach { max_bytes = 10000 }
      server:answer(stream, unpack(received))
      sub:arm()
      sub:close()
      sub:close()
      assert.same({ "closed" }, { sub:take() }, name)
      assert.equal("closed", (sub:state()))
      assert.equal(1, (select(2, client:inspect(call))))
      server:answer(stream, name == "creating" and created(1, 10) or events(1, { 20 }))
      server:answer(stream, events(0, { 21 }))
      assert.same({ 21 }, take(others[2]), name)
    end
  end)

  it("is left by its watches when they are collected", function()
    do
      local a = open(1)
      server:answer(stream, events(0, { 11 }))
      assert.equal("open", (a:state()))
    end
    collectgarbage()
    collectgarbage()
    assert.same({ { cancel_request = {} } }, server:requests(stream))
  end)

  it("takes no watch once it has ended, nor a watch of another call", function()
    local a = attach()
    assert.is_false(a:attach(client, call))
    server:finish(stream)
    assert.is_false(subscribe():attach(client, call))
    assert.is_false(subscribe():attach(client, 99))
    local unary = client:call("/spec/Call")
    assert.is_false(subscribe():attach(client, unary))
  end)
end)

describe("a client's connection", function()
  local server, client

  after_each(function() server:close() end)

  local function begin(options, settings)
    server = hand.new(options, settings)
    client = server.client
  end

  local function call(is_half_closed)
    local id = assert((client:call("/spec/Call", nil, true)))
    client:send(id, "ask")
    if is_half_closed ~= false then client:half_close(id) end
    return id
  end

  --- The status of a call, its text, and whether it is refused; nothing if it has not ended.
  local function ending(id)
    local message, status, text, is_refused = client:receive(id)
    if message == false then return status, text, is_refused end
  end

  describe("after a GOAWAY of the server", function()
    it("refuses unprocessed calls, and continues the others", function()
      begin()
      local a, b = call(), call()
      server:read():feed(h2.goaway(1, "no_error"))
      assert.is_nil(ending(a))
      local status, _, is_refused = ending(b)
      assert.same({ 14, true }, { status, is_refused })
      assert.is_nil((client:call("/spec/Call")))
      assert.is_false((client:health()))
      server:feed(h2.headers(1, hand.HEADERS), h2.data(1, h2.message("a")), h2.headers(1, hand.OK, { ends = true }))
      assert.equal("a", client:receive(a))
      assert.same({ 0, "", false }, { ending(a) })
    end)

    it("refuses calls that were never sent", function()
      begin()
      local a = call()
      server:feed(h2.goaway(0, "no_error")):read()
      local status, _, is_refused = ending(a)
      assert.same({ 14, true }, { status, is_refused })
    end)

    it("refuses calls that wait for others to end, which may be never", function()
      begin(nil, { max_concurrent_streams = 1 })
      local watch = server:watch()
      local a = call()
      server:read()
      assert.is_nil(ending(a))
      server:feed(h2.goaway(1, "no_error")):read()
      local status, _, is_refused = ending(a)
      assert.same({ 14, true }, { status, is_refused })
      assert.equal(0, (client:inspect(watch)))
    end)

    it("reports whether the server found its pings too frequent", function()
      begin()
      call()
      server:read():feed(h2.goaway(1, "no_error"))
      assert.is_false((select(4, client:health())))
      begin()
      call()
      server:read():feed(h2.goaway(1, "enhance_your_calm"))
      assert.is_true((select(4, client:health())))
    end)
  end)

  describe("that ends", function()
    it("refuses calls that were not sent, and not those that were", function()
      begin { keepalive = 10, keepalive_timeout = 5 }
      local a = call()
      server:read()
      client:step(10)
      server:read()
      local b = call()
      client:step(15)
      local status, _, is_refused = ending(a)
      assert.same({ 14, false }, { status, is_refused })
      status, _, is_refused = ending(b)
      assert.same({ 14, true }, { status, is_refused })
      assert.is_nil((client:call("/spec/Call")))
    end)

    it("does not report success for a call while some of its answer is missing", function()
      begin()
      local id = assert((client:call("/spec/Call")))
      server:read():feed(h2.headers(1, hand.HEADERS))
      local part = h2.message(("x"):rep(1000)):rep(16)
      for _ = 1, 65 do server:feed(h2.data(1, part)) end
      server:feed(h2.headers(1, hand.OK, { ends = true }))
      client:feed("", 0)
      local n, status = 0, nil
      for message, code in function() return client:receive(id) end do
        if message then n = n + 1 else status = code end
      end
      assert(n < 65 * 16)
      assert.equal(14, status)
    end)

    it("gives the status that has already come", function()
      begin { keepalive = 10, keepalive_timeout = 5 }
      local id = call(false)
      server:read():feed(h2.headers(1, hand.HEADERS))
      server:feed(h2.headers(1, { { "grpc-status", "5" }, { "grpc-message", "none" } }, { ends = true }))
      client:step(10)
      client:step(15)
      assert.same({ 5, "none", false }, { ending(id) })
    end)
  end)

  describe("that is silent", function()
    local options = { keepalive = 10, keepalive_timeout = 5, handshake_timeout = 3 }

    it("sends pings while it has calls, and only then", function()
      begin(options)
      assert.is_nil((client:deadline()))
      client:step(1000)
      assert.equal(0, server:read().pings)
      local id = call()
      server:read()
      client:step(1000)
      assert.equal(1, server:read().pings)
      server.now = 1001
      server:feed(h2.pong("12345678"))
      assert.equal(1011, (client:deadline()))
      client:step(1010)
      assert.equal(1, server:read().pings)
      client:step(1011)
      assert.equal(2, server:read().pings)
      server.now = 1012
      server:feed(h2.pong("12345678"))
      client:cancel(id)
      server:read()
      assert.is_nil((client:deadline()))
    end)

    it("ends when pings are not answered", function()
      begin(options)
      local id = call()
      server:read()
      client:step(10)
      server:read()
      assert.equal(15, (client:deadline()))
      client:step(14.9)
      assert.is_nil(ending(id))
      client:step(15)
      local status, _, is_refused = ending(id)
      assert.same({ 14, false }, { status, is_refused })
      assert.is_true((select(2, client:state())))
    end)

    it("ends when the server never begins", function()
      server = { client = core.client("spec", options, 0), close = function() end }
      client = server.client
      local id = call()
      client:pending()
      assert.equal(3, (client:deadline()))
      client:step(2.9)
      assert.is_false((client:health()))
      assert.is_nil(ending(id))
      client:step(3)
      assert.equal(14, (ending(id)))
      assert.is_true((select(2, client:health())))
      client:close()
    end)
  end)

  describe("with a slow peer", function()
    it("reports when there is room again", function()
      begin(nil, { initial_window_size = 1000 })
      local id = assert((client:call("/spec/Call")))
      client:send(id, ("x"):rep(3000))
      server:read()
      assert.is_true(client:has_room(id, 2005))
      assert.is_false(client:has_room(id, 2004))
      assert.is_nil((client:next()))
      server:feed(h2.window(1, 1000)):read()
      server:feed(h2.window(1, 2000)):read()
      assert.equal(id, client:next())
      assert.is_true(client:has_room(id, 0))
      client:cancel(id)
      assert.is_true(client:has_room(id, 0))
    end)
  end)
end)
