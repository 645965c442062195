--- Middleware: functions around every call, of services in Lua and in C.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local annotations = require "spec.support.annotations"
local dose = require "spec.support.dose"
local misuse = require "spec.support.misuse"
local serving = require "spec.support.serving"
local within = require "spec.support.within"

local OK, CANCELLED, DEADLINE_EXCEEDED, PERMISSION_DENIED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED =
  0, 1, 4, 7, 13, 14, 16
local SLIP = "keywatch: internal error: see the server's log"
local ECHO, STREAM, FAIL = "/spec.Calls/Echo", "/spec.Calls/Stream", "/spec.Calls/Fail"
local PUT, RANGE, WATCH, STATUS = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch",
  "/etcdserverpb.Maintenance/Status"
local KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"

describe("middleware", function()
  local store, server, client, seen

  serving.in_process(function(...) store, server, client = ... end)

  before_each(function()
    seen = {}
    server:mount("spec.Calls", {
      Echo = function(request) return request end,
      Fail = function() return nil, { grpc_status = 7, message = "no" } end,
      Stream = { stream = true, handler = function(call)
        for message in call:messages() do call:send(message) end
      end },
    })
  end)

  local function event() return require("keywatch.task.driver").get().event() end

  local function note(...) table.insert(seen, table.concat({ ... }, " ")) end

  --- Returns middleware that records its calls.
  local function use_notes(name)
    server:use {
      before = function(call)
        note(name, "before", call.path)
        return true
      end,
      after = function(call, status) note(name, "after", call.path, status) end,
    }
  end

  --- Waits until so much was written down, and forgets it.
  local function notes(n)
    client:wait(function() return #seen >= n end)
    client:settle()
    local list = seen
    seen = {}
    return list
  end

  local function expect_nothing_left() client:wait(function() return next(server.calls) == nil end) end

  local function send(call, name, message) client:send(call, core.encode(name, message)) end

  it("is called in order, before and after a call", function()
    use_notes("a")
    use_notes("b")
    assert.equal("x", client:unary(ECHO, "x"))
    assert.same({ "a before " .. ECHO, "b before " .. ECHO, "a after " .. ECHO .. " 0", "b after " .. ECHO .. " 0" },
      notes(4))
  end)

  it("sees the calls of every service, and their ends", function()
    use_notes("m")
    client:unary(ECHO, "x")
    client:unary(FAIL, "x")
    client:ask(PUT, { key = "a" })
    client:ask(PUT, {})
    client:ask(STATUS)
    client:ask("/v3lockpb.Lock/Lock", { name = "l", lease = 99 })
    client:unary("/etcdserverpb.KV/Nothing", "")
    client:unary(RANGE, "\255")
    local list = notes(14)
    table.sort(list)
    local expected = {}
    for _, what in ipairs { ECHO, FAIL, PUT, PUT, STATUS, "/v3lockpb.Lock/Lock", RANGE } do
      table.insert(expected, "m before " .. what)
    end
    for _, what in ipairs { ECHO .. " 0", FAIL .. " 7", PUT .. " 0", PUT .. " 3", STATUS .. " 0",
      "/v3lockpb.Lock/Lock 2", RANGE .. " 13" } do
      table.insert(expected, "m after " .. what)
    end
    table.sort(expected)
    assert.same(expected, list)
    expect_nothing_left()
  end)

  it("may have one function only", function()
    server:use { before = function(call) note("before", call.path) end }
    server:use { after = function(_, status) note("after", status) end }
    server:use {}
    client:unary(ECHO, "x")
    assert.same({ "before " .. ECHO, "after 0" }, notes(2))
  end)

  it("has the same call object before and after, with its fields", function()
    local first, second
    server:use {
      before = function(call)
        call.started = keywatch.now()
        first = call
      end,
      after = function(call) second = call end,
    }
    for _, path in ipairs { ECHO, RANGE } do
      client:unary(path, path == RANGE and "\10\1a" or "", { user = "ann", ["grpc-timeout"] = "50S" })
      client:wait(function() return second end)
      assert.equal(first, second)
      assert.is_number(second.started)
      assert.equal(path, second.path)
      assert.equal("ann", second.metadata.user)
      assert.is_true(second.deadline > keywatch.now() + 40)
      assert.equal("", second.peer)
      first, second = nil, nil
    end
  end)

  it("cannot receive or send in place of a method", function()
    local ok = true
    server:use {
      before = function(call)
        for _, method in ipairs { "receive", "messages", "send" } do
          ok = ok and pcall(misuse.raises, call[method], call, "x")
        end
      end,
    }
    assert.equal("x", client:unary(ECHO, "x"))
    assert.is_table(client:ask(PUT, { key = "a" }))
    assert.is_true(ok)
  end)

  describe("that refuses", function()
    local refusal = { grpc_status = UNAUTHENTICATED, message = "who are you?" }

    local function use_refusal(how)
      use_notes("first")
      server:use { before = function(call)
        if not call.metadata.user then return how() end
        return true
      end }
      use_notes("last")
    end

    for name, how in pairs {
      ["returns an error"] = function() return nil, refusal end,
      ["returns false and an error"] = function() return false, refusal end,
      ["raises an error"] = function() error(refusal) end,
    } do
      it(name .. ": that is the answer, and later functions are not called", function()
        use_refusal(how)
        local lines = serving.log_of(function()
          for _, path in ipairs { ECHO, PUT, STATUS } do
            assert.same({ nil, UNAUTHENTICATED, "who are you?" }, { client:unary(path, "") })
            assert.same({ "first before " .. path, "first after " .. path .. " 16", "last after " .. path .. " 16" },
              notes(3))
          end
        end)
        assert.same({}, lines)
        assert.equal("x", client:unary(ECHO, "x", { user = "ann" }))
        assert.equal(1, store:status().revision)
        expect_nothing_left()
      end)
    end

    it("refuses streams, whatever their client sends", function()
      use_refusal(function() return nil, refusal end)
      for _, path in ipairs { STREAM, WATCH, KEEP_ALIVE } do
        local call = client:call(path)
        send(call, "WatchRequest", { create_request = { key = "a" } })
        client:finish(call)
        assert.same({ UNAUTHENTICATED, "who are you?", {} }, { call.status, call.text, call.messages })
        send(call, "WatchRequest", { create_request = { key = "a" } })
        client:settle()
      end
      expect_nothing_left()
    end)

    for name, how in pairs {
      ["false alone"] = function() return false end,
      ["nil and false"] = function() return nil, false end,
    } do
      it("by " .. name .. " denies permission", function()
        use_refusal(how)
        local lines = serving.log_of(function()
          for _, path in ipairs { ECHO, PUT, STATUS } do
            assert.same({ nil, PERMISSION_DENIED, "keywatch: the call was refused" }, { client:unary(path, "\10\1a") })
          end
          local watch = client:call(WATCH)
          send(watch, "WatchRequest", { create_request = { key = "a" } })
          client:finish(watch)
          assert.same({ PERMISSION_DENIED, {} }, { watch.status, watch.messages })
        end)
        assert.same({}, lines)
        assert.equal(1, store:status().revision)
        expect_nothing_left()
      end)
    end

    it("refuses by an error, even with true before it", function()
      use_refusal(function() return true, refusal end)
      assert.same({ nil, UNAUTHENTICATED, "who are you?" }, { client:ask(PUT, { key = "a" }) })
      assert.equal(1, store:status().revision)
    end)

    it("refuses by an invalid result, and logs it", function()
      local odd
      server:use { before = function() return odd end }
      for _, answer in ipairs { "yes", 1, {}, print, refusal } do
        odd = answer
        local lines = serving.log_of(function()
          assert.same({ nil, INTERNAL, SLIP }, { client:ask(PUT, { key = "a" }) })
        end)
        assert.equal(1, #lines)
        assert.equal(1, (lines[1]:find(("%s has failed: before: returned a %s, which is neither true nor an error")
          :format(PUT, type(odd)), 1, true)))
      end
      assert.equal(1, store:status().revision)
    end)

    it("by a bug returns the status internal, and logs it", function()
      server:use { before = function() error("a slip", 0) end }
      local lines = serving.log_of(function()
        assert.same({ nil, INTERNAL, SLIP }, { client:ask(PUT, { key = "a" }) })
      end)
      assert.equal(1, #lines)
      assert.matches("^" .. PUT .. " has failed: a slip\nstack traceback", lines[1])
    end)
  end)

  describe("that waits", function()
    local gate

    before_each(function()
      gate = event()
      server:use {
        before = function(call)
          if call.metadata.wait then gate:wait() end
          return true
        end,
        after = function(call, status) note(call.path, status) end,
      }
    end)

    it("lets other calls continue, and then the call unchanged", function()
      for _, path in ipairs { ECHO, PUT } do
        local slow = client:begin(path, "\10\1a", { wait = "yes" })
        client:settle()
        assert.is_nil(slow.status)
        assert.is_table(client:ask(STATUS))
        assert.is_table(client:ask(RANGE, { key = "b" }))
        gate:set()
        assert.equal(OK, (client:finish(slow)))
        assert.equal(1, #slow.messages)
      end
    end)

    it("makes a stream wait with all received messages", function()
      local call = client:call(WATCH, { wait = "yes" })
      for i = 1, 5 do send(call, "WatchRequest", { create_request = { key = "k" .. i } }) end
      client:settle()
      assert.equal(0, #call.messages)
      gate:set()
      client:wait(function() return #call.messages == 5 end)
      client:cancel(call)
    end)

    it("slows down a client that sends without end", function()
      local call = client:call(STREAM, { wait = "yes" })
      for _ = 1, 300 do client:send(call, ("x"):rep(10000)) end
      client:half_close(call)
      client:settle()
      assert.is_true(client.sent < 1200000)
      gate:set()
      assert.equal(OK, (client:finish(call)))
      assert.equal(300, #call.messages)
    end)

    it("ends with the server while it delays a stream, and other calls continue", function()
      local put, streams = client:begin(PUT, "\10\1a", { wait = "yes" }), {}
      for i, path in ipairs { WATCH, KEEP_ALIVE, STREAM } do streams[i] = client:call(path, { wait = "yes" }) end
      client:settle()
      server.object:drain(60)
      for _, call in ipairs(streams) do
        assert.same({ UNAVAILABLE, "etcdserver: server stopped" }, { client:finish(call) })
      end
      assert.equal(3, #notes(3))
      assert.is_nil(put.status)
      gate:set()
      assert.equal(OK, (client:finish(put)))
      assert.same({ PUT .. " 0" }, notes(1))
    end)

    it("resumes no stream that the server has ended", function()
      local call = client:call(WATCH, { wait = "yes" })
      send(call, "WatchRequest", { create_request = { key = "a" } })
      client:settle()
      client:pause()
      server.object:drain(60)
      gate:set()
      client:settle()
      client:resume()
      assert.same({ UNAVAILABLE, "etcdserver: server stopped" }, { client:finish(call) })
      assert.equal(0, #call.messages)
      expect_nothing_left()
    end)

    it("ends with its client, or the client's deadline", function()
      for _, path in ipairs { ECHO, PUT, WATCH } do
        local lines = serving.log_of(function()
          local call = client:begin(path, "\10\1a", { wait = "yes" })
          client:settle()
          client:cancel(call)
          assert.same({ ("%s %d"):format(path, CANCELLED) }, notes(1))
          call = client:begin(path, "\10\1a", { wait = "yes", ["grpc-timeout"] = "20m" })
          assert.equal(DEADLINE_EXCEEDED, (client:finish(call)))
          assert.same({ ("%s %d"):format(path, DEADLINE_EXCEEDED) }, notes(1))
        end)
        assert.same({}, lines)
      end
      assert.equal(1, store:status().revision)
      expect_nothing_left()
    end)
  end)

  describe("after", function()
    it("gets calls that were cancelled, that were late, and that the server aborted", function()
      use_notes("m")
      local call = client:call(STREAM)
      client:settle()
      client:cancel(call)
      assert.same({ "m before " .. STREAM, "m after " .. STREAM .. " 1" }, notes(2))
      call = client:call(WATCH, { ["grpc-timeout"] = "20m" })
      client:finish(call)
      assert.same({ "m before " .. WATCH, "m after " .. WATCH .. " 4" }, notes(2))
      client:call(WATCH)
      client:call(STREAM)
      client:settle()
      notes(2)
      server:close()
      client:wait(function() return #seen == 2 end)
      table.sort(seen)
      assert.same({ ("m after %s %d"):format(WATCH, UNAVAILABLE), ("m after %s %d"):format(STREAM, UNAVAILABLE) }, seen)
    end)

    it("is logged if it fails, without any other effect", function()
      server:use { after = function() error("a slip", 0) end }
      use_notes("m")
      local lines = serving.log_of(function()
        keywatch.run(function()
          assert.equal("x", client:unary(ECHO, "x"))
          assert.same({ "m before " .. ECHO, "m after " .. ECHO .. " 0" }, notes(2))
        end)
      end)
      assert.equal(1, #lines)
      assert.matches("^after " .. ECHO .. ": a slip\nstack traceback", lines[1])
    end)

    it("may wait", function()
      local gate, is_done = event(), false
      server:use { after = function()
        gate:wait()
        is_done = true
      end }
      assert.equal("x", client:unary(ECHO, "x"))
      expect_nothing_left()
      assert.is_false(is_done)
      gate:set()
      client:wait(function() return is_done end)
    end)
  end)

  describe("before etcd's services", function()
    before_each(function() use_notes("m") end)

    it("changes nothing by itself", within.task(function()
      local own = keywatch.connect(server:addresses()[1])
      local watch = assert(own:watch("a"))
      for i = 1, 300 do assert(own:put("a", tostring(i))) end
      for i = 1, 300 do assert.equal(tostring(i), watch:next(10).value) end
      assert.equal(store:status().revision, watch:sync(10))
      assert.is_true(own:txn({ compare = { { key = "a", value = "300" } }, success = { { delete = "a" } } }).succeeded)
      assert.equal("delete", watch:next(10).type)
      assert.is_nil(own:get("a"))
      assert(own:compact(3, { physical = true }))
      assert.equal("compacted", select(2, own:get("a", { revision = 2 })).code)
      local lease = assert(own:lease(50))
      for _ = 1, 3 do assert.equal(50, lease:keepalive()) end
      own:close()
      expect_nothing_left()
    end))

    it("may delay watches, which then continue", function()
      local call = client:call(WATCH)
      send(call, "WatchRequest", { create_request = { key = "a" } })
      client:wait(function() return #call.messages == 1 end)
      client:pause()
      for _ = 1, 50 do
        store:put("a", ("x"):rep(100000))
        client:turn()
      end
      client:resume()
      local n
      client:wait(function()
        n = 0
        for _, bytes in ipairs(call.messages) do n = n + #(core.decode("WatchResponse", bytes).events or {}) end
        return n >= 50
      end)
      assert.equal(50, n)
      client:cancel(call)
      expect_nothing_left()
    end)

    it("lets streams end with the server", function()
      local call = client:call(WATCH)
      send(call, "WatchRequest", { create_request = { key = "a" } })
      client:wait(function() return #call.messages == 1 end)
      server.object:drain(5)
      assert.same({ UNAVAILABLE, "etcdserver: server stopped" }, { client:finish(call) })
      assert.same({ "m before " .. WATCH, "m after " .. WATCH .. " 14" }, notes(2))
    end)

    it("leaves nothing behind after thousands of calls", function()
      local live
      for round = 1, dose.of(3, 20) do
        local calls = {}
        for i = 1, 50 do
          calls[i] = client:begin_message(i % 2 == 0 and PUT or RANGE, { key = "a" })
          if i % 10 == 0 then client:cancel(calls[i]) end
        end
        for i = 1, 50 do
          if i % 10 ~= 0 then assert.equal(OK, (client:finish(calls[i]))) end
        end
        expect_nothing_left()
        client:settle()
        if core.probe and round == 2 then live = core.probe.live() end
      end
      if live then assert.is_true(core.probe.live() < live + 2000) end -- the revisions
    end)
  end)

  it("costs nothing without middleware: calls of services in C do not reach Lua", function()
    local calls = 0
    local real = server.object
    server.object = setmetatable({}, { __index = function(_, name)
      return function(_, ...)
        if name == "info" or name == "proceed" or name == "intercept" then calls = calls + 1 end
        return real[name](real, ...)
      end
    end })
    client:ask(PUT, { key = "a" })
    assert.equal(0, calls)
    client:ask(STATUS)
    assert.equal(1, calls)
    use_notes("m")
    client:ask(PUT, { key = "a" })
    assert.equal(4, calls)
    server.object = real
  end)

  it("raises on a usage error", function()
    local function raises(...) return misuse.raises(server.use, server, ...) end
    assert.matches("bad argument #1 to 'use'", raises())
    assert.matches("bad argument #1 to 'use'", raises(print))
    assert.matches("use: there is no option 'befor'", raises { befor = print })
    for name in pairs(annotations.read("types/keywatch.lua"):fields("keywatch.Middleware")) do
      assert.matches(("use: option '%s' must be a function"):format(name), raises { [name] = "x" })
    end
    assert.same({}, server.middleware)
    server:close()
    assert.matches("the server is closed", raises {})
  end)
end)
