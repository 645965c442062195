-- SPDX-License-Identifier: MIT
--- worker: a function that runs as a task until it is done. The end of keywatch.run and a fork cancel tasks; a worker
-- that is not done is then restarted.
--
--             start                the task runs              the function has returned, or stop
--   IDLE --------------> STARTED -----------------> BUSY ------------------------------------------> DONE
--     ^                     |                        |
--     +-------- the task was cancelled, or abandoned
--
-- Each driver has a poller for its workers, which is attached while there are any. Idle workers are started when the
-- loop turns, and when it is idle, so that a host's loop runs them. The end of a task that was cancelled
-- before it ran, or was abandoned because it kept running after its cancellation, is not reported. So in each turn the
-- poller checks all workers whose tasks have not begun, and one of the others.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"

local worker_methods = {}
local worker_mt = { __index = worker_methods }
local poller_methods = {}
local poller_mt = { __index = poller_methods }

--- Marks a worker as done, and removes it from the list of its poller, where the last worker takes its index.
local function finish(self)
  if self.state == "done" then return end
  local workers, index = self.poller.workers, self.index
  local last = workers[#workers]
  self.state = "done"
  workers[#workers] = nil
  if last ~= self then workers[index], last.index = last, index end
end

--- Requests the start of a worker.
local function await_start(self)
  self.state, self.task, self.poller.has_idle = "idle", nil, true
end

--- The function of a worker's task. task_of: { the task }.
local function work(self, task_of)
  if self.state ~= "started" or self.task ~= task_of[1] then return end
  self.state = "busy"
  local ok, raised = errors.attempt(self.fn, self.object)
  if self.state ~= "busy" or self.task ~= task_of[1] then return end
  if not ok and driver.is_cancellation(raised.err) then return await_start(self) end
  finish(self)
  if not ok then log.error("%s", "a task of keywatch has failed: " .. raised.traceback) end
end

--- Starts the task of a worker.
local function spawn(self)
  local task_of = {} -- the task, once it exists
  self.state = "started"
  local task = self.poller.driver.spawn_own(work, self, task_of)
  task_of[1] = task
  if self.state ~= "started" then return end -- a finalizer has stopped it
  self.task = task
  local fresh = self.poller.fresh
  fresh[#fresh + 1] = self
end

--- Starts the idle workers.
local function start_idle(self)
  self.has_idle = false
  local workers = self.workers
  for i = 1, #workers do
    local one = workers[i]
    if one and one.state == "idle" then spawn(one) end
  end
end

--- Checks the workers whose tasks have not begun, since a task may have been cancelled before.
local function look_at_fresh(self)
  local fresh = {}
  local list = self.fresh -- from here on without allocations, at which finalizers could run
  for i = 1, #list do
    local one = list[i]
    if one.state == "started" then
      if one.task.state == "done" then await_start(one) else fresh[#fresh + 1] = one end
    end
  end
  self.fresh = fresh
end

--- Checks the next worker, since its task may have ended silently.
local function look_at_one(self)
  local workers = self.workers
  local at = self.at < #workers and self.at + 1 or 1
  local one = workers[at]
  self.at = at
  if one and one.task and one.task.state == "done" then await_start(one) end
end

--- Starts the idle workers, and checks another one. Called by the driver.
function poller_methods:poll()
  if self.fresh[1] then look_at_fresh(self) end
  if not self.workers[1] then return self.driver.detach(self) end
  look_at_one(self)
  if self.has_idle then start_idle(self) end
end

--- Starts the idle workers. Called by the driver when the loop is idle.
function poller_methods:rested()
  if self.fresh[1] then look_at_fresh(self) end
  if self.has_idle then start_idle(self) end
end

--- In the child after a fork: restarts all workers, except the one whose task has forked.
function poller_methods:after_fork()
  local current = self.driver.current()
  for _, one in ipairs(self.workers) do
    if not one.task or one.task ~= current then await_start(one) end
  end
end

--- Makes sure that the worker is not restarted. With is_urgent also cancels its task, unless the task is the caller.
function worker_methods:stop(is_urgent)
  local task = self.task
  finish(self)
  self.task = nil
  if task and is_urgent and self.poller.driver.current() ~= task then task:cancel() end
end

--- Starts fn(object) as a task. Returns the worker.
local function start(fn, object)
  local d = driver.get()
  local poller = compat.companion(d, "worker")
  if not poller.driver then
    poller.driver, poller.workers, poller.fresh, poller.at, poller.has_idle = d, {}, {}, 0, false
    setmetatable(poller, poller_mt)
  end
  local self = setmetatable({
    fn = fn, object = object, poller = poller, task = nil, state = "idle", index = 0,
  }, worker_mt)
  self.index = #poller.workers + 1
  poller.workers[self.index] = self
  d.attach(poller)
  spawn(self)
  return self
end

return { start = start }
