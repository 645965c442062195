--- Finalizers of a program can run at any allocation, also in the middle of a call; for example that of a dropped
-- session, which revokes its lease. Calls must still be correct. spec/finalizer has finalizers that close objects in
-- use.
--
-- Each case is a separate program, since a failure may be a crash. It collects garbage at every
-- allocation, and prints what it does, so that a failure can be located.

local program = require "spec.support.program"

local prelude = ([[
  local keywatch = require "keywatch"
  require "spec.support.inner"
  local probe = require("keywatch.core").probe
  local KEYS = %d

  if jit then
    collectgarbage("setpause", 100)
    collectgarbage("setstepmul", 0)
  else
    collectgarbage("incremental", 100, 400, 63)
  end
  collectgarbage() -- the pause that was set before ends here

  local store, replica, act

  -- Acts from finalizers, again and again, but not while one of them acts.
  local runs, acting = 0, false
  local function haunt()
    local function finalize()
      haunt()
      if acting or not act then return end
      acting = true
      pcall(act)
      runs, acting = runs + 1, false
    end
    if newproxy then
      getmetatable(newproxy(true)).__gc = finalize
    else
      setmetatable({}, { __gc = finalize })
    end
  end

  local function name(i) return ("k%03d"):format(i) end

  local function new_stores()
    store, replica = keywatch.open { now = 0 }, keywatch.open { now = 0, replica = true }
    for i = 1, KEYS do store:put(name(i), "value") end
    store:lease(100, { id = 7 })
    store:put("leased", "", { lease = 7 })
    store:compact(10)
  end

  local function check_kvs(kvs)
    assert(#kvs == KEYS, #kvs)
    for i, kv in ipairs(kvs) do
      assert(kv.key == name(i) and #kv.value > 0 and kv.version > 0 and kv.mod_revision >= kv.create_revision, i)
    end
  end

  local calls = {
    { "range", function()
      local found = store:range("k", { prefix = true })
      assert(found.count == KEYS)
      check_kvs(found.kvs)
    end },
    { "sorted range", function()
      assert(#store:range("k", { prefix = true, sort_target = "mod", sort_order = "descend" }).kvs == KEYS)
    end },
    { "get", function() assert(store:get(name(5)).key == name(5)) end },
    { "each", function()
      local kvs = {}
      for kv in store:each("k", { prefix = true, page = 7 }) do kvs[#kvs + 1] = kv end
      check_kvs(kvs)
    end },
    { "put", function() assert(#store:put(name(5), "value", { prev_kv = true }).prev_kv.value > 0) end },
    { "txn", function()
      local last, ops = "t" .. runs, { { delete = "k", prefix = true, prev_kv = true } }
      for i = 1, 20 do ops[#ops + 1] = { put = last .. "-" .. i, value = "v" .. i .. runs, prev_kv = true } end
      ops[#ops + 1] = { txn = { success = { { put = last, value = "v" }, { get = last } } } }
      local answer = store:txn { compare = { { key = name(1), version = 0, op = ">" } }, success = ops }
      assert(answer.succeeded and #answer.responses == 22)
      check_kvs(answer.responses[1].prev_kvs)
      for i = 2, 22 do assert(answer.responses[i].revision == answer.revision) end
      assert(answer.responses[22].responses[2].value == "v")
      for i = 1, KEYS do store:put(name(i), "again") end
      store:delete("t", { prefix = true })
    end },
    { "misuse", function()
      local ok, err = pcall(store.txn, store, { success = { { put = "k" .. runs, value = "" .. runs }, {} } })
      assert(not ok and type(err) == "string")
    end },
    { "compact", function()
      local revision = store:put("leased", "", { lease = 7 }).revision
      local answer, err = store:compact(revision, { physical = true })
      assert(answer and answer.revision >= revision or err.code == "compacted")
    end },
    { "failure", function()
      local answer, err = store:get(name(1), { revision = 1 })
      assert(answer == nil and err.code == "compacted" and err.compact_revision > 1)
    end },
    { "lease", function()
      local lease = store:lease(50)
      store:put("of lease", "", { lease = lease })
      assert(lease:keys()[1] == "of lease" and lease:remaining() == 50 and lease:keepalive() == 50)
      assert(#store:leases() >= 2)
      assert(lease:revoke().revision > 1)
      assert(store:get("of lease") == nil)
    end },
    { "change_rows", function()
      local changes = {}
      for i = 1, KEYS do changes[i] = { "t", name(i), "v" .. runs } end
      assert(store:change_rows(changes))
      local found = store:rows("t")
      assert(#found == KEYS)
      for i, key in ipairs(found) do assert(key == name(i) and store:rows("t", key)) end
    end },
    { "status", function()
      assert(store:status().keys >= KEYS and store:hash_kv().revision > 1 and #store:alarms() == 0)
      assert(tostring(store):find("keywatch.store", 1, true))
    end },
    { "merge", function()
      local revision, kvs = replica:status().revision + 1, {}
      for i = 1, KEYS do
        kvs[i] = { key = name(i), value = "v" .. runs, create_revision = 1, mod_revision = revision, version = 1 }
      end
      assert(replica:merge_kvs(revision, kvs))
      check_kvs(replica:range("", { prefix = true }).kvs)
    end },
    { "apply", function()
      local revision, events = replica:status().revision + 1, {}
      for i = 1, KEYS do
        events[i] = { type = "put", key = name(i), value = "w" .. runs, create_revision = 1, mod_revision = revision,
          version = 2, lease = 0 }
      end
      assert(replica:apply(revision, events))
      check_kvs(replica:range("", { prefix = true }).kvs)
    end },
  }

  for _ = 1, 3 do haunt() end
]]):gsub("%%d", require("spec.support.dose").is_small and 10 or 15)

-- Every call, interrupted by finalizers, must have its usual effect, and leave a consistent store.
local check_calls = [[
  new_stores()
  local rounds = 0
  for _, call in ipairs(calls) do
    print(call[1])
    io.stdout:flush()
    for _ = 1, 3 do
      act = the_act
      call[2]()
      act = nil
      rounds = rounds + 1
    end
  end
  assert(runs > rounds, "finalizers ran " .. runs .. " times")
  if probe then
    probe.check(store)
    probe.check(replica)
  end
  print "well"
]]

-- What finalizers do. All leave the keys k… as they are.
local acts = {
  { "reads", [[
    store:range("", { prefix = true, limit = 10 })
    store:get(name(1))
    replica:range("", { prefix = true })
  ]] },
  { "writes other keys", 'store:put("other" .. runs % 5, tostring(runs))' },
  { "writes the same keys", "store:put(name(1), tostring(runs)) store:put(name(KEYS), tostring(runs))" },
  { "revokes a lease", [[
    local lease = store:lease(5)
    store:put("other", "", { lease = lease })
    lease:revoke()
  ]] },
  { "compacts", "store:compact(store:status().revision, { physical = true })" },
  { "asks for what is wrong", 'store:txn { success = { { put = "k", value = "" .. runs }, { get = 5 } } }' },
}

local function expect_well(text)
  local status, printed = program.run(prelude .. text)
  if status ~= 0 or not printed:find("\nwell\n$") then error(("status %d: %s"):format(status, printed), 2) end
end

describe("a finalizer", function()
  for _, act in ipairs(acts) do
    it(("that %s does not disturb the calls in the middle of which it runs"):format(act[1]), function()
      expect_well(("local function the_act() %s end\n%s"):format(act[2], check_calls))
    end)
  end
end)
