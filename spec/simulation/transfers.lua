--- Software transactions in a cluster under attack, and the checks of their results.
--
-- Each transaction moves one unit from an account to another. A transaction that has succeeded is in the history once,
-- in one revision; a transaction whose error has no maybe_done is not in the history; and each transaction has seen the
-- accounts as they were just before it, so that the sum of all accounts is always 0. Some clients use a namespace.

local PREFIX = "/a/"
local ACCOUNTS = 5
local LEVELS = { "serializable_snapshot", "serializable", "repeatable_reads" }

local function amount_of(kv) return kv and tonumber(kv.value:match("^%S+ (-?%d+)$")) or 0 end

local function transfer(world, records)
  local random = world.random
  local from = random:between(1, ACCOUNTS)
  local to = (from + random:between(1, ACCOUNTS - 1) - 1) % ACCOUNTS + 1
  local record = { tag = world:tag("t"), calls = 0 }
  table.insert(records, record)
  local owner, prefix = world:client(), PREFIX
  if random:one_in(3) then owner, prefix = owner:namespace(PREFIX), "" end
  local result, err = owner:stm(function(tx)
    record.calls = record.calls + 1
    local a, b = tx:get(prefix .. from), tx:get(prefix .. to)
    tx:put(prefix .. from, ("%s %d"):format(record.tag, amount_of(a) - 1))
    tx:put(prefix .. to, ("%s %d"):format(record.tag, amount_of(b) + 1))
    return true
  end, { isolation = random:pick(LEVELS), timeout = world:patience() })
  record.outcome = world:note("stm", result, err)
  if record.calls > 1 then world:count("stm", "calls again", record.calls - 1) end
end

local function start(world, n)
  local records = {}
  for _ = 1, n do world:work("a software transaction", transfer, records) end
  return records
end

local function judge_record(world, history, record)
  local found = history:revisions_of(record.tag)
  if record.outcome == "refused" and #found > 0 then
    return world:object("%s has failed without maybe_done, and is at %d", record.tag, found[1])
  end
  if #found ~= 2 and (record.outcome == "ok" or #found ~= 0) or found[1] ~= found[2] then
    world:object("%s (%s) is at %s, not twice in one revision", record.tag, record.outcome, table.concat(found, ", "))
  end
end

local function judge(world, history, records)
  for _, record in ipairs(records) do judge_record(world, history, record) end
  history:each(PREFIX, history.first, history.last, function(revision, events)
    local sum = 0
    for _, event in ipairs(events) do
      local change = amount_of(event) - amount_of(history:at(event.key, revision - 1))
      if math.abs(change) ~= 1 then world:object("%s is changed by %d at %d", event.key, change, revision) end
      sum = sum + change
    end
    if sum ~= 0 or #events ~= 2 then world:object("at %d a transfer is not whole", revision) end
  end)
end

return { start = start, judge = judge }
