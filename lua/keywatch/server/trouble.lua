-- SPDX-License-Identifier: MIT
--- trouble: the current problems of a server: the storage of its store has failed, an alarm is armed, or it lacks the
-- descriptors to accept connections. Each is logged once when it begins; for the last two, the end is logged, too. The
-- answers of Health depend on the first two, and Health is notified when they change.
--
-- Clients can arm and disarm alarms, and open many connections, so the rate of these lines is limited.

local alarm_names = require "keywatch.server.alarm_names"
local driver = require "keywatch.task.driver"
local log_limit = require "keywatch.server.log_limit"

local CALM = 5 -- seconds without a failed attempt to accept a connection, after which the problem has ended

--- The lines for a new alarm: functions of the store's status, by alarm.
local BEGINS = {
  no_space = function(status)
    return ("NOSPACE: the disk is full, or the quota: %d of %d bytes are in use: "
      .. "writes that need space are refused until the alarm is disarmed"):format(status.db_size_in_use, status.quota)
  end,
  corrupt = function()
    return "CORRUPT: a record is damaged: writes are refused until the alarm is disarmed"
  end,
}

--- Returns the set of names that a list has.
local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

--- Logs which alarms begin and end.
local function compare_alarms(server, status)
  local before, now = server.trouble.alarms, set_of(status.alarms)
  server.trouble.alarms = now
  for name in pairs(now) do
    if not before[name] then server.trouble.lines:line_at("warn", "alarm %s", BEGINS[name](status)) end
  end
  for name in pairs(before) do
    if not now[name] then server.trouble.lines:line_at("info", "alarm %s has ended", alarm_names[name]) end
  end
end

--- Compares the current problems with those that were logged last.
local function update(server)
  local trouble = server.trouble
  local is_open, status = pcall(server.store.status, server.store) -- a finalizer may have closed the store
  if not is_open then return end
  local failure = status.has_failed and status.errors[1] or nil
  if failure and not trouble.failure then
    server.log.error("%s: writes fail until the server is started again", failure)
  end
  trouble.failure = failure
  compare_alarms(server, status)
  trouble.is_serving = not failure and not trouble.alarms.corrupt
  trouble.changed:set()
end

-- {====== Accepting ======

--- Records that connections cannot be accepted, and why.
local function accept_failed(server, why)
  local trouble = server.trouble
  trouble.calm_at = driver.get().now() + CALM
  if trouble.accept_failure then return end
  trouble.accept_failure = ("keywatch: connections cannot be accepted: %s"):format(why)
  server.trouble.lines:line_at("warn", "connections cannot be accepted, and wait: %s: see ulimit -n", why)
end

--- Ends the problem once no attempt has failed for CALM seconds. Returns the seconds until then; nil if there is none.
local function poll(server)
  local trouble = server.trouble
  if not trouble.accept_failure then return nil end
  local seconds = trouble.calm_at - driver.get().now()
  if seconds > 0 then return seconds end
  trouble.accept_failure = nil
  server.trouble.lines:line_at("info", "connections are accepted again")
end

-- }======

--- Begins without problems. The core then reports the existing ones.
local function start(server)
  server.trouble = {
    failure = nil, -- why the storage has failed
    alarms = {},   -- set of names
    is_serving = true,
    changed = driver.get().event(),
    accept_failure = nil, -- why connections cannot be accepted
    calm_at = nil, -- when this problem ends, unless another attempt fails
    lines = log_limit.new(server.log, "warn", "log lines about alarms and descriptors left out: %d"),
  }
end

return { start = start, update = update, accept_failed = accept_failed, poll = poll }
