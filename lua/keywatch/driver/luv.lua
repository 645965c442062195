-- SPDX-License-Identifier: MIT
--- luv: runs keywatch's private loop inside luv's loop. Neovim has luv as vim.uv, or as vim.loop.
--
-- The private loop stays as it is, and is nested: luv polls its descriptor, which becomes readable when the private
-- loop has work. (With luv sockets every byte would pass through Lua.) Three handles of luv's loop drive the private
-- one:
--
--   poll      the descriptor: does a step at each event
--   timer     wakes luv's loop at the next deadline; at once, if a task becomes ready after `prepare` was called
--   prepare   called in every turn of luv's loop, before it blocks: a callback of the program may have changed a
--             store, set an event, or spawned a task. Does a step if there is work, and sets the timer
--
-- The handles keep luv's loop alive only while a task or a server lives, and are stopped when they are not needed.

local compat = require "keywatch.support.compat"

local MAX_MS = 2 ^ 31 -- of the timer

local host_methods = {}
local host_mt = { __index = host_methods }

local is_state_closing = false -- Lua's state is closing, and luv may be unloaded: finalizers must not call luv
local sentinel

--- Returns luv. The first call makes the sentinel. When Lua's state closes, finalizers run from the youngest object on.
-- The sentinel is younger than luv, so its finalizer runs before luv is unloaded.
local function guard(luv)
  sentinel = sentinel or compat.sentinel(function() is_state_closing = true end)
  return luv
end

--- Returns luv, if it is loaded, and Neovim's vim.schedule, in Neovim; otherwise nil.
local function find()
  if is_state_closing then return nil end
  local vim = rawget(_G, "vim")
  if type(vim) == "table" then
    local luv = vim.uv or vim.loop
    if type(luv) == "table" and luv.new_poll then return guard(luv), vim.schedule end
  end
  for _, name in ipairs { "luv", "uv" } do -- luvit names it "uv"
    local luv = package.loaded[name]
    if type(luv) == "table" and luv.new_poll and luv.new_prepare then return guard(luv), nil end
  end
end

--- Returns "luv" or "Neovim" if it turns luv's loop now, else nil. Neovim always does. A module that only has the name
-- of luv is ignored.
local function running()
  if is_state_closing then return nil end
  if rawget(_G, "vim") then return "Neovim" end
  for _, name in ipairs { "luv", "uv" } do
    local luv = package.loaded[name]
    if type(luv) == "table" and luv.loop_mode and guard(luv).loop_mode() then return "luv" end
  end
end

--- Schedules a step in Neovim, where tasks may use vim.api.
local function schedule_step(self)
  self.is_scheduled = true
  self.schedule(function()
    self.is_scheduled = false
    if self.is_started and not self:is_closed() and not self.driver.is_turning() then self.driver.step() end
  end)
end

--- Does a step, or schedules one. While a step is scheduled, or a task turns luv's loop (as vim.wait does), the
-- descriptor stays readable: it is not polled until the next turn of luv's loop outside of tasks.
local function request_step(self)
  if self.driver.is_turning() then
    self:pause()
  elseif not self.schedule then
    self.driver.step()
  elseif not self.is_scheduled then
    self:pause()
    schedule_step(self)
  end
end

--- Sets the timer to fire after at most this many seconds; nil: leaves it unchanged. A timer that fires earlier stays
-- as it is: most deadlines are removed before they are reached, and the timer is set again after it has fired.
local function set_timer(self, seconds)
  if not seconds then return end
  local at = self.driver.now() + seconds
  if self.timer_at and self.timer_at <= at then return end
  self.timer_at = at
  self.timer:start(math.min(math.ceil(seconds * 1000), MAX_MS), 0, self.on_timer)
end

--- Keeps luv's loop alive, or stops doing so.
local function keep_alive(self, keeps_alive)
  if self.keeps_alive == keeps_alive then return end
  self.keeps_alive = keeps_alive
  for _, handle in ipairs(self.handles) do
    if keeps_alive then handle:ref() else handle:unref() end
  end
end

--- Called while a task turns luv's loop: stops keeping the loop alive, since no task can resume until the loop ends.
local function let_go(self)
  self.has_let_go = true
  keep_alive(self, false)
end

--- The task has ended its turns of luv's loop: keeps the loop alive again, at least until the next turn.
function host_methods:keep_alive_again()
  if not self.has_let_go then return end
  self.has_let_go = false
  if not self:is_closed() then keep_alive(self, true) end
end

--- Stops the handles. `start` starts them again. They are never closed: luv 1.44 crashes at the end of a program that
-- has closed a handle and no longer runs the loop.
function host_methods:stop()
  self.is_started, self.is_polling, self.timer_at = false, false, nil
  for _, handle in ipairs(self.handles) do handle:stop() end
end

--- Makes luv's loop turn once more without blocking: a task has become ready outside of steps. May be called by a
-- finalizer, at any moment.
function host_methods:nudge()
  if is_state_closing or self.is_nudged or not self.is_started or self.timer:is_closing() then return end
  self.is_nudged = true
  self.timer_at = nil
  set_timer(self, 0)
end

--- Does a step if there is work, sets the timer, and stops the handles if they are not needed. If this call has
-- scheduled a step, luv's loop must not block: Neovim runs scheduled functions after the turn.
local function look(self)
  local driver = self.driver
  if driver.is_turning() then let_go(self) end
  if self.is_scheduled or driver.is_turning() then return set_timer(self, nil) end
  self:poll_again()
  local seconds = driver.timeout()
  if seconds == 0 then
    request_step(self)
    seconds = self.is_scheduled and 0 or driver.timeout()
  end
  set_timer(self, seconds)
  keep_alive(self, driver.is_alive())
  if self.keeps_alive or self.is_scheduled or driver.is_awaiting() then return end
  self:stop()
  if driver.is_alive() then self:start() end -- a finalizer has spawned a task
end

--- Called in every turn of luv's loop, before it blocks. A finalizer may have made a task ready.
local function on_prepare(self)
  self.is_nudged = false
  look(self)
  if not self.is_nudged then return end
  self.is_nudged = false
  self:nudge()
end

--- Makes the handles in luv's loop. `driver` has the functions fd, step, timeout, now, is_turning, is_alive (a task
-- or a server lives) and is_awaiting (an event may come). Returns the host; or nil and the text of the error.
local function attach(driver, luv, schedule)
  local poll, text = luv.new_poll(driver.fd())
  if not poll then return nil, text end
  local timer, prepare = luv.new_timer(), luv.new_prepare()
  local self
  self = setmetatable({
    driver = driver,
    schedule = schedule,
    poll = poll,
    timer = timer,
    prepare = prepare,
    handles = { poll, timer, prepare },
    timer_at = nil,       -- the time at which the timer fires
    on_timer = function() self.timer_at = nil end, -- only wakes luv's loop
    keeps_alive = true,       -- the handles keep luv's loop alive
    has_let_go = false,   -- the handles do not keep the loop alive, because a task turns it
    is_started = false,
    is_polling = false,   -- luv polls the descriptor
    is_scheduled = false, -- a step is scheduled in Neovim
    is_nudged = false,    -- the timer fires at once, to cause a turn
  }, host_mt)
  return self
end

--- Stops polling the descriptor.
function host_methods:pause()
  if self.is_polling then self.poll:stop() end
  self.is_polling = false
end

--- Polls the descriptor, if it is not polled.
function host_methods:poll_again()
  if self.is_polling then return end
  self.is_polling = true
  self.poll:start("r", function(err)
    if err then error("keywatch: luv cannot poll: " .. err, 0) end
    request_step(self)
  end)
end

--- Keeps luv's loop alive, and starts the handles if they are stopped. Called when a task or a server begins.
function host_methods:start()
  keep_alive(self, true)
  if not self.is_started then
    self.is_started, self.is_nudged = true, false
    self:poll_again()
    self.prepare:start(function() on_prepare(self) end)
  end
  if not self.driver.is_turning() then self:nudge() end
end

--- True if the program has closed the handles, as with luv's walk, or Lua's state closes.
function host_methods:is_closed()
  if is_state_closing then return true end
  for _, handle in ipairs(self.handles) do
    if handle:is_closing() then return true end
  end
  return false
end

return { find = find, running = running, attach = attach }
