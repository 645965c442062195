--- The known differences between keywatch and etcd 3.4.23, and which of the two is right.
--
-- keywatch behaves like the newest 3.5. Every other difference between the answers of the two is a bug of keywatch. An
-- entry of the list has a description, `right` (which one is right, or "both"), and `settle`, which checks the parts
-- that are known to differ, raises if they are not as expected, and removes them from both answers. The rest must be
-- equal. `asked` is a request with its path and message; `world` has revisions, events and identities.

local int64 = require "spec.support.int64"
local messages = require "spec.support.messages"

local STABLE = 12 -- equal values that Go's sort leaves in order; it may reorder more

local ALMOST = 0.05 -- seconds

local differences = {}

local function add(entry) differences[#differences + 1] = entry end

local function expect(holds, words)
  if not holds then error("a known difference is not as it should be: " .. words, 0) end
end

local function is_call(asked, method) return asked.path ~= nil and asked.path:match("[^/]*$") == method end

-- {====== Identities ======

add {
  what = "cluster and member ids, terms",
  right = "both",
  settle = function(answers, _, world)
    for kind, answer in pairs(answers) do
      local header = type(answer) == "table" and answer.header
      if header and header.cluster_id then
        local own = world.identities[kind]
        expect(header.cluster_id == own.cluster_id and header.member_id == own.member_id, "the ids of " .. kind)
        expect(header.raft_term >= 1, "the term of " .. kind)
        header.cluster_id, header.member_id, header.raft_term = "own", "own", "own"
      end
    end
  end,
}

add {
  what = "alarms are raised for the server's own member, whose id is its own",
  right = "both",
  settle = function(answers, asked, world)
    if not is_call(asked, "Alarm") then return end
    for kind, answer in pairs(answers) do
      for _, alarm in ipairs(answer.alarms or {}) do
        expect(alarm.memberID == world.identities[kind].member_id, "the member of an alarm")
        alarm.memberID = "own"
      end
    end
  end,
}

-- }======

-- {====== Answers of newer versions of etcd ======

add {
  what = "etcd answers Alarm with a header since 3.5",
  right = "keywatch",
  settle = function(answers, asked)
    if not is_call(asked, "Alarm") then return end
    expect(not answers.etcd.header, "etcd has a header")
    expect(answers.keywatch.header, "keywatch has no header")
    answers.keywatch.header = nil
  end,
}

add {
  what = "HashKV names the revision that was hashed since 3.6",
  right = "keywatch",
  settle = function(answers, asked, world)
    if not is_call(asked, "HashKV") or asked.verb ~= "call" then return end
    local given = asked.message.revision or 0
    expect(answers.keywatch.hash_revision == (given ~= 0 and given or world.revision), "the hashed revision")
    answers.keywatch.hash_revision = nil
  end,
}

--- Requests that etcd refuses, and keywatch accepts. From 3.5.5 on etcd also keeps the hashes of its last ten
-- compactions, computed before the removal, and returns them for HashKV at their revisions; keywatch does not, see
-- docs/behaviour.md. etcd 3.4 has no such hashes, so the specs that compare it do not see them.
local refused = {
  {
    what = "HashKV at the revision of the compaction itself is refused before 3.5",
    right = "keywatch",
    applies = function(asked, err, world)
      return is_call(asked, "HashKV") and err.code == "compacted" and asked.message.revision == world.compact_revision
    end,
  },
}

-- }======

-- {====== Undetermined answers ======

add {
  what = "the seconds that a lease has left go by while both are asked",
  right = "both",
  settle = function(answers, asked)
    if not is_call(asked, "LeaseTimeToLive") then return end
    for kind, answer in pairs(answers) do
      if type(answer) == "table" and answer.grantedTTL then
        expect(answer.TTL <= answer.grantedTTL and answer.TTL > 0, "the time left at " .. kind)
        answer.TTL = "some"
      elseif type(answer) == "number" then
        expect(answer > 0, "the time left at " .. kind)
        answers[kind] = "some"
      end
    end
  end,
}

add {
  what = "the keys of a lease are in no order at etcd",
  right = "both",
  settle = function(answers, asked)
    if not is_call(asked, "LeaseTimeToLive") or asked.verb ~= "call" or not answers.etcd.keys then return end
    table.sort(answers.etcd.keys)
  end,
}

--- Waits until etcd has removed the compacted records: a physical compaction waits, even if it is refused.
local function await_removal(world)
  world.clients.etcd:compact(world.compact_revision, { physical = true })
end

local function is_empty_at(world, revision)
  local count = { prefix = true, count_only = true, revision = revision > 0 and revision or nil }
  return assert(world.clients.keywatch:range("", count)).count == 0
end

add {
  what = "up to a revision at which there is no key, etcd hashes all that a compaction has not removed yet",
  right = "keywatch",
  settle = function(answers, asked, world)
    if not is_call(asked, "HashKV") or answers.keywatch.hash == answers.etcd.hash then return end
    local revision = asked.message.revision or 0
    if world.compact_revision < 0 or not is_empty_at(world, revision) then return end
    await_removal(world)
    answers.etcd.hash = assert(world.clients.etcd:hash_kv(revision)).hash
  end,
}

--- Sorts by id those leases that were granted or renewed at almost the same time, with the same ttl.
local function settle_order(leases, id_of, terms)
  local function are_close(a, b)
    local one, other = terms[id_of(a)], terms[id_of(b)]
    return one.ttl == other.ttl and math.abs(one.at - other.at) < ALMOST
  end
  for _ = 1, #leases do
    for i = 2, #leases do
      local a, b = leases[i - 1], leases[i]
      if int64.compare(id_of(a), id_of(b)) > 0 and are_close(a, b) then leases[i - 1], leases[i] = b, a end
    end
  end
end

add {
  what = "leases are listed by the time of their end, of which keywatch knows the milliseconds, and etcd more",
  right = "both",
  settle = function(answers, asked, world)
    if not is_call(asked, "LeaseLeases") then return end
    for _, answer in pairs(answers) do
      local is_face = asked.verb ~= "call"
      local function id_of(lease) return is_face and lease or lease.ID end
      settle_order(is_face and answer or answer.leases or {}, id_of, world.terms)
    end
  end,
}

--- The fields that ranges are sorted by.
local SORTED_BY = { VERSION = "version", CREATE = "create_revision", MOD = "mod_revision", VALUE = "value" }

--- Sorts kvs with equal values by key. The last group of equal values may be cut by the limit.
local function settle_ties(range, answer)
  local field = SORTED_BY[range.sort_target]
  if not field or not answer.kvs or (answer.count or 0) <= STABLE then return end
  local default = field == "value" and "" or 0
  local kvs, from = answer.kvs, 1
  local function value(i) return kvs[i] and (kvs[i][field] or default) end
  for i = 1, #kvs do
    if value(i + 1) ~= value(i) then
      local is_cut = i == #kvs and answer.more
      local ties = {}
      for j = from, i do ties[#ties + 1] = kvs[j] end
      table.sort(ties, function(a, b) return a.key < b.key end)
      for j = from, i do kvs[j] = is_cut and "one of value " .. tostring(value(j)) or ties[j - from + 1] end
      from = i + 1
    end
  end
end

local settle_txn_ties

local function settle_op_ties(op, answer)
  if op.request_range then settle_ties(op.request_range, answer.response_range or answer) end
  if op.request_txn then settle_txn_ties(op.request_txn, answer.response_txn or answer) end
end

function settle_txn_ties(txn, answer)
  local ops = (answer.succeeded and txn.success or not answer.succeeded and txn.failure) or {}
  for i, op in ipairs(ops) do
    local one = answer.responses[i]
    if type(one) == "table" then settle_op_ties(op, one) end
  end
end

add {
  what = "values that are equal are in no order at etcd, once there are many, if they are sorted",
  right = "both",
  settle = function(answers, asked)
    for _, answer in pairs(answers) do
      if is_call(asked, "Range") then settle_ties(asked.message, answer) end
      if is_call(asked, "Txn") then settle_txn_ties(asked.message, answer) end
    end
  end,
}

local UNREADABLE = "grpc: error unmarshalling request: "

--- Differences between errors.
local errors_list = {
  {
    what = "why a message cannot be read is said in the words of who reads it, and keywatch has a code for it",
    right = "both",
    settle = function(errors)
      for _, err in pairs(errors) do
        if err.grpc_status == 13 and err.message:sub(1, #UNREADABLE) == UNREADABLE then
          err.code, err.message = "unreadable", UNREADABLE
        end
      end
    end,
  },
}

-- }======

-- {====== Requests that etcd does not get ======
-- etcd would do what keywatch has refused.

--- True if a transaction has an operation, in either branch and at any depth, for which `accepts` returns true.
local function has_op(txn, accepts)
  for _, ops in ipairs { txn.success or {}, txn.failure or {} } do
    for _, op in ipairs(ops) do
      if accepts(op) or op.request_txn and has_op(op.request_txn, accepts) then return true end
    end
  end
  return false
end

local function is_open_delete(op)
  return op.request_delete_range and op.request_delete_range.range_end == "\0"
end

local function is_keeping_put(op)
  return op.request_put and (op.request_put.ignore_value or op.request_put.ignore_lease)
end

local function puts_directly(txn)
  for _, ops in ipairs { txn.success or {}, txn.failure or {} } do
    for _, op in ipairs(ops) do
      if op.request_put then return true end
    end
  end
  return false
end

local withheld = {
  {
    what = "puts of nested transactions need space since 3.5.33",
    right = "keywatch",
    applies = function(asked, err)
      return is_call(asked, "Txn") and err.code == "no_space" and not puts_directly(asked.message)
    end,
  },
  {
    what = "etcd panics where a put keeps the value or the lease of a key that its transaction has deleted",
    right = "keywatch",
    applies = function(asked, err)
      return is_call(asked, "Txn") and err.code == "key_not_found" and has_op(asked.message, is_open_delete)
        and has_op(asked.message, is_keeping_put)
    end,
  },
}

-- }======

-- {====== Watches ======
-- spec/support/watch_twins.lua handles these differences. This list has the reasons. keywatch is right, except where
-- both are.
--
-- - How many revisions a response has, and which is in its header, is a matter of time (both are right); that one
--   revision is in one response, or in fragments of one, is not.
-- - A watch that starts at the revision of the compaction sees no tombstone of that revision before 3.4.34 and 3.5.16;
--   and its events of a key that was written twice in that revision depend on the progress of the compaction: keywatch
--   sends all of them.
-- - A watch that starts at a negative revision is refused since 3.4.38 and 3.5.24.
-- - 3.4.23 answers a request for progress before it has sent all events that the answer covers: clients do not trust
--   the answer, and sync is unsupported.
-- - A request for progress on a call without a watch, or with a watch that begins after the next revision, is answered
--   before 3.4.31 and 3.5.13, in the latter case before 3.4.38 and 3.5.22.
-- - Since 3.4.38 and 3.5.22 a watch that begins at the next revision gets no progress before the next write; keywatch
--   sends it, as older servers do: the progress is true, and Kubernetes starts watches in this way.

-- }======

--- Returns a request with the path and the message of its call, if it makes a single call.
local function described(asked)
  local path, message
  if asked.verb == "call" then
    path, message = asked[1], asked[2]
  elseif asked.verb == "arm" or asked.verb == "disarm" then
    path = "/etcdserverpb.Maintenance/Alarm"
  else
    path, message = messages.wire_of(asked)
  end
  return { verb = asked.verb, path = path, message = message }
end

--- Removes known differences from both answers, { keywatch =, etcd = }.
local function settle(answers, asked, world)
  local description = described(asked)
  for _, entry in ipairs(differences) do entry.settle(answers, description, world) end
end

--- The same for two errors.
local function settle_errors(errors)
  for _, entry in ipairs(errors_list) do entry.settle(errors) end
end

--- True if an entry of a list applies to a request and an error.
local function applies(list, asked, err, world)
  local description = described(asked)
  for _, entry in ipairs(list) do
    if entry.applies(description, err, world) then return true end
  end
  return false
end

--- True if etcd is known to refuse a request that keywatch accepts.
local function is_refused(...) return applies(refused, ...) end

--- True if a request that keywatch has refused must not be made of etcd.
local function is_withheld(...) return applies(withheld, ...) end

return { settle = settle, settle_errors = settle_errors, is_refused = is_refused, is_withheld = is_withheld }
