--- The queue of a lock or an election: each contender, by a call or by its own transactions, has its turn in the
-- order in which the keys were created.

local calls = require "keywatch.server.call"
local exclusion = require "keywatch.server.services.exclusion"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"

local random = require "spec.support.random"
local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local LOCK, UNLOCK = "/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock"
local CAMPAIGN, LEADER = "/v3electionpb.Election/Campaign", "/v3electionpb.Election/Leader"
local UNKNOWN = 2
local EXPIRED = "mutex: session is expired"
local FAST = require("spec.support.dose").is_small

if serving.is_etcd then return end -- looks inside the server

describe("the queue of a lock or an election", function()
  local peer, client, store, watches, ranges
  local plain = { watch = core.store_methods.watch, range = core.store_methods.range }

  before_each(function()
    watches, ranges = {}, 0
    core.store_methods.watch = function(...)
      local watch, err = plain.watch(...)
      table.insert(watches, watch)
      return watch, err
    end
    core.store_methods.range = function(self, key, opts)
      if opts and opts.prefix then ranges = ranges + 1 end
      return plain.range(self, key, opts)
    end
    peer = serving.start { now = 0 }
    client, store = peer:client(), peer.store
  end)

  after_each(function()
    core.store_methods.watch, core.store_methods.range = plain.watch, plain.range
    peer:stop()
  end)

  local function open_watches()
    local n = 0
    for _, watch in ipairs(watches) do n = n + (watch.is_closed and 0 or 1) end
    return n
  end

  local function count_of(prefix)
    return plain.range(store, prefix, { prefix = true, count_only = true }).count
  end

  --- Calls Lock with a new lease, and waits until the call stands in the queue, or has the lock.
  local function lock(name, from)
    local lease = store:lease(1000).id
    local key = name .. "/" .. core.hex(lease)
    from = from or client
    local call = from:begin_message(LOCK, { name = name, lease = lease })
    from:wait(function() return store:get(key) end)
    return { call = call, key = key, lease = lease, from = from }
  end

  local function has_lock(entry)
    return entry.call.status == 0 and rpc.answers(entry.call, LOCK)[1].key == entry.key
  end

  local function wait_for_lock(entry)
    entry.from:wait(function() return entry.call.status end)
    assert.same({ 0, "" }, { entry.call.status, entry.call.text })
  end

  local function assert_nothing_is_left(prefix)
    client:wait(function() return next(peer.server.calls) == nil end)
    assert.same({}, peer.server.queues)
    assert.equal(0, open_watches())
    assert.equal(0, count_of(prefix))
  end

  it("has one watch, and reads the keys once, however many wait", function()
    local clients, entries = { client, peer:client(), peer:client() }, {}
    local held = lock("many")
    wait_for_lock(held)
    assert.equal(0, #watches)
    local before = ranges
    for i = 1, 300 do entries[i] = lock("many", clients[i % 3 + 1]) end
    assert.same({ 1, 2 }, { #watches, ranges - before })
    store:delete(held.key)
    for i, entry in ipairs(entries) do
      wait_for_lock(entry)
      if entries[i + 1] then
        entries[i + 1].from:settle()
        assert.is_nil(entries[i + 1].call.status)
      end
      client:ask(UNLOCK, { key = entry.key })
    end
    assert.same({ 1, 2 }, { #watches, ranges - before })
    assert_nothing_is_left("many/")
  end)

  it("is the same for calls and for clients that contend by transactions, whatever happens to their keys", function()
    local seed = tonumber(os.getenv("KW_SEED")) or os.time()
    local rnd = random.new(seed)
    local clients, entries = { client, peer:client(), peer:client() }, {} -- in the order of creation
    local last = 0

    --- Another client's key, made by its own transaction.
    local function contend()
      last = last + 1
      local key = ("r/foreign%d"):format(last)
      assert(store:txn { compare = { { key = key, create_revision = 0 } }, success = { { put = key, value = "" } } })
      table.insert(entries, { key = key })
    end

    local function pick_waiting()
      local waiting = {}
      for _, entry in ipairs(entries) do
        if entry.call and not entry.call.status and not entry.is_gone then table.insert(waiting, entry) end
      end
      return #waiting > 0 and rnd:pick(waiting) or nil
    end

    local acts = {
      { 40, function() table.insert(entries, lock("r", rnd:pick(clients))) end },
      { 15, contend },
      { 8, function() -- a call is cancelled
        local entry = pick_waiting()
        if not entry then return end
        entry.from:cancel(entry.call)
        entry.is_gone, entry.is_cancelled = true, true
        entry.from:wait(function() return not store:get(entry.key) end)
      end },
      { 5, function() -- the lease of a waiting call ends
        local entry = pick_waiting()
        if not entry then return end
        entry.is_gone = true
        store:lease_by_id(entry.lease):revoke()
      end },
      { 8, function() -- another client deletes a key
        local entry = #entries > 0 and rnd:pick(entries)
        if not entry or entry.is_gone then return end
        entry.is_gone = true
        store:delete(entry.key)
      end },
      { 8, function() -- a key is put again, and stays where it is
        local entry = #entries > 0 and rnd:pick(entries)
        if entry and not entry.is_gone then store:put(entry.key, "again", { lease = entry.lease }) end
      end },
      { 2, function() -- several go at once
        local ops = {}
        for _ = 1, 5 do
          local entry = #entries > 0 and rnd:pick(entries)
          if entry and not entry.is_gone then
            entry.is_gone = true
            table.insert(ops, { delete = entry.key })
          end
        end
        store:txn { success = ops }
      end },
      { 25, function() -- the owner gives the lock back
        for _, entry in ipairs(entries) do
          if not entry.is_gone then
            entry.is_gone = true
            store:delete(entry.key)
            return
          end
        end
      end },
    }

    --- Compares all calls with the order of the keys.
    local function compare()
      local has_owner, kept = false, {}
      for _, entry in ipairs(entries) do
        local call = not entry.is_cancelled and entry.call
        if call and not has_owner then
          entry.from:wait(function() return call.status end)
          if entry.is_gone and not entry.had_lock then
            assert.same({ UNKNOWN, EXPIRED }, { call.status, call.text })
          else
            assert.is_true(has_lock(entry))
            entry.had_lock = true
          end
        elseif call then
          assert.is_nil(call.status)
        end
        if not entry.is_gone then has_owner = true end
        if not entry.is_gone or call and not call.status then table.insert(kept, entry) end
      end
      entries = kept
      assert.is_true(open_watches() <= 1)
    end

    local ok, err = pcall(function()
      for _ = 1, FAST and 60 or 300 do
        rnd:weighted(acts)()
        for _, each in ipairs(clients) do each:settle() end
        compare()
      end
      while #entries > 0 do
        acts[#acts][2]()
        compare()
      end
      assert_nothing_is_left("r/")
    end)
    if not ok then error(("KW_SEED=%d: %s"):format(seed, tostring(err)), 0) end
  end)

  it("answers at once the lease that is the owner, while others wait", function()
    local held = lock("again")
    for _ = 1, 5 do lock("again") end
    store:put("elsewhere", "")
    local got = assert(client:ask(LOCK, { name = "again", lease = held.lease }))
    assert.same({ held.key, serving.revision(client) }, { got.key, got.header.revision })
  end)

  it("moves a call whose key was deleted and put again to its later position", function()
    local held, first = lock("anew"), lock("anew")
    store:delete(first.key)
    local between = lock("anew")
    local again = client:begin_message(LOCK, { name = "anew", lease = first.lease })
    client:wait(function() return store:get(first.key) end)
    store:delete(held.key)
    assert.same({ UNKNOWN, EXPIRED }, { client:finish(first.call) })
    wait_for_lock(between)
    client:settle()
    assert.is_nil(again.status)
    store:delete(between.key)
    assert.equal(0, (client:finish(again)))
  end)

  it("keeps few keys of other contenders, and waits for all of them", function()
    for i = 1, 250 do store:put("dir/a" .. i, "") end
    local first = lock("dir")
    for i = 1, 250 do store:put("dir/b" .. i, "") end
    client:settle()
    local last = lock("dir")
    client:settle()
    client:wait(function() return peer.server.queues["dir/"].keys end)
    assert.is_true(peer.server.queues["dir/"].keys.count <= 104)
    for i = 250, 1, -1 do
      assert.is_nil(first.call.status)
      store:delete("dir/a" .. i)
      if i % 10 == 0 then client:settle() end
    end
    wait_for_lock(first)
    store:delete(first.key)
    for i = 1, 250 do
      assert.is_nil(last.call.status)
      store:delete("dir/b" .. i)
      if i % 10 == 0 then client:settle() end
    end
    wait_for_lock(last)
    store:delete(last.key)
    assert_nothing_is_left("dir/")
  end)

  it("keeps few later keys, however many come", function()
    local held, waiting = lock("later"), lock("later")
    for i = 1, 1000 do
      store:put("later/" .. i .. "/x", "")
      if i % 50 == 0 then client:settle() end
    end
    client:wait(function() return peer.server.queues["later/"].keys end)
    assert.is_true(peer.server.queues["later/"].keys.count <= 102)
    store:delete(held.key)
    wait_for_lock(waiting)
  end)

  it("continues after its history was compacted", function()
    local held, first, second = lock("c"), lock("c"), lock("c")
    local ballast = ("x"):rep(100000)
    for i = 1, 200 do store:put("c/ballast", ballast .. i) end -- more than a watch queues
    store:delete("c/ballast")
    store:delete(held.key)
    store:compact(store:status().revision)
    wait_for_lock(first)
    assert.equal(2, #watches)
    client:settle()
    assert.is_nil(second.call.status)
    store:delete(first.key)
    wait_for_lock(second)
    store:delete(second.key)
    assert_nothing_is_left("c/")
  end)

  it("covers the names below its own, and not those above or beside", function()
    local beside, inner = lock("a0"), lock("a/b")
    local outer = lock("a") -- waits for a/b/…, which its prefix covers
    local second = lock("a/b")
    client:settle()
    wait_for_lock(beside)
    wait_for_lock(inner)
    assert.same({}, { outer.call.status, second.call.status })
    assert.equal(2, open_watches())
    store:delete(inner.key)
    wait_for_lock(outer)
    wait_for_lock(second)
    store:delete(outer.key)
    store:delete(second.key)
    assert_nothing_is_left("a/")
  end)

  --- A server without sockets: `answers` has the answers by call.
  local function bare_server()
    local server = { store = store, queues = {}, calls = {}, middleware = {}, answers = {} }
    server.object = {
      send = function(_, id, bytes) server.answers[id] = bytes end,
      finish = function() end,
    }
    return server
  end

  --- Begins a call of a bare server that waits for the turn of a key. Returns the handler's results.
  local function begin(server, id, prefix, key, created)
    local call = { id = id, path = "/a/" .. id, server = server, method = {}, is_over = false }
    server.calls[id] = call
    return exclusion.answer_in_turn(server, call, prefix, key, created, function() return "answer of " .. id end)
  end

  --- Ends all calls of a bare server, as if their clients had disconnected.
  local function end_calls(server)
    setmetatable({ server = server }, getmetatable(peer.server.dispatcher)):finish_all(1)
  end

  it("deletes the key of a call that ends when its turn comes", function()
    store:put("turn/held", "")
    local entered = store:put("turn/late", "")
    local server, resume, received = bare_server(), calls.resume, 0
    calls.resume = function(call, ...)
      resume(call, ...)
      received = received + 1
      end_calls(server) -- before the task of the call runs
    end
    local ok, err = pcall(keywatch.run, function()
      begin(server, 1, "turn/", "turn/late", entered.revision)
      while not server.queues["turn/"].watch do keywatch.sleep(0) end
      store:delete("turn/held")
      while count_of("turn/") > 0 do keywatch.sleep(0) end
    end)
    calls.resume = resume
    assert(ok, err)
    assert.same({ 1, {}, {} }, { received, server.answers, server.queues })
    assert.equal(0, open_watches())
  end)

  it("deletes the key of a call that ended before it could wait", function()
    store:put("over/held", "")
    local entered = store:put("over/late", "")
    local server = bare_server()
    core.store_methods.range = function(...)
      end_calls(server)
      return plain.range(...)
    end
    assert.has_error(function() begin(server, 1, "over/", "over/late", entered.revision) end)
    assert.same({ {}, 1 }, { server.queues, count_of("over/") })
  end)

  it("deletes the key of a call that is cancelled during a long write", function()
    for i = 1, 20000 do store:put("many/" .. i, "") end
    local entered, server = store:put("over/late", ""), bare_server()
    core.store_methods.range = function(...)
      end_calls(server)
      return plain.range(...)
    end
    keywatch.run(function()
      local long = keywatch.spawn(store.delete, store, "many/", { prefix = true })
      local task
      task = keywatch.spawn(function()
        while not store:is_busy() do keywatch.sleep(0) end
        task:cancel()
        begin(server, 1, "over/", "over/late", entered.revision)
      end)
      assert.equal("cancelled", select(2, task:join()).code)
      assert.is_true(long:join())
    end)
    core.store_methods.range = plain.range
    assert.equal(0, count_of("over/"))
  end)

  it("has no task for a call that waits", function()
    local _, scheduler = driver.get().inside()
    local function tasks()
      local n = 0
      for _ in pairs(scheduler.tasks) do n = n + 1 end
      return n
    end
    local held = lock("idle")
    wait_for_lock(held)
    local before, entries = tasks(), {}
    for i = 1, 100 do entries[i] = lock("idle") end
    client:settle()
    assert.equal(before + 1, tasks()) -- the keeper
    for _, known in pairs(peer.server.calls) do assert.is_nil(known.task) end
    store:delete(held.key)
    for _, entry in ipairs(entries) do
      wait_for_lock(entry)
      store:delete(entry.key)
    end
    assert_nothing_is_left("idle/")
    assert.equal(before, tasks())
  end)

  --- Has a watch fail at the next call of `next`. Returns the error.
  local function break_watch(watch)
    local err = core.new_error("corrupt")
    watch.next = function() return nil, err end
    return err
  end

  it("gets another watch after an error, which no call notices", function()
    local held, entries = lock("error"), {}
    wait_for_lock(held)
    for i = 1, 20 do entries[i] = lock("error") end
    client:settle()
    for i = 1, 3 do
      break_watch(watches[i])
      store:put(held.key, "again") -- the keeper reads on
      client:wait(function() return #watches > i end)
      store:put(held.key, "and again")
      client:settle()
    end
    assert.equal(1, open_watches())
    store:delete(held.key)
    for _, entry in ipairs(entries) do
      wait_for_lock(entry)
      store:delete(entry.key)
    end
    assert.equal(4, #watches)
    assert_nothing_is_left("error/")
  end)

  for _, broken in ipairs { "watch", "range" } do
    it("sends a permanent error to all calls, and then takes new calls: " .. broken, function()
      local held, entries = lock("error"), {}
      wait_for_lock(held)
      for i = 1, 100 do entries[i] = lock("error") end
      client:settle()
      local whole = core.store_methods[broken]
      local err = break_watch(watches[1])
      core.store_methods[broken] = function(...)
        if broken == "range" then return nil, err end
        local watch = whole(...)
        break_watch(watch)
        return watch
      end
      store:put(held.key, "again")
      for _, entry in ipairs(entries) do
        client:wait(function() return entry.call.status end)
        assert.same({ UNKNOWN, err.message }, { entry.call.status, entry.call.text })
      end
      core.store_methods[broken] = whole
      client:wait(function() return count_of("error/") == 1 end)
      assert.same({ {}, 0 }, { peer.server.queues, open_watches() })
      local last = lock("error")
      client:settle()
      assert.is_nil(last.call.status)
      store:delete(held.key)
      wait_for_lock(last)
      store:delete(last.key)
      assert_nothing_is_left("error/")
    end)
  end

  it("lets no call win while earlier keys may still be unread", function()
    local server = bare_server()
    store:put("behind/held", "")
    keywatch.run(function()
      local never = store:status().revision + 1000
      begin(server, "never", "behind/", "behind/never", never)
      for _ = 1, 3 do keywatch.sleep(0) end
      store:delete("behind/held")
      for _ = 1, 3 do keywatch.sleep(0) end
      assert.equal(0, server.queues["behind/"].keys.count)
      store:put("behind/older", "")
      local entered = store:put("behind/me", "").revision
      begin(server, "me", "behind/", "behind/me", entered)
      for _ = 1, 10 do keywatch.sleep(0) end
      assert.same({}, server.answers)
      store:delete("behind/older")
      while not server.answers.me do keywatch.sleep(0) end
      assert.same({ me = "answer of me" }, server.answers)
      end_calls(server)
    end)
    assert.same({}, server.queues)
    assert.equal(0, open_watches())
  end)

  it("outlives the run in which its calls have begun", function()
    local server = bare_server()
    store:put("run/held", "")
    keywatch.run(function()
      begin(server, "later", "run/", "run/later", store:put("run/later", "").revision)
      while not server.queues["run/"].watch do keywatch.sleep(0) end
    end)
    assert.same({}, server.answers)
    store:delete("run/held")
    keywatch.run(function()
      while not server.answers.later do keywatch.sleep(0) end
    end)
    assert.same({}, server.queues)
    assert.equal(0, open_watches())
  end)

  it("is left by all calls when the connection of its reader closes", function()
    local other = peer:client()
    local held = lock("gone")
    for _ = 1, 50 do lock("gone", other) end
    local last = lock("gone")
    other:close()
    client:wait(function() return count_of("gone/") == 2 end)
    assert.is_nil(last.call.status)
    store:delete(held.key)
    wait_for_lock(last)
    store:delete(last.key)
    assert_nothing_is_left("gone/")
  end)

  it("ends with the server", function()
    lock("closed")
    for _ = 1, 20 do lock("closed") end
    peer.server:close()
    client:wait(function() return open_watches() == 0 end)
    assert.same({}, peer.server.queues)
  end)

  it("has the same leader of an election as the store", function()
    local function campaign(value)
      local lease = store:lease(1000).id
      client:begin_message(CAMPAIGN, { name = "e", lease = lease, value = value })
      client:wait(function() return store:get("e/" .. core.hex(lease)) end)
      return "e/" .. core.hex(lease)
    end
    local keys = { campaign("a"), campaign("b"), campaign("c") }
    local before = ranges
    assert.equal("a", client:ask(LEADER, { name = "e" }).kv.value)
    assert.equal(before, ranges) -- the queue knows
    store:put(keys[1], "a2")
    assert.equal("a2", client:ask(LEADER, { name = "e" }).kv.value)
    store:delete(keys[1])
    assert.equal("b", exclusion.owner(peer.server, "e/").value) -- the queue does not know of it yet
    client:settle()
    store:delete(keys[2])
    store:put(keys[2], "b again")
    assert.equal("c", exclusion.owner(peer.server, "e/").value)
    assert.equal("c", client:ask(LEADER, { name = "e" }).kv.value)
  end)

  it("has the smaller of two keys first that one transaction has put", function()
    store:put("e/first", "")
    local call = client:begin_message(CAMPAIGN, { name = "e", lease = store:lease(1000).id })
    client:wait(function() return next(peer.server.queues) end)
    store:txn { success = { { put = "e/y", value = "y" }, { put = "e/x", value = "x" } } }
    client:begin_message(CAMPAIGN, { name = "e", lease = store:lease(1000).id })
    client:wait(function() return count_of("e/") == 5 end)
    store:delete("e/first")
    client:finish(call)
    store:delete(rpc.answers(call, CAMPAIGN)[1].leader.key)
    client:settle()
    assert.equal(1, open_watches())
    assert.equal("x", client:ask(LEADER, { name = "e" }).kv.value)
  end)
end)
