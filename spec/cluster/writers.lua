--- Writers and readers of a cluster under attack, and what must be true of what they were told.
--
-- A write that was acknowledged is in the history at the revision of its answer, and once. A write whose error has no
-- maybe_done is not there. One in doubt is there once, or not at all. Answers follow the time: a call that begins after
-- another has ended is answered at a revision that is not older, and newer if it writes. What is read is what the
-- history has at the revision of the answer.

local PREFIX = "/w/"
local KEYS = 12

local function key_of(random)
  return PREFIX .. random:between(1, KEYS)
end

local function note(world, record, result, err)
  record.outcome = world:note(record.what, result, err)
  record.revision = result and result.revision
  if result then world:acknowledge(result.revision) end
end

local function put(world, records)
  local record = { what = "put", tag = world:tag("w"), after = world.acknowledged }
  table.insert(records.writes, record)
  note(world, record, world:client():put(key_of(world.random), record.tag, { timeout = world:patience() }))
end

--- Several keys in one revision: some are put, and one is deleted if it is there.
local function txn(world, records)
  local record = { what = "txn", tag = world:tag("w"), after = world.acknowledged, n = world.random:between(1, 4) }
  table.insert(records.writes, record)
  local ops, first = {}, world.random:between(1, KEYS)
  for i = 1, record.n do
    ops[i] = { put = PREFIX .. (first + i) % KEYS, value = record.tag .. " " .. i }
  end
  ops[#ops + 1] = { delete = PREFIX .. (first + record.n + 1) % KEYS }
  note(world, record, world:client():txn({ success = ops }, { timeout = world:patience() }))
end

local function read(world, records)
  local record = { after = world.acknowledged, key = key_of(world.random) }
  local result, err = world:client():range(record.key, { timeout = world:patience() })
  world:note("range", result, err)
  if not result then
    if err.maybe_done then world:object("a read that fails has maybe_done: %s", tostring(err)) end
    return
  end
  world:acknowledge(result.revision)
  record.revision, record.kv = result.revision, result.kvs[1]
  table.insert(records.reads, record)
end

local function start(world, n)
  local records = { writes = {}, reads = {} }
  for _ = 1, n do
    world:work("a writer", function()
      world.random:weighted { { 5, put }, { 2, txn }, { 3, read } }(world, records)
    end)
  end
  return records
end

local function judge_write(world, history, record)
  local found = history:revisions_of(record.tag)
  local n = record.n or 1
  if record.outcome == "refused" and #found > 0 then
    return world:object("%s has failed without maybe_done, and is at %d", record.tag, found[1])
  end
  if #found ~= n and (record.outcome == "ok" or #found ~= 0) then
    return world:object("%s is %d times in the history, not %d", record.tag, #found, n)
  end
  for _, revision in ipairs(found) do
    if revision ~= found[1] then world:object("%s is at %d and at %d", record.tag, found[1], revision) end
  end
  if record.outcome ~= "ok" then return end
  if found[1] ~= record.revision then
    world:object("%s is at %d and was told to be at %d", record.tag, found[1], record.revision)
  elseif record.revision <= record.after then
    world:object("%s is at %d, and began when %d was known", record.tag, record.revision, record.after)
  end
end

local function judge_read(world, history, record)
  if record.revision < record.after then
    world:object("a read at %d has begun when %d was known", record.revision, record.after)
  end
  local expected, kv = history:at(record.key, record.revision), record.kv
  local wanted = expected and ("%s %d"):format(expected.value, expected.mod_revision)
  local found = kv and ("%s %d"):format(kv.value, kv.mod_revision)
  if wanted ~= found then
    world:object("%s at %d is read as %s, and is %s", record.key, record.revision, tostring(found), tostring(wanted))
  end
end

local function judge(world, history, records)
  for _, record in ipairs(records.writes) do judge_write(world, history, record) end
  for _, record in ipairs(records.reads) do judge_read(world, history, record) end
end

return { PREFIX = PREFIX, start = start, judge = judge }
