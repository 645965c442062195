-- SPDX-License-Identifier: MIT
--- A worker pool fed by a watch: jobs are keys, and each is given to exactly one worker.
--
-- The workers are tasks that read the same watch, so whoever is free takes the next event. A finished job is deleted
-- and its result is put in one transaction: nobody ever sees it in both places, or in none.

local keywatch = require "keywatch"

local WORKERS, JOBS = 3, 8

local store = keywatch.open()

--- Takes jobs until the watch is closed; returns how many.
local function work(jobs)
  local n = 0
  for event in jobs:events() do
    keywatch.sleep(0.001) -- hard work: meanwhile the others go on
    local number = tonumber(event.value)
    store:txn {
      success = {
        { delete = event.key },
        { put = "results/" .. event.value, value = ("%d squared is %d"):format(number, number * number) },
      },
    }
    n = n + 1
  end
  return n
end

keywatch.run(function()
  -- "no_delete": that a job is gone is no job.
  local jobs = store:watch("jobs/", { prefix = true, filters = { "no_delete" } })
  local results = store:watch("results/", { prefix = true })

  local workers = {}
  for i = 1, WORKERS do workers[i] = keywatch.spawn(work, jobs) end

  for i = 1, JOBS do store:put("jobs/" .. i, tostring(i)) end
  for _ = 1, JOBS do results:next() end -- each is worth waiting for

  jobs:close() -- the workers' loops end
  local done = 0
  for _, worker in ipairs(workers) do
    local ok, n = worker:join()
    assert(ok, n) -- or the error of the worker
    done = done + n
  end
  print(("%d workers have done %d jobs"):format(WORKERS, done))
  print(("%d jobs are left"):format(store:range("jobs/", { prefix = true }).count))
end)

for kv in store:each("results/", { prefix = true }) do print(kv.value) end
