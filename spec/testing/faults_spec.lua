--- Faults of requests: the client's errors, whether the write was done, and which requests a rule applies to.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local dose = require "spec.support.dose"

--- The code of a failed request, and whether it may have been done; or "done".
local function outcome(result, err)
  if result ~= nil or err == nil then return "done" end
  return err.code, err.maybe_done
end

local tag = require("spec.support.vm").how == "valgrind" and " #slow" or "" -- gc has them, and valgrind has not
local within = require "spec.support.within"

describe("a request" .. tag, function()
  --- A test in a world: fn(world, client, store).
  local function in_world(fn, opts)
    return within.world(function(world) fn(world, world:client(opts), world.server.store) end)
  end

  it("that is refused fails with any error, and was not done", in_world(function(world, client, store)
    for _, code in ipairs { "no_space", "too_many_requests", "permission_denied", "lease_not_found", "corrupt" } do
      local rule = world:fault { "refuse", error = code, count = 1 }
      assert.same({ code }, { outcome(client:put("a", "")) })
      assert.equal(1, rule.hits)
      rule:stop()
    end
    world:fault { "refuse", error = { grpc_status = 9, message = "own words" }, count = 1 }
    local _, err = client:put("a", "")
    assert.same({ "failed_precondition", "own words" }, { err.code, err.message })
    assert.same({ 1, 6 }, { store:status().revision, world.counts.refuse })
  end))

  it("that finds no leader is in doubt if it writes, and is repeated if it reads", in_world(function(world, client)
    world:fault { "refuse", method = "put", error = "no_leader", count = 1 }
    local _, err = client:put("a", "")
    assert.same({ "etcdserver: no leader", true }, { err.message, err.maybe_done })
    world:fault { "refuse", method = "get", error = "no_leader", count = 3 }
    assert.same({ "done", 4 }, { outcome(client:get("a")), world.counts.refuse })
    world:fault { "refuse", error = "no_leader" }
    assert.equal("unavailable", (outcome(client:get("a", { timeout = 5 }))))
  end))

  it("that is delayed takes that long, or times out", in_world(function(world, client, store)
    local rule = world:fault { "delay", seconds = 3 }
    assert.same({ "done" }, { outcome(client:put("a", "")) })
    assert.equal(3, keywatch.now())
    assert.same({ "deadline_exceeded", true }, { outcome(client:put("b", "", { timeout = 1 })) })
    assert.same({ "deadline_exceeded" }, { outcome(client:get("a", { timeout = 1 })) })
    rule:stop()
    keywatch.sleep(5)
    assert.is_nil(store:get("b")) -- the server has noticed the cancellation
    world:fault { "delay", seconds = { 1, 2 }, count = 1 }
    local began = keywatch.now()
    client:get("a")
    local taken = keywatch.now() - began
    assert(taken >= 1 and taken < 2, taken)
  end))

  it("that hangs is not done, and times out", in_world(function(world, client, store)
    world:fault { "hang", count = 2 }
    assert.same({ "deadline_exceeded", true }, { outcome(client:put("a", "")) })
    assert.same({ "deadline_exceeded", 20, nil }, { outcome(client:get("a")), keywatch.now(), (store:get("a")) })
    assert.same({ "done" }, { outcome(client:put("a", "")) })
  end))

  it("that is lost with its connection is in doubt if it writes, and is repeated if it reads", in_world(
    function(world, client, store)
      world:fault { "lose_request", method = "put", count = 1 }
      assert.same({ "unavailable", true }, { outcome(client:put("a", "")) })
      assert.is_nil(store:get("a"))
      world:fault { "lose_request", method = "get", count = 3 }
      assert.same({ "done", 4 }, { outcome(client:get("a")), world.counts.lose_request })
      assert.same({ "done" }, { outcome(client:put("a", "")) })
    end))

  it("whose answer is lost with its connection was done", in_world(function(world, client, store)
    world:fault { "lose_answer", count = 1 }
    assert.same({ "unavailable", true }, { outcome(client:put("a", "1")) })
    assert.equal("1", store:get("a").value)
    world:fault { "lose_answer", method = "txn", count = 1 }
    assert.same({ "unavailable", true }, { outcome(client:txn { success = { { put = "b", value = "2" } } }) })
    assert.equal("2", store:get("b").value)
    world:fault { "lose_answer", method = "get", count = 2 }
    assert.same({ "1", 4 }, { client:get("a").value, world.counts.lose_answer })
    world:fault { "lose_answer", method = "lease", count = 1 }
    assert.same({ "unavailable", true }, { outcome(client:lease(60)) })
    assert.equal(1, #store:leases())
  end))

  it("after which the server is silent was done, and a new connection answers", in_world(function(world, client, store)
    world:fault { "mute", count = 1 }
    assert.same({ "deadline_exceeded", true }, { outcome(client:put("a", "1", { timeout = 5 })) })
    assert.same({ "1", "1", 1 }, { store:get("a").value, client:get("a", { timeout = 60 }).value, world.counts.mute })
  end))

  it("is reported to on_call, with its attempts", function()
    local attempts = {}
    in_world(function(world, client)
      world:fault { "lose_request", method = "get", count = 2 }
      client:get("a")
      client:put("a", "")
    end, { on_call = function(record) attempts[#attempts + 1] = record.attempts end })()
    assert.same({ 3, 1 }, attempts)
  end)
end)

describe("a rule" .. tag, function()
  --- Returns which of several requests a rule is about, as a text of letters.
  local function hits(rule)
    return testing.run(function(world)
      local client, found = world:client(), {}
      client:put("x", "")
      rule[1], rule.error = "refuse", "corrupt"
      world:fault(rule)
      local function try(name, _, err)
        if err and err.code == "corrupt" then found[#found + 1] = name end
      end
      try("p", client:put("a/1", ""))
      try("g", client:get("a/1"))
      try("r", client:range("a/", { prefix = true }))
      try("f", client:range("b", { from_key = true }))
      try("d", client:delete("a/1"))
      try("t", client:txn { compare = { { key = "b/2", version = 1 } }, success = { { get = "c/3" } },
        failure = { { txn = { success = { { put = "d/4", value = "" } } } } } })
      try("l", client:lease(10))
      try("s", client:status())
      return table.concat(found)
    end)
  end

  it("applies to all requests, or to methods", function()
    for _, case in ipairs {
      { "pgrfdtls" }, { "p", "put" }, { "grf", "get" }, { "pd", { "put", "delete" } }, { "pdtl", "write" },
      { "grfs", "read" }, { "l", "/etcdserverpb.Lease/LeaseGrant" },
    } do
      assert.equal(case[1], hits { method = case[2] })
    end
  end)

  it("applies to streams of ranges, if it is for range or read", within.world(function(world)
    local client = world:client()
    for i = 1, 1001 do assert(world.server.store:put(("k/%04d"):format(i), "")) end
    for _, method in ipairs { "range", "read" } do
      local rule, n = world:fault { "refuse", method = method, error = "unavailable", skip = 1, count = 1 }, 0
      for _ in client:each("k/", { prefix = true }) do n = n + 1 end -- a page of 1000, and a stream
      assert.same({ 1001, 1 }, { n, rule.hits })
    end
  end))

  it("applies to keys of requests", function()
    for _, case in ipairs {
      { "pgrd", "a/1" }, { "r", "a/2" }, { "pgrd", "a/", true }, { "ft", "b/2" }, { "ft", "c/3" }, { "ft", "d", true },
      { "f", "\255", true }, { "", "A" }, { "pgrfdt", "", true },
    } do
      assert.equal(case[1], hits { key = case[2], prefix = case[3] })
    end
    assert.equal("d", hits { key = "a/1", method = "delete" })
  end)

  it("applies to the pages that watches and caches read", within.world(function(world)
    local client = world:client()
    for _, key in ipairs { "a/1", "b/1" } do client:put(key, key) end
    local rule = world:fault { "refuse", error = "unavailable", key = "a/", prefix = true, count = 3 }
    local w = assert(client:watch("b/", { prefix = true, initial = true }))
    assert.same({ "b/1", 0 }, { w:next(10).key, rule.hits })
    w = assert(client:watch("a/", { prefix = true, initial = true, timeout = 30 }))
    assert.same({ "a/1", 3 }, { w:next(30).key, rule.hits })
    rule:stop()
    rule = world:fault { "refuse", error = "permission_denied", key = "a/1", count = 2 }
    local one, other = client:cache("a/"), client:cache("b/")
    assert(other:wait_ready(10))
    assert(one:wait_ready(60))
    assert.equal(2, rule.hits)
    assert(other:get("b/1", { consistent = true }))
    world:fault { "refuse", error = "corrupt", key = "b/1" }
    assert.equal("corrupt", select(2, other:get("b/1", { consistent = true })).code)
  end))

  it("for keys of requests without keys is refused", within.world(function(world)
    for _, method in ipairs { "watch", "keepalive", "lease", "status" } do
      assert.error_matches(function() world:fault { "hang", method = method, key = "a" } end,
        "'key' is for requests that have keys")
    end
    world:fault { "hang", method = { "watch", "put" }, key = "a" }
    world:fault { "hang", key = "a" }
  end))

  it("skips the first, and ends after a number", function()
    assert.equal("rfd", hits { skip = 2, count = 3 })
    assert.equal("", hits { count = 0 })
  end)

  it("has a chance, by the seed of the world", function()
    local part = dose.is_small and 4 or 1
    local function draw(seed)
      return testing.run(function(world)
        local client = world:client()
        local rule = world:fault { "refuse", error = "corrupt", chance = 0.25 }
        for _ = 1, 400 / part do client:put("a", "") end
        return rule.hits
      end, { seed = seed })
    end
    local n = draw(1)
    assert(n > 60 / part and n < 140 / part, n)
    assert.equal(n, draw(1))
    assert.equal("", hits { chance = 0 })
  end)

  it("applies to one client or one server", within.world(function(world)
    local other = world:serve()
    local one, two, three = world:client(), world:client(), world:client { server = other }
    local by_client = world:fault { "refuse", error = "corrupt", client = one }
    local function outcomes()
      return { (outcome(one:get("a"))), (outcome(two:get("a"))), (outcome(three:get("a"))) }
    end
    assert.same({ "corrupt", "done", "done" }, outcomes())
    for _ = 1, 2 do by_client:stop() end
    world:fault { "refuse", error = "corrupt", server = other }
    assert.same({ "done", "done", "corrupt" }, outcomes())
    assert.equal("keywatch.testing.rule<refuse hits=1 stopped>", tostring(by_client))
  end))

  it("applies to clients that the program has made itself", within.world(function(world)
    local client = keywatch.connect(world.server.url)
    world:fault { "refuse", error = "corrupt", key = "a", client = client }
    assert.same({ "corrupt", "done" }, { outcome(client:get("a")), (outcome(client:get("b"))) })
  end))

  it("applies to watches and renewals, at their begin", within.world(function(world)
    local client = world:client()
    world:fault { "refuse", method = "watch", error = "permission_denied", count = 1 }
    assert.equal("permission_denied", (outcome(client:watch("a"))))
    assert(client:watch("a"))
    local lease = client:lease(10):keep()
    world:fault { "refuse", method = "keepalive", error = "unavailable" }
    world.server:cut()
    assert.equal("lost", lease:wait_lost(60).code)
    assert(keywatch.now() >= 9 and keywatch.now() <= 20, keywatch.now())
  end))
end)
