-- SPDX-License-Identifier: MIT
--- signals: an object that catches signals of the process, and can be waited on. For drivers on keywatch.uv's loop.
--
-- The core of the object is a catcher of the loop, which has the received signals (csrc/uv/signals.h): each object gets
-- every signal that it wants, and a signal that comes twice before it is taken counts once. The catcher stops catching
-- when it is collected with the object.
--
-- While a caller waits, a poller (task/driver.lua) checks the catcher in every turn of the loop, and sets the event.
-- Only then does the driver know the object.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local selection = require "keywatch.task.selection"
local uv = require "keywatch.uv"

local NAMES = uv.signal_names()

local INHERITED = "wait: these signals belong to the parent process: catch them again in the child, with "
  .. "keywatch.signals"

local signals_methods, signals_mt = check.class "keywatch.signals"

-- {====== Opening ======

local is_known = {}
for _, name in ipairs(NAMES) do is_known[name] = true end

--- Returns the names without "SIG" in a list. Raises if one of them is not that of a signal that may be caught.
local function checked(names)
  check.argument(type(names) == "table", 1, "signals", "a list of names", names)
  local n = 0
  for _ in pairs(names) do n = n + 1 end
  if n == 0 or n ~= #names then check.misuse("signals: the names must be a list, such as { 'INT', 'TERM' }") end
  local short = {}
  for i = 1, n do
    local name = type(names[i]) == "string" and names[i]:gsub("^SIG", "")
    if not is_known[name] then
      check.misuse("signals: %s cannot be caught: use %s", check.shown(names[i]), table.concat(NAMES, ", "))
    end
    short[i] = name
  end
  return short
end

--- Raises in nginx, whose master and workers are controlled by signals.
local function check_host()
  local ngx = rawget(_G, "ngx")
  if type(ngx) ~= "table" or not ngx.get_phase then return end
  check.misuse("signals: signals cannot be caught inside nginx, which owns them: its master process and its workers "
    .. "are controlled by them")
end

--- Catches signals. `names` is a list, for example { "INT", "TERM" }. Returns a signals object; or nil and an error.
local function open(driver, get_loop, names)
  local short = checked(names)
  check_host()
  local arrival = driver.event()
  local catcher, text = get_loop():catch(short)
  if not catcher then
    return nil, errors.new("resource_exhausted", ("keywatch: the signals cannot be caught: %s"):format(text))
  end
  return setmetatable({
    driver = driver,
    names = short,
    catcher = catcher, -- userdata of keywatch.uv
    arrival = arrival, -- driver event: set when a signal has arrived, or the object was closed
    waits = 0,         -- waits that are running
    poller = nil,      -- attached while `waits` is not 0
  }, signals_mt)
end

-- }======

-- {====== Waiting ======

--- Returns a poller that sets the event when a signal has arrived. It does not keep the object alive: a task that waits
-- and is never resumed must not catch signals forever.
local function new_poller(object)
  local driver, weak = object.driver, setmetatable({ object }, { __mode = "v" })
  local poller = {}
  function poller.poll()
    local self = weak[1]
    if not self then driver.detach(poller) elseif self.catcher:is_ready() then self.arrival:set() end
  end
  return poller
end

--- Begins a wait. Returns the event, which is set when a signal may have arrived. `finish` must be called afterwards.
local function begin(self)
  local poller = new_poller(self)
  self.waits = self.waits + 1
  self.poller = self.poller or poller
  self.driver.attach(self.poller)
  return self.arrival
end

--- Ends a wait.
local function finish(self)
  self.waits = self.waits - 1
  local poller = self.poller
  if self.waits > 0 or not poller then return end
  self.poller = nil
  self.driver.detach(poller)
end

--- True if `take` returns without waiting: a signal has arrived, or no other one can arrive.
local function is_ready(self)
  return self.catcher:is_ready() or self.catcher:state() ~= "open"
end

--- Takes a signal that has arrived. Returns its name; nil and an error if the object is closed; or nil if there is
-- none. Raises if the object is the parent's.
local function take(self)
  local name = self.catcher:take()
  if name then return name end
  local state = self.catcher:state()
  if state == "inherited" then check.misuse(INHERITED) end
  if state == "closed" then return nil, errors.closed("signals object") end
end

--- Like `take`. If there is no signal, polls once; then returns nil and an error of code "timeout" if there is still
-- none.
local function take_now(self)
  local name, err = take(self)
  if name then return name end
  if err then return nil, err end
  self.driver.look()
  name, err = take(self)
  if name then return name end
  return nil, err or core.new_error("timeout")
end

--- Takes a signal that has arrived, for select.
local function take_selected(self)
  local name, err = take(self)
  if not name and not err then return selection.NOTHING end
  return name, err
end

--- Waits for a signal. Returns its name, for example "INT"; or nil and an error. The code "timeout" means that the
-- signals are still caught.
function signals_methods:wait(timeout)
  check.timeout(timeout, "wait")
  if timeout and timeout <= 0 then return take_now(self) end
  local d = self.driver
  local deadline = timeout and d.now() + timeout
  while true do
    local name, err = take(self)
    if name then return name end
    if err then return nil, err end
    if deadline then d.check_wait() end -- raises even if the deadline has passed by now
    local event = begin(self)
    local ok, came = pcall(event.wait, event, deadline and math.max(0, deadline - d.now()))
    finish(self)
    if not ok then error(came, 0) end
    if not came then return take_now(self) end -- the timeout may have passed before the loop has polled
  end
end

-- }======

--- Stops catching, and wakes the waiters. Signals that no other object catches have the effect again that they had
-- before.
function signals_methods:close()
  self.catcher:close()
  self.arrival:set()
end

--- Returns the names and the state.
function signals_mt:__tostring()
  local state = self.catcher:state()
  return ("keywatch.signals<%s%s>"):format(table.concat(self.names, " "), state ~= "open" and " " .. state or "")
end

signals_mt.__close = signals_methods.close

signals_mt.__select = { -- see task/selection.lua
  is_ready = is_ready,
  begin = begin,
  finish = finish,
  take = take_selected,
  look = function(self) self.driver.look() end,
}

return { open = open, methods = signals_methods }
