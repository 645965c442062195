-- SPDX-License-Identifier: MIT
--- driver: the scheduler that everything which waits goes through.
--
-- A driver is a table of functions:
--   now()            seconds of a clock that never goes back
--   sleep(seconds)   lets the caller wait
--   spawn(fn, ...)   a task: task:join(timeout), task:cancel()
--   run(fn, ...)     turns the loop until fn has ended
--   event()          something to wait for: event:wait(timeout) -> boolean, event:set()
--   attach(source), detach(source)
--                    source:poll() is called whenever there is nothing to run: it sets events, and returns the seconds
--                    until it wants to be called again, or nil; and whether it is to be called when the bell has rung.
--                    source:after_fork(), if there is one, is called in a child of the process
--   bell()           what others may ring, from any thread
--   listen(server, address) -> listener, or nil, text and the name of the error
--                    address: { host =, port = } in digits, or { path = }; listener:address(), listener:close()
--   resolve(name)    the hosts of a name, in digits; fails in the same way
--   dial(client, address) -> true, or nil, text and the name of the error
--                    connects a client of core, which is told how it went and what came
--   lookup(name)     as resolve, without waiting. lookup:result(): nil while it is under way; the hosts; or false, text
--                    and the name of the error
--   look()           looks at the sockets once, without waiting, from wherever it is called; it resumes no task
--   hosts(object)    whether a server has listeners or connections, or a client its connection
--   release(object)  closes them, at once
--   forget(object)   of finalizers, for they run in the middle of anything: the next turn closes it
--   hear(thread)     from now on the loop returns when the thread ends, or, in the thread itself, when it shall
--   can_park()       whether the caller is a task that can be suspended here: not inside of a function that C calls
--   check_wait()     raises, where keywatch was called from, unless the caller may wait here
--   is_gone(co)      whether a coroutine is that of a task whose code never runs again, though it has not ended
--   signals(names)   catches signals: signals:wait(timeout) -> name, or nil if the time is over; signals:close()
-- Nothing above knows what turns underneath.
--
-- A finalizer may call spawn, task:cancel and event:set, whatever it interrupts. It may not wait: neither in a task,
-- for that cannot be suspended there, nor while the driver turns.
--
-- In a child of the process a driver goes on with nothing: sockets, listeners and signals stay with the parent, and so
-- do all tasks but the one that has forked; in the child they count as cancelled, and none of their code runs there.

local current

--- The driver of this program.
local function get()
  if not current then current = require "keywatch.driver.uv" end
  return current
end

--- Makes another driver that of this program; returns the one that was before, or nil. For tests.
local function use(driver)
  local before = current
  current = driver
  return before
end

--- Whether the caller is a task that can be suspended here; without choosing a driver.
local function can_park()
  return current ~= nil and current.can_park()
end

--- Whether a coroutine has ended, or never goes on.
local function has_ended(co)
  return coroutine.status(co) == "dead" or current ~= nil and current.is_gone(co)
end

--- Of finalizers: what is forgotten before there is a driver has nothing to close.
local function forget(object)
  if current then current.forget(object) end
end

return { get = get, use = use, can_park = can_park, has_ended = has_ended, forget = forget }
