--- A client that sends and does not read, or sends far too much: memory stays bounded, others are served at the same
-- time, and all answers arrive, complete, when the client reads.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local paths = pair.paths

local WIDE = 2 ^ 31 - 1

--- The first bytes of a client that accepts answers of any size.
local function wide_hello() return h2.hello { initial_window_size = WIDE } .. h2.window(0, WIDE - 65535) end

local function encoded(method, request) return core.encode(pair.request_name(method), request) end

--- Resident memory in MiB. Sanitizers hold back what is freed: there, nothing is said about it.
local function resident()
  if core.probe then return 0 end
  collectgarbage()
  collectgarbage()
  local file = assert(io.open("/proc/self/statm"))
  local pages = file:read("*a"):match("%d+ (%d+)")
  file:close()
  return pages * 4096 / 2 ^ 20
end

describe("a client that does not read #slow", function()
  local host, other

  local function begin(store_options, server_options)
    host = pair.host(store_options, server_options)
    other = host:client()
  end

  after_each(function() host:close() end)

  --- Takes almost nothing of what waits, as a socket that is full.
  local function sip(raw) raw.reader:feed(raw.peer:pending(1)) end

  --- A connection that reads almost nothing of the server's output.
  local function deaf(hello)
    local raw = host:raw(hello or wide_hello())
    raw.is_deaf = true
    raw:push()
    sip(raw)
    return raw
  end

  --- A client that has received the server's settings, and acknowledged them.
  local function settled()
    local raw = host:raw(wide_hello())
    host:pump()
    raw:say(h2.settings("ack"))
    return raw
  end

  --- Sends make(i), for i = 1, 2, …, n, as long as it is taken. Returns how many were.
  local function flood(raw, n, make)
    for i = 1, n do
      local wants, is_done = raw.peer:state()
      if is_done or not wants then return i - 1 end
      raw.peer:feed(make(i), host.now)
      if i % 16 == 0 then
        host:step()
        sip(raw)
      end
    end
    sip(raw)
    return n
  end

  --- Takes the pending output, piece by piece, beginning with the rest of the last piece.
  local function read_all(raw, from, n, make)
    for _ = 1, 100000 do
      local bytes = raw.peer:pending(2 ^ 18 + 1)
      host:step()
      raw.reader:feed(bytes)
      while from < n and raw.peer:state() do
        from = from + 1
        raw.peer:feed(make(from), host.now)
      end
      if bytes == "" and from == n then return end
    end
    error("there is no end")
  end

  local function is_served()
    return other:unary("Put", { key = "other", value = "x" }) ~= nil and
      other:unary("Range", { key = "other" }).kvs[1].value == "x"
  end

  it("gets every large answer in the end", function()
    begin()
    for i = 1, 4 do host.store:put("k" .. i, ("%d"):format(i):rep(60000)) end
    local raw = deaf()
    local function ask(i)
      return h2.call(2 * i - 1, paths.Range, encoded("Range", { key = "k" .. (i % 4 + 1) }))
    end
    local before = resident()
    local n = flood(raw, 600, ask)
    assert(n > 50, n)
    assert(resident() - before < 24, resident() - before)
    assert.is_true(is_served())
    read_all(raw, n, 600, ask)
    for i = 1, 600 do
      local value = core.decode("RangeResponse", raw.reader:messages(2 * i - 1)[1]).kvs[1].value
      assert(value == ("%d"):format(i % 4 + 1):rep(60000))
      assert.equal(0, (raw.reader:status(2 * i - 1)))
      raw.reader.streams[2 * i - 1] = nil
    end
  end)

  it("gets every answer in the end, even if it opens only the connection's window", function()
    begin()
    host.store:put("k", ("v"):rep(60000))
    local raw = host:raw(h2.hello { initial_window_size = 0 })
    local n = 500
    for i = 1, n do raw:say(h2.call(2 * i - 1, paths.Range, encoded("Range", { key = "k" }))) end
    assert.is_true((raw.peer:state()))
    assert.is_true(is_served())
    raw:say(h2.settings { initial_window_size = WIDE }, h2.window(0, WIDE - 65535))
    for i = 1, n do
      assert.equal(60000, #core.decode("RangeResponse", raw.reader:messages(2 * i - 1)[1]).kvs[1].value)
    end
  end)

  it("gets its connection's window back when it cancels blocked calls", function()
    begin()
    host.store:put("k", ("v"):rep(2 ^ 20))
    local raw = host:raw(h2.hello { initial_window_size = 0 })
    host:pump()
    raw:say(h2.settings("ack"))
    for i = 1, 5 do raw:say(h2.call(2 * i - 1, paths.Range, encoded("Range", { key = "k" }))) end
    local part, sent = ("x"):rep(16384), 0
    for i = 1, 12 do -- each holds back much of its window
      local id = 9 + 2 * i
      raw:say(h2.request(id, paths.Put), h2.data(id, "\0" .. h2.pack(2 ^ 20, 4)))
      for _ = 1, 40 do raw:say(h2.data(id, part)) end
      sent = sent + 40 * 16384
      raw:say(h2.reset(id))
    end
    assert.is_false(raw:is_done())
    assert((raw.reader.windows[0] or 0) > sent - 2 ^ 22, "the window is " .. (raw.reader.windows[0] or 0))
  end)

  it("gets every event of its watch in the end", function()
    begin()
    local raw = deaf()
    raw.peer:feed(h2.request(1, paths.Watch) .. h2.data(1, h2.message(encoded("Watch", { create_request = {
      key = "k", range_end = "l" } }))), host.now)
    local count, value = 5000, ("v"):rep(1000)
    local quick = other:stream("Watch")
    quick:ask { create_request = { key = "k" } }
    local before = resident()
    local seen = 0
    for i = 1, count do
      host.store:put("k", value .. i)
      if i % 50 == 0 then
        sip(raw)
        for _, response in ipairs(quick:take()) do seen = seen + #response.events end
      end
    end
    assert.equal(count, seen)
    assert(resident() - before < 48, resident() - before) -- the history takes some 10 of them
    read_all(raw, 0, 0)
    local revision = 2
    for i, message in ipairs(raw.reader:messages(1)) do
      local response = core.decode("WatchResponse", message)
      for _, event in ipairs(response.events or {}) do
        assert.equal(revision, event.kv.mod_revision)
        assert.equal(value .. revision - 1, event.kv.value)
        revision = revision + 1
      end
      assert(i == 1 or response.header.revision >= revision - 1)
    end
    assert.equal(count + 2, revision)
  end)

  it("gets answers on the connection of its blocked watches", function()
    begin()
    for i = 1, 6 do host.store:put("k" .. i, ("v"):rep(2 ^ 20)) end
    local raw = host:raw(h2.hello { initial_window_size = 100 } .. h2.window(0, WIDE - 65535))
    for i = 1, 6 do
      raw:say(h2.request(2 * i - 1, paths.Watch), h2.data(2 * i - 1, h2.message(encoded("Watch", {
        create_request = { key = "k" .. i, start_revision = 1 } }))))
    end
    raw:say(h2.request(21, paths.Put), h2.window(21, 1000), h2.data(21, h2.message(encoded("Put", { key = "a" })),
      { ends = true }))
    assert.equal(0, (raw.reader:status(21)))
    for i = 1, 6 do raw:send(h2.window(2 * i - 1, 2 ^ 21)) end
    host:pump()
    for i = 1, 6 do
      local received = raw.reader:messages(2 * i - 1)
      assert.equal(2 ^ 20, #core.decode("WatchResponse", received[2]).events[1].kv.value)
    end
  end)

  local floods = {
    ["that pings"] = function() return h2.ping() end,
    ["that sends settings"] = function() return h2.settings { initial_window_size = 1000 } end,
    ["that opens streams without end"] = function(i) return h2.request(2 * i - 1, paths.Watch) end,
    ["that opens streams and resets them"] = function(i)
      return h2.request(2 * i - 1, paths.Watch) .. h2.reset(2 * i - 1)
    end,
    ["that calls what there is not"] = function(i) return h2.call(2 * i - 1, "/no/no", "") end,
    ["that sends malformed requests"] = function(i)
      return h2.request(2 * i - 1, paths.Range, { Upper = "1" }, { ends = true })
    end,
    ["that sends requests without a path"] = function(i)
      return h2.request(2 * i - 1, paths.Range, { [":path"] = false }, { ends = true })
    end,
    ["that sends too many headers"] = function(i)
      return h2.request(2 * i - 1, paths.Range, { x = ("v"):rep(60000), y = ("v"):rep(10000) },
        { ends = true, split = 16384 })
    end,
    ["that sends priorities"] = function(i) return h2.frame("priority", 0, 2 * i - 1, h2.pack(0, 4) .. "\1") end,
    ["that opens windows"] = function() return h2.window(0, 1) end,
    ["that sends empty frames"] = function(i)
      return (i == 1 and h2.request(1, paths.Watch) or "") .. h2.data(1, "")
    end,
    ["that keeps a lease alive"] = function(i)
      return (i == 1 and h2.request(1, paths.LeaseKeepAlive) or "") .. h2.data(1, h2.message(""))
    end,
    ["that asks a watch to be made and cancelled"] = function(i)
      return (i == 1 and h2.request(1, paths.Watch) or "") .. h2.data(1, h2.message(encoded("Watch",
        { create_request = { key = "a", watch_id = 1 } })) .. h2.message(encoded("Watch",
        { cancel_request = { watch_id = 1 } })))
    end,
  }

  -- Frames without an answer are accepted without a limit, and the limit of large frames is not reached here. A stream
  -- that exceeds its window is reset, and its later frames are ignored.
  local endless = { ["that sends priorities"] = 20000, ["that opens windows"] = 20000,
    ["that sends empty frames"] = 20000, ["that sends too many headers"] = 1000,
    ["that keeps a lease alive"] = 150000, ["that asks a watch to be made and cancelled"] = 50000 }

  for name, make in pairs(floods) do
    it(name .. " takes bounded memory and blocks no other client", function()
      begin(nil, { max_concurrent_streams = 2000 })
      local raw = deaf(h2.hello())
      local many = endless[name] or 150000
      local before, blocks = resident(), core.probe and core.probe.live() or 0
      local n = flood(raw, many, make)
      assert.equal(endless[name] ~= nil, n == many)
      assert(resident() - before < 24, ("%s: %f MiB"):format(name, resident() - before))
      if core.probe then assert(core.probe.live() - blocks < 40000, core.probe.live() - blocks) end
      assert.is_true(is_served())
    end)
  end

  it("may have a limited number of incomplete messages", function()
    begin()
    local raw = settled()
    local part = ("x"):rep(16384)
    local before = resident()
    for i = 1, 150 do
      local id = 2 * i - 1
      raw:say(h2.request(id, paths.Put), h2.data(id, "\0" .. h2.pack(2 ^ 20, 4)))
      for _ = 1, 60 do raw:send(h2.data(id, part)) end
      host:pump()
    end
    assert(resident() - before < 200, resident() - before)
    local failed = 0
    for i = 1, 150 do
      local status = raw.reader:status(2 * i - 1)
      assert(status == nil or status == 8)
      if status then failed = failed + 1 end
    end
    assert(failed > 50 and failed < 120, failed)
    assert.is_true(is_served())
    for i = 1, 150 do raw:say(h2.reset(2 * i - 1)) end
    raw:say(h2.request(401, paths.Put), h2.data_in_parts(401, h2.message(encoded("Put", { key = "a",
      value = ("v"):rep(50000) })), 16384, { ends = true }))
    assert.equal(0, (raw.reader:status(401)))
  end)

  it("may have a limited number of whole messages on open streams", function()
    begin()
    local raw = settled()
    local before = resident()
    local message = h2.message(encoded("Put", { key = "k", value = ("x"):rep(2 ^ 20 - 100) }))
    for i = 1, 150 do
      raw:say(h2.request(2 * i - 1, paths.Put), h2.data_in_parts(2 * i - 1, message, 16384))
    end
    assert(resident() - before < 200, resident() - before)
    assert.equal(8, (raw.reader:status(299)))
    assert.is_nil((raw.reader:status(1)))
    raw:say(h2.data(1, "", { ends = true }))
    assert.equal(0, (raw.reader:status(1)))
    assert.equal(2, host.store:status().revision)
  end)

  it("gets an error if it has too many concurrent requests", function()
    begin()
    local raw = settled()
    local message = h2.message(("\18\4\18\2\10\0"):rep(300000)) -- success = { request_put = { key = "" } }
    local before = resident()
    raw:say(h2.request(1, paths.Txn))
    for at = 1, #message, 16384 do
      raw:say(h2.data(1, message:sub(at, at + 16383), { ends = at + 16384 > #message }))
    end
    assert.equal(3, (raw.reader:status(1)))
    assert(resident() - before < 100, resident() - before)
  end)

  it("is refused streams beyond the limit, and keeps the others", function()
    begin(nil, { max_concurrent_streams = 10 })
    local raw = host:raw()
    for i = 1, 12 do raw:send(h2.request(2 * i - 1, paths.Watch)) end
    host:pump()
    assert.is_nil(raw.reader:stream(19).reset)
    assert.equal("refused_stream", raw.reader:stream(21).reset)
    assert.equal("refused_stream", raw.reader:stream(23).reset)
    raw:say(h2.reset(1), h2.call(25, paths.Put, encoded("Put", { key = "a" })))
    assert.equal(0, (raw.reader:status(25)))
  end)

  it("is disconnected if it has acknowledged the limit of streams, and opens one more", function()
    begin(nil, { max_concurrent_streams = 10 })
    local raw = settled()
    for i = 1, 11 do raw:say(h2.request(2 * i - 1, paths.Watch)) end
    assert.equal("protocol_error", raw.reader.goaways[1].code)
  end)
end)

describe("windows", function()
  local host

  before_each(function()
    host = pair.host()
    host.store:put("k", ("0123456789"):rep(5000))
  end)

  after_each(function() host:close() end)

  local ask = encoded("Range", { key = "k" })

  local function is_whole(raw, id)
    local messages, is_complete = raw.reader:messages(id)
    return is_complete and raw.reader:status(id) == 0 and
      core.decode("RangeResponse", messages[1]).kvs[1].value == ("0123456789"):rep(5000)
  end

  local function got(raw, id) return #table.concat(raw.reader:stream(id).parts) end

  it("of 0 bytes let only headers and trailers through", function()
    local raw = host:raw(h2.hello { initial_window_size = 0 })
    raw:say(h2.call(1, paths.Range, ask), h2.call(3, paths.Range, ""), h2.request(5, paths.LeaseKeepAlive, nil,
      { ends = true }))
    assert.equal("200", raw.reader:stream(1).headers[":status"])
    assert.equal(0, got(raw, 1))
    assert.equal(3, (raw.reader:status(3)))
    assert.equal(0, (raw.reader:status(5)))
  end)

  it("of 0 bytes let an empty end of a stream through", function()
    local raw = host:raw(h2.hello { initial_window_size = 0 })
    raw:say(h2.request(1, paths.Watch, { ["grpc-timeout"] = "1S" }), h2.data(1, h2.message("")))
    assert.equal("200", raw.reader:stream(1).headers[":status"])
    raw.peer:step(host.now + 1)
    host:pump()
    assert.equal(4, (raw.reader:status(1)))
  end)

  it("of one byte give an answer byte by byte", function()
    host.store:put("k", "small")
    local raw = host:raw(h2.hello { initial_window_size = 1 })
    raw:say(h2.call(1, paths.Range, ask))
    for i = 1, 1000 do
      if raw.reader:stream(1).is_ended then break end
      assert.equal(i, got(raw, 1))
      raw:say(h2.window(1, 1))
    end
    assert.equal("small", core.decode("RangeResponse", raw.reader:messages(1)[1]).kvs[1].value)
    assert.equal(0, (raw.reader:status(1)))
  end)

  it("of a connection hold for all of its streams together", function()
    local raw = host:raw(h2.hello { initial_window_size = WIDE })
    raw:say(h2.call(1, paths.Range, ask), h2.call(3, paths.Range, ask))
    assert.equal(65535, got(raw, 1) + got(raw, 3))
    raw:say(h2.window(0, 1000))
    assert.equal(66535, got(raw, 1) + got(raw, 3))
    raw:say(h2.window(0, 100000))
    assert(is_whole(raw, 1) and is_whole(raw, 3))
  end)

  it("may become negative and grow again", function()
    local raw = host:raw(h2.hello { initial_window_size = 20000 } .. h2.window(0, 2 ^ 20))
    raw:say(h2.call(1, paths.Range, ask))
    assert.equal(20000, got(raw, 1))
    raw:say(h2.settings { initial_window_size = 5000 }) -- now at -15000
    raw:say(h2.window(1, 15000))
    assert.equal(20000, got(raw, 1))
    raw:say(h2.window(1, 7))
    assert.equal(20007, got(raw, 1))
    raw:say(h2.settings { initial_window_size = 6000 })
    assert.equal(21007, got(raw, 1))
    raw:say(h2.call(3, paths.Range, ask))
    assert.equal(6000, got(raw, 3))
    raw:say(h2.settings { initial_window_size = 2 ^ 20 })
    assert(is_whole(raw, 1) and is_whole(raw, 3))
  end)

  it("that overflow end their stream, or the connection", function()
    local raw = host:raw()
    raw:say(h2.request(1, paths.Watch), h2.window(1, WIDE))
    assert.equal("flow_control_error", raw.reader:stream(1).reset)
    raw:say(h2.call(3, paths.Put, encoded("Put", { key = "a" })))
    assert.equal(0, (raw.reader:status(3)))
    raw:say(h2.window(0, WIDE))
    assert.equal("flow_control_error", raw.reader.goaways[1].code)
    assert.is_true(raw:is_done())
  end)

  it("that overflow by settings end the stream or the connection", function()
    local raw = host:raw(h2.hello { initial_window_size = 1 })
    raw:say(h2.request(1, paths.Watch), h2.window(1, WIDE - 1), h2.settings { initial_window_size = 2 })
    assert(raw:is_done() or raw.reader:stream(1).reset == "flow_control_error")
    for name, v in pairs { initial_window_size = 2 ^ 31, max_frame_size = 16383, enable_push = 2 } do
      local bad = host:raw(h2.hello { [name] = v })
      host:pump()
      assert.is_true(bad:is_done(), name)
    end
  end)

  it("change even by SETTINGS with a later error", function()
    local raw = host:raw(h2.hello { initial_window_size = 20000 } .. h2.window(0, 1))
    host:pump()
    raw.is_deaf = true
    raw:say(h2.call(1, paths.Range, ask))
    local ids = h2.settings_ids
    raw:say(h2.frame("settings", 0, 0, h2.pack(ids.initial_window_size, 2) .. h2.pack(5000, 4) ..
      h2.pack(ids.enable_push, 2) .. h2.pack(2, 4)))
    host:check()
    raw.is_deaf = false
    host:pump()
    assert.equal("protocol_error", raw.reader.goaways[1].code)
    assert.is_true(raw:is_done())
  end)

  it("of the server are enforced: more bytes end the stream or the connection", function()
    local raw = host:raw(wide_hello())
    host:pump()
    raw:say(h2.settings("ack"))
    raw:send(h2.request(1, paths.Put), h2.data(1, "\0" .. h2.pack(2 ^ 21, 4)))
    for _ = 1, 80 do raw:send(h2.data(1, ("x"):rep(16384))) end -- at once: no window can open in between
    host:pump()
    assert(raw:is_done() or raw.reader:stream(1).reset == "flow_control_error" or raw.reader:status(1) == nil)
    raw:say(h2.call(3, paths.Put, encoded("Put", { key = "a" })))
    assert(raw:is_done() or raw.reader:status(3) == 0)
  end)

  it("open again for messages larger than they are", function()
    local raw = host:raw(wide_hello())
    host:pump()
    raw:say(h2.settings("ack"))
    local message = h2.message(encoded("Put", { key = "large", value = ("x"):rep(1500000) }))
    raw:send(h2.request(1, paths.Put))
    for at = 1, #message, 16384 do
      raw:say(h2.data(1, message:sub(at, at + 16383), { ends = at + 16384 > #message }))
    end
    assert.equal(0, (raw.reader:status(1)))
    assert.equal(1500000, #host.store:get("large").value)
  end)

  it("limit frames to their size", function()
    host.store:put("k", ("x"):rep(100000))
    for _, size in ipairs { 16384, 2 ^ 24 - 1 } do
      local raw = host:raw(h2.hello { initial_window_size = WIDE, max_frame_size = size } .. h2.window(0, 2 ^ 20))
      raw:say(h2.call(1, paths.Range, ask), h2.settings { max_frame_size = 16384 })
      for _, part in ipairs(raw.reader:stream(1).parts) do assert(#part <= size) end
      assert.equal(100000, #core.decode("RangeResponse", raw.reader:messages(1)[1]).kvs[1].value)
    end
  end)
end)
