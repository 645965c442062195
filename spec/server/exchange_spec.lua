--- HTTP requests over HTTP/2, frame by frame, in frozen time: which are refused or malformed, bodies and their
-- limits of time, windows, and answers that end before their requests. Without Lua's server: the core's calls.

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local KIB, MIB = 1024, 1024 * 1024
local OK, CANCELLED = 0, 1

describe("a server's HTTP exchange over HTTP/2", function()
  local host, raw, calls, by_id

  pair.for_each_test(function(new)
    host, calls, by_id = new, {}, {}
    raw = host:raw(h2.hello { initial_window_size = MIB })
    raw:say(h2.settings("ack"))
  end)

  --- Takes all news of calls: calls[n] = { id, head, body, has_end, status }, in the order in which they began.
  local function take()
    host:pump()
    for id, is_new, has_input, _, status in host.server.next_news, host.server do
      if is_new then
        local _, _, _, _, _, head = host.server:info(id)
        calls[#calls + 1] = { id = id, head = head and table.concat(head, " "), body = "" }
        by_id[id] = calls[#calls]
      end
      local call = by_id[id]
      if has_input and not call.is_stuck then
        for part in function() return host.server:receive(id) end do
          if not part then
            call.has_end = true
            break
          end
          call.body = call.body .. part
        end
      end
      call.status = status or call.status
    end
    host:pump()
    host:check()
    return calls
  end

  --- Answers a call, with a body or without an end.
  local function answer(call, status, body, fields)
    assert.is_true(host.server:answer(call.id, status, fields or {}, body and #body))
    if not body then return host:pump() end
    host.server:send(call.id, body)
    host.server:finish(call.id, OK)
    take()
  end

  local function lines_of(changes)
    local all = { [":method"] = "GET", ["content-type"] = false, te = false }
    for name, value in pairs(changes or {}) do all[name] = value end
    return all
  end

  local function request(id, path, changes, options) return h2.request(id, path, lines_of(changes), options) end
  local function post(id, length, expect)
    return request(id, "/", { [":method"] = "POST", ["content-length"] = length, expect = expect })
  end

  local function say(...)
    raw:send(...)
    return take()
  end

  local function stream(id) return raw.reader:stream(id) end
  local function body_of(id) return table.concat(stream(id).parts) end

  it("has the head of the request, and answers it", function()
    say(request(1, "/a?b=c", { accept = "*/*", cookie = "a=b" }, { ends = true }))
    assert.same({ { id = calls[1].id, body = "", has_end = true,
      head = ":method GET :scheme http :authority spec :path /a?b=c accept */* cookie a=b" } }, { calls[1] })
    answer(calls[1], 200, "hello", { "Content-Type", "a/b", "x", "y" })
    assert.matches("^%a%a%a, %d%d .* GMT$", stream(1).headers.date)
    stream(1).headers.date = nil
    assert.same({ [":status"] = "200", ["content-type"] = "a/b", x = "y", ["content-length"] = "5" }, stream(1).headers)
    assert.equal("hello", body_of(1))
    assert.is_true(stream(1).is_ended)
    assert.is_nil(calls[1].status)
    assert.is_nil((host.server:head(calls[1].id)))
  end)

  it("has no news after it was finished, unless calls are intercepted", function()
    say(request(1, "/", nil, { ends = true }), post(3))
    for i = 1, 2 do assert.is_true(host.server:answer(calls[i].id, 200, { "x", "y" }, "whole")) end
    say(h2.data(3, "late"))
    host.server:intercept()
    say(request(5, "/", nil, { ends = true }))
    assert.is_true(host.server:answer(calls[3].id, 200, {}, ""))
    take()
    assert.same({ "whole", "whole", "" }, { body_of(1), body_of(3), body_of(5) })
    assert.same({ "5", "y" }, { stream(1).headers["content-length"], stream(1).headers.x })
    assert.is_true(stream(1).is_ended and stream(3).is_ended and stream(5).is_ended)
    assert.is_nil(calls[1].status or calls[2].status)
    assert.equal(OK, calls[3].status)
    assert.same({ "", "" }, { calls[1].body, calls[2].body })
  end)

  it("needs no call if its path has a fixed answer, and gets the last one", function()
    for _, path in ipairs { "/b", "/a", "/b" } do host.server:fix_answer(path, "a/b", path .. "1") end
    host.server:fix_answer("/a", "a/b", "/a2")
    say(request(1, "/a", nil, { ends = true }), request(3, "/b", nil, { ends = true }))
    assert.same({ "/a2", "/b1" }, { body_of(1), body_of(3) })
    assert.is_true(stream(1).is_ended and stream(3).is_ended)
    assert.same({}, calls)
  end)

  it("does not depend on how its bytes are split", function()
    local bytes = h2.hello() .. request(1, "/1", nil, { ends = true })
      .. h2.request(3, "/3", lines_of { [":method"] = "POST" }, { pad = 3, priority = true })
      .. h2.data(3, "abc", { pad = 5 }) .. h2.data(3, "") .. h2.data(3, "de")
      .. h2.headers(3, { { "x-sum", "1" } }, { ends = true })
      .. h2.call(5, pair.paths.Put, "\10\1k") .. request(7, "/%", nil, { ends = true })
    local function run(size)
      calls = {}
      raw = host:raw(false)
      for at = 1, #bytes, size do say(bytes:sub(at, at + size - 1)) end
      assert.same({ "", "abcde" }, { calls[1].body, calls[2].body })
      assert.is_true(calls[1].has_end and calls[2].has_end)
      for i = 1, 2 do answer(calls[i], 200, "answer " .. i) end
      assert.same({ "answer 1", "answer 2" }, { body_of(1), body_of(3) })
      assert.equal("400", stream(7).headers[":status"])
      return { calls[1].head, calls[2].head, raw.reader:status(5) }
    end
    local expected = run(#bytes)
    for _, size in ipairs { 1, 2, 3, 7, 10, 50 } do assert.same(expected, run(size)) end
  end)

  it("is reset if HTTP/2 forbids the request", function()
    local id = 1
    local function expect_malformed(frames, why)
      say(frames)
      assert.equal("protocol_error", stream(id).reset, why)
      assert.equal(0, #calls)
      id = id + 2
    end
    for _, changes in ipairs { { [":path"] = false }, { [":scheme"] = false }, { [":method"] = false },
      { [":path"] = "" }, { [":path"] = "a" }, { [":path"] = "http://spec/" }, { [":protocol"] = "x" },
      { [":status"] = "200" }, { te = "gzip" }, { a = " b" }, { a = "b\t" }, { connection = "close" }, { A = "b" },
      { ["content-length"] = "1" } } do
      expect_malformed(request(id, "/", changes, { ends = true }), next(changes))
    end
    expect_malformed(h2.headers(id, { { ":method", "GET" }, { ":path", "/" }, { ":scheme", "http" },
      { ":authority", "a" }, { ":path", "/" } }, { ends = true }), "a path twice")
    expect_malformed(h2.headers(id, { { ":method", "GET" }, { "a", "b" }, { ":path", "/" }, { ":scheme", "http" } },
      { ends = true }), "order")
  end)

  it("is refused with the same status as over HTTP/1.1, and the connection stays open", function()
    local id = 1
    local many = {}
    for i = 1, 101 do many["x" .. i] = "y" end
    for _, case in ipairs {
      { 400, { [":authority"] = false } }, { 400, { [":authority"] = "a b" } }, { 400, { host = "other" } },
      { 400, { [":scheme"] = "ftp" } }, { 400, { [":path"] = "/%zz" } }, { 400, { [":path"] = "/../" } },
      { 400, { [":path"] = "*" } }, { 400, { [":method"] = "G T" } }, { 400, { ["content-length"] = "x" } },
      { 400, { a = "\1" } }, { 417, { expect = "wonders" } }, { 431, many }, { 501, { [":method"] = "CONNECT" } },
    } do
      say(request(id, "/", case[2], { ends = true }))
      assert.equal(tostring(case[1]), stream(id).headers[":status"], case[2][1])
      assert.equal(tostring(#body_of(id)), stream(id).headers["content-length"])
      assert.is_true(#body_of(id) > 10)
      assert.is_true(stream(id).is_ended)
      id = id + 2
    end
    assert.equal(0, #calls)
    say(request(id, "/", { [":authority"] = false, host = "h" }, { ends = true }),
      request(id + 2, "*", { [":method"] = "OPTIONS", host = "spec" }, { ends = true }))
    assert.equal(":method GET :scheme http :authority h :path /", calls[1].head)
    assert.equal(":method OPTIONS :scheme http :authority spec :path *", calls[2].head)
  end)

  it("checks the body against its length, and trailers", function()
    say(post(1, "3"), h2.data(1, "abcd"))
    say(post(3, "3"), h2.data(3, "ab", { ends = true }))
    say(post(5), h2.headers(5, { { ":path", "/" } }, { ends = true }))
    say(post(7), h2.headers(7, { { "a", "b" } }))
    for id = 1, 7, 2 do
      assert.equal("protocol_error", stream(id).reset)
      assert.equal(CANCELLED, calls[(id + 1) / 2].status)
    end
    say(post(9, "3"), h2.data(9, "abc"), h2.headers(9, { { "a", "b" } }, { ends = true }))
    assert.is_true(calls[5].has_end)
  end)

  it("sends status 100 to a client that waits for it, before the body arrives", function()
    say(post(1, "3", "100-continue"))
    assert.equal("100", stream(1).headers[":status"])
    assert.is_false(stream(1).is_ended)
  end)

  it("has no body for HEAD, 204 and 304", function()
    say(request(1, "/", { [":method"] = "HEAD" }, { ends = true }), request(3, "/", nil, { ends = true }),
      request(5, "/", nil, { ends = true }))
    for i, status in ipairs { 200, 204, 304 } do answer(calls[i], status, "body") end
    assert.same({ "", "", "" }, { body_of(1), body_of(3), body_of(5) })
    assert.equal("4", stream(1).headers["content-length"])
    assert.is_nil(stream(3).headers["content-length"])
    for id = 1, 5, 2 do assert.is_true(stream(id).is_ended) end
  end)

  it("is cancelled when the client resets it, and leaves the others", function()
    say(post(1), request(3, "/", nil, { ends = true }))
    answer(calls[2], 200)
    say(h2.reset(1), h2.reset(3))
    assert.same({ CANCELLED, CANCELLED }, { calls[1].status, calls[2].status })
    assert.is_false(raw:is_done())
  end)

  it("lets the client send no more than a window while the body is not received", function()
    say(post(1))
    calls[1].is_stuck = true
    for _ = 1, 64 do say(h2.data(1, ("x"):rep(16384))) end
    assert.is_true((raw.reader.windows[1] or 0) <= 128 * KIB)
    assert.is_true(raw.reader.windows[0] > MIB / 2)
    calls[1].is_stuck = false
    while #calls[1].body < MIB do
      calls[1].body = calls[1].body .. (host.server:receive(calls[1].id) or "")
      raw.peer:step(host.now)
      take()
    end
    assert.is_true(raw.reader.windows[1] > MIB / 2)
  end)

  it("is refused after a minute without a part of the body, if it is received", function()
    say(post(1), post(3))
    calls[2].is_stuck = true
    host.now = host.now + 59
    say(h2.data(1, "x"), h2.data_in_parts(3, ("x"):rep(MIB / 8), 16384))
    host.now = host.now + 59
    raw.peer:step(host.now)
    take()
    assert.is_nil(stream(1).headers)
    host.now = host.now + 1
    raw.peer:step(host.now)
    take()
    assert.equal("408", stream(1).headers[":status"])
    assert.equal(CANCELLED, calls[1].status)
    assert.is_nil(stream(3).headers)
    assert.is_nil(calls[2].status)
  end)

  it("drops the rest of a request that was answered, for a second", function()
    say(post(1), post(3))
    for i = 1, 2 do answer(calls[i], 404, "no") end
    say(h2.data(1, "late", { ends = true }), h2.data(3, "late"))
    assert.same({ true, true }, { stream(1).is_ended, stream(3).is_ended })
    host.now = host.now + 1
    raw.peer:step(host.now)
    take()
    assert.is_nil(stream(1).reset)
    assert.equal("no_error", stream(3).reset)
  end)
end)
