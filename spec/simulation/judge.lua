--- The judge: checks that all results of clients agree with the history of their servers (truth.lua).
--
-- The workload records requests and results; the judge checks them when the run is over. An objection is a sentence.
-- The rules:
--
--   writes      an acknowledged write is in the log at its revision, with its events and its answer; a write in doubt
--               is in the log at most once; a refused write is not. Every other revision is the end of a lease.
--   time        a request that began after a result has the revision of that result or a later one; a write has a
--               later one
--   reads       return what the log has at the revision of the answer
--   watches     are ordered, unique, reliable, atomic, resumable and bookmarkable; and end for a true reason
--   caches      have at every moment the state of one revision, which never goes back
--   leases      do not end early or late
--
-- If a server is restored or replaced, answers of one epoch may count as those of the next, and gaps between epochs
-- are not checked.

local difference = require("spec.support.difference").difference
local kv_of = require("spec.simulation.truth").kv_of
local request = require "spec.support.request"
local span = require "spec.support.model.span"

local judge = {}

local MILLISECOND = 0.0011 -- the clock of a store has milliseconds

--- Errors that faults may cause. Other errors must come from requests that are invalid on purpose.
local WORLDLY = { unavailable = true, deadline_exceeded = true, too_many_requests = true, closed = true,
  cancelled = true, timeout = true, resource_exhausted = true }
local STATIC = { empty_key = true, key_not_found = true, value_provided = true, lease_provided = true,
  too_many_ops = true, duplicate_key = true, request_too_large = true, lease_not_found = true, lease_exists = true,
  lease_ttl_too_large = true, out_of_memory = true, compacted = true, future_revision = true }

-- Where memory runs short, in builds with a probe, a status may lose its text, from which a client knows the error.
local TEXTLESS = { invalid_argument = require("keywatch.core").probe ~= nil }

-- {====== Operations ======

local READS = { get = true, range = true, each = true, leases = true, remaining = true, lease_keys = true,
  hash_kv = true, keepalive = true, lease = true, brief_lease = true }

--- True if an answer says that something was written.
local function has_written(verb, answer, ops)
  if verb == "put" then return true end
  if verb == "delete" then return answer.deleted > 0 end
  if verb ~= "txn" then return false end
  for i, op in ipairs(ops[answer.succeeded and "success" or "failure"] or {}) do
    local own = op.put and "put" or op.delete and "delete" or op.txn and "txn"
    if own and has_written(own, answer.responses[i], op.txn) then return true end
  end
  return false
end

--- True if the changes that were made in a view are the events of a revision.
local function same_events(view, events)
  local n = 0
  for _, event in ipairs(events) do
    local record = view.history[n + 1]
    if not record or view.prefix .. record.key ~= event.key then return false end
    local kv = record.kv
    if (kv ~= nil) ~= (event.type == "put") then return false end
    if kv and (kv.value ~= event.value or kv.version ~= event.version or kv.lease ~= event.lease
      or kv.create_revision ~= event.create_revision) then
      return false
    end
    n = n + 1
  end
  return n == #view.history and n > 0
end

--- Makes a request of the model. Returns the answer, the error and the view.
local function expect(record, epoch, base)
  local view = epoch:view(base, record.prefix)
  local answer, err = request.perform(record.request, view)
  return answer, err, view
end

--- Checks an operation whose answer has a revision.
local function judge_answer(self, record, epoch)
  local revision = record.answer.revision
  local writes = has_written(record.request.verb, record.answer, record.request[1])
  if revision > epoch.last then return self:object(record, "is at %d, and the log ends at %d", revision, epoch.last) end
  if revision < record.after + (writes and 1 or 0) then
    self:object(record, "is at %d, and began when %d was known", revision, record.after)
  end
  if record.before and revision > record.before then
    self:object(record, "is at %d, and the server had only %d", revision, record.before)
  end
  local expected, err, view = expect(record, epoch, writes and revision - 1 or revision)
  if err then return self:object(record, "has worked, and had to fail with %s", err.code) end
  local words = difference(record.answer, expected, "the answer")
  if words then self:object(record, "%s", words) end
  if not writes then return end
  if epoch.claims[revision] then
    self:object(record, "is at %d, and so is %s", revision, epoch.claims[revision].id)
  end
  epoch.claims[revision] = record
  if not same_events(view, epoch.events[revision]) then
    self:object(record, "is not what the log has at %d", revision)
  end
end

--- Checks a read whose answer has no revision: it must fit some revision between the begin and the end of the read.
local function judge_read(self, record, epoch)
  local words
  for revision = record.after, math.min(record.before or epoch.last, epoch.last) do
    local expected = expect(record, epoch, revision)
    words = difference(record.answer, expected, "the answer")
    if not words then return end
  end
  self:object(record, "%s; nor any other from %d to %s", tostring(words), record.after, tostring(record.before))
end

local function judge_error(self, record, epoch)
  local err = record.err
  if type(err) ~= "table" or not err.code then
    return self:object(record, "fails without an error: %s", tostring(err))
  end
  if READS[record.request.verb] and err.maybe_done and record.request.verb ~= "lease"
    and record.request.verb ~= "brief_lease" and record.request.verb ~= "keepalive" then
    self:object(record, "is a read, and in doubt")
  end
  local is_read = record.request.verb ~= "compact" -- a compaction may name any old revision
  if err.code == "compacted" and is_read and not epoch:may_lack(0, record.ended) and self.epochs_of(record) == 1 then
    self:object(record, "fails with compacted, and nothing was")
  elseif not (WORLDLY[err.code] or STATIC[err.code] or TEXTLESS[err.code]
    or err.code == "no_space" and self.plan.is_durable) then
    self:object(record, "fails with %s", tostring(err))
  end
end

--- Checks the revisions that no acknowledged operation has claimed: operations in doubt, and ends of leases.
local function judge_unclaimed(self, truth, epoch, doubts)
  for revision = epoch.first, epoch.last do
    local events = epoch.events[revision]
    if not epoch.claims[revision] and self.is_of_operations(events[1].key) then
      local time, found = epoch.times[revision], nil
      for _, record in ipairs(doubts) do
        if not found and not record.is_found and record.began <= time then
          local _, _, view = expect(record, epoch, revision - 1)
          if same_events(view, events) then found = record end
        end
      end
      if found then
        found.is_found, epoch.claims[revision] = true, found
      else
        judge.judge_end_of_lease(self, truth, epoch, revision, events)
      end
    end
  end
end

function judge.operations(self, truth)
  local doubts = {}
  for _, epoch in ipairs(truth.epochs) do epoch.claims = {} end
  for _, record in ipairs(self.operations) do
    record.is_found = false
    if record.truth == truth then
      local epoch = record.epoch
      local is_moved = record.ended_epoch ~= epoch
      if record.outcome == "doubt" then
        if not READS[record.request.verb] then doubts[#doubts + 1] = record end
      elseif record.err ~= nil then
        judge_error(self, record, epoch)
      elseif not is_moved and type(record.answer) == "table" and record.answer.revision
        and not READS[record.request.verb == "range" and "" or record.request.verb] then
        if record.request.verb ~= "compact" and record.request.verb ~= "revoke" then
          judge_answer(self, record, epoch)
        elseif record.request.verb == "revoke" and record.answer.revision <= epoch.last then
          epoch.claims[record.answer.revision] = epoch.claims[record.answer.revision] or record.is_end and record
        end
      elseif not is_moved and (record.request.verb == "get" or record.request.verb == "each") then
        judge_read(self, record, epoch)
      end
    end
  end
  for i = 2, #truth.epochs do
    local epoch, before = truth.epochs[i], truth.epochs[i - 1]
    for revision = 2, epoch.kept do epoch.claims[revision] = before.claims[revision] end
  end
  judge_unclaimed(self, truth, truth.epoch, doubts)
  for _, record in ipairs(self.operations) do
    if record.outcome == "refused" and record.truth == truth and record.tag then
      local found = truth.epoch:revisions_of(record.tag)
      if found[1] then
        self:object(record, "has failed without maybe_done (%s), and is at %d", tostring(record.err), found[1])
      end
    end
  end
end

-- }======

-- {====== Leases ======

--- True if an attempt to end a lease may have arrived after a renewal, and before a time. An attempt in doubt may
-- arrive at any time after its begin.
local function may_have_ended(list, renewal, time)
  for _, one in ipairs(list) do
    local is_late = one.outcome == "doubt" or one.ended >= renewal.began
    if one.what == "end" and is_late and one.began <= time then return true end
  end
  return false
end

--- Returns the time until which a lease must live, if it ended at `time`; 0 if that is not known. What was answered at
-- that very time, or in the last `lag` seconds, may be later than the end.
local function sure_until(list, time, lag)
  local sure = 0
  for _, one in ipairs(list) do
    if one.what ~= "end" and one.outcome == "ok" and one.ended < time - lag then
      if one.what == "grant" then sure = 0 end
      if not may_have_ended(list, one, time) then sure = math.max(sure, one.began + one.ttl) end
    end
  end
  return sure
end

--- Checks that a revision without an operation is the end of a lease: it deletes all keys of the lease, not too early.
function judge.judge_end_of_lease(self, truth, epoch, revision, events)
  local lease
  for _, event in ipairs(events) do
    local before = epoch:at(event.key, revision - 1)
    if event.type ~= "delete" or not before or before.lease == 0 or lease and lease ~= before.lease then
      return self:object(nil, "%s of %s at %d was requested by no client", event.type, event.key, revision)
    end
    lease = before.lease
  end
  local n = 0
  for _, key in ipairs(epoch:keys_below("")) do
    local kv = epoch:at(key, revision - 1)
    if kv and kv.lease == lease then n = n + 1 end
  end
  if n ~= #events then
    self:object(nil, "lease %s ends at %d with %d of its %d keys", tostring(lease), revision, #events, n)
  end
  local list = truth.leases[tostring(lease)]
  if not list or #truth.epochs > 1 then return end
  local time = epoch.times[revision]
  local sure = sure_until(list, time, self.LAG)
  if time < sure - MILLISECOND then
    self:object(nil, "lease %s ends at %d, %.3f, and was granted or renewed until %.3f", tostring(lease), revision,
      time, sure)
  end
end

--- Checks that at the end no key has a lease that should have expired.
function judge.leases(self, truth, now)
  for _, kv in ipairs(truth.epoch:kvs(truth.epoch.last, span.new("", { prefix = true }))) do
    local list, last = kv.lease ~= 0 and truth.leases[tostring(kv.lease)], 0
    for _, one in ipairs(list or {}) do
      if one.ttl then last = math.max(last, math.max(one.ended, truth.reopened) + one.ttl) end
    end
    if list and now > last + self.SLACK then
      self:object(nil, "%s has lease %s, which was to end at %.3f at the latest", kv.key, tostring(kv.lease), last)
    end
  end
end

-- }======

-- {====== Watches ======

local OTHER_HISTORY = { regressed = true, cluster_changed = true }

local function wanted(record, event)
  return event.mod_revision >= record.start and (event.type == "put" and not record.no_put
    or event.type == "delete" and not record.no_delete)
end

--- Returns the events of a revision that a watch must receive.
local function due(record, epoch, revision)
  local list = {}
  for _, event in ipairs(epoch:within(revision, record.within)) do
    if wanted(record, event) then list[#list + 1] = event end
  end
  return list
end

--- Returns the first revision after `after`, up to `last`, that has events for a watch.
local function find_due(record, epoch, after, last)
  for revision = after + 1, math.min(last, epoch.last) do
    if epoch.events[revision] and #due(record, epoch, revision) > 0 then return revision end
  end
end

local function same_event(received, event)
  return received.type == event.type and received.key == event.key and received.mod_revision == event.mod_revision
    and received.value == event.value and received.version == event.version and received.lease == event.lease
    and received.create_revision == event.create_revision
end

local function same_list(batch, list)
  if #batch.events ~= #list then return false end
  for i, event in ipairs(list) do
    if not same_event(batch.events[i], event) then return false end
  end
  return true
end

--- Checks the previous kvs of a batch. One that may have been compacted may be missing.
local function judge_prevs(self, record, epoch, batch)
  for _, event in ipairs(batch.events) do
    local prev = event.prev
    local before = kv_of(epoch:at(event.key, batch.revision - 1))
    local is_new = event.type == "put" and event.version == 1
    if is_new then before = nil end
    if not record.has_prev then before = nil end
    local may_lack = record.is_cache or self.is_etcd or epoch:may_lack(batch.revision - 1, batch.time)
    local words = not (prev == nil and may_lack) and difference(prev, before, "prev of " .. event.key)
    if words then self:object(record, "at %d: %s", batch.revision, words) end
  end
end

--- Returns the epoch whose log has a batch: `epoch`, or a later one that had begun.
local function epoch_of(record, batch, epoch)
  for number = epoch.number, #record.truth.epochs do
    local one = record.truth.epochs[number]
    if one.began <= batch.time and same_list(batch, due(record, one, batch.revision)) then return one end
  end
end

--- Checks the initial events of a watch.
local function judge_initial(self, record, epoch)
  local kvs = epoch:kvs(record.synced, record.within)
  local received = record.initial
  table.sort(received, function(a, b) return a.key < b.key end)
  local plain = {}
  for i, event in ipairs(received) do plain[i] = kv_of(event) end
  local words = difference(plain, kvs, "what existed")
  if words and #record.truth.epochs == 1 then self:object(record, "at %d: %s", record.synced, words) end
end

--- Checks a local watch of a cache that may have read everything again: its events add up to the final content.
local function judge_rough(self, record)
  local state, epoch = {}, record.truth.epoch
  local base = record.initial or record.epoch:kvs(math.min(record.position, record.is_drained or 0), record.within)
  for _, event in ipairs(base) do state[event.key] = event end
  for _, batch in ipairs(record.batches) do
    for _, event in ipairs(batch.events) do
      if event.type ~= "progress" then state[event.key] = event.type == "put" and event or nil end
    end
  end
  if record.err or record.initial and not record.synced or not record.is_drained then return end
  for _, kv in ipairs(epoch:kvs(record.is_drained, record.within)) do
    if not state[kv.key] or state[kv.key].value ~= kv.value then
      self:object(record, "has not come to %s at %d", kv.key, kv.mod_revision)
    end
    state[kv.key] = nil
  end
  local left = next(state)
  if left then self:object(record, "still has %s, which is gone", left) end
end

local function judge_end(self, record, epoch, position)
  local err = record.err
  if err then
    local is_cut = self.may_end(record, err)
    if OTHER_HISTORY[err.code] then
      if #record.truth.epochs == 1 then self:object(record, "fails with %s, of the same server", err.code) end
    elseif err.code == "compacted" then
      local next_due = math.max(position + 1, record.start)
      local is_true = epoch:may_lack(next_due, record.ended) or record.is_cache
      local compacted = err.compact_revision or record.initial and not record.synced and math.huge -- see docs/errors.md
      if compacted <= position or not is_true and #record.truth.epochs == 1 then
        self:object(record, "fails with compacted, and %d was not", next_due)
      end
    elseif not is_cut then
      self:object(record, "fails with %s", tostring(err))
    end
  elseif record.is_drained then
    if record.initial and not record.synced then return self:object(record, "is never synced") end
    local missing = find_due(record, epoch, position, record.is_drained)
    if missing then self:object(record, "lacks revision %d, %.3f", missing, epoch.times[missing]) end
  end
end

function judge.watch(self, record)
  local epoch, position, bookmark = record.epoch, record.position, 0
  if record.is_rough then return judge_rough(self, record) end
  if record.synced then
    judge_initial(self, record, epoch)
    position = record.synced
    record.start = position + 1
  end
  for i, batch in ipairs(record.batches) do
    local revision, first = batch.revision, batch.events[1]
    local is_progress = first.type == "progress"
    if i == #record.batches and record.is_by_event and not record.is_drained then break end -- it may be incomplete
    local now = is_progress and epoch or epoch_of(record, batch, epoch)
    if not now then
      local list = due(record, epoch, revision)
      return self:object(record, "has %d events at %d, first %s of %s, and %d are due: %s", #batch.events,
        revision, first.type, tostring(first.key), #list,
        difference(batch.events, list, "the events") or "of another epoch")
    end
    if now == epoch then
      local missing = find_due(record, epoch, position, is_progress and revision or revision - 1)
      if missing and (#record.truth.epochs == 1 or not is_progress) then
        self:object(record, "has %s at %d before %d", first.type, revision, missing)
      end
    end
    if not is_progress and (revision <= position or revision <= bookmark) and now == epoch then
      self:object(record, "has %d after %d", revision, math.max(position, bookmark))
    end
    if is_progress then
      if revision < bookmark and now == epoch then
        self:object(record, "has progress %d after %d", revision, bookmark)
      end
      bookmark = revision
    else
      judge_prevs(self, record, now, batch)
    end
    position = now == epoch and math.max(position, revision) or revision
    if now ~= epoch then bookmark = 0 end
    epoch = now
  end
  if epoch == record.truth.epoch then judge_end(self, record, epoch, position) end
end

-- }======

-- {====== Caches ======

--- Checks the samples of a cache's content, { revision, kvs, time, after }, in order.
function judge.samples(self, record)
  local epoch, last = record.epoch, 0
  for _, sample in ipairs(record.samples) do
    local found, words
    for number = epoch.number, #record.truth.epochs do
      local one = record.truth.epochs[number]
      local may_be = one.began <= sample.time and sample.revision <= one.last
      if not found and may_be and (one ~= epoch or sample.revision >= last) then
        words = difference(sample.kvs, one:kvs(sample.revision, sample.within), "the content")
        found = not words and one
      end
    end
    if not found then
      return self:object(record, "at %d, %.3f: %s", sample.revision, sample.time,
        words or ("it was at %d before"):format(last))
    end
    if sample.after and found == sample.epoch and sample.revision < sample.after then
      self:object(record, "is read at %d, and %d was known", sample.revision, sample.after)
    end
    epoch = found
    if not (self.is_etcd and sample.after) then last = sample.revision end -- etcd's own answers, see docs/cache.md
  end
end

-- }======

return judge
