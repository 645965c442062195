--- Owners of kept leases in a cluster under attack, and the checks of their results.
--
-- As long as the owner has not lost the lease, its key exists: if a read does not find the key, the lease is lost. A
-- lease that its owner has revoked, released or forgotten ends, and its key is deleted. A task that waits for the loss
-- of a lease is notified of every kind of revocation.
--
-- etcd 3.4 can end a lease too early although the lease was renewed in time: a stopped leader does that when it
-- continues, before it knows the new leader. The server then notifies the owner. These cases are counted.

local keywatch = require "keywatch"

local MOST_EARLY = 2 -- leases of a run that a deposed leader may renew
local PREFIX = "/l/"
local PATIENCE = 60 -- seconds that the deletion of a key may take

--- The ways in which an owner stops to keep a lease.
local ENDS = { "revoke", "orphan", "forget", "other" }

--- Retries a call until it succeeds or the lease does not exist any more.
local function insist(world, what, fn)
  while true do
    local result, err = fn()
    world:note(what, result, err)
    if result or err.code == "lease_not_found" then return end
    keywatch.sleep(0.05)
  end
end

local ends = {}

function ends.revoke(world, lease)
  insist(world, "revoke", function() return lease:revoke { timeout = world:patience() } end)
end

--- Another client revokes the lease, and the owner must be notified.
function ends.other(world, lease)
  local other = world:client():lease_by_id(lease.id)
  insist(world, "revoke", function() return other:revoke { timeout = world:patience() } end)
  local lost, err = lease:wait_lost(PATIENCE)
  if not lost then world:object("the owner of a revoked lease is not notified: %s", tostring(err)) end
end

function ends.orphan(_, lease) lease:orphan() end

--- The owner drops the lease object, which is then collected.
function ends.forget() end

--- True if the owner knows of the loss from the server, and not from its own clock.
local function is_by_server(err) return err.message:find("has expired, or was revoked", 1, true) ~= nil end

--- Counts a lease whose key was deleted before the owner's clock reported the loss. A deposed leader of etcd that does
-- not know of it yet can renew a lease that the next leader ends. Objects if that happens too often.
local function note_early(world, lease, found, lost)
  world.early = (world.early or 0) + 1
  world:count("lost leases", "renewed by a deposed leader")
  if world.early <= MOST_EARLY then return end
  world:object("the key of lease %s was gone at %d, before its owner knew that it was late: %s",
    tostring(lease.id), found.revision, tostring(lost))
end

--- Watches a lease for some time. Returns true if the lease was lost.
local function hold(world, record, lease)
  local deadline = keywatch.now() + world.random:between(2, 60) / 10
  while keywatch.now() < deadline and not world.is_over do
    local found, err = world:client():range(record.key, { timeout = world:patience() })
    world:note("range of a lease", found, err)
    local lost = lease:error()
    if found and not found.kvs[1] and not lost then
      lost = lease:wait_lost(2) -- by the next renewal, if etcd has ended the lease too early
      if not lost then
        return world:object("the key of lease %s is gone at %d, and its owner not notified", tostring(lease.id),
          found.revision)
      elseif not is_by_server(lost) then
        note_early(world, lease, found, lost)
      end
    end
    if lost then
      world:count("lost leases", is_by_server(lost) and "ended early by etcd" or "not renewed in time")
      return true
    end
    lease:wait_lost(world.random:between(1, 300) / 1000)
  end
end

--- The life of one lease.
local function live(world, records)
  local ttl = world.random:between(1, 4)
  local lease, err = world:client():lease(ttl, { timeout = world:patience() })
  world:note("grant", lease, err)
  if not lease then return end
  lease:keep()
  local tag = world:tag("l")
  local record = { tag = tag, key = PREFIX .. tag, what = "put with a lease" }
  local put
  put, err = world:client():put(record.key, tag, { lease = lease.id, timeout = world:patience() })
  record.outcome = world:note(record.what, put, err)
  record.revision = put and put.revision
  table.insert(records, record)
  if not put or hold(world, record, lease) then return ends.revoke(world, lease) end
  local how = world.random:pick(ENDS)
  world:count("ends of leases", how)
  ends[how](world, lease)
end

local function start(world, n)
  local records = {}
  for _ = 1, n do world:work("the owner of a lease", live, records) end
  return records
end

--- Waits until all keys are deleted: a lease that its owner has dropped is not renewed.
local function finish(world, direct)
  local deadline = keywatch.now() + PATIENCE
  while true do
    collectgarbage()
    local left = assert(direct:range(PREFIX, { prefix = true }))
    if #left.kvs == 0 then return end
    if keywatch.now() > deadline then return world:object("%d keys of ended leases stay", #left.kvs) end
    keywatch.sleep(0.1)
  end
end

local function judge(world, history, records)
  for _, record in ipairs(records) do
    local found = history:revisions_of(record.tag)
    if record.outcome == "refused" and #found > 0 then
      world:object("%s has failed without maybe_done, and is at %d", record.tag, found[1])
    elseif #found > 1 then
      world:object("%s is %d times in the history", record.tag, #found)
    elseif record.outcome == "ok" and found[1] ~= record.revision then
      world:object("%s is at %s and was reported at %d", record.tag, tostring(found[1]), record.revision)
    end
  end
end

return { start = start, finish = finish, judge = judge, is_by_server = is_by_server }
