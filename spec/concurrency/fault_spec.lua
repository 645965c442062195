--- Locks of a remote store, in virtual time: calls whose requests fail, hang or arrive late.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local drivers = require "keywatch.task.driver"
local keywatch = require "keywatch"
local lease = require "keywatch.store.lease"
local methods = require "keywatch.concurrency.methods"
local virtual = require "keywatch.driver.virtual"

local answer = require "spec.support.answer"
local within = require "spec.support.within"

local HOUR = 3600
local TIMEOUT = 10 -- seconds of a request without a deadline

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- An object with the methods of a store, whose requests fail as those of a client do. Its `weather` may be changed at
-- any time: `is_cut`, no request gets through; `latency`, seconds; `late`, seconds after which a write is done that has
-- failed, or false if it never is, or nil for no failures.

local far_methods = {}
local far_mt = check.store_like { __name = "keywatch.far", __index = far_methods }

local READS = {
  get = true, range = true, leases = true, lease_time_to_live = true, lease_keepalive = true, watch = true,
}

-- The place of the options in the arguments of each method.
local OPTIONS = {
  get = 2, range = 2, leases = 1, lease_time_to_live = 2, lease_keepalive = 2, put = 3, delete = 2, txn = 2,
  lease_grant = 2, lease_revoke = 2, watch = 2,
}

for name, place in pairs(OPTIONS) do
  far_methods[name] = function(self, ...)
    local store, weather, arguments, now = self.store, self.weather, { ... }, keywatch.now()
    local times, maybe_done = arguments[place] or name == "txn" and arguments[1], not READS[name] or nil
    times = type(times) == "table" and times or {}
    local deadline, is_cut = times.deadline or now + (times.timeout or TIMEOUT), weather.is_cut
    local ok, err = pcall(keywatch.sleep, math.max(0, is_cut and deadline - now or weather.latency))
    if ok and not is_cut and weather.late == nil then return store[name](store, ...) end
    if ok then err = core.new_error(is_cut and "deadline_exceeded" or "unavailable") end
    if type(err) == "table" then err.maybe_done = maybe_done end
    if not ok then error(err, 0) end
    if weather.late and maybe_done then
      keywatch.spawn(function()
        keywatch.sleep(weather.late)
        pcall(store[name], store, unpack(arguments))
      end)
    end
    return nil, err
  end
end

--- The keeper is that of the store: leases are renewed by themselves, and their loss is known at once.
function far_methods:lease_keeper() return self.store:lease_keeper() end

far_methods.lease = lease.grant
far_methods.lease_by_id = lease.by_id
methods.install(far_methods)

describe("A lock of a remote store", function()
  local before, store, owner, weather

  before_each(function()
    local driver = virtual.new(100)
    before = drivers.use(driver)
    store = keywatch.open { now = 100 }
    driver.carry(store)
    weather = { latency = 0 }
    owner = setmetatable({ store = store, weather = weather }, far_mt)
  end)

  after_each(function()
    store:close()
    drivers.use(before)
  end)

  local function test(name, fn)
    it(name, function() keywatch.run(fn) end)
  end

  local function count(prefix)
    return store:range(prefix, { prefix = true, count_only = true }).count
  end

  --- Joins a task, which must end at this very moment. Returns the error that its call has returned.
  local function error_at_once(task)
    local now = keywatch.now()
    local ok, got, err = task:join(HOUR)
    assert.same({ true, nil }, { ok, got })
    assert.equal(now, keywatch.now())
    return err
  end

  --- A watch that has failed with a code.
  local function failed_watch(code)
    local function fail() return nil, core.new_error(code) end
    return setmetatable({ next = fail, batch = fail, close = function() end }, { __select = {
      begin = function()
        local event = drivers.get().event()
        event:set()
        return event
      end,
      finish = function() end,
    } })
  end

  --- A session for each of n calls.
  local function sessions(n)
    local list = {}
    for i = 1, n do list[i] = assert(owner:session { ttl = 20 }) end
    return unpack(list)
  end

  local function revoke(session) assert(store:lease_by_id(session.lease.id):revoke()) end

  test("is lost at once with its session, though a request hangs", function()
    local session = sessions(1)
    weather.is_cut = true
    local creating = keywatch.spawn(function() return session:lock("a", { timeout = HOUR }) end)
    keywatch.sleep(1)
    revoke(session)
    assert.equal("lost", error_at_once(creating).code)
  end)

  test("that is being released is lost at once with its session, though the request hangs", function()
    local session = sessions(1)
    local lock = assert(session:lock("a"))
    local leadership = assert(session:election("e"):campaign("x"))
    weather.is_cut = true
    local unlocking = keywatch.spawn(function() return lock:unlock { timeout = HOUR } end)
    local proclaiming = keywatch.spawn(function() return leadership:proclaim("y", { timeout = HOUR }) end)
    keywatch.sleep(1)
    revoke(session)
    for _, task in ipairs { unlocking, proclaiming } do
      local err = error_at_once(task)
      assert.same({ "lost", true }, { err.code, err.maybe_done })
    end
    for _, object in ipairs { session, lock, leadership } do assert.is_nil(object:error().maybe_done) end
    assert.match("revoked", leadership:error().message)
    assert.match("revoked", select(2, leadership:proclaim("z")).message)
  end)

  test("that was released to a lost session has written nothing", function()
    local session = sessions(1)
    local lock = assert(session:lock("a"))
    local leadership = assert(session:election("e"):campaign("x"))
    revoke(session)
    for _, err in ipairs { select(2, lock:unlock()), select(2, leadership:proclaim("y")) } do
      assert.same({ "lost", nil }, { err.code, err.maybe_done })
    end
  end)

  test("whose release has failed since it was lost has that reason in all its methods", function()
    local function delete_key(_, leadership) store:delete(leadership.key) end
    local function revoke_late(session)
      weather.is_cut = true
      keywatch.spawn(function()
        keywatch.sleep(1)
        revoke(session)
        weather.is_cut = false
      end)
    end
    for what, lose in pairs { revoked = revoke, ["key was deleted"] = delete_key, ["was revoked"] = revoke_late } do
      local session = sessions(1)
      local leadership = assert(session:election("e"):campaign("x"))
      lose(session, leadership)
      local errs = {
        select(2, leadership:resign()), leadership:error(), leadership:wait_lost(0),
        select(2, leadership:proclaim("y")), select(2, leadership:fence():put("k", "v")),
      }
      for i = 1, 5 do assert.match(what, errs[i].message) end
      assert.match(" lost>$", tostring(leadership))
    end
  end)

  test("is lost at once with its session while it waits for its turn", function()
    local holder, session = sessions(2)
    local held = assert(holder:lock("a")) -- a free lock is acquired and released
    local waiting = keywatch.spawn(function() return session:lock("a") end)
    keywatch.sleep(HOUR)
    revoke(session)
    assert.same({ "lost", true }, { error_at_once(waiting).code, held:is_held() })
  end)

  test("is lost at once with its session while it opens the watch of the key before its own", function()
    local holder, session = sessions(2)
    local held = assert(holder:lock("a"))
    function owner:watch(...)
      weather.is_cut = true
      return far_methods.watch(self, ...)
    end
    local waiting = keywatch.spawn(function() return session:lock("a") end)
    keywatch.sleep(1)
    assert.is_true(weather.is_cut)
    revoke(session)
    assert.same({ "lost", true }, { error_at_once(waiting).code, held:is_held() })
  end)

  test("does not fail when the call times out that was first to ask for their session", function()
    weather.is_cut = true
    local first = keywatch.spawn(function() return owner:lock("a", { timeout = 1 }) end)
    local second = keywatch.spawn(function() return owner:lock("b", { timeout = HOUR }) end)
    local third = keywatch.spawn(function() return owner:lock("c", { timeout = 2 }) end)
    keywatch.sleep(0.5)
    weather.is_cut = false
    assert.equal("timeout", answer.code(select(2, first:join(HOUR))))
    for _, task in ipairs { second, third } do
      local _, lock = task:join(HOUR)
      assert.is_true(lock:is_held())
    end
    assert.equal(101, keywatch.now())
  end)

  test("that a finalizer releases just before another call begins to wait goes to that call", function()
    local driver = drivers.get()
    local event = driver.event
    local lock = assert(store:lock("a"))
    function driver.event()
      driver.event = event
      lock:unlock()
      return event()
    end
    local second = assert(store:lock("a", { timeout = HOUR }))
    assert.same({ true, 100 }, { second:is_held(), keywatch.now() })
  end)

  test("that is held for long is not slowed down by calls that time out", function()
    local session = sessions(1)
    local lock = assert(session:lock("a"))
    local order = {}
    local function wait(name, seconds)
      return keywatch.spawn(function()
        local got = session:lock("a", { timeout = seconds })
        if not got then return end
        order[#order + 1] = name
        got:unlock()
      end)
    end
    local patient = { wait("first", HOUR) }
    for i = 1, 500 do
      wait("late", 1.5) -- the next one comes before the timeout of this one
      if i % 100 == 0 then patient[#patient + 1] = wait("patient " .. i, HOUR) end
      keywatch.sleep(1)
    end
    local place = session.entries["a/" .. session.hex]
    assert(#place.queue.heap < 20, #place.queue.heap)
    keywatch.sleep(2)
    assert.is_true(lock:unlock())
    assert(keywatch.join(patient))
    assert.same({ "first", "patient 100", "patient 200", "patient 300", "patient 400", "patient 500" }, order)
  end)

  test("whose timeout passes before it has a session times out, or has the reason: no server can be reached", function()
    for code, expected in pairs { unavailable = "unavailable", deadline_exceeded = "timeout" } do
      function owner.lease_grant(_, _, opts)
        keywatch.sleep(opts.deadline - keywatch.now())
        return nil, core.new_error(code)
      end
      local election = owner:election("e")
      for _, err in ipairs {
        select(2, owner:lock("a", { timeout = 1 })), select(2, owner:try_lock("a", { timeout = 1 })),
        select(2, election:campaign("x", { timeout = 1 })),
      } do
        assert.equal(expected, err.code)
      end
    end
    function owner.lease_grant() return nil, core.new_error("unavailable") end
    assert.equal("unavailable", select(2, owner:lock("a", { timeout = 1 })).code) -- there was time left
  end)

  test("that waits for its turn too long times out, or has the reason: no server can be reached", function()
    local holder, session = sessions(2)
    local held = assert(holder:lock("a"))
    assert.equal("timeout", answer.code(session:lock("a", { timeout = 5 })))
    for name in pairs { watch = true, range = true } do
      owner[name] = function()
        keywatch.sleep(0.1)
        return nil, core.new_error("unavailable")
      end
      assert.equal("unavailable", answer.code(session:lock("a", { timeout = 5 })))
      owner[name] = nil
    end
    assert.is_true(held:unlock())
  end)

  --- A lock whose owner's method fails so is looked at now and then; its loss is noticed. A watch fails in any case.
  local function expect_few_looks(method, fail)
    local lock, n = assert(sessions(1):lock("a")), 0
    function owner.watch() return nil, core.new_error("compacted") end
    owner[method] = function()
      n = n + 1
      if n > 1000 then error("too often") end
      return fail()
    end
    assert.equal("timeout", select(2, lock:wait_lost(10)).code)
    assert(n > 10 and n < 30, n)
    owner.range = nil
    store:delete(lock.key)
    assert.equal("lost", lock:wait_lost(10).code)
  end

  test("whose key can neither be watched nor read is checked now and then, and not all the time", function()
    expect_few_looks("range", function() return nil, core.new_error("unavailable") end)
  end)

  test("whose watch fails again and again is checked now and then, and its loss is noticed", function()
    expect_few_looks("watch", function() return failed_watch("regressed") end)
  end)

  test("that could not be released is released in the background", function()
    local session, other = sessions(2)
    local lock = assert(session:lock("a"))
    weather.is_cut = true
    assert.equal("deadline_exceeded", answer.code(lock:unlock { timeout = 1 }))
    assert.is_true(lock:unlock())
    assert.equal(1, count("a/"))
    local mine = keywatch.spawn(function() return session:lock("a", { timeout = HOUR }) end) -- waits for that
    keywatch.sleep(100)
    assert.equal("parked", mine.state)
    weather.is_cut = false
    local theirs = assert(other:lock("a", { timeout = HOUR }))
    assert(theirs:unlock())
    assert.is_true(select(2, mine:join(HOUR)):is_held())
  end)

  test("whose creation comes late is deleted, and does not block the same session", function()
    local session = sessions(1)
    for i = 1, 50 do
      weather.latency, weather.late = i / 50, i % 2 == 0 and i / 10
      local got, err = session:lock("a", { timeout = 2 })
      assert.is_nil(got)
      assert(err.maybe_done or err.code == "timeout", tostring(err))
      weather.latency, weather.late = 0, nil
      local now = keywatch.now()
      local lock = assert(session:lock("a", { timeout = HOUR }))
      assert(keywatch.now() - now < 5)
      assert(store:get(lock.key), "the lock that is held has no key")
      assert.is_true(lock:unlock())
      keywatch.sleep(15)
      assert.equal(0, count("a/"))
    end
  end)

  test("is not held any more when its lease has expired, without a request", function()
    local session = sessions(1)
    local lock = assert(session:lock("a"))
    local fence = lock:fence()
    session:orphan()
    assert.same({ "lost", 1 }, { answer.code(fence:put("k", "v")), count("a/") })
    keywatch.sleep(30)
    assert.equal(0, count("a/"))
  end)

  test("or a leader, whose election is observed, ends the observer with a permanent error", function()
    for _, code in ipairs { "permission_denied", "unavailable" } do
      function owner.watch() return failed_watch("compacted") end
      local observer = assert(owner:election("e"):observe())
      function owner.watch() return nil, core.new_error(code) end
      local kv, err = observer:next(10)
      assert.same({ nil, code == "unavailable" and "timeout" or code }, { kv, err.code })
      owner.watch = nil
      if code == "unavailable" then -- it passes
        store:put("e/1", "x")
        assert.equal("x", observer:next(10).value)
      end
      observer:close()
    end
  end)
end)

describe("A lock of a client", function()
  for what, rule in pairs {
    ["one of several servers does not answer"] = { "hang", method = "txn", key = "a/", prefix = true },
    ["the watch of the key before its own is not confirmed"] = { "hang", method = "watch" },
  } do
    it("is lost at once with its session while " .. what, within.world(function(world)
      local client = world:client { server = { world.server, world:serve() } }
      local session, held = assert(client:session()), assert(world:client():lock("a"))
      local hanging = world:fault(rule)
      local waiting = keywatch.spawn(session.lock, session, "a")
      keywatch.sleep(1)
      assert(hanging.hits > 0)
      session:orphan()
      assert.equal("lost", answer.code(select(2, waiting:join(0.001))))
      hanging:stop()
      assert(held:unlock())
    end))
  end
end)
