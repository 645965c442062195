--- The common part of the judges of locks and elections: which candidate is the owner at each revision of the history.
--
-- Each candidate has a key below the name, and the owner is the one with the smallest create revision.
-- The value of a write behind a fence is "TAG NUMBER KEY REVISION": a counter, and the key and the create revision of
-- its owner. That candidate must be the owner at the revision of the write, and the counter must rise by one. Then the
-- writes of two owners do not interleave, and no write is lost.

local exclusion = {}

--- Returns the value of a fenced write.
function exclusion.value(tag, number, held)
  return ("%s %d %s %d"):format(tag, number, held.key, held.revision)
end

--- Returns the number in the value of a fenced write; 0 if the key does not exist.
function exclusion.number_in(kv) return kv and tonumber(kv.value:match("^%S+ (%d+)")) or 0 end

--- Returns a follower of a lock or an election: it knows the candidates at each revision of the history.
function exclusion.follow(prefix) return { prefix = prefix, candidates = {} } end

--- Applies the events of one revision to a follower.
function exclusion.step(follower, events)
  local prefix = follower.prefix
  for _, event in ipairs(events) do
    if event.key:sub(1, #prefix) == prefix then
      follower.candidates[event.key] = event.type == "put" and event or nil
    end
  end
end

--- Returns the last event of the holder's key; nil if there is no holder.
function exclusion.holder(follower)
  local first
  for _, event in pairs(follower.candidates) do
    if not first or event.create_revision < first.create_revision then first = event end
  end
  return first
end

--- Checks the fenced writes of the key `counter` by candidates below the prefix. Returns the number of writes, and how
-- often the writer has changed.
function exclusion.judge(world, history, prefix, counter)
  local follower, number, last, n, changes = exclusion.follow(prefix), 0, nil, 0, 0
  history:each("", history.first, history.last, function(revision, events)
    exclusion.step(follower, events)
    for _, event in ipairs(events) do
      if event.key == counter then
        local tag, counted, key, created = event.value:match("^(%S+) (%d+) (.*) (%d+)$")
        local holder = exclusion.holder(follower)
        if not holder or holder.key ~= key or holder.create_revision ~= tonumber(created) then
          world:object("%s at %d is written behind the fence %s of %s, held by %s", tag, revision, key, created,
            holder and holder.key .. " of " .. holder.create_revision or "nobody")
        end
        if tonumber(counted) ~= number + 1 then
          world:object("%s at %d counts to %s after %d", tag, revision, counted, number)
        end
        number, n = tonumber(counted), n + 1
        if last ~= key .. created then last, changes = key .. created, changes + 1 end
      end
    end
  end)
  return n, changes
end

--- Checks that the history has a write as often as its outcome says: "ok" once, "refused" never, else once or never.
function exclusion.judge_tag(world, history, record)
  local found = history:revisions_of(record.tag)
  if record.outcome == "refused" and #found > 0 then
    world:object("%s (%s) has failed without maybe_done (%s), and is at %d", record.tag, record.what,
      tostring(record.err), found[1])
  elseif #found > 1 or record.outcome == "ok" and #found == 0 then
    world:object("%s (%s, %s) is %d times in the history", record.tag, record.what, record.outcome, #found)
  end
end

return exclusion
