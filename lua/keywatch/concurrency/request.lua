-- SPDX-License-Identifier: MIT
--- request: requests on behalf of a session, which end at once if the session is lost.

local driver = require "keywatch.task.driver"
local event = require "keywatch.task.event"
local keys_by = require("keywatch.support.order").keys_by

local TOP = { number = 0 } -- represents the caller at top level

-- A listener waits for the event of a session's lease, and is notified when the lease may be lost. It is a link whose
-- target is itself, see task/event.lua. It does not keep the session alive.
local listener_methods = {}
local listener_mt = { __index = listener_methods }
local weak_mt = { __mode = "v" }

--- Called when the lease may be lost. If the lease is lost, the pending requests of the session end as at a timeout.
-- Otherwise the listener waits again.
function listener_methods:set()
  local session = self.held[1]
  if not session then return false end
  if not session:error() then
    event.link(self.awaited, self)
    return false
  end
  for _, caller in ipairs(keys_by(session.callers, "number")) do self.expire(caller ~= TOP and caller or nil) end
  return true
end

--- Registers the session for the loss of its lease.
local function listen(session)
  session.is_listening = true
  local listener = setmetatable({
    held = setmetatable({ session }, weak_mt),
    expire = driver.get().expire, -- kept here: a finalizer may notify the listener, but must not choose a driver
    target = nil,
    event = nil,
    place = nil,
    awaited = getmetatable(session.lease).__select.begin(session.lease),
  }, listener_mt)
  listener.target = listener
  event.link(listener.awaited, listener)
end

--- Notes that a request has ended, and returns the results of its pcall.
local function finish(session, caller, ...)
  session.callers[caller] = nil
  return ...
end

--- Forgets a caller that was killed.
local function undo(call)
  call.session.callers[call.caller] = nil
end

--- Calls fn(...), which makes a request, and returns the results of pcall. If the session is lost, the request ends at
-- once.
local function request(session, fn, ...)
  if session.is_local then return pcall(fn, ...) end
  if not session.is_listening then listen(session) end
  local caller = driver.get().current() or TOP
  session.callers[caller] = true
  return finish(session, caller, driver.protect(undo, { session = session, caller = caller }, fn, ...))
end

return request
