-- SPDX-License-Identifier: MIT
--- ngx_home: the part of the driver in nginx that outlives all requests. Each worker has one home.
--
-- A home lives in an nginx timer, whose handler owns all cosockets and runs the tasks of the worker. Code of any
-- handler may call the home; it passes the work on by a queue and a semaphore. The home's *turn* polls the pollers and
-- notifies the writers of the connections. A turn never waits, so that any light thread may make it: one that has read
-- bytes, or one that is about to wait.
--
-- The memory of a timer grows until its handler ends. Therefore the home moves to a new timer every RENEWAL seconds:
-- the pollers are notified, and open new connections there. Connections and tasks of the old timer run until they have
-- ended.
--
--   NONE ---- needed ----> STARTING ----> LIVING ---- moves ----> LIVING in another timer ...
--    ^                                      |
--    +------ nothing to do, or the worker exits

local errors = require "keywatch.support.errors"
local new_semaphore = require("ngx.semaphore").new
local sockets = require "keywatch.driver.ngx_socket"

local ngx = ngx
local spawn, wait_for = ngx.thread.spawn, ngx.thread.wait
local max, min = math.max, math.min

local RENEWAL = 600     -- seconds that a timer is used
local MAX_THREADS = 20000 -- that a timer begins, since each takes memory of it
local WATCH = 10        -- seconds between two checks that the home lives, by timers that nginx calls early when the
                        -- worker exits
local IDLE = 1          -- seconds without work, after which the home's timer ends
local LATE = 1          -- seconds after which a started timer counts as dropped by nginx
local REST = 60         -- the longest wait of the home in seconds
local SWEEP = 1         -- seconds between two searches for killed light threads
local BELL = 0.002      -- seconds between two polls of stores whose threads would ring a bell
local THREAD = 0.02     -- seconds between two checks of servers' threads that must end
local GRACE = 0.5       -- seconds that an exiting worker has to release what it holds, and its tasks to end
local TURNS = 100       -- of pollers that are due again at once, before other work is done
local LEAST = 0.001     -- seconds: nginx's clock has milliseconds
local EXITING = "the nginx worker exits"
local KILLED = "the program has called ngx.exit in a task of the worker, which ends all of its tasks"

local home_methods = {}
local home_mt = { __index = home_methods }

--- Returns a home. `driver` supplies: now(); run_due(), which does the due work of tasks and pollers and returns the
-- seconds until more is due, and true if a bell is awaited; is_idle(), true if there is no poller, no task of the
-- worker, and no waiting task; has_parked(), true if tasks wait; sweep(), which ends the tasks that nginx has killed,
-- and returns the same; move(), which notifies the pollers that sockets are opened elsewhere; enter(), called first in
-- each timer; cancel(), which cancels the program's tasks of the worker, once, and returns true while the worker has
-- tasks, including keywatch's own, which end with their objects; close(), which closes the pollers, and returns false
-- while a request uses one; and stop(), which ends the handlers of the worker's tasks that still continue.
local function new(driver)
  return setmetatable({
    driver = driver,
    renewal = RENEWAL,  -- specs change this, and the next four
    max_threads = MAX_THREADS,
    sweep = SWEEP,
    idle = IDLE,
    watch = WATCH,
    timer = nil,        -- the current one: { bell = semaphore, is_rung =, is_waiting =, renew_at =, count = of threads
                        -- that it has begun, finished = threads that have ended, idle_at = }
    starting_at = nil,  -- when a timer was started whose handler has not begun yet
    links = {},         -- as keys: open connections
    queue = {},         -- functions to run as light threads of the timer
    first = 1,          -- the index of the oldest one
    threads = {},       -- servers' threads that must end
    is_turning = false,
    must_turn = false,  -- a turn was requested during a turn
    wake_at = 0,        -- when the timer's handler wakes by itself
    swept_at = 0,
    is_exiting = false,
    has_closed = false, -- the worker exits, and everything is closed
    exit_at = nil,      -- when the home closes everything, while the worker exits
    cut_at = nil,       -- when the connections that are left after that are cut
    has_exit_timer = false,
    awaits_exit = false, -- the home must live when the worker exits
    moves = 0,          -- number of moves to another timer, for specs
  }, home_mt)
end

-- {====== Timers ======

local live, on_exit

--- Makes nginx call on_exit when the worker exits. Uses repeated short timers, since a pending timer keeps the Lua VM
-- of its request alive, which is one of many with `lua_code_cache off`.
local function watch_exit(self)
  if self.has_exit_timer then return end
  local has_timer, is_set = pcall(ngx.timer.at, self.watch, on_exit, self)
  self.has_exit_timer = has_timer and is_set and true or false
end

--- The handler of the timers of watch_exit: `premature` if the worker exits. nginx handles posts made here only after a
-- wait: the sleep is that wait.
function on_exit(premature, self)
  self.has_exit_timer = false
  if not premature then
    if self.timer or self.awaits_exit then watch_exit(self) end
    if self.timer then self:need() end
    return
  end
  self:exit()
  if self.awaits_exit then self:need() end
  ngx.sleep(LEAST)
end

--- Makes sure that the home lives when the worker exits.
function home_methods:await_exit()
  self.awaits_exit = true
  watch_exit(self)
end

--- Begins the exit of the worker.
function home_methods:exit()
  if self.is_exiting then return end
  self.is_exiting, self.exit_at = true, self.driver.now() + GRACE
  self:wake()
end

--- Starts a timer. Returns nil and a text if nginx has none left, or none can be started in this phase.
local function start_timer(self)
  local ok, started, text = pcall(ngx.timer.at, 0, live, self)
  if not ok then return nil, started end
  if not started then return nil, text end
  watch_exit(self)
  return true
end

--- True if nginx has ended the handler of a timer: its semaphore has no waiter.
local function is_dead(timer)
  return timer.is_waiting and timer.bell:count() >= (timer.is_rung and 1 or 0)
end

--- Ends the connections that nginx has ended with the handler that owned them.
local function bury_links(self)
  local dead
  for link in pairs(self.links) do
    if link:is_dead() then
      dead = dead or {}
      dead[#dead + 1] = link
    end
  end
  for _, link in ipairs(dead or {}) do link:finish(KILLED) end
end

--- Makes sure that the home lives, or will soon. Returns nil and a text if it cannot. A dropped timer is started again:
-- nginx drops timers while `lua_max_running_timers` of them run.
function home_methods:need()
  local now = self.driver.now()
  if self.timer and is_dead(self.timer) then
    ngx.log(ngx.ERR, "keywatch: ", KILLED)
    self.timer = nil
    bury_links(self)
    self.driver.sweep()
  end
  if self.timer or self.starting_at and now < self.starting_at + LATE then return true end
  local ok, text = start_timer(self)
  if not ok then return nil, text end
  self.starting_at = now
  return true
end

--- Wakes the timer's handler.
function home_methods:wake()
  local timer = self.timer
  if not timer or timer.is_rung then return end
  timer.is_rung = true
  timer.bell:post(1)
end

--- Forgets the timers of another process.
function home_methods:after_fork()
  self.timer, self.starting_at, self.has_exit_timer, self.is_turning = nil, nil, false, false
  self.links, self.queue, self.first, self.threads = {}, {}, 1, {}
end

-- }======

-- {====== Turns ======

--- Does the due work of the connections, and notifies their writers. Returns the time of the next work, or nil.
local function pump(self, now)
  local first
  for link in pairs(self.links) do
    local at = link:step(now)
    if at and (not first or at < first) then first = at end
    link:notify_if_needed()
  end
  return first
end

--- True if a server's thread must still end.
local function awaits_thread(self)
  for i = #self.threads, 1, -1 do
    if self.threads[i]:has_ended() then table.remove(self.threads, i) end
  end
  return self.threads[1] ~= nil
end

--- Does all due work. Returns the seconds until more is due.
local function do_turn(self)
  local seconds, is_bell_awaited
  local n = 0
  repeat
    n = n + 1
    self.must_turn = false
    seconds, is_bell_awaited = self.driver.run_due()
  until seconds ~= 0 and not self.must_turn or n >= TURNS
  local now = self.driver.now()
  local at = pump(self, now)
  seconds = min(seconds or REST, REST)
  if at then seconds = min(seconds, max(0, at - now)) end
  if self.driver.has_parked() then seconds = min(seconds, self.sweep) end
  if is_bell_awaited then seconds = min(seconds, BELL) end
  if self.threads[1] and awaits_thread(self) then seconds = min(seconds, THREAD) end
  return seconds, now
end

--- Polls the pollers, and notifies the writers of the connections. Never waits. Wakes the timer's handler if needed.
-- Returns the seconds until more is due.
function home_methods:turn()
  if self.is_turning then
    self.must_turn = true
    return 0
  end
  self.is_turning = true
  local ok, seconds, now = pcall(do_turn, self)
  self.is_turning = false
  if not ok then
    ngx.log(ngx.ERR, "keywatch: ", errors.text_of(seconds))
    seconds, now = 1, self.driver.now()
  end
  local at = now + seconds
  if at < self.wake_at then
    self.wake_at = at
    self:wake()
  end
  return seconds
end

-- }======

-- {====== Work ======

--- Runs a function as a light thread of the current timer; or of the next one, if there is none. Returns true; or nil
-- and a text if no timer can be started.
function home_methods:run(fn)
  self.queue[#self.queue + 1] = fn
  self:wake()
  return self:need()
end

--- Begins to connect a client of the core. See ngx_socket.lua for the options. Returns true, or nil and a text.
function home_methods:dial(client, opts)
  local link
  opts.now = self.driver.now
  opts.on_news = function() self:turn() end
  opts.on_end = function(one)
    self.links[one] = nil
    self:turn()
    self:wake()
  end
  link = sockets.new(client, opts)
  self.links[link] = true
  local ok, text = self:run(function() link:work() end)
  if ok then return true end
  self.links[link], self.queue[#self.queue] = nil, nil
  return nil, text
end

--- Returns the connection of a client, or nil.
function home_methods:link_of(client)
  for link in pairs(self.links) do
    if link.client == client then return link end
  end
end

--- True if functions wait for their start.
local function has_queued(self)
  return self.queue[self.first] ~= nil
end

--- Takes the oldest function from the queue, or returns nil.
local function take_queued(self)
  local fn = self.queue[self.first]
  if not fn then return nil end
  self.queue[self.first], self.first = false, self.first + 1
  if not has_queued(self) then self.queue, self.first = {}, 1 end
  return fn
end

--- Starts the functions of the queue, and forgets threads that have ended.
local function start_queued(self, timer)
  while timer.finished[1] do wait_for(table.remove(timer.finished)) end
  for fn in take_queued, self do
    timer.count = timer.count + 1
    spawn(function()
      local ok, err = pcall(fn)
      if not ok then ngx.log(ngx.ERR, "keywatch: ", errors.text_of(err)) end
      timer.finished[#timer.finished + 1] = coroutine.running()
      if self.timer == timer then self:wake() end
    end)
  end
end

--- True if the home has no work.
local function is_idle(self)
  return next(self.links) == nil and not has_queued(self) and self.driver.is_idle()
end

--- Moves to another timer, if that is due. Returns true if the handler of this timer must end.
local function renew(self, timer, now)
  if is_idle(self) then
    timer.idle_at = timer.idle_at or now + self.idle
    if now >= min(timer.idle_at, timer.renew_at) then
      self.timer = nil
      return true
    end
  else
    timer.idle_at = nil
  end
  if now < timer.renew_at and timer.count < self.max_threads then return false end
  start_timer(self)
  timer.renew_at, timer.count = now + LATE, 0 -- again then, if nginx has no timer left, or drops the new one
  return false
end

--- Closes all pollers, because the worker exits, except those that a request uses. Returns false if there is such a
-- poller.
local function close_all(self)
  local is_done = self.driver.close()
  self:turn()
  for link in pairs(self.links) do link:notify() end
  return is_done
end

--- Continues the exit of the worker. Returns true once nothing is left. May be called again afterwards, since a request
-- that is still served may open connections.
local function leave(self, now)
  local has_tasks = self.driver.cancel()
  if now < self.exit_at and (has_tasks or self.driver.sweep()) then return false end
  self.has_closed = true
  if not close_all(self) then
    self.cut_at = nil
    return false
  end
  self.cut_at = self.cut_at or now + GRACE / 2
  if now >= self.cut_at then
    for link in pairs(self.links) do link:cut(EXITING) end
  end
  if next(self.links) ~= nil and now < self.cut_at + GRACE / 4 then return false end
  self.cut_at = nil
  return true
end

--- One round of a timer's handler. Returns true when the handler must end.
local function go_round(self, timer)
  start_queued(self, timer)
  timer.is_rung = false
  self.wake_at = 0 -- this thread is awake: it need not be woken
  local seconds = self:turn()
  local now = self.driver.now()
  if self.timer ~= timer then return true end
  if self.is_exiting or ngx.worker.exiting() then
    self:exit()
    if leave(self, now) then
      self.timer = nil
      self.driver.stop()
      return true
    end
    seconds = min(seconds, 0.01)
  elseif renew(self, timer, now) then
    return true
  end
  if now >= self.swept_at + self.sweep then
    self.swept_at = now
    self.driver.sweep()
    bury_links(self)
  end
  seconds = min(seconds, max(0, min(timer.renew_at, timer.idle_at or timer.renew_at) - now))
  if has_queued(self) or timer.is_rung then return false end
  self.wake_at = now + seconds
  timer.is_waiting = true
  timer.bell:wait(max(LEAST, seconds))
  timer.is_waiting = false
end

--- Takes over from the previous timer, if there was one.
local function move_in(self, before)
  self.driver.enter()
  if not before then return end
  self.moves = self.moves + 1
  before.bell:post(1)
  if not self.is_exiting then self.driver.move() end
end

--- The handler of a timer.
function live(premature, self)
  local now = self.driver.now()
  local timer = { bell = new_semaphore(0), is_rung = false, renew_at = now + self.renewal, finished = {}, count = 0 }
  local before = self.timer
  self.timer, self.starting_at = timer, nil
  if premature then self:exit() end
  local ok, must_end = pcall(move_in, self, before)
  repeat
    if not ok then
      ngx.log(ngx.ERR, "keywatch: ", errors.text_of(must_end))
      ngx.sleep(0.01)
    end
    ok, must_end = pcall(go_round, self, timer)
  until ok and must_end
  if self.is_exiting and next(self.links) ~= nil then ngx.exit(ngx.OK) end -- ends threads that nothing else ends
end

-- }======

return { new = new, GRACE = GRACE }
