--- The notes that a server takes for its debug log, on a clock that the spec moves by hand.

local core = require "keywatch.core"

local directory = require "spec.support.directory"
local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"
local starve = require "spec.support.starve"

local NOTES = 256 -- that wait at most
local MOST = 160  -- bytes of a path or a text
local MOST_TEXT = 768 -- KW_NOTE_TEXT
local OK, CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, PERMISSION_DENIED = 0, 1, 3, 4, 7
local RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 8, 12, 13

describe("a server with notes", function()
  local host, client

  before_each(function()
    host = pair.host()
    host.server:take_notes()
    client = host:client()
    host:pump()
  end)

  after_each(function() host:close() end)

  --- All notes that wait, oldest first: { kind, path, status, text, amount }.
  local function notes()
    local list = {}
    for kind, remote, path, status, text, amount in host.server.next_note, host.server do
      assert.equal("", remote) -- connections by hand have no address
      list[#list + 1] = { kind, path, status, text, amount }
    end
    return list
  end

  --- The only note that waits.
  local function note()
    local list = notes()
    assert.equal(1, #list)
    return list[1]
  end

  --- Begins a unary call of a path, and moves all that moves. Returns the client's number of the call.
  local function begin(path, message)
    local number = client:start(path, nil, message or "")
    client.client:half_close(number)
    host:pump()
    return number
  end

  --- The server's number of the next call that Lua is shown, and that has not ended.
  local function next_call()
    while true do
      local id = assert(host.server:next_news())
      if host.server:info(id) then return id end
    end
  end

  --- Begins a call of a method that Lua answers. Returns the client's number of the call, and the server's.
  local function begin_mounted()
    host.server:mount("/spec/Wait")
    return begin("/spec/Wait"), next_call()
  end

  it("notes connections, and why they end", function()
    assert.same({ "accepted", "", OK, "", 0 }, note())
    local raw = host:raw()
    host:pump()
    assert.equal("accepted", note()[1])
    raw.peer:feed("", host.now)
    raw:pull()
    raw:close()
    assert.same({ "ended", "", OK, "the client closed the connection", 0 }, note())
    host.server:close()
    assert.same({ "ended", "", OK, "the server is closed", 0 }, note())
  end)

  it("notes refused requests, with path, status and text", function()
    notes()
    client:unary("Put", { key = "" })
    assert.same({ "refused", pair.paths.Put, INVALID_ARGUMENT, "etcdserver: key is not provided", 0 }, note())
    begin("/etcdserverpb.KV/Nothing")
    assert.same({ "refused", "/etcdserverpb.KV/Nothing", UNIMPLEMENTED,
      "unknown method Nothing for service etcdserverpb.KV", 0 }, note())
    client:unary("Put", { key = "a" })
    assert.same({}, notes())
  end)

  it("notes requests that are not valid, with their path", function()
    local raw = host:raw()
    host:pump()
    notes()
    raw:say(h2.request(1, "/metrics/%", { [":method"] = "GET" }, { ends = true }))
    assert.same({ "refused", "/metrics/%", INTERNAL, "an escape in the path is not valid", 0 }, note())
    raw:say(h2.request(3, pair.paths.Put, { ["grpc-timeout"] = "soon" }, { ends = true }))
    assert.same({ "refused", pair.paths.Put, INTERNAL, 'malformed grpc-timeout: "soon"', 0 }, note())
    local many = {}
    for i = 1, 16 do many["x-" .. i] = ("v"):rep(4096) end
    raw:say(h2.request(5, pair.paths.Put, many, { split = 16384, ends = true }))
    assert.same({ "refused", pair.paths.Put, RESOURCE_EXHAUSTED, "", 0 }, note())
  end)

  it("notes a request past its deadline", function()
    local number = client:start("/spec/Wait", { ["grpc-timeout"] = "200m" }, "")
    notes()
    host.server:mount("/spec/Wait")
    client.client:half_close(number)
    host:pump()
    host.now = host.now + 0.25
    client.peer:step(host.now)
    host:pump()
    assert.same({ "refused", "/spec/Wait", DEADLINE_EXCEEDED, "context deadline exceeded", 250 }, note())
  end)

  it("notes unary requests that take longer than 100 ms", function()
    notes()
    for ms, expected in pairs { [100] = 0, [101] = 1 } do
      local _, id = begin_mounted()
      host.now = host.now + ms / 1000
      host.server:send(id, "")
      host.server:finish(id, OK)
      host:pump()
      local list = notes()
      assert.equal(expected, #list)
      if list[1] then assert.same({ "slow", "/spec/Wait", OK, "", ms }, list[1]) end
    end
  end)

  it("notes slow requests that the client cancels", function()
    notes()
    local number = begin_mounted()
    host.now = host.now + 1
    client.client:cancel(number)
    host:pump()
    assert.same({ "slow", "/spec/Wait", CANCELLED, "", 1000 }, note())
  end)

  it("never calls a stream slow", function()
    notes()
    local watch = client:stream("Watch")
    watch:ask { create_request = { key = "a" } }
    host.now = host.now + 10
    watch:cancel()
    host:pump()
    assert.same({}, notes())
  end)

  it("includes the time of middleware", function()
    notes()
    host.server:intercept()
    begin(pair.paths.Range, core.encode("RangeRequest", { key = "a" }))
    local id = next_call()
    host.now = host.now + 0.15
    host:step()
    host.server:proceed(id)
    host:pump()
    assert.same({ "slow", pair.paths.Range, OK, "", 150 }, note())
    begin(pair.paths.Range, core.encode("RangeRequest", { key = "a" }))
    host.server:finish(next_call(), PERMISSION_DENIED, "no")
    host:pump()
    assert.same({ "refused", pair.paths.Range, PERMISSION_DENIED, "no", 0 }, note())
  end)

  it("keeps a limited number, drops the oldest, and counts the dropped ones", function()
    notes()
    for _ = 1, NOTES + 10 do client:unary("Put", { key = "" }) end
    begin("/last/Method")
    local list = notes()
    assert.equal(NOTES + 1, #list)
    assert.same({ "lost", "", OK, "", 11 }, list[1])
    assert.equal("refused", list[2][1])
    assert.equal("/last/Method", list[#list][2])
    client:unary("Put", { key = "" })
    assert.equal("refused", note()[1])
  end)

  it("shortens long paths and texts", function()
    notes()
    begin("/" .. ("x"):rep(10000) .. "/Method")
    local cut = note()
    assert.equal("/" .. ("x"):rep(MOST - 1), cut[2])
    assert.is_true(#cut[4] <= MOST_TEXT, #cut[4])
  end)

  it("notes nothing by default", function()
    local quiet = pair.host()
    quiet:client():unary("Put", { key = "" })
    quiet:close()
    assert.is_nil((quiet.server:next_note()))
    assert.error_matches(function() quiet.server:take_notes() end, "the server is closed")
  end)

  if core.probe then
    it("includes the time for which an answer waits for the disk", function()
      local durable = pair.host { path = directory.new() }
      durable.server:take_notes()
      local writer = durable:client()
      durable:pump()
      core.probe.hold_disk(durable.store, true)
      local number = writer:start("Put", nil, core.encode("PutRequest", { key = "a" }))
      writer.client:half_close(number)
      durable:pump()
      durable.now = durable.now + 0.5
      core.probe.hold_disk(durable.store, false)
      repeat until durable.store:leases()
      durable:pump()
      assert.equal("accepted", (durable.server:next_note()))
      assert.same({ "slow", "", pair.paths.Put, OK, "", 500 }, { durable.server:next_note() })
      durable:close()
      directory.remove_all()
    end)

    it("leaves nothing behind when memory is short", function()
      starve.try_each(function(n)
        local short = pair.host()
        local is_come_to = starve.during(core.probe.fail_core, n, function()
          short.server:take_notes()
          local raw = short:raw()
          raw:say(h2.call(1, "/a/B", ""), h2.call(3, pair.paths.Put, ""))
        end)
        short:close()
        return is_come_to
      end)
    end)
  end
end)
