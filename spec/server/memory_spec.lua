--- Failed allocations in a server: no data is lost, and no client gets a wrong result.
--
-- In builds with a probe the n-th allocation of the core fails, for n = 1, 2, 3, … until the request makes fewer
-- allocations. A call that is answered has happened, and one that fails with a status has not. If only the connection
-- ends, the call has happened completely or not at all. Other calls are served as usual, and no memory leaks.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local probe = core.probe

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"
local starve = require "spec.support.starve"
local state = require "spec.support.state"
local within = require "spec.support.within"

if not probe then
  describe("a release build", function()
    it("has no probe that could let memory run out", function()
      assert.is_nil(probe)
    end)
  end)
  return
end

local paths = pair.paths

local function encoded(method, request) return core.encode(pair.request_name(method), request) end

local function call(method, request, is_late)
  local message = h2.message(encoded(method, request))
  if not is_late then return h2.request(1, paths[method]) .. h2.data(1, message, { ends = true }) end
  return h2.request(1, paths[method]) .. h2.data_in_parts(1, message, 7) .. h2.data(1, "", { ends = true })
end

local function stream(method, ...)
  local bytes = { h2.request(1, paths[method]) }
  for _, request in ipairs { ... } do bytes[#bytes + 1] = h2.data(1, h2.message(encoded(method, request))) end
  return table.concat(bytes)
end

local everything = { key = "\0", range_end = "\0" }

local nested = {
  compare = { { key = "k1", target = "VERSION", result = "GREATER", version = 0 } },
  success = {
    { request_put = { key = "new", value = ("x"):rep(300), lease = 3, prev_kv = true } },
    { request_range = everything },
    { request_txn = { failure = { { request_put = { key = "never" } } },
      success = { { request_delete_range = { key = "k", range_end = "l", prev_kv = true } } } } },
  },
}

local unary = {
  { "a put", call("Put", { key = "a", value = "1" }) },
  { "a put that comes in pieces", call("Put", { key = "a", value = ("v"):rep(100) }, true) },
  { "a put with a lease", call("Put", { key = "k1", value = "1", lease = 3, prev_kv = true }) },
  { "a put of a large value", call("Put", { key = "k1", value = ("v"):rep(10000) }) },
  { "a delete", call("DeleteRange", { key = "k", range_end = "l", prev_kv = true }) },
  { "a transaction", call("Txn", nested) },
  { "a range", call("Range", everything) },
  { "a range that is large", call("Range", everything), large = true },
  { "a compaction", call("Compact", { revision = 8 }) },
  { "a compaction that is physical", call("Compact", { revision = 8, physical = true }) },
  { "the grant of a lease", call("LeaseGrant", { ID = 9, TTL = 10 }) },
  { "the revocation of a lease", call("LeaseRevoke", { ID = 3 }) },
  { "the time that a lease has left", call("LeaseTimeToLive", { ID = 3, keys = true }) },
  { "the list of leases", call("LeaseLeases", {}) },
  { "a call that fails", call("Put", {}) },
  { "a call of what there is not", h2.call(1, "/nope/nope", "") },
  { "a call that is malformed", h2.request(1, paths.Put, { ["grpc-timeout"] = "no" }, { ends = true }) },
  { "a lease that is kept alive", stream("LeaseKeepAlive", { ID = 3 }, { ID = 4 }) .. h2.data(1, "", { ends = true }) },
}

--- A server with some keys, one connection that is looked at, and another one.
local function begin(is_large)
  local host = pair.host()
  host.store:lease(100, { id = 3 })
  for i = 1, 12 do host.store:put("k" .. i, ("v"):rep(is_large and 9000 or 10), { lease = i % 2 * 3 }) end
  local other = host:client()
  assert(other:unary("Range", { key = "k1" }))
  local raw = host:raw(h2.hello { initial_window_size = 2 ^ 24 } .. h2.window(0, 2 ^ 24))
  host:pump()
  return host, raw, other
end

local function is_alive(raw) return not raw:is_done() end

--- Returns whether the call has ended, and its status.
local function outcome(raw)
  local it = raw.reader:stream(1)
  if it.reset and not it.is_ended then return "reset" end
  return raw.reader:status(1) or (is_alive(raw) and "nothing" or "gone")
end

local function is_same(a, b) return pcall(assert.same, a, b) end

local function serves(other) return other:unary("Put", { key = "other", value = "x" }) ~= nil end

--- Declares a test of fn(during, one, hand, other), which runs again for every allocation that fails in what
-- during(act) calls, with a server of its own. during returns whether the allocation was reached.
local function starved(title, fn)
  it(title, function()
    starve.try_each(function(n)
      local one, hand, other = begin()
      local is_reached
      fn(function(act)
        is_reached = starve.during(probe.fail_core, n, act)
        return is_reached
      end, one, hand, other)
      one:close()
      return is_reached
    end)
  end)
end

describe("where memory runs out #slow,", function()
  setup(function() if jit then jit.off() end end) -- its compiler asks for memory too
  teardown(function() if jit then jit.on() end end)

  for _, request in ipairs(unary) do
    it(request[1] .. " happens and is answered, or fails and has not happened", function()
      local host, raw = begin(request.large)
      local before = state.of(host.store)
      raw:say(request[2])
      local expected, messages = raw.reader:status(1), raw.reader:messages(1)
      local after = state.of(host.store)
      host:close()

      starve.try_each(function(n)
        local one, hand, other = begin(request.large)
        local is_come_to = starve.during(probe.fail_core, n, function() hand:say(request[2]) end)
        one:pump()
        probe.check(one.store)
        local how, now = outcome(hand), state.of(one.store)
        if how == expected and #hand.reader:messages(1) == #messages then
          assert.same(messages, (hand.reader:messages(1)))
          assert.same(after, now)
        elseif type(how) == "number" then
          assert.equal(8, how, "allocation " .. n)
          assert.same(before, now)
        else
          assert(how ~= "nothing", "no word of the call")
          assert(is_same(before, now) or is_same(after, now))
        end
        assert.is_true(serves(other))
        if is_alive(hand) then
          hand:say(h2.call(3, paths.Range, encoded("Range", { key = "k" })))
          assert.equal(0, (hand.reader:status(3)))
        end
        one:close()
        return is_come_to
      end)
    end)
  end

  it("an answer of Lua resets its call, and the driver is notified", function()
    local host, raw = begin()
    host.server:mount("/spec/Stream", true)
    raw:say(h2.request(1, "/spec/Stream"))
    local id = host.server:next_news()
    assert.is_false((select(3, raw.peer:state())))
    probe.fail_core(1)
    local is_sent, err = pcall(host.server.send, host.server, id, ("x"):rep(100000))
    probe.fail_none()
    assert.is_false(is_sent)
    assert.matches("not enough memory", err)
    assert.is_true((select(3, raw.peer:state())))
    raw:pull()
    assert.equal("reset", outcome(raw))
    host:close()
  end)

  --- Checks a watch that is still open: it has every revision from `first` on, and continues.
  local function check_watch(hand, one, first)
    if outcome(hand) ~= "nothing" then return end
    local revision, is_created = first, false
    for _, message in ipairs((hand.reader:messages(1))) do
      local response = core.decode("WatchResponse", message)
      if response.canceled then return end -- it was not created, and the client knows
      is_created = is_created or response.created
      for _, event in ipairs(response.events or {}) do
        assert.equal(revision, event.kv.mod_revision)
        revision = revision + 1
      end
    end
    assert.is_true(is_created)
    assert.equal(one.store:status().revision + 1, revision)
  end

  starved("a watch is created and gets all events, or its client gets an error", function(during, one, hand, other)
    during(function()
      hand:say(stream("Watch", { create_request = { key = "w", prev_kv = true, progress_notify = true } }))
      for i = 1, 3 do one.store:put("w", tostring(i)) end
      one:pump()
    end)
    local revision = one.store:status().revision
    one.store:put("w", "last")
    one:pump()
    probe.check(one.store)
    assert(revision == 13 + 3 or revision == 13 + 2)
    check_watch(hand, one, 14)
    assert.is_true(serves(other))
  end)

  it("a watch of the past gets all events, or an error", function()
    for _, size in ipairs { 10, 9000 } do
      starve.try_each(function(n)
        local one, hand, other = begin()
        for _ = 1, 20 do one.store:put("w", ("v"):rep(size)) end
        local is_come_to = starve.during(probe.fail_core, n, function()
          hand:say(stream("Watch", { create_request = { key = "w", start_revision = 14, prev_kv = true } }))
        end)
        one.store:put("w", "last")
        one:pump()
        probe.check(one.store)
        check_watch(hand, one, 14)
        assert.is_true(serves(other))
        one:close()
        return is_come_to
      end)
    end
  end)

  starved("two watches of a stream affect neither each other nor others", function(during, one, hand, other)
    local well = other:stream("Watch")
    well:ask { create_request = { key = "w" } }
    hand:say(stream("Watch", { create_request = { key = "w" } }, { create_request = { key = "w", range_end = "x" } }))
    during(function()
      hand:say(h2.data(1, h2.message(encoded("Watch", { cancel_request = { watch_id = 1 } }))))
      one.store:put("w", "1")
      hand:say(h2.data(1, h2.message(encoded("Watch", { progress_request = {} }))))
    end)
    local revision = one.store:status().revision
    one.store:put("w", "2")
    one:pump()
    probe.check(one.store)
    local status = well:status()
    if status == nil and not select(2, other.client:state()) and not select(2, other.peer:state()) then
      local received = well.client.returns[well.call]
      local last = core.decode("WatchResponse", received[#received]).events
      assert.equal(revision + 1, last[#last].kv.mod_revision)
    end
  end)

  starved("a connection is not accepted, and the next one is", function(during, one, _, other)
    local peer
    local is_reached = during(function() peer = one.server:accept(one.now) end)
    assert(is_reached == (peer == nil))
    if peer then peer:close() end
    assert.equal(2, one.server:connections())
    assert.is_true(serves(other))
  end)

  it("a server is not created, and the next one is", function()
    starve.try_each(function(n)
      local store = require("keywatch").open { now = 0 }
      local server
      local is_come_to = starve.during(probe.fail_core, n, function() server = core.serve(store) end)
      if server then server:close() end
      core.serve(store):close()
      store:close()
      local bare
      is_come_to = starve.during(probe.fail_core, n, function() bare = core.serve() end) or is_come_to
      if bare then bare:close() end
      return is_come_to
    end)
  end)

  starved("a server is drained", function(during, one, hand)
    hand:say(stream("Watch", { create_request = { key = "w" } }))
    during(function()
      one.server:drain(5, one.now)
      one:pump()
    end)
    one:pump()
    local how = outcome(hand)
    assert(how == 14 or how == "gone" or how == "reset", how)
  end)

  starved("a call that Lua answers is answered, or fails", function(during, one, hand, other)
    one.server:mount("/spec/Call")
    during(function()
      hand:say(h2.call(1, "/spec/Call", "ask"))
      for id, is_new in one.server.next_news, one.server do
        if is_new then
          one.server:receive(id)
          one.server:send(id, "answer")
          one.server:finish(id, 0, "")
        end
      end
      one:pump()
    end)
    one:pump()
    for _ in one.server.next_news, one.server do end -- luacheck: ignore 542
    local how = outcome(hand)
    if how == 0 then assert.same({ "answer" }, (hand.reader:messages(1))) end
    assert.is_true(serves(other))
  end)

  starved("hosts and fixed answers are added, or an error is raised", function(during, one, _, other)
    during(function()
      one.server:add_host "host"
      one.server:fix_answer("/fixed", "a/b", "body")
    end)
    assert.is_true(serves(other))
  end)

  starved("a fixed answer is sent, or its connection ends", function(during, one, _, other)
    local body, peer = ("x"):rep(5000), one.server:accept(one.now)
    one.server:fix_answer("/fixed", "a/b", body)
    during(function() peer:feed("GET /fixed HTTP/1.1\r\nhost: host\r\n\r\n", one.now) end)
    local got = peer:pending()
    if not got:find("^HTTP/1.1 503 ") and got:sub(-#body) ~= body then assert.is_true(select(2, peer:state())) end
    assert.is_nil((one.server:next_news()))
    peer:close()
    assert.is_true(serves(other))
  end)

  local function take_head(server, peer, now)
    peer:feed("GET / HTTP/1.1\r\nhost: host\r\n\r\n", now)
    local id = server:next_news()
    return id and server:head(id) and id
  end

  setup(function() -- a call of `head` keeps memory for the next ones
    local one = pair.host()
    take_head(one.server, one.server:accept(one.now), one.now)
    one:close()
  end)

  starved("an HTTP request that Lua answers has a whole answer, or its connection ends", function(during, one, _, other)
    local body, peer, got = ("x"):rep(5000), one.server:accept(one.now), ""
    during(function()
      local id = take_head(one.server, peer, one.now)
      if id then one.server:answer(id, 200, { "content-type", "a/b" }, body) end
      got = peer:pending()
    end)
    got = got .. peer:pending()
    if not got:find("^HTTP/1.1 503 ") and got:sub(-#body) ~= body then assert.is_true(select(2, peer:state())) end
    peer:close()
    for _ in one.server.next_news, one.server do end -- luacheck: ignore 542
    assert.is_true(serves(other))
  end)

  starved("a call that Lua intercepts proceeds, or fails and has not happened", function(during, one, hand, other)
    local before = one.store:status().revision
    one.server:intercept()
    local function proceed()
      for id, is_new in one.server.next_news, one.server do
        if is_new then
          one.server:request(id)
          one.server:proceed(id)
        end
      end
      one:pump()
    end
    during(function()
      hand:say(call("Put", { key = "a", value = "1" }))
      proceed()
    end)
    one:pump()
    proceed()
    local how, now = outcome(hand), one.store:status().revision
    assert(how ~= "nothing", "no word of the call")
    if type(how) == "number" then assert.equal(how == 0 and before + 1 or before, now) end
    local id = other:start("Range", nil, encoded("Range", { key = "k1" }))
    other.client:half_close(id)
    one:pump()
    proceed()
    other:take()
    assert.equal(0, other.returns[id].status)
  end)

  starved("a client's calls end, or its connection does", function(during, one, _, other)
    local client, id
    during(function()
      client = one:client()
      id = client:start("Range", nil, encoded("Range", everything))
      client.client:half_close(id)
      local watch = client:start("Watch", nil, encoded("Watch", { create_request = { key = "w" } }))
      one:pump()
      one.store:put("w", "1")
      one:pump()
      client.client:cancel(watch)
      one:pump()
    end)
    if client then
      one:pump()
      client:take()
      local is_done = select(2, client.client:state()) or select(2, client.peer:state())
      if id and not is_done then assert.truthy(client.returns[id].status) end
      if client.returns[id] and client.returns[id].status == 0 then assert.equal(1, #client.returns[id]) end
    end
    assert.is_true(serves(other))
    probe.check(one.store)
  end)
end)

describe("when memory runs out in a world #starved", function()
  it("a server that cannot be started frees its address", within.world(function(world)
    local server = world.server
    local n, is_come_to = 0
    repeat
      n = n + 1
      server:stop()
      is_come_to = starve.during(probe.fail_core, n, function() server:start() end)
    until not is_come_to
    assert.is_true(n > 10)
    server:start()
  end))

  it("a kept lease is renewed by another call", within.world(function(world)
    local server = world.server
    local client = keywatch.connect(server.url)
    local lease = client:lease(60):keep()
    for n = 1, 60 do
      probe.fail_core(n)
      keywatch.sleep(60)
      probe.fail_none()
      assert.is_nil(lease:error())
    end
  end))
end)
