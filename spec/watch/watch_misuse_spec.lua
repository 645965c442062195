--- Misuse of watches: invalid arguments raise a helpful error, and change nothing.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local misuse = require "spec.support.misuse"

local probe = core.probe
local nan, inf = 0 / 0, math.huge

local not_counts = { -1, -0.5, 1.5, nan, inf, -inf, 1e300, "1", true, {} }
local not_bools = { 1, 0, "true", "", {} }
local not_strings = { 5, true, {} }
local not_times = { "1", true, {}, nan }

--- Makes the call, which must raise and leave no watcher behind. Returns the raised error.
local function refused(call, ...)
  local store = keywatch.open { now = 0 }
  local words = misuse.raises(call, store, ...)
  store:put("a", "")
  if probe then probe.check(store) end
  return words
end

local function watch(opts)
  return function(store) store:watch("a", opts) end
end

describe("a watch is refused for", function()
  it("a key that is not a string", function()
    for _, key in ipairs { 5, true, {} } do refused(function(store) store:watch(key) end) end
    refused(function(store) store:watch() end)
  end)

  it("an object that is not a store, with a text that names the colon", function()
    assert.matches("colon", refused(function(store) store.watch("a") end))
    assert.matches("colon", refused(function(store) store.watch({}, "a") end))
    refused(function(store) store.watch() end)
  end)

  it("a closed store", function()
    local store = keywatch.open { now = 0 }
    store:close()
    assert.matches("closed", misuse.raises(store.watch, store, "a"))
    assert.matches("closed", misuse.raises(store.watch, store, "a", { initial = true }))
  end)
end)

describe("options of a watch are refused:", function()
  local cases = {
    { "that are not a table", 5 },
    { "that are a string", "prefix" },
    { "one that there is not", { colour = 1 } },
    { "one of another call", { limit = 1 } },
    { "a name that is not a string", { "prefix" } },
    { "the names of filters, outside of their list", { no_put = true } },
    { "prefix and range_end", { prefix = true, range_end = "b" } },
    { "prefix and from_key", { prefix = true, from_key = true } },
    { "initial and start_revision", { initial = true, start_revision = 1 } },
    { "filters that are not a list", { filters = "no_put" } },
    { "filters that are a number", { filters = 1 } },
    { "filters that are a set", { filters = { no_put = true } } },
    { "a filter that there is not", { filters = { "no_put", "no_get" } } },
    { "a filter that is not a string", { filters = { true } } },
  }
  for _, case in ipairs(cases) do
    it(case[1], function() refused(watch(case[2])) end)
  end

  local function refuses_values(name, values)
    it(name .. " of the wrong kind", function()
      for _, value in ipairs(values) do assert.matches(name, refused(watch { [name] = value })) end
    end)
  end

  refuses_values("prefix", not_bools)
  refuses_values("from_key", not_bools)
  refuses_values("range_end", not_strings)
  refuses_values("start_revision", not_counts)
  refuses_values("initial", not_bools)
  refuses_values("prev_kv", not_bools)
  refuses_values("progress", not_bools)
  refuses_values("max_bytes", not_counts)
  refuses_values("timeout", not_times)

  it("with the position of the caller", function()
    for _, opts in ipairs { { colour = 1 }, { filters = { "no_get" } }, { start_revision = -1 } } do
      assert.matches("watch", refused(watch(opts)))
    end
  end)

  it("an invalid progress interval", function()
    for _, value in ipairs { "1", true, {}, nan, inf } do
      misuse.raises(keywatch.open, { progress_interval = value })
    end
  end)
end)

describe("a method of a watch is refused", function()
  it("for a timeout that is not a number of seconds", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    for _, name in ipairs { "next", "batch", "sync" } do
      for _, value in ipairs(not_times) do misuse.raises(w[name], w, value) end
    end
    assert.equal("timeout", select(2, w:next(0)).code)
  end)

  it("for a dot instead of a colon, with a text that names the colon", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    for _, name in ipairs { "next", "batch", "events", "sync", "error", "close" } do
      assert.matches("colon", misuse.raises(w[name]))
    end
  end)
end)

describe("as text", function()
  it("a watch has its key, its revision and its state", function()
    local store = keywatch.open { now = 0 }
    store:put("a", "")
    store:put("a", "")
    local open, closed = store:watch("a"), store:watch("b", { start_revision = 7 })
    store:compact(3)
    local failed = store:watch("a", { start_revision = 1 })
    failed:next()
    closed:close()
    assert.equal('keywatch.watch<key="a" revision=3 open>', tostring(open))
    assert.equal('keywatch.watch<key="a" revision=0 compacted>', tostring(failed))
    assert.equal('keywatch.watch<key="b" revision=6 closed>', tostring(closed))
  end)

  it("a watch of any bytes is one line", function()
    local store = keywatch.open { now = 0 }
    for _, key in ipairs { "a\nb", "a\0b", 'a"b', "\r", "" } do
      assert.not_matches("[%z\n\r]", tostring(store:watch(key)))
    end
  end)

  it("an error of a watch has the reason", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    assert.equal("keywatch: timed out (timeout)", tostring(select(2, w:next(0))))
  end)

  it("an error of a closed watch does not mention the store", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    w:close()
    assert.not_matches("the store is closed", tostring(select(2, w:sync())))
  end)
end)
