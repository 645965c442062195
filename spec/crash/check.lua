--- Whether all that clients were told, before and after a server was killed, is one history.
--
-- It is given the records of one round after the other, see records.lua, and returns what it objects to. The history
-- comes from the watchers of every key; every revision of it must be somebody's write, whole, and every answer must be
-- true of it. What failed may be in it or not, but once the round is over that is settled.
--
-- The names of a process' watchers begin with one name, by which it tells that all of them have caught up. Counters,
-- whose keys begin with c/, hold a number and a tag.

local model = require "spec.crash.model"
local records = require "spec.crash.records"

local MOST = 20 -- objections that are worth reading
local CALLS = { "writes", "grants", "revokes", "compactions", "kept", "lists", "looks", "ranges", "hashes" }
local SHORT = 10 -- seconds: a lease of less may end by itself while a test runs

local check = {}
check.__index = check

function check.new()
  return setmetatable({
    model = model.new(),
    history = {}, -- revision -> the text of its events
    sighted = {}, -- revision -> when it was first seen
    tags = {}, -- tag -> revision
    leases = {}, -- id -> { ttl, granted, renewed, is_sure, is_asked, is_gone, revoked }
    nameless = 0, -- leases that may have been granted, by ids that nobody was told
    hashes = {},
    watchers = {}, -- name -> { next, ... }: `next` is the revision that it is to be told of next
    compacted = -1, -- what was acknowledged
    asked_compacted = -1, -- what was asked for
    known = 1, -- the highest revision that anybody was told of
    spawned = -math.huge, -- when the server that runs now was started
    was_spawned = -math.huge, -- and the one of the round before
    writes = 0, -- that were acknowledged
    lost = 0, -- writes whose fate nobody was told
    found = 0, -- of these, those that are there
    objections = {},
  }, check)
end

local function object(self, format, ...)
  local list = self.objections
  if #list < MOST then list[#list + 1] = format:format(...) end
end

-- The history --------------------------------------------------------------------------------------------------------

local function sight(self, heard)
  for _, group in ipairs(heard.groups) do
    local revision = group.revision
    self.history[revision] = self.history[revision] or group.text
    self.sighted[revision] = math.min(self.sighted[revision] or math.huge, heard.time)
  end
end

local function gather(self, round)
  for _, heard in ipairs(round.heard) do
    if heard.kind == "open" and not self.watchers[heard.name] then self.watchers[heard.name] = heard.watcher end
    heard.watcher = self.watchers[heard.name]
    if heard.kind == "events" and heard.watcher.is_whole then sight(self, heard) end
  end
end

--- Writes by what they are found by.
local function index(self, round)
  round.by_tag, round.by_revision, round.lost_deletes = {}, {}, {}
  for _, write in ipairs(round.writes) do
    if write.tag then round.by_tag[write.tag] = write end
    if write.outcome == "lost" and not write.tag then table.insert(round.lost_deletes, write) end
    if write.outcome == "ok" then
      local other = round.by_revision[write.revision]
      if other then object(self, "two writes were acknowledged at one revision: %s and %s", other.line, write.line) end
      round.by_revision[write.revision] = write
      self.writes = self.writes + 1
    end
  end
  -- Of some that are alike, the first may be the one that is there, if any may.
  table.sort(round.lost_deletes, function(one, other) return one.from < other.from end)
end

--- Whose write a revision is.
local function find_write(self, round, revision, text)
  local write = round.by_revision[revision]
  if write then return write end
  local tag = text:match("p,[^,]+,%d*:?(%d+%.%d+)")
  if tag then return round.by_tag[tag] end
  for i, lost in ipairs(round.lost_deletes) do
    if self.model:outcome(lost.ops, revision) == text then return table.remove(round.lost_deletes, i) end
  end
end

--- When a lease cannot have ended before.
local function earliest_end(self, lease, revision)
  local since = math.max(lease.granted, self.was_spawned)
  for _, kept in ipairs(lease.renewed) do
    if kept.revision < revision then since = math.max(since, kept.from) end
  end
  return since + lease.ttl
end

--- Whether a revision is the end of a lease, by a call or in time.
local function is_end_of_lease(self, revision, text)
  local key = text:match("^d,([^,]+)")
  local before = key and self.model:at(key, revision - 1)
  local lease = before and self.leases[before.lease]
  if not lease or self.model:end_of_lease(before.lease, revision) ~= text then return false end
  if lease.is_asked then return true end
  local early = earliest_end(self, lease, revision) - self.sighted[revision]
  if early > 0 then object(self, "lease %s ends %.3f seconds early, at revision %d", before.lease, early, revision) end
  lease.is_asked = true
  return true
end

local function settle(self, write, revision, text)
  local wanted = write.outcome ~= "refused" and self.model:outcome(write.ops, revision)
  if wanted ~= text then
    object(self, "revision %d holds %s, but should hold %s: %s", revision, text, wanted or "nothing", write.line)
  end
  if write.outcome == "ok" and write.revision ~= revision then
    object(self, "revision %d holds what was acknowledged at another one: %s", revision, write.line)
  end
  if write.tag then
    local other = self.tags[write.tag]
    if other then object(self, "one write is there twice, at %d and at %d: %s", other, revision, write.line) end
    self.tags[write.tag] = revision
  end
  write.found_at = revision
end

local function check_counters(self, revision, text)
  for key, number in text:gmatch("p,(c/[^,]+),(%d+):") do
    local before = self.model:at(key, revision - 1)
    local last = before and tonumber(before.value:match("^%d+")) or 0
    if tonumber(number) ~= last + 1 then
      object(self, "at revision %d the counter %s goes from %d to %s", revision, key, last, number)
    end
  end
end

local function check_bindings(self, revision, text)
  for id in text:gmatch("p,[^ ]*,(%d+)") do
    local lease = self.leases[id]
    if id ~= "0" and (not lease or lease.revoked and lease.revoked < revision) then
      object(self, "at revision %d a key is bound to lease %s, which is not there", revision, id)
    end
  end
end

local function replay(self, round)
  while self.history[self.model.revision + 1] do
    local revision = self.model.revision + 1
    local text = self.history[revision]
    local write = find_write(self, round, revision, text)
    if write then
      settle(self, write, revision, text)
    elseif not is_end_of_lease(self, revision, text) then
      object(self, "revision %d holds what nobody wrote: %s", revision, text)
    end
    check_counters(self, revision, text)
    check_bindings(self, revision, text)
    self.model:apply(text)
  end
  for revision in pairs(self.history) do
    if revision > self.model.revision then
      object(self, "revision %d is seen, but nobody sees revision %d", revision, self.model.revision + 1)
      break
    end
  end
end

-- Answers ------------------------------------------------------------------------------------------------------------

--- Whether watchers see a revision, as they must if anybody is told of it.
local function is_seen(self, revision, line)
  if revision <= self.model.revision then return true end
  object(self, "no watcher sees revision %d, which was told: %s", revision, line)
  return false
end

local outcomes = {}

function outcomes.ok(self, write)
  if not write.found_at then
    object(self, "an acknowledged write is not in revision %d, which holds %s: %s", write.revision,
      self.history[write.revision] or "nothing", write.line)
  end
end

function outcomes.idle(self, write)
  local op = write.ops[1]
  local _, found = self.model:range(write.revision, op[2], op[3])
  if found ~= "" then object(self, "nothing was deleted, but there is %s: %s", found, write.line) end
end

function outcomes.unmet(self, write)
  local found = self.model:at(write.ops[1][2], write.revision)
  if (found and found.text or "") ~= write.found then
    object(self, "it is not as read, but %s: %s", found and found.text or "nothing", write.line)
  end
  if self.model:holds(write.ops[1], write.revision) then
    object(self, "a comparison fails that holds: %s", write.line)
  end
end

--- Whether a lease must be there: it was granted for long, and nobody has asked for its end.
local function is_surely_there(lease)
  return lease and lease.is_sure and not lease.is_asked and lease.ttl > SHORT
end

function outcomes.refused(self, write)
  if not write.found:find("lease not found", 1, true) then
    object(self, "a write is refused: %s", write.line)
  elseif is_surely_there(self.leases[write.ops[1][4]]) then
    object(self, "a lease is not found that is there: %s", write.line)
  end
end

function outcomes.lost(self, write)
  self.lost = self.lost + 1
  if write.found_at then self.found = self.found + 1 end
end

local function check_writes(self, round)
  for _, write in ipairs(round.writes) do
    if is_seen(self, write.revision, write.line) then outcomes[write.outcome](self, write) end
  end
end

--- What was acknowledged as compacted before a time.
local function compacted_before(self, round, time)
  local compacted = self.compacted
  for _, compaction in ipairs(round.compactions) do
    if compaction.outcome == "ok" and compaction.to < time then
      compacted = math.max(compacted, compaction.compacted)
    end
  end
  return compacted
end

local function check_ranges(self, round)
  for _, range in ipairs(round.ranges) do
    local revision = range.at == 0 and range.revision or range.at
    local _, wanted = self.model:range(revision, range.key, range.to_key)
    if is_seen(self, revision, range.line) and range.found ~= wanted then
      object(self, "at revision %d there is %s, and not as read: %s", revision, wanted, range.line)
    end
    if revision < compacted_before(self, round, range.from) then
      object(self, "a revision is read that was compacted: %s", range.line)
    end
  end
end

local function check_gone(self, round)
  for _, gone in ipairs(round.gone) do
    if gone.at >= self.asked_compacted or not gone.line:find("has been compacted", 1, true) then
      object(self, "a revision cannot be read that is there: %s", gone.line)
    end
  end
end

local function check_hashes(self, round)
  for _, hash in ipairs(round.hashes) do
    local name = hash.at .. " " .. hash.compacted
    local other = self.hashes[name]
    if other and other ~= hash.value then object(self, "the hash was %s: %s", other, hash.line) end
    self.hashes[name] = hash.value
    if hash.compacted < compacted_before(self, round, hash.from) then
      object(self, "a compaction is forgotten: %s", hash.line)
    end
  end
end

-- Time: whoever asks is told of all that anybody knew before ---------------------------------------------------------

--- Adds when something was asked for, and when it was told.
local function add_times(times, calls)
  for _, call in ipairs(calls) do
    local revision = call.found_at or call.revision
    if revision > 0 then
      table.insert(times, { time = call.from, revision = revision, call = call })
      if call.outcome ~= "lost" then table.insert(times, { time = call.to, revision = revision }) end
    end
  end
end

local function times_of(round)
  local times = {}
  for _, name in ipairs(CALLS) do add_times(times, round[name]) end
  for _, heard in ipairs(round.heard) do
    if heard.kind == "events" or heard.kind == "progress" then
      table.insert(times, { time = heard.time, revision = heard.revision })
    end
  end
  table.sort(times, function(a, b)
    if a.time ~= b.time then return a.time < b.time end
    return a.call and not b.call or false -- what is told at the time is not known before
  end)
  return times
end

local function check_times(self, round)
  for _, entry in ipairs(times_of(round)) do
    local call = entry.call
    if not call then
      self.known = math.max(self.known, entry.revision)
    elseif entry.revision < self.known or call.found_at == self.known then
      object(self, "revision %d was known before: %s", self.known, call.line)
    end
  end
end

-- Leases -------------------------------------------------------------------------------------------------------------

local function read_leases(self, round)
  for _, grant in ipairs(round.grants) do
    if grant.outcome ~= "refused" and grant.id == "0" then
      self.nameless = self.nameless + 1
    elseif grant.outcome ~= "refused" then
      if self.leases[grant.id] then object(self, "a lease is granted twice: %s", grant.line) end
      self.leases[grant.id] = { ttl = grant.ttl, granted = grant.from, renewed = {}, is_sure = grant.outcome == "ok" }
    end
  end
  for _, revoke in ipairs(round.revokes) do
    local lease = self.leases[revoke.id]
    if lease and revoke.outcome ~= "refused" then lease.is_asked = true end
    if lease and revoke.outcome == "ok" then lease.revoked = revoke.revision end
  end
end

local function check_kept(self, round)
  for _, kept in ipairs(round.kept) do
    local lease = self.leases[kept.id]
    if lease and kept.left > 0 then
      table.insert(lease.renewed, kept)
      if kept.left ~= lease.ttl then object(self, "a lease is kept for other than its time: %s", kept.line) end
    elseif is_surely_there(lease) then
      object(self, "a lease cannot be kept that is there: %s", kept.line)
    end
  end
end

--- A list settles the fate of what was lost.
local function settle_lease(self, id, lease, is_listed, line)
  if is_listed and (lease.revoked or lease.is_gone) then
    object(self, "lease %s is there again: %s", id, line)
  elseif not is_listed and is_surely_there(lease) then
    object(self, "lease %s is not there: %s", id, line)
  end
  lease.is_gone, lease.is_sure = not is_listed, is_listed
  if is_listed then lease.is_asked = false end
end

local function check_lists(self, round)
  for _, list in ipairs(round.lists) do
    local listed, nameless = {}, 0
    for _, id in ipairs(list.ids) do
      listed[id] = true
      if not self.leases[id] then nameless = nameless + 1 end
    end
    if nameless > self.nameless then object(self, "there are leases that nobody asked for: %s", list.line) end
    for id, lease in pairs(self.leases) do settle_lease(self, id, lease, listed[id], list.line) end
    for _, key in ipairs(self.model.keys) do
      local found = self.model:at(key, list.revision)
      if found and found.lease ~= "0" and not listed[found.lease] then
        object(self, "lease %s is gone, but not its key %s: %s", found.lease, key, list.line)
      end
    end
  end
end

--- After a restart a lease has all of its time again.
local function check_looks(self, round)
  for _, look in ipairs(round.looks) do
    local lease = self.leases[look.id]
    if lease and look.left >= 0 then
      local least = math.floor(lease.ttl - (look.to - self.spawned))
      if look.left < least or look.left > lease.ttl or look.ttl ~= lease.ttl then
        object(self, "there are at least %d of %d seconds: %s", least, lease.ttl, look.line)
      end
      local keys = table.concat((self.model:range(look.revision, "", "\255", look.id)), " ")
      if look.keys ~= keys then object(self, "its keys are %s: %s", keys, look.line) end
    end
  end
end

-- Watchers -----------------------------------------------------------------------------------------------------------

--- What a watcher is to be told of a revision; empty if nothing.
local function due(self, watcher, revision)
  local text = self.history[revision] or ""
  return watcher.is_whole and text or model.filtered(text, watcher)
end

--- A watcher must have been told all that is due before a revision.
local function expect_all_before(self, watcher, revision, what)
  for missed = watcher.next, revision - 1 do
    local text = due(self, watcher, missed)
    if text ~= "" then
      object(self, "%s is told of %s, but not of revision %d: %s", watcher.name, what, missed, text)
      break
    end
  end
  watcher.next = math.max(watcher.next, revision)
end

--- What was before an event is told, if it is not compacted.
local function check_before(self, watcher, group)
  if not watcher.has_before then return end
  for event in group.text:gmatch("%S+") do
    local found = self.model:at(event:match("^%l,([^,]+)"), group.revision - 1)
    local wanted, before = found and found.text or "nothing", group.before[event] or "nothing"
    if before ~= wanted and (before ~= "nothing" or group.revision > self.asked_compacted) then
      object(self, "%s is told that before %s there was %s, but it was %s", watcher.name, event, before, wanted)
    end
  end
end

local function check_group(self, watcher, group)
  if group.revision < watcher.next then
    object(self, "%s is told of revision %d again, or too late: %s", watcher.name, group.revision, group.text)
    return
  end
  expect_all_before(self, watcher, group.revision, "revision " .. group.revision)
  local text = due(self, watcher, group.revision)
  if group.text ~= text then
    object(self, "%s is told of revision %d: %s, but it holds %s", watcher.name, group.revision, group.text, text)
  end
  check_before(self, watcher, group)
  watcher.next = group.revision + 1
end

local hearers = {}

function hearers.open(self, _, watcher, heard)
  if heard.revision ~= watcher.next then
    object(self, "%s goes on from %d, but is to be told of %d", watcher.name, heard.revision, watcher.next)
  end
end

function hearers.events(self, _, watcher, heard)
  for _, group in ipairs(heard.groups) do
    if group.revision > heard.revision then
      object(self, "%s is told of revision %d by a response of revision %d", watcher.name, group.revision,
        heard.revision)
    end
    check_group(self, watcher, group)
  end
end

function hearers.progress(self, _, watcher, heard)
  expect_all_before(self, watcher, heard.revision + 1, "progress up to " .. heard.revision)
end

function hearers.overtaken(self, round, watcher, heard)
  local compacted = heard.revision
  if compacted <= watcher.next or compacted > self.asked_compacted then
    object(self, "%s is to be told of %d, and is told that %d is compacted", watcher.name, watcher.next, compacted)
  end
  if compacted < compacted_before(self, round, watcher.opened) then
    object(self, "%s is told that %d is compacted: later compactions are forgotten", watcher.name, compacted)
  end
  watcher.next = math.max(watcher.next, compacted)
end

function hearers.ended(self, _, watcher)
  object(self, "%s ends", watcher.name)
end

function hearers.close(self, _, watcher)
  self.watchers[watcher.name] = nil
end

local function check_watchers(self, round)
  for _, heard in ipairs(round.heard) do
    if heard.kind == "open" then heard.watcher.opened = heard.time end
    hearers[heard.kind](self, round, heard.watcher, heard)
  end
  for group, revision in pairs(round.caught) do
    for name, watcher in pairs(self.watchers) do
      if name:sub(1, #group) == group then
        expect_all_before(self, watcher, revision + 1, "nothing more up to " .. revision)
      end
    end
  end
end

-- All of it ----------------------------------------------------------------------------------------------------------

local function read_compactions(self, round)
  for _, compaction in ipairs(round.compactions) do
    if compaction.outcome ~= "refused" then
      self.asked_compacted = math.max(self.asked_compacted, compaction.compacted)
    end
  end
end

local function close_round(self, round)
  self.compacted = compacted_before(self, round, math.huge)
  self.was_spawned = self.spawned
end

--- Takes the records of a round, an iterator of lines. Returns the objections, a list of sentences.
function check:round(lines)
  local round = records.read(lines)
  self.objections = {}
  self.spawned = round.spawned or self.spawned
  gather(self, round)
  index(self, round)
  read_compactions(self, round)
  read_leases(self, round)
  check_kept(self, round)
  replay(self, round)
  check_writes(self, round)
  check_times(self, round)
  check_ranges(self, round)
  check_gone(self, round)
  check_hashes(self, round)
  check_lists(self, round)
  check_looks(self, round)
  check_watchers(self, round)
  close_round(self, round)
  return self.objections
end

return check
