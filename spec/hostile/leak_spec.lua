--- Memory does not grow with the number of requests, connections and watchers.
--
-- KW_DOSE=12 makes every dose twelve times as large: a million requests, a hundred thousand connections, a million
-- watchers.

local core = require "keywatch.core"

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local process = require "spec.support.process"
local raw = require "spec.support.raw"
local resident = require "spec.support.resident"

local FACTOR = require("spec.support.dose").factor
local REQUESTS, CONNECTIONS, WATCHERS = 30000 * FACTOR, 3000 * FACTOR, 30000 * FACTOR
local FEWER = 6000 * FACTOR -- requests that cost more
local MIB = 1024 * 1024
local FLAT = 1 * MIB -- 12 bytes lost with each request would be more

describe("a long-running server #once", function()
  local target, body

  -- What another test has left free would hide what this one loses.
  before_each(function()
    target = attack.start { open_files = "hard" }
    body = os.tmpname()
  end)

  after_each(function()
    process.end_all()
    if body then os.remove(body) end
    if target then target:finish() end
    target = nil
  end)

  --- Makes a request often, with h2load.
  local function load(path, request, requests, connections)
    local file = assert(io.open(body, "wb"))
    file:write(request)
    file:close()
    local done = process.start { "h2load", "-n", tostring(requests), "-c", tostring(connections), "-m", "50",
      "-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers", target.peer.url .. path }
    done:wait(600)
    assert.matches((" %d succeeded, 0 failed"):format(requests), done:stdout())
  end

  local function expect_flat(name, n, dose)
    resident.expect_flat(name, n, dose, FLAT, nil, function()
      target:close_attackers()
      return target.peer:resident()
    end)
    target.witness:ask()
  end

  it("does not leak requests", function()
    expect_flat("requests", REQUESTS, function()
      load(raw.RANGE, frame.range("witness"), REQUESTS, 10)
    end)
  end)

  it("does not leak refused requests", function()
    expect_flat("refused requests", FEWER, function()
      load(raw.RANGE, frame.new(""), FEWER, 10)
    end)
  end)

  it("does not leak requests that are answered in Lua", function()
    expect_flat("requests for the status", FEWER, function()
      load("/etcdserverpb.Maintenance/Status", frame.new(""), FEWER, 10)
    end)
  end)

  it("does not leak compacted writes", function()
    expect_flat("puts", FEWER, function()
      load(raw.PUT, frame.put("leak/put", ("v"):rep(100)), FEWER, 10)
      local answer = target.witness.client:call(raw.RANGE, frame.range("leak/put"))
      local revision = core.decode("RangeResponse", answer).header.revision
      assert.is_string(target.witness.client:call("/etcdserverpb.KV/Compact",
        frame.new(core.encode("CompactionRequest", { revision = revision, physical = true }))))
    end)
  end)

  it("does not leak connections", function()
    expect_flat("connections", CONNECTIONS, function()
      for _ = 1, CONNECTIONS / 500 do load(raw.RANGE, frame.range("witness"), 500, 500) end
    end)
  end)

  --- Makes watchers of as many keys, and cancels them, on a few streams of a connection of their own.
  local function watch_and_cancel()
    local client = target:connect()
    local created, canceled = 0, 0
    client.on_message = function(message)
      local response = core.decode("WatchResponse", message)
      if response.created then created = created + 1 end
      if response.canceled then canceled = canceled + 1 end
    end
    for first = 1, WATCHERS, 5000 do
      local id = client:next_stream()
      client:send(raw.request(id, raw.WATCH))
      for at = first, first + 4999, 500 do
        local list = {}
        for i = at, at + 499 do
          list[#list + 1] = frame.new(core.encode("WatchRequest", {
            create_request = { key = "leak/watch/" .. i, watch_id = i, start_revision = i % 3, prev_kv = i % 2 == 0 },
          }))
        end
        for i = at, at + 499 do
          list[#list + 1] = frame.new(core.encode("WatchRequest", { cancel_request = { watch_id = i } }))
        end
        client:send(raw.data(id, table.concat(list)))
        client:await(function() return canceled == at + 499 end, "the watchers' end")
      end
      client:send(raw.data(id, "", true))
    end
    assert.equal(WATCHERS, created)
    client:close()
  end

  it("does not leak watchers", function()
    expect_flat("watchers", WATCHERS, watch_and_cancel)
  end)

  it("does not leak watch streams, or connections that end with watchers on them", function()
    expect_flat("connections with watchers", WATCHERS / 100, function()
      for i = 1, WATCHERS / 100 do
        local client = target:connect()
        local id = client:next_stream()
        client:send(raw.request(id, raw.WATCH) .. raw.data(id, frame.watch("witness"):rep(100)))
        client:await(function() return client.streams[id] and client.streams[id].size > 100 end, "watchers")
        client[i % 2 == 0 and "close" or "reset"](client)
      end
    end)
  end)
end)
