-- SPDX-License-Identifier: MIT
--- A job runner: jobs are keys below /jobs/, and any number of workers do them, in processes of their own. A job that a
-- killed worker had is taken over by another worker.
--
--   lua examples/job_runner.lua http://127.0.0.1:2379 ann    a worker, until it is killed
--   lua examples/job_runner.lua                              two workers in virtual time; the network of one fails
--
--   /jobs/7          what is to be done: seconds that it takes, and a text
--   /holds/7/LEASE   a worker has the job: a lock, whose key goes with the lease of the worker's session
--   /results/7       what came of it, and who did it
--
-- A worker that was stopped for a while may believe that it still has a job, while another one does it. Therefore the
-- result is written by the fence of the lock: the write of a worker that does not hold the job any more fails. The
-- result comes and the job goes in one transaction, so a job has one result, whatever happens.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"

local TTL = 2 -- seconds after which the jobs of a dead worker are free

--- Does a job. Returns its result.
local function work(kv)
  local seconds, text = kv.value:match("^(%S+) (.*)$")
  keywatch.sleep(tonumber(seconds))
  return text:upper()
end

--- Returns the result of a job. A job that fails has a result, too: it would fail again and again.
local function result_of(kv)
  local ok, result = pcall(work, kv)
  if ok then return result end
  if type(result) == "table" and result.code == "cancelled" then error(result, 0) end -- the worker is being stopped
  return "failed: " .. tostring(result)
end

--- Does the job that this worker has locked. Returns what reconcile returns.
local function do_job(lock, kv, name, id)
  print(("%s begins job %s"):format(name, id))
  local done, err = lock:fence():txn {
    compare = { { key = kv.key, mod_revision = kv.mod_revision } },
    success = { { put = "/results/" .. id, value = result_of(kv) .. " by " .. name }, { delete = kv.key } },
  }
  if done or err.code ~= "lost" then return done, err end
  print(("%s has lost job %s, and writes no result"):format(name, id))
end

--- Returns a controller that does jobs.
local function new_worker(client, name)
  local jobs, holds = client:informer("/jobs/"), client:informer("/holds/")

  local function reconcile(key)
    if not jobs:get(key) then return end -- it is done: the unlock below makes another request for it
    local id = key:match("^/jobs/(.+)$")
    local lock, err = client:try_lock("/holds/" .. id, { ttl = TTL })
    if not lock and err.code == "locked" then return end -- the source `holds` adds the job again at the unlock
    if not lock then return nil, err end
    local ok, outcome, why = pcall(function()
      local kv, failed = client:get(key) -- not from the informer, which may not know that the job has been done
      if not kv then return failed == nil, failed end
      return do_job(lock, kv, name, id)
    end)
    lock:unlock { timeout = 5 }
    if not ok then error(outcome, 0) end
    return outcome, why
  end

  local function job_of_hold(_, key) return "/jobs/" .. key:match("^/holds/(.+)/[^/]+$") end
  return controller.new {
    name = name, sources = { jobs, { holds, map = job_of_hold } }, workers = 2, reconcile = reconcile,
  }
end

local url, name = arg[1], arg[2]
if url then
  io.stdout:setvbuf("line")
  return keywatch.run(function()
    local worker = new_worker(assert(keywatch.connect(url)), name or "worker")
    assert(worker:run())
  end)
end

-- {====== The demonstration, in virtual time ======

require("keywatch.testing").run(function(world)
  local store = world.server.store
  local results = store:watch("/results/", { prefix = true })
  local ann, bob = world:client(), world:client()
  local of_ann, of_bob = new_worker(ann, "ann"), new_worker(bob, "bob")
  of_ann:start()
  store:put("/jobs/1", "1 sweep")
  print(results:next().value)

  store:put("/jobs/2", "10 wash")
  keywatch.sleep(1)
  print("ann's network fails")
  world:isolate(ann)
  of_bob:start()
  print(results:next().value)
  world:join(ann)
  print("ann's network is back")
  keywatch.sleep(60)
  print(("%d jobs, %d results"):format(store:range("/jobs/", { prefix = true }).count,
    store:range("/results/", { prefix = true }).count))
  of_ann:stop()
  of_bob:stop()
end, { leftovers = "cancel" })

-- }======
