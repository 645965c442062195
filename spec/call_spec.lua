--- Methods that are answered in Lua: the call object of their handlers, and the end of a call.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local annotations = require "spec.support.annotations"
local dose = require "spec.support.dose"
local misuse = require "spec.support.misuse"
local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local OK, CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE = 0, 1, 2, 4, 13, 14
local WINDOW = 1024 * 1024 -- of a stream: what a client may send before it is received
local CALL_BYTES = 64 * 1024 -- that wait in a call, in either direction
local SLIP = { INTERNAL, "keywatch: internal error: see the server's log" } -- all that a client gets to know of one

local store, server, client

serving.in_process(function(...) store, server, client = ... end)

describe("a call", function()
  local function event() return require("keywatch.task.driver").get().event() end

  --- Mounts one method: its path.
  local function mount(method)
    server:mount("spec.Calls", { Method = method })
    return "/spec.Calls/Method"
  end

  local function mount_stream(handler) return mount { stream = true, handler = handler } end

  local function expect_nothing_left() client:wait(function() return next(server.calls) == nil end) end

  describe("of a unary method", function()
    it("is answered with what its handler returns", function()
      local path = mount { handler = function(request) return "<" .. request .. ">" end, max_bytes = 1000000 }
      assert.equal("<a>", client:unary(path, "a"))
      assert.equal("<>", client:unary(path, ""))
      local long = ("x"):rep(1000000)
      assert.equal("<" .. long .. ">", client:unary(path, long))
      expect_nothing_left()
    end)

    it("may wait for its answer, and other calls do not wait", function()
      local gate = event()
      local path = mount(function(request)
        if request == "slow" then gate:wait() end
        return request
      end)
      local slow = client:begin(path, "slow")
      assert.equal("fast", client:unary(path, "fast"))
      assert.is_nil(slow.status)
      gate:set()
      assert.equal(OK, (client:finish(slow)))
      assert.same({ "slow" }, slow.messages)
    end)

    it("is decoded and encoded as its method says", function()
      server:mount("spec.Coded", {
        Named = { request = "PutRequest", response = "RangeResponse", handler = function(request)
          return { kvs = { { key = request.key } } }
        end },
        Function = { request = tonumber, response = tostring, handler = function(n) return n + 1 end },
      })
      local bytes = client:unary("/spec.Coded/Named", core.encode("PutRequest", { key = "k" }))
      assert.same({ kvs = { { key = "k" } } }, core.decode("RangeResponse", bytes))
      assert.matches("^42", client:unary("/spec.Coded/Function", "41"))
      assert.equal(INTERNAL, select(2, client:unary("/spec.Coded/Named", "\255")))
    end)

    it("cannot receive or send messages", function()
      local path = mount(function(_, call)
        for _, method in ipairs { "receive", "messages", "send" } do
          assert.matches("only the handler of a stream", misuse.raises(call[method], call, "x"))
        end
        return "done"
      end)
      assert.equal("done", client:unary(path, ""))
    end)

    it("never reaches its handler without a request, or with two", function()
      local n = 0
      local path = mount(function()
        n = n + 1
        return ""
      end)
      local none, two = client:call(path), client:call(path)
      client:half_close(none)
      client:send(two, "a")
      client:send(two, "b")
      client:half_close(two)
      assert.equal(INTERNAL, (client:finish(none)))
      assert.equal(INTERNAL, (client:finish(two)))
      assert.equal(0, n)
      local open = client:call(path)
      client:send(open, "a")
      client:settle()
      assert.equal(0, n)
      client:cancel(open)
      expect_nothing_left()
    end)
  end)

  describe("has", function()
    local function info_of(metadata, from)
      local info
      local path = mount(function(_, call)
        info = call
        return ""
      end)
      assert.equal("", (from or client):unary(path, "", metadata))
      return info
    end

    it("a path and a server", function()
      local call = info_of()
      assert.equal("/spec.Calls/Method", call.path)
      assert.equal(server, call.server)
      assert.equal("keywatch.call</spec.Calls/Method>", tostring(call))
    end)

    it("the address of its client", function()
      assert.equal("", info_of().peer)
      local other = rpc.connect(server:addresses()[1])
      local call = info_of(nil, other)
      local name = other.socket.handle:getsockname()
      assert.equal(("%s:%d"):format(name.ip, name.port), call.peer)
      other:close()
    end)

    it("a deadline, if the client has one", function()
      assert.is_nil(info_of().deadline)
      local before = keywatch.now()
      local deadline = info_of({ ["grpc-timeout"] = "100S" }).deadline
      assert.is_true(deadline > before + 99 and deadline <= keywatch.now() + 100)
    end)

    it("metadata, without HTTP/2's own fields", function()
      local metadata = info_of({ user = "ann", empty = "" }).metadata
      assert.equal("ann", metadata.user)
      assert.equal("", metadata.empty)
      assert.equal("application/grpc", metadata["content-type"])
      for name in pairs(metadata) do assert.is_nil(name:find("^:")) end
    end)

    it("the fields that are annotated", function()
      local types = annotations.read("types/keywatch.lua")
      local fields, call = types:fields("keywatch.Call"), info_of({ ["grpc-timeout"] = "9S" })
      local elsewhere = { common_name = "spec/server/tls_spec.lua", organizations = "spec/server/tls_spec.lua",
        request = "spec/middleware_request_spec.lua" }
      for name in pairs(fields) do
        if not elsewhere[name] then assert.is_not_nil(call[name], name) end
      end
      for _, name in ipairs { "path", "peer", "deadline" } do
        assert.is_nil(types:trouble(call[name], fields[name].type, name))
      end
    end)
  end)

  describe("of a stream", function()
    it("sends and receives at the same time", function()
      local path = mount_stream(function(call)
        for message in call:messages() do call:send("<" .. message .. ">") end
      end)
      local call = client:call(path)
      for i = 1, 5 do
        client:send(call, tostring(i))
        client:wait(function() return #call.messages == i end)
        assert.equal(("<%d>"):format(i), call.messages[i])
      end
      assert.is_nil(call.status)
      client:half_close(call)
      assert.same({ OK, "" }, { client:finish(call) })
      expect_nothing_left()
    end)

    it("may send after the client has half-closed", function()
      local gate = event()
      local path = mount_stream(function(call)
        assert.equal("a", call:receive())
        assert.is_nil(call:receive())
        assert.is_nil(call:receive())
        gate:wait()
        for i = 1, 3 do call:send(tostring(i)) end
      end)
      local call = client:begin(path, "a")
      client:settle()
      gate:set()
      assert.equal(OK, (client:finish(call)))
      assert.same({ "1", "2", "3" }, call.messages)
    end)

    it("ends with its handler, even if the client would send more", function()
      local path = mount_stream(function(call) call:send(call:receive()) end)
      local call = client:call(path)
      client:send(call, "first")
      client:send(call, "never heard")
      assert.equal(OK, (client:finish(call)))
      assert.same({ "first" }, call.messages)
      expect_nothing_left()
    end)

    it("begins before its first message", function()
      local path = mount_stream(function(call) call:send("welcome") end)
      local call = client:call(path)
      assert.equal(OK, (client:finish(call)))
      assert.same({ "welcome" }, call.messages)
    end)

    it("is decoded and encoded as its method says", function()
      local path = mount { stream = true, request = "PutRequest", response = "PutRequest", handler = function(call)
        for request in call:messages() do call:send { key = request.value, value = request.key } end
      end }
      local call = client:begin(path, core.encode("PutRequest", { key = "a", value = "b" }))
      assert.equal(OK, (client:finish(call)))
      assert.same({ key = "b", value = "a" }, core.decode("PutRequest", call.messages[1]))
      local malformed = client:begin(path, "\255")
      assert.equal(INTERNAL, (client:finish(malformed)))
    end)

    it("carries messages of all sizes", function()
      local sizes = { 0, 1, 100, CALL_BYTES - 1, CALL_BYTES, CALL_BYTES + 1, 1000000, 0 }
      local path = mount { stream = true, max_bytes = math.huge, handler = function(call)
        for message in call:messages() do call:send(message) end
      end }
      local call = client:call(path)
      for i, size in ipairs(sizes) do client:send(call, (tostring(i)):rep(size)) end
      client:half_close(call)
      assert.equal(OK, (client:finish(call)))
      for i, size in ipairs(sizes) do assert.is_true(call.messages[i] == (tostring(i)):rep(size)) end
      assert.equal(#sizes, #call.messages)
    end)

    it("refuses to send values that are not strings", function()
      local path = mount_stream(function(call)
        assert.matches("string expected", misuse.raises(call.send, call, 5))
        assert.matches("with a colon", misuse.raises(call.send, "x"))
        assert.matches("with a colon", misuse.raises(call.receive))
        assert.matches("with a colon", misuse.raises(call.messages, {}))
      end)
      assert.equal(OK, (client:finish(client:call(path))))
    end)
  end)

  describe("with one slow side", function()
    it("slows down a client that sends without end", function()
      local gate, received = event(), 0
      local path = mount_stream(function(call)
        gate:wait()
        for message in call:messages() do received = received + #message end
      end)
      local call, total = client:call(path), 3 * WINDOW
      for _ = 1, total / 10000 + 1 do client:send(call, ("x"):rep(10000)) end
      client:half_close(call)
      client:settle()
      assert.is_true(client.sent > CALL_BYTES)
      assert.is_true(client.sent < WINDOW + 2 * CALL_BYTES + 10000)
      assert.equal(0, received)
      gate:set()
      assert.equal(OK, (client:finish(call)))
      assert.is_true(received > total)
    end)

    it("slows down a client that sends empty messages without end", function()
      local gate, received = event(), 0
      local path = mount_stream(function(call)
        gate:wait()
        for _ in call:messages() do received = received + 1 end
      end)
      local n = dose.of(3000, 50000)
      local call = client:call(path)
      client:settle()
      local live = core.probe and core.probe.live()
      for _ = 1, n do client:send(call, "") end
      client:half_close(call)
      client:settle()
      if live then assert.is_true(core.probe.live() - live < 4000) end
      gate:set()
      assert.equal(OK, (client:finish(call)))
      assert.equal(n, received)
    end)

    it("does not slow down other calls of the connection", function()
      local gate = event()
      server:mount("spec.Calls", {
        Stalled = { stream = true, handler = function() gate:wait() end },
        Other = function(request) return request end,
      })
      local stalled = client:call("/spec.Calls/Stalled")
      for _ = 1, 300 do client:send(stalled, ("x"):rep(10000)) end
      client:settle()
      assert.equal("a", client:unary("/spec.Calls/Other", "a"))
      gate:set()
      assert.equal(OK, (client:finish(stalled)))
      assert.equal("b", client:unary("/spec.Calls/Other", "b"))
    end)

    it("makes a handler wait that sends without end", function()
      local sent = 0
      local path = mount_stream(function(call)
        for _ = 1, 500 do
          call:send(("x"):rep(1000))
          sent = sent + 1
        end
      end)
      local call = client:call(path)
      client:pump()
      client:pause()
      client:settle()
      assert.is_true(sent > 10)
      assert.is_true(sent * 1000 <= CALL_BYTES)
      local before = sent
      client:settle()
      assert.equal(before, sent)
      client:resume()
      assert.equal(OK, (client:finish(call)))
      assert.equal(500, #call.messages)
    end)
  end)

  describe("that has ended", function()
    local function is_cancellation(err) return type(err) == "table" and err.code == "cancelled" end

    --- Returns the error of a handler with the body `wait`, when `leave` is called during the wait.
    local function end_of(wait, leave, metadata)
      local has_begun, err, again
      local path = mount_stream(function(call)
        has_begun = true
        local ok
        ok, err = pcall(wait, call)
        assert(not ok)
        again = { pcall(call.receive, call) }
        table.insert(again, select(2, pcall(call.send, call, "x")))
        error(err, 0)
      end)
      local call = client:call(path, metadata)
      client:wait(function() return has_begun end)
      client:settle()
      leave(call)
      client:wait(function() return again end)
      assert.is_true(is_cancellation(err))
      assert.is_false(again[1])
      assert.is_true(is_cancellation(again[2]))
      assert.is_true(is_cancellation(again[3]))
      return call
    end

    local waits = {
      ["receives"] = function(call) call:receive() end,
      ["sends"] = function(call)
        while true do call:send(("x"):rep(10000)) end
      end,
      ["sleeps"] = function() keywatch.sleep(1000) end,
      ["watches"] = function() store:watch("a"):next() end,
    }

    for name, wait in pairs(waits) do
      it("raises in a handler that " .. name, function()
        local lines = serving.log_of(function()
          client:pump()
          if name == "sends" then client:pause() end
          end_of(wait, function(call)
            client:cancel(call)
            client:resume()
          end)
          expect_nothing_left()
        end)
        assert.same({}, lines)
      end)
    end

    it("raises when its deadline has passed", function()
      for _, wait in pairs(waits) do
        local call = end_of(wait, function() end, { ["grpc-timeout"] = "150m" })
        assert.same({ DEADLINE_EXCEEDED, "context deadline exceeded" }, { client:finish(call) })
        expect_nothing_left()
      end
    end)

    it("raises when its deadline has passed, though the client does not read", function()
      client:pump()
      client:pause()
      end_of(waits.sends, function() end, { ["grpc-timeout"] = "150m" })
      expect_nothing_left()
    end)

    it("raises when the connection is lost", function()
      end_of(waits.receives, function() client:hang_up() end)
      expect_nothing_left()
    end)

    it("raises in a unary method, too", function()
      local err
      local path = mount(function() err = select(2, pcall(keywatch.sleep, 1000)) return "" end)
      local call = client:begin(path, "")
      client:settle()
      client:cancel(call)
      client:wait(function() return err end)
      assert.is_true(is_cancellation(err))
      expect_nothing_left()
    end)

    it("is not mistaken for a call whose client has half-closed", function()
      for pumps = 0, 3 do
        local gate, err = event(), nil
        local path = mount_stream(function(call)
          pcall(gate.wait, gate)
          local ok
          ok, err = pcall(function()
            for message in call:messages() do assert.equal("a", message) end
          end)
          assert(not ok, "it was")
        end)
        local call = client:call(path)
        client:send(call, "a")
        client:settle()
        gate:set()
        client:cancel(call)
        for _ = 1, pumps do client:pump() end
        client:wait(function() return err end)
        assert.is_true(is_cancellation(err))
      end
    end)

    it("ends in a handler that gets room at the same moment", function()
      local sent, is_over = 0, false
      local path = mount_stream(function(call)
        local ok, err = pcall(function()
          while true do
            call:send(("x"):rep(10000))
            sent = sent + 1
            assert(sent < 1000, "the call continues")
          end
        end)
        assert(not ok)
        is_over = is_cancellation(err)
      end)
      local call = client:call(path)
      client:pump()
      client:pause()
      client:settle()
      client:resume()
      client:pump() -- there is room
      client:cancel(call)
      client:pump() -- and no receiver
      client:wait(function() return is_over end)
      assert.is_true(sent < 100)
    end)

    it("never begins, if it ended before its turn", function()
      local n = 0
      local path = mount_stream(function() n = n + 1 end)
      for _ = 1, 10 do
        local call = client:call(path)
        client:pump()
        client:cancel(call)
        client:pump()
      end
      client:settle()
      assert.equal(0, n)
      assert.is_nil(next(server.calls))
    end)
  end)

  describe("whose handler fails", function()
    local function failure_of(handler)
      local answer, status, text
      local lines = serving.log_of(function() answer, status, text = client:unary(mount(handler), "") end)
      assert.is_nil(answer)
      return { status, text }, lines
    end

    local denied = { grpc_status = 7, message = "not you" }

    it("has the status of the error, returned or raised, and nothing is logged", function()
      for _, handler in ipairs { function() return nil, denied end, function() error(denied) end } do
        local got, lines = failure_of(handler)
        assert.same({ 7, "not you" }, got)
        assert.same({}, lines)
      end
    end)

    it("has the status of a store's error", function()
      assert.same({ 11, "etcdserver: mvcc: required revision is a future revision" },
        (failure_of(function() return store:get("a", { revision = 99 }) end)))
    end)

    it("has the status internal for any raised value, which is logged with a traceback", function()
      local got, lines = failure_of(function() error("a slip", 0) end)
      assert.same(SLIP, got)
      assert.equal(1, #lines)
      assert.matches("^/spec.Calls/Method has failed: a slip\nstack traceback:", lines[1])
      assert.matches("call_spec", lines[1])
    end)

    it("has a separate status for a returned error without a status, and nothing is logged", function()
      local got, lines = failure_of(function() return nil, "not today" end)
      assert.same({ UNKNOWN, "not today" }, got)
      assert.same({}, lines)
    end)

    it("has the same status for a status that gRPC does not have", function()
      for _, status in ipairs { 0, -1, 17, 1.5, "7", true } do
        local function odd() return nil, { grpc_status = status, message = "x" } end
        assert.same({ UNKNOWN, "x" }, (failure_of(odd)))
        assert.same(SLIP, (failure_of(function() error(select(2, odd())) end)))
      end
    end)

    it("has the same status for a value that cannot be printed", function()
      local odd = setmetatable({}, { __tostring = function() error("no") end })
      local odder = setmetatable({}, { __index = function() error("no") end })
      for _, err in ipairs { odd, odder } do
        assert.same(SLIP, (failure_of(function() error(err) end)))
        assert.equal(UNKNOWN, failure_of(function() return nil, err end)[1])
      end
    end)

    it("has the status internal if nothing is returned, or a value that cannot be encoded", function()
      local got, lines = failure_of(function() end)
      assert.same(SLIP, got)
      assert.equal(1, #lines)
      assert.matches("the handler of /spec.Calls/Method has returned neither an answer nor an error", lines[1])
      assert.same(SLIP, (failure_of(function() return {} end)))
      assert.same(SLIP, (failure_of(function() return true end)))
    end)

    it("is logged at a limited rate and length, and the rest is counted", function()
      local path = mount(function(request) error(request) end)
      local lines = serving.log_of(function()
        for _ = 1, 30 do client:unary(path, ("x"):rep(10000)) end
        server:close()
      end)
      local last = table.remove(lines)
      assert.equal("further failures of handlers: " .. 30 - #lines, last)
      assert.is_true(#lines >= 20 and #lines < 30)
      for _, line in ipairs(lines) do assert.equal(4096, #line) end
    end)

    it("treats false as nil", function()
      assert.same({ 7, "not you" }, (failure_of(function() return false, denied end)))
      assert.same(SLIP, (failure_of(function() return false end)))
    end)

    it("has the error of the function that decodes or encodes a message", function()
      local function bad() return nil, denied end
      local function echo(request) return tostring(request) end
      assert.same({ 7, "not you" }, (failure_of { handler = echo, request = bad }))
      assert.same({ 7, "not you" }, (failure_of { handler = echo, response = bad }))
      local got, lines = failure_of { handler = echo, request = function() return nil, "not mine" end }
      assert.same({ UNKNOWN, "not mine" }, got)
      assert.same({}, lines)
      got, lines = failure_of { handler = echo, response = function() return {} end }
      assert.same(SLIP, got)
      assert.matches("the answer of /spec.Calls/Method is a table, not a string", lines[1])
    end)

    it("may have any bytes in its text", function()
      local text = "ü % \n\0 ok"
      assert.same({ 3, text }, (failure_of(function() return nil, { grpc_status = 3, message = text } end)))
    end)

    it("ends a stream in the same ways, after the messages that were sent", function()
      local function stream_of(handler)
        local call
        serving.log_of(function()
          call = client:call(mount_stream(function(c)
            c:send("before")
            return handler()
          end))
          client:finish(call)
        end)
        return { call.status, call.text, call.messages[1] }
      end
      assert.same({ 7, "not you", "before" }, stream_of(function() return nil, denied end))
      assert.same({ 7, "not you", "before" }, stream_of(function() error(denied) end))
      assert.same({ SLIP[1], SLIP[2], "before" }, stream_of(function() error("slip", 0) end))
      assert.same({ 7, "not you", "before" }, stream_of(function() return false, denied end))
      assert.same({ SLIP[1], SLIP[2], "before" }, stream_of(function() return false end))
      assert.same({ OK, "", "before" }, stream_of(function() return "whatever" end))
    end)

    it("ends neither the program nor other calls", function()
      local path = mount(function(request)
        if request == "bad" then error("bad") end
        return request
      end)
      keywatch.run(function()
        serving.log_of(function() assert.is_nil(client:unary(path, "bad")) end)
        assert.equal("good", client:unary(path, "good"))
      end)
    end)
  end)

  describe("when the server closes", function()
    it("raises in its handler, which may clean up in a shield", function()
      local gate, outcome = event(), nil
      local path = mount_stream(function(call)
        local ok, err = pcall(call.receive, call)
        keywatch.shield(60, gate.wait, gate)
        outcome = { ok, err.code, pcall(call.send, call, "x") }
      end)
      client:call(path)
      client:settle()
      server:close()
      assert.is_nil(next(server.calls))
      for _ = 1, 5 do keywatch.sleep(0) end
      assert.is_nil(outcome)
      gate:set()
      for _ = 1, 5 do keywatch.sleep(0) end
      assert.same({ false, "cancelled", false }, { outcome[1], outcome[2], outcome[3] })
      assert.equal("cancelled", outcome[4].code)
    end)

    it("ends silently if the handler allows that", function()
      local lines = serving.log_of(function()
        client:begin(mount(function() keywatch.sleep(1000) end), "")
        client:call(mount_stream(function(call) call:receive() end))
        client:settle()
        server:close()
        for _ = 1, 5 do keywatch.sleep(0) end
      end)
      assert.same({}, lines)
    end)

    it("is ended at a graceful shutdown if it is a stream, and awaited if it is unary", function()
      local gate = event()
      server:mount("spec.Calls", {
        Unary = function() gate:wait() return "at last" end,
        Stream = { stream = true, handler = function(call) call:receive() end },
      })
      local unary, stream = client:begin("/spec.Calls/Unary", ""), client:call("/spec.Calls/Stream")
      client:settle()
      server.object:drain(10)
      assert.same({ UNAVAILABLE, "etcdserver: server stopped" }, { client:finish(stream) })
      assert.is_nil(unary.status)
      gate:set()
      assert.equal(OK, (client:finish(unary)))
      assert.same({ "at last" }, unary.messages)
    end)

    it("ends with the run in which its handler waits", function()
      local path = mount(function() keywatch.sleep(1000) return "" end)
      local call = client:begin(path, "")
      keywatch.run(function() client:settle() end)
      assert.same({ UNAVAILABLE, "etcdserver: server stopped" }, { client:finish(call) })
    end)
  end)

  local function live_blocks()
    collectgarbage()
    return core.probe.live()
  end

  it("does not leak memory, even after thousands of calls", function()
    server:mount("spec.Calls", {
      Unary = function(request) return request end,
      Stream = { stream = true, handler = function(call)
        for message in call:messages() do call:send(message) end
      end },
      Lost = { stream = true, handler = function(call) call:receive() end },
    })
    local rounds = dose.of(3, 30)
    local live
    for round = 1, rounds do
      local calls, lost = {}, {}
      for i = 1, 30 do
        calls[2 * i - 1] = client:begin("/spec.Calls/Unary", tostring(i))
        calls[2 * i] = client:begin("/spec.Calls/Stream", tostring(i))
        lost[i] = client:call("/spec.Calls/Lost")
      end
      for i = 1, 60 do client:finish(calls[i]) end
      for i = 1, 60 do assert.same({ OK, { tostring(math.ceil(i / 2)) } }, { calls[i].status, calls[i].messages }) end
      for i = 1, 30 do client:cancel(lost[i]) end
      expect_nothing_left()
      client:settle()
      if core.probe and round == 2 then live = live_blocks() end
    end
    if live then assert.is_true(live_blocks() <= live + 60) end -- one that every call of a round loses is 90
  end)

  it("may be split at any byte", function()
    local path = mount_stream(function(call)
      for message in call:messages() do call:send(message) end
    end)
    local feed = client.peer.feed
    local torn = setmetatable({}, { __index = function(_, name)
      return function(_, ...)
        if name ~= "feed" then return client.whole[name](client.whole, ...) end
        for byte in (...):gmatch(".") do feed(client.whole, byte) end
      end
    end })
    client.whole, client.peer = client.peer, torn
    local call = client:call(path)
    for i = 1, 20 do client:send(call, ("m"):rep(i)) end
    client:half_close(call)
    assert.equal(OK, (client:finish(call)))
    assert.equal(20, #call.messages)
    client.peer = client.whole
  end)
end)

describe("server:mount", function()
  local function answer_with(text) return function() return text end end

  it("adds a service, which other servers do not have", function()
    server:mount("a.B", { C = answer_with("c") })
    assert.equal("c", client:unary("/a.B/C", ""))
    assert.same({ nil, 12, "unknown method D for service a.B" }, { client:unary("/a.B/D", "") })
    assert.same({ nil, 12, "unknown service a.C" }, { client:unary("/a.C/C", "") })
  end)

  it("adds methods to a service, and replaces them; calls that have begun continue", function()
    local gate = require("keywatch.task.driver").get().event()
    server:mount("a.B", { C = function() gate:wait() return "old" end })
    local old = client:begin("/a.B/C", "")
    client:settle()
    server:mount("a.B", { C = answer_with("new"), D = answer_with("d") })
    assert.equal("new", client:unary("/a.B/C", ""))
    assert.equal("d", client:unary("/a.B/D", ""))
    gate:set()
    client:finish(old)
    assert.same({ "old" }, old.messages)
  end)

  it("replaces methods of etcd's services, too", function()
    server:mount("etcdserverpb.KV", { Put = answer_with("no") })
    assert.equal("no", client:unary("/etcdserverpb.KV/Put", ""))
    assert.is_table(client:ask("/etcdserverpb.KV/Range", { key = "a" }))
  end)

  it("raises on a usage error, and has then mounted nothing", function()
    local function raises(...) return misuse.raises(server.mount, server, ...) end
    local fine = answer_with("")
    assert.matches("bad argument #1 to 'mount'", raises(nil, {}))
    assert.matches("bad argument #2 to 'mount'", raises("a.B"))
    assert.matches("the key of a method must be its name", raises("a.B", { fine }))
    assert.matches("C must be a function, or a table", raises("a.B", { C = 5 }))
    assert.matches("C must be a function, or a table", raises("a.B", { C = {} }))
    assert.matches("'handler' must be a function", raises("a.B", { C = { handler = "x" } }))
    assert.matches("'stream' must be a boolean", raises("a.B", { C = { handler = fine, stream = 1 } }))
    assert.matches("'request' must be the name of a message", raises("a.B", { C = { handler = fine, request = "No" } }))
    assert.matches("'response' must be", raises("a.B", { C = { handler = fine, response = {} } }))
    assert.matches("there is no option 'reqest'", raises("a.B", { C = { handler = fine, reqest = "PutRequest" } }))
    raises("a.B", { D = fine, E = fine, F = fine, G = 5 })
    assert.equal(12, select(2, client:unary("/a.B/D", "")))
    server:close()
    assert.matches("the server is closed", raises("a.B", { C = fine }))
  end)

  it("takes the annotated fields, and no others", function()
    local fields = annotations.read("types/keywatch.lua"):fields("keywatch.Method")
    for name in pairs(fields) do
      local method = { handler = answer_with("") }
      method[name] = io.stdout
      assert.matches(("'%s' must be"):format(name), misuse.raises(server.mount, server, "a.B", { C = method }))
    end
    local given = { handler = answer_with(""), stream = false, request = tostring, response = "PutRequest" }
    for name in pairs(given) do assert.is_table(fields[name]) end
    server:mount("a.B", { C = given })
  end)
end)

if core.probe then
  describe("a call without memory", function()
    local probe = core.probe

    it("fails alone", function()
      server:mount("a.B", {
        C = { stream = true, handler = function(call)
          for message in call:messages() do call:send(message) end
        end },
      })
      local statuses = {}
      for n = 1, 60 do
        local own = rpc.attach(server)
        own:settle()
        local call = own:begin("/a.B/C", ("x"):rep(3000))
        local out = own.core:pending()
        probe.fail_core(n)
        own.peer:feed(out)
        probe.fail_core(0)
        local deadline = keywatch.now() + 10
        while not call.status and not select(2, own.peer:state()) and keywatch.now() < deadline do own:turn() end
        statuses[call.status or "connection"] = true
        own:close()
      end
      local call = client:begin("/a.B/C", "x")
      assert.equal(OK, (client:finish(call)))
      client:wait(function() return next(server.calls) == nil end)
      assert.is_true(statuses[OK])
      assert.is_nil(statuses[CANCELLED])
    end)
  end)
end
