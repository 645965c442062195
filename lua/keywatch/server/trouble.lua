-- SPDX-License-Identifier: MIT
--- trouble: what does not work in the store of a server: its storage has failed, or an alarm is armed. Each is logged
-- once when it begins; the end of an alarm is logged, too. Health answers by it, and is told when it changes.
--
-- Clients can arm and disarm alarms, so their lines are limited: BURST at once, and one for each PAUSE after that.

local driver = require "keywatch.task.driver"
local log_rate = require "keywatch.support.log_rate"

local BURST, PAUSE = 10, 10 -- lines, seconds

--- The lines of an alarm that begins: functions of the store's status, by the alarm.
local BEGINS = {
  no_space = function(status)
    return ("NOSPACE: the disk is full, or the quota: %d of %d bytes are in use: "
      .. "writes that need space are refused until the alarm is disarmed"):format(status.db_size_in_use, status.quota)
  end,
  corrupt = function()
    return "CORRUPT: a record is damaged: writes are refused until the alarm is disarmed"
  end,
}
local WIRE_NAMES = { no_space = "NOSPACE", corrupt = "CORRUPT" }

--- Logs a line about an alarm, unless there were too many.
local function tell(server, level, ...)
  local trouble = server.trouble
  if not trouble.lines:allows(driver.get().now()) then return end
  local skipped = trouble.lines:take_skipped()
  if skipped > 0 then server.log.warn("log lines about alarms left out: %d", skipped) end
  server.log[level](...)
end

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
    if not before[name] then tell(server, "warn", "alarm %s", BEGINS[name](status)) end
  end
  for name in pairs(before) do
    if not now[name] then tell(server, "info", "alarm %s is over", WIRE_NAMES[name]) end
  end
end

--- Compares what does not work with what was logged last.
local function update(server)
  local trouble = server.trouble
  local is_open, status = pcall(server.store.status, server.store) -- a finalizer may have closed the store
  if not is_open then return end
  local failure = status.errors[1]
  if failure and not trouble.failure then
    server.log.error("%s: writes fail until the server is started again", failure)
  end
  trouble.failure = failure
  compare_alarms(server, status)
  trouble.is_serving = not failure and not trouble.alarms.corrupt
  trouble.changed:set()
end

--- Begins with nothing that does not work. The core tells of what there is already.
local function start(server)
  server.trouble = {
    failure = nil, -- why the storage has failed
    alarms = {},   -- set of names
    is_serving = true,
    changed = driver.get().event(),
    lines = log_rate.new(PAUSE, BURST),
  }
end

return { start = start, update = update }
