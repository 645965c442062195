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
--                    until it wants to be called again, or nil; and whether it is to be called when the bell has rung
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
--   is_task()        whether the caller is a task
--   signals(names)   catches signals: signals:wait(timeout) -> name, or nil if the time is over; signals:close()
-- Nothing above knows what turns underneath.
--
-- In a child of the process a driver goes on with nothing: sockets, listeners and signals stay with the parent, and so
-- do all tasks but the one that has forked; in the child they count as cancelled, and none of their code runs there.

local current

--- The driver of this program.
local function get()
  if not current then current = require "keywatch.driver.uv" end
  return current
end

--- Whether the caller is a task; without choosing a driver.
local function is_task()
  return current ~= nil and current.is_task()
end

--- Of finalizers: what is forgotten before there is a driver has nothing to close.
local function forget(object)
  if current then current.forget(object) end
end

return { get = get, is_task = is_task, forget = forget }
