-- SPDX-License-Identifier: MIT
--- exits: functions that run when a program ends (keywatch.on_exit), and objects that then release what they hold,
-- because other processes wait for it: electors, managers, sessions.
--
-- In nginx an exiting worker calls the functions and releases what the objects hold. Elsewhere the end of keywatch.run,
-- and of `keywatch run`, only calls the functions: a program may still use its objects afterwards.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"

local SHARE = 0.6 -- of the time is for functions, electors and managers; the rest for sessions

local exits = {}

local functions = setmetatable({}, { __mode = "k" }) -- by driver: a list
local ending = setmetatable({}, { __mode = "k" })    -- by driver: the task that calls the functions, or true
local objects = setmetatable({}, { __mode = "k" })   -- by object: { stage =, number =, give_back = }
local last = 0

--- Adds a function that a driver calls once, at the end. Raises if the functions are being called, or exits.run was
-- called.
function exits.add(d, fn)
  local task = ending[d]
  if task and (task == true or task.state ~= "done") then
    check.misuse("on_exit: the program is at its end, and calls these functions now: call this one yourself")
  end
  functions[d] = functions[d] or {}
  table.insert(functions[d], fn)
end

--- True if a driver has functions to call.
function exits.has_any(d)
  return functions[d] ~= nil
end

--- Registers an object that holds something: exits.run calls give_back(object, seconds). Objects of stage 2 follow
-- those of stage 1.
function exits.hold(object, stage, give_back)
  last = last + 1
  objects[object] = { stage = stage, number = last, give_back = give_back }
end

--- Returns the calls for the objects of a stage, the newest first.
local function calls_of(stage, seconds)
  local found = {}
  for object, one in pairs(objects) do
    if one.stage == stage then
      found[#found + 1] = { number = one.number, call = function() one.give_back(object, seconds) end }
    end
  end
  table.sort(found, function(a, b) return a.number > b.number end)
  for i, one in ipairs(found) do found[i] = one.call end
  return found
end

--- Makes each call in a separate task, and waits until all have returned, or the deadline has passed. Errors are
-- logged.
local function call_all(d, calls, deadline)
  local left, changed = #calls, d.event()
  for _, fn in ipairs(calls) do
    d.spawn_own(function()
      local ok, raised = driver.attempt(fn)
      if not ok then log.error("%s", "a function called at the exit has failed: " .. errors.text_of(raised.err)) end
      left = left - 1
      changed:set()
    end)
  end
  while left > 0 and changed:wait(deadline and math.max(0, deadline - d.now())) do end
end

--- Takes the functions of a driver, in reverse order.
local function take_functions(d)
  local list, calls = functions[d] or {}, {}
  functions[d] = nil
  for i = #list, 1, -1 do calls[#calls + 1] = list[i] end
  return calls
end

--- Calls the functions of a driver, and waits until they have returned, for `seconds` at most if that is given.
function exits.call_functions(d, seconds)
  ending[d] = d.current()
  call_all(d, take_functions(d), seconds and d.now() + seconds)
  ending[d] = nil
end

--- Calls the functions, and releases what all objects hold, within this many seconds.
function exits.run(d, seconds)
  local now = d.now()
  ending[d] = true
  local calls = take_functions(d)
  for _, fn in ipairs(calls_of(1, seconds * SHARE)) do calls[#calls + 1] = fn end
  call_all(d, calls, now + seconds * SHARE)
  call_all(d, calls_of(2, seconds * (1 - SHARE)), now + seconds)
end

return exits
