-- SPDX-License-Identifier: MIT
--- A worker pool: jobs are keys, and each job is given to exactly one worker.
--
-- The workers are tasks that read the same watch, so a free worker takes the next event. One transaction deletes a
-- finished job and puts its result: a reader never sees both, or neither.

local keywatch = require "keywatch"

local WORKERS, JOBS = 3, 8

local store = keywatch.open()

--- Does jobs until the watch is closed. Returns their number.
local function work(jobs)
  local n = 0
  for event in jobs:events() do
    keywatch.sleep(0.001) -- stands for the work; other tasks run during the sleep
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
  -- "no_delete": the end of a job is not a job.
  local jobs = store:watch("jobs/", { prefix = true, filters = { "no_delete" } })
  local results = store:watch("results/", { prefix = true })

  local workers = {}
  for i = 1, WORKERS do workers[i] = keywatch.spawn(work, jobs) end

  for i = 1, JOBS do store:put("jobs/" .. i, tostring(i)) end
  for _ = 1, JOBS do results:next() end -- wait for all results

  jobs:close() -- ends the loops of the workers
  local done = 0
  for _, worker in ipairs(workers) do
    local ok, n = worker:join()
    assert(ok, n) -- n is the error if the worker has failed
    done = done + n
  end
  print(("%d workers have done %d jobs"):format(WORKERS, done))
  print(("%d jobs are left"):format(store:range("jobs/", { prefix = true }).count))
end)

for kv in store:each("results/", { prefix = true }) do print(kv.value) end
