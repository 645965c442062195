--- Many watchers that share one outlet, as on a server's stream. Only for probe builds.

local keywatch = require "keywatch"

local probed = require "spec.support.probed"

local probe = probed.get("a stream of watchers")
if not probe then return end

--- Everything that waits, as "kind id revision key key…".
local function drain(stream)
  local lines = {}
  while true do
    local kind, id, revision, keys = stream:take()
    if not kind then return lines end
    lines[#lines + 1] = table.concat({ kind, tostring(id), revision, table.concat(keys, " ") }, " "):gsub(" $", "")
  end
end

describe("a stream of watchers", function()
  local store, stream

  before_each(function()
    store = keywatch.open { now = 0 }
    stream = probe.stream(store)
  end)

  local function renew(max_bytes)
    stream:close()
    stream = probe.stream(store, max_bytes)
  end

  after_each(function()
    probe.check(store)
    stream:close()
    store:close()
  end)

  it("has no progress while one of them lags, begins later, or has failed", function()
    store:put("a", "")
    stream:watch("a")
    stream:watch("b", { start_revision = 2 })
    assert.is_false(stream:progress())
    store:step(0)
    assert.is_true(stream:progress())
    stream:watch("c", { start_revision = 10 })
    assert.is_false(stream:progress())
    assert.is_true(stream:progress(0))
    assert.is_false(stream:progress(2))
    stream:cancel(2)
    assert.is_true(stream:progress())
  end)

  it("that is full blocks all its watchers, and loses nothing", function()
    renew(200)
    stream:watch("a")
    stream:watch("", { prefix = true })
    for i = 1, 50 do store:put(i % 2 == 0 and "a" or "b", "") end
    local of_a, of_all = {}, {}
    for _ = 1, 200 do
      for _, line in ipairs(drain(stream)) do
        local id, rest = line:match("^events (%d) %d+ (.*)$")
        local list = id == "0" and of_a or of_all
        for key in rest:gmatch("%a") do list[#list + 1] = key end
      end
      store:step(0)
      probe.check(store)
    end
    assert.equal(("a"):rep(25), table.concat(of_a))
    assert.equal(("ba"):rep(25), table.concat(of_all))
  end)

  it("continues after the progress that filled it was dropped", function()
    renew(200)
    stream:watch("a")
    stream:progress()
    store:put("a", ("x"):rep(300))
    assert.is_nil(store:deadline())
    stream:watch("past", { start_revision = 1 })
    probe.check(store)
    store:step(0)
    assert.same({ "events 0 2 a" }, drain(stream))
  end)

  it("catches up watchers of one batch together, and others as there is room", function()
    renew(1000)
    for _ = 1, 10 do stream:watch("a") end
    for key in ("bcdefg"):gmatch(".") do stream:watch(key) end
    stream:progress()
    for key in ("abcdefg"):gmatch(".") do store:put(key, ("x"):rep(900)) end
    local lines = {}
    for _ = 1, 20 do
      for _, line in ipairs(drain(stream)) do lines[#lines + 1] = line end
      store:step(0)
      probe.check(store)
    end
    local received = {}
    for _, line in ipairs(lines) do received[line] = (received[line] or 0) + 1 end
    assert.equal(1, received["progress nil 1"])
    for id = 0, 9 do assert.equal(1, received["events " .. id .. " 2 a"]) end
    for i, key in ipairs { "b", "c", "d", "e", "f", "g" } do
      assert.equal(1, received[("events %d %d %s"):format(9 + i, 2 + i, key)])
    end
    assert.equal(17, #lines)
  end)

  it("continues after the watch that filled it was cancelled", function()
    renew(200)
    stream:watch("a")
    stream:watch("b")
    for _ = 1, 20 do store:put("a", "") end
    store:put("b", "")
    stream:cancel(0)
    store:step(0)
    assert.same({ "events 1 22 b" }, drain(stream))
  end)
end)
