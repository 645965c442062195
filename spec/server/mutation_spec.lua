--- Frames that were damaged on their way: a connection may end, but nothing else does.

local core = require "keywatch.core"

local dose = require "spec.support.dose"
local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"
local random = require "spec.support.random"

local ROUNDS = dose.of(300, 3000)

local function encoded(method, request) return h2.message(core.encode(pair.request_name(method), request)) end

local function watch(request) return encoded("Watch", request) end

--- What a client might say, frame by frame.
local function frames()
  local paths = pair.paths
  return { h2.settings("ack"), h2.request(1, paths.Put), h2.data(1, encoded("Put", { key = "a", value = "1" }),
    { ends = true, pad = 3 }), h2.request(3, paths.Watch, nil, { priority = true }), h2.data(3, watch {
      create_request = { key = "a", range_end = "z", start_revision = 1, prev_kv = true, fragment = true } }),
    h2.data(3, watch { progress_request = {} } .. watch { create_request = { key = "b", watch_id = -2 } }),
    h2.request(5, paths.Txn, nil, { split = 60 }), h2.data_in_parts(5, encoded("Txn", { compare = { { key = "a",
      version = 1 } }, success = { { request_put = { key = "b", value = "2" } }, { request_txn = { success = {
      { request_delete_range = { key = "a" } } } } } } }), 9, { ends = true }), h2.ping(), h2.window(0, 1000),
    h2.request(7, paths.LeaseGrant), h2.data(7, encoded("LeaseGrant", { ID = 7, TTL = 60 })),
    h2.headers(7, { { "x", "y" } }, { ends = true }), h2.request(9, paths.LeaseKeepAlive, { ["grpc-timeout"] = "1S" }),
    h2.data(9, encoded("LeaseKeepAlive", { ID = 7 })), h2.settings { initial_window_size = 10 },
    h2.data(3, watch { cancel_request = { watch_id = 0 } }), h2.reset(9), h2.settings { initial_window_size = 70000 },
    h2.request(11, paths.Range), h2.data(11, encoded("Range", { key = "\0", range_end = "\0" }), { ends = true }),
    h2.request(13, paths.Compact), h2.data(13, encoded("Compact", { revision = 2, physical = true }),
      { ends = true }), h2.window(3, 500), h2.frame("priority", 0, 3, h2.pack(1, 4) .. "\9"), h2.frame(99, 7, 3, "?") }
end

local function damage(rng, list)
  local ways = {
    function() table.remove(list, rng:between(1, #list)) end,
    function() table.insert(list, rng:between(1, #list), list[rng:between(1, #list)]) end,
    function()
      local a, b = rng:between(1, #list), rng:between(1, #list)
      list[a], list[b] = list[b], list[a]
    end,
    function()
      local i = rng:between(1, #list)
      local at = rng:between(1, #list[i] + 1)
      list[i] = list[i]:sub(1, at - 1) .. string.char(rng:between(0, 255)) .. list[i]:sub(at + 1)
    end,
    function()
      local i = rng:between(1, #list)
      list[i] = list[i]:sub(1, rng:between(0, #list[i]))
    end,
  }
  rng:pick(ways)()
end

describe("a server whose client's frames are damaged", function()
  it("goes on for all others, and its store is whole #slow", function()
    local rng = random.new(tonumber(os.getenv("KW_SEED")) or os.time())
    local host = pair.host()
    local other = host:client()
    for round = 1, ROUNDS do
      local list = frames()
      for _ = 1, rng:between(1, 4) do damage(rng, list) end
      local peer = host.server:accept(host.now)
      peer:feed(h2.hello(), host.now)
      for _, bytes in ipairs(list) do
        if bytes ~= "" then peer:feed(bytes, host.now) end
        if rng:one_in(3) then
          host:tend()
          peer:pending()
        end
        host:check()
      end
      host:tend()
      peer:pending()
      peer:close()
      if round % 50 == 0 then
        assert.truthy(other:unary("Put", { key = "other", value = tostring(round) }))
        if core.probe then core.probe.check(host.store) end
        host.store:delete("", { prefix = true })
        host.store:compact(host.store:status().revision)
      end
    end
    assert.equal(1, host.server:connections())
    host:close()
  end)
end)
