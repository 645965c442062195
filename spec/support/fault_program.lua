--- A program whose disk fails: spec/support/fault.c is preloaded into it.
--
--   fault_program.lua every DIRECTORY CONTROL PLAN   a plan with %d in it, for every call of a workload in turn; with
--                                                    a small dose for every third, from one on that depends on KW_SEED
--   fault_program.lua large DIRECTORY CONTROL PLAN N   N keys, which are deleted at once while the plan holds
--   fault_program.lua patient DIRECTORY CONTROL   without requests while the disk is full
--   fault_program.lua read DIRECTORY CONTROL   requests that change nothing, while the disk is full
--   fault_program.lua make DIRECTORY CONTROL   makes stores on a disk with too little room
--   fault_program.lua exhaust DIRECTORY CONTROL PLAN   puts and deletes until the disk, limited by the plan, is full
--   fault_program.lua part DIRECTORY CONTROL PLAN   the same, and compaction has room for a part of its removals
--   fault_program.lua grow DIRECTORY CONTROL BYTES   puts of so many bytes, until the database's file has grown often
--
-- The store is in DIRECTORY/store.

local keywatch = require "keywatch"

local durable = require "spec.support.durable"
local fault_plan = require "spec.support.fault_plan"
local workload = require "spec.support.workload"

local mode, directory, control = arg[1], arg[2], arg[3]
local path = directory .. "/store"

local STRIDE = 3 -- in a small dose, every third call is struck

local function plan(line) fault_plan.set(control, line) end
local function has_struck() return fault_plan.has_struck(control) end

local function has(list, item)
  for _, each in ipairs(list) do
    if each == item then return true end
  end
  return false
end

--- Expects the effects of a full disk: the alarm is armed, writes fail, reads succeed, and the alarm can be disarmed.
local function expect_alarm(subject)
  local store = subject.store
  assert(has(store:alarms(), "no_space"), "no alarm")
  local _, err = store:put("more", "")
  assert(err and err.message == "etcdserver: mvcc: database space exceeded", "not refused: " .. tostring(err))
  assert(store:range("", { prefix = true }))
  local done, trouble = store:disarm("no_space")
  assert(done or trouble.code == "no_space" or trouble.code == "storage", tostring(trouble))
  if done then subject:assume { "disarm", "no_space" } end
  return done
end

--- Expects the effects of a failed sync: writes fail, and reads succeed.
local function expect_read_only(subject)
  local store = subject.store
  local _, err = store:put("more", "")
  assert(err and err.code == "storage" and err.grpc_status == 14, "not refused: " .. tostring(err))
  assert(assert(store:range("", { prefix = true })).revision == subject.model.revision, "another revision")
  assert(store:status().revision == subject.model.revision, "another revision")
end

local function survive(subject, err)
  if err.code == "no_space" then
    if not expect_alarm(subject) then return false end
  elseif err.code == "storage" then
    expect_read_only(subject)
    return false
  else
    error("another failure: " .. tostring(err), 0)
  end
  return true
end

local function work(subject)
  for _, step in ipairs(workload.script) do
    if step == "reopen" then
      subject:close()
      local store, err = subject:open()
      if not store then return assert(err.code == "storage" or err.code == "no_space", tostring(err)) end
    else
      local done, err = subject:ask(step)
      if not done and not survive(subject, err) then return end
    end
  end
end

local function try(line)
  durable.remove(path)
  local subject = durable.new(path)
  plan(line)
  local store, err = subject:open()
  if store then
    work(subject)
  else
    local codes = line:find(" 28$") and { no_space = true } or { storage = true, no_space = true }
    assert(codes[err.code] and err.message:find(path, 1, true), tostring(err))
  end
  plan("")
  if subject.store then subject.store:range("x") end
  local struck = has_struck()
  local opened, why = subject:reopen()
  assert(opened, tostring(why))
  assert(opened:disarm("no_space"))
  subject:assume { "disarm", "no_space" } -- it may be armed or not
  subject:check()
  assert(subject:ask { "put", "after", "all" })
  subject:check()
  subject:close()
  return struck
end

local modes = {}

function modes.every() fault_plan.strike_every(arg[4], STRIDE, try) end

--- Deletes everything at once. If the delete fails, nothing or everything is deleted, and the delete can be retried.
function modes.large()
  local n = tonumber(arg[5])
  local store = assert(keywatch.open { path = path, now = 0, max_txn_ops = n })
  local puts = {}
  for i = 1, n do puts[i] = { put = "key " .. i, value = "" } end
  assert(store:txn { success = puts })
  local function count() return assert(store:range("", { prefix = true, count_only = true })).count end
  plan(arg[4])
  local deleted, err = store:delete("key ", { prefix = true })
  plan("")
  assert(deleted or err.code == "no_space" or err.code == "storage", tostring(err))
  assert(count() == (deleted and 0 or n), "a part is deleted")
  print(has_struck() and "struck" or "not struck")
  store:close()
  store = assert(keywatch.open { path = path, now = 0 })
  local left = count()
  assert(left == 0 or left == n and not deleted, left .. " are left")
  assert(store:disarm("no_space"))
  assert(assert(store:delete("key ", { prefix = true })).deleted == left)
  assert(store:put("last", "1"))
  store:close()
  store = assert(keywatch.open { path = path, now = 0 })
  assert(count() == 1, "a key is there again")
  store:close()
  print("done " .. n)
end

local LONG = ("k"):rep(900) -- a delete takes as much room as a put
local HALF = ("k"):rep(1900) -- two such keys fill a page
local TOGETHER = 60 -- changes of a transaction: many pages, of which a full disk writes a part

--- Changes up to `last` keys, many in a transaction, until a transaction fails for want of room. Keys end in `rest`;
-- the numbers of consecutive keys differ by `stride`. Returns the number of changed keys.
local function change(store, last, make, rest, stride)
  local n = 0
  while n < last do
    local ops = {}
    for i = 1, math.min(TOGETHER, last - n) do
      ops[i] = make(("%06d"):format((n + i) * (stride or 1)) .. (rest or LONG))
    end
    local done, err = store:txn { success = ops }
    if not done then
      assert(err.code == "no_space", tostring(err))
      return n
    end
    n = n + #ops
  end
  return n
end

local function put(key) return { put = key, value = "" } end
local function delete(key) return { delete = key } end

--- Opens a store whose journal takes a small part of a small disk.
local function open(step_records)
  return keywatch.open { path = path, now = 0, journal_segment_bytes = 65536, step_records = step_records }
end

local function expect_keys(store, revision, keys)
  assert(store:status().revision == revision, "another revision")
  assert(#store:range("", { prefix = true, keys_only = true }).kvs == keys, "other keys")
end

--- Compacts until there is room for puts.
local function recover(store)
  local done, err = store:compact(store:status().revision, { physical = true })
  assert(done or err.code == "no_space", tostring(err))
  for _ = 1, 50 do
    done, err = store:disarm("no_space")
    if done then done, err = store:put("after", "all") end
    if done then return end
    assert(err.code == "no_space", tostring(err))
    while store:step() do end
  end
  error("there is no room: " .. tostring(err), 0)
end

--- Deletes may use room that puts may not, until they are refused, too. The store can still be read and opened again,
-- and compaction makes room for both.
function modes.exhaust()
  local store = assert(open())
  plan(arg[4])
  local puts = change(store, 1e6, put)
  local deletes = change(store, puts, delete)
  assert(deletes > 0 and deletes < puts, ("%d of %d deletes"):format(deletes, puts))
  local revision = store:status().revision
  expect_keys(store, revision, puts - deletes)
  assert(change(store, TOGETHER, put) == 0)
  store:close()
  store = assert(open())
  expect_keys(store, revision, puts - deletes)
  recover(store)
  local more = change(store, 1e6, put)
  assert(more > 0, "there is no room for puts")
  plan("")
  recover(store)
  store:close()
  print("done " .. puts)
end

local RETRY = 0.5 -- seconds

--- Calls a function until it is true.
local function await(what, fn)
  for _ = 1, 100000 do
    if fn() then return end
    keywatch.sleep(0)
  end
  error("timeout: " .. what, 0)
end

--- Turns a store at the time `now`, until its disk has nothing to do, or waits for a retry.
local function await_disk(store, now)
  await("the disk", function()
    local _, is_pending = store:run_due()
    return not is_pending or store:deadline() == now + RETRY
  end)
end

--- A step of compaction visits the puts, the next one the deletes. Each page loses one record, so there is room for
-- only a part of the removals. Deleted keys must stay deleted whenever the store is closed.
function modes.part()
  local store = assert(open())
  plan(arg[4])
  local puts = change(store, 1e6, put, HALF)
  local deletes = change(store, math.floor(puts / 2), delete, HALF, 2)
  local revision = store:status().revision
  local function reopen()
    store:close()
    store = assert(open(puts))
    expect_keys(store, revision, puts - deletes)
  end
  reopen()
  assert(store:compact(revision))
  for _ = 1, 5 do
    store:step(0)
    store:step(0)
    await_disk(store, 0)
    store:step(RETRY)
    await_disk(store, RETRY)
    reopen()
  end
  store:close()
  print("done " .. deletes)
end

local GROWTHS = 5 -- the first one is that of the first put

--- Returns the bytes of the database's file, with those that are allocated ahead of need.
local function file_bytes()
  local file = assert(io.open(path .. "/data.mdb", "rb"))
  local bytes = file:seek("end")
  file:close()
  return bytes
end

--- The commit thread grows the file of the database for later puts, while the checkpointer writes earlier ones to it.
function modes.grow()
  local bytes = tonumber(arg[4])
  local store = assert(keywatch.open { path = path, now = 0 })
  local function value(i) return ("%08d"):format(i):rep(math.floor(bytes / 8)) end
  local n, growths, last = 0, 0, file_bytes()
  while growths < GROWTHS do
    n = n + 1
    assert(store:put("key " .. n, value(n)))
    local size = file_bytes()
    if size > last then growths, last = growths + 1, size end
  end
  store:close()
  store = assert(keywatch.open { path = path, now = 0 })
  for i = 1, n do assert(assert(store:get("key " .. i)).value == value(i), "another value of key " .. i) end
  store:close()
  print("done " .. n)
end

--- Background writes, such as the store's own alarm, are retried on a full disk only after a pause.
function modes.patient()
  local store = assert(keywatch.open { path = path, now = 0 })
  plan("fail write 1 on 28")
  local _, err = store:put("a", "1")
  assert(err.code == "no_space", tostring(err))
  await("a pause", function()
    store:run_due()
    return store:deadline() == RETRY
  end)
  assert(has_struck())
  for _ = 1, 100 do
    store:run_due()
    keywatch.sleep(0)
  end
  assert(not has_struck(), "it was tried again at once")
  store:step(RETRY)
  await("another try", has_struck)
  plan("")
  local now = RETRY
  await("the alarm", function()
    now = now + RETRY
    store:step(now)
    return select(2, store:run_due()) == false
  end)
  store:close()
  store = assert(keywatch.open { path = path, now = 0 })
  assert(store:alarms()[1] == "no_space", "the alarm was not written")
  store:close()
end

--- An answer that depends only on durable writes does not wait for background writes, such as the store's own alarm.
function modes.read()
  local store = assert(keywatch.open { path = path, now = 0 })
  local lease = assert(store:lease(100))
  assert(store:put("a", "1"))
  plan("fail write 1 on 28")
  local _, err = store:put("b", "2")
  assert(err.code == "no_space", tostring(err))
  local function read()
    assert(#assert(store:leases()) == 1)
    assert(assert(lease:remaining()) > 0)
    assert(not assert(store:txn { compare = { { key = "a", version = 9 } }, failure = { { get = "a" } } }).succeeded)
    assert(store:rows("alarms"))
  end
  read()
  keywatch.run(read)
  await("a pause", function()
    store:run_due()
    return store:deadline() == RETRY
  end)
  read()
  keywatch.run(read)
  assert(store:deadline() == RETRY, "it was tried again")
  plan("")
  assert(store:disarm("no_space"))
  store:close()
end

--- A store that cannot be made for want of room fails with "no_space", whichever of its writes has no room.
function modes.make()
  local room = 0
  repeat
    durable.remove(path)
    plan(("room %d 28"):format(room))
    local store, err = keywatch.open { path = path }
    assert(store or err.code == "no_space", ("%d bytes: %s"):format(room, tostring(err)))
    if store then store:close() end
    room = room + 1000
  until store
  print("done " .. room)
end

modes[mode]()
