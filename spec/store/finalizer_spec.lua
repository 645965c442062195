--- Finalizers of a program run whenever memory is asked for, in the middle of an answer too. A session that revokes its
-- lease when it is forgotten is one. Whether the store lets them or raises is its affair; answers stay whole.
--
-- Each case is a program of its own, since what goes wrong here goes very wrong.

local program = require "spec.support.program"

local KEYS = 500

local prelude = ([[
  local keywatch = require "keywatch"
  local probe = require("keywatch.core").probe
  local KEYS = %d

  local store = keywatch.open { now = 0 }
  local function fill(value)
    for i = 1, KEYS do store:put(("k%%04d"):format(i), value) end
  end
  fill("first")

  -- Calls `act` from finalizers, again and again, but not while one runs.
  local runs, running = 0, false
  local function haunt(act)
    local function finalize()
      haunt(act)
      if running then return end
      running = true
      pcall(act)
      runs, running = runs + 1, false
    end
    if newproxy then
      getmetatable(newproxy(true)).__gc = finalize
    else
      setmetatable({}, { __gc = finalize })
    end
  end

  local function check_range(found)
    assert(#found.kvs == found.count and found.count == KEYS, #found.kvs .. " kvs, and a count of " .. found.count)
    for i, kv in ipairs(found.kvs) do
      assert(kv.key == ("k%%04d"):format(i) and #kv.value > 0 and kv.version > 0, i)
    end
  end

  local function range() check_range(store:range("k", { prefix = true })) end

  local function write()
    local ops = { { delete = "k", prefix = true, prev_kv = true } }
    for i = 1, 20 do ops[#ops + 1] = { put = "t" .. i, value = "v", prev_kv = true } end
    local answer = store:txn { success = ops }
    local deleted = answer.responses[1]
    assert(deleted.deleted == KEYS)
    check_range { kvs = deleted.prev_kvs, count = KEYS }
    for i = 2, 21 do assert(answer.responses[i].revision == answer.revision) end
    assert(store:get("t1").mod_revision >= answer.revision)
    fill("again")
  end

  local function each()
    local n = 0
    for kv in store:each("k", { prefix = true, page = 100 }) do
      n = n + 1
      assert(kv.key == ("k%%04d"):format(n))
    end
    assert(n == KEYS)
  end
]]):format(KEYS)

local finish = [[
  for _ = 1, 15 do
    call()
    collectgarbage()
  end
  assert(runs > 10, "finalizers ran " .. runs .. " times")
  if probe then probe.check(store) end
  print "well"
]]

-- What finalizers do. All leave the keys k… as they are, or put them back.
local acts = {
  { "reads", "store:range('', { prefix = true, limit = 10 }) store:get('k0001')" },
  { "writes another key", "store:put('other', tostring(runs))" },
  { "revokes a lease", "local l = store:lease(5) store:put('other', '', { lease = l }) l:revoke()" },
  { "writes the same keys", "store:put('k0001', tostring(runs)) store:put('k0400', tostring(runs))" },
  { "compacts", "store:compact(store:status().revision, { physical = true })" },
}

local calls = { { "a range", "range" }, { "a transaction", "write" }, { "a loop", "each" } }

describe("a finalizer", function()
  for _, act in ipairs(acts) do
    for _, call in ipairs(calls) do
      it(("that %s leaves the answer of %s whole"):format(act[1], call[1]), function()
        local status, printed = program.run(("%s\nlocal call = %s\nfor _ = 1, 10 do haunt(function() %s end) end\n%s")
          :format(prelude, call[2], act[2], finish))
        assert.same({ 0, "well\n" }, { status, printed })
      end)
    end
  end

  it("that closes the store ends what the store was doing, and no more", function()
    local status, printed = program.run(prelude .. [[
      for _ = 1, 100 do
        store = keywatch.open { now = 0 }
        fill("value")
        local mine = store
        local function act() mine:close() end
        haunt(act)
        pcall(range)
        pcall(write)
        collectgarbage()
      end
      print "well"
    ]])
    assert.same({ 0, "well\n" }, { status, printed })
  end)
end)
