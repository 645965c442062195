--- The common part of the judges of locks and elections: which candidate is the owner at each revision of the history.
--
-- In a contest each candidate has a key below the name, and the owner is the one with the smallest create revision.
-- The value of a write behind a fence is "TAG NUMBER KEY REVISION": a counter, and the key and the create revision of
-- its owner. That candidate must be the owner at the very revision of the write, and the counter rises by one: so the
-- writes of two owners do not interleave, and no write is lost.

local contests = {}

--- The text of a fenced write.
function contests.value(tag, number, held)
  return ("%s %d %s %d"):format(tag, number, held.key, held.revision)
end

--- The number in such a text; 0 if there is none.
function contests.number_in(kv) return kv and tonumber(kv.value:match("^%S+ (%d+)")) or 0 end

--- A follower of a contest through the history.
function contests.follow(prefix) return { prefix = prefix, candidates = {} } end

--- Takes the events of one revision.
function contests.step(follower, events)
  local prefix = follower.prefix
  for _, event in ipairs(events) do
    if event.key:sub(1, #prefix) == prefix then
      follower.candidates[event.key] = event.type == "put" and event or nil
    end
  end
end

--- The event that has made the holder's key what it is; nil if there is no holder.
function contests.holder(follower)
  local first
  for _, event in pairs(follower.candidates) do
    if not first or event.create_revision < first.create_revision then first = event end
  end
  return first
end

--- Checks the fenced writes of a contest: of the key `counter`, by candidates below the prefix. Returns how many there
-- were, and how often the writer was another one than before.
function contests.judge(world, history, prefix, counter)
  local follower, number, last, n, changes = contests.follow(prefix), 0, nil, 0, 0
  history:each("", history.first, history.last, function(revision, events)
    contests.step(follower, events)
    for _, event in ipairs(events) do
      if event.key == counter then
        local tag, counted, key, created = event.value:match("^(%S+) (%d+) (.*) (%d+)$")
        local holder = contests.holder(follower)
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

--- A write with an outcome is in the history once, or not, as its error has said.
function contests.judge_tag(world, history, record)
  local found = history:revisions_of(record.tag)
  if record.outcome == "refused" and #found > 0 then
    world:object("%s (%s) has failed without maybe_done (%s), and is at %d", record.tag, record.what,
      tostring(record.err), found[1])
  elseif #found > 1 or record.outcome == "ok" and #found == 0 then
    world:object("%s (%s, %s) is %d times in the history", record.tag, record.what, record.outcome, #found)
  end
end

return contests
