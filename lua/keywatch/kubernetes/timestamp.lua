-- SPDX-License-Identifier: MIT
--- timestamp: times as Kubernetes writes them, in UTC and whole seconds: "2026-08-20T09:30:00Z".

local driver = require "keywatch.task.driver"

local DAY = 86400 -- seconds
local DAYS = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }
local EPOCH_OF_VIRTUAL_TIME = 1767225600 -- 2026-01-01T00:00:00Z: the first second of a run in virtual time

--- Returns the present time in seconds since 1970. A driver of virtual time has its own, the same in every run.
local function now()
  local d = driver.get()
  return d.random and EPOCH_OF_VIRTUAL_TIME + math.floor(d.now()) or os.time()
end

local last, last_text -- of format: most calls are about the present second

--- Returns a time as a text.
local function format(seconds)
  seconds = math.floor(seconds)
  if seconds ~= last then last, last_text = seconds, os.date("!%Y-%m-%dT%H:%M:%SZ", seconds) end
  return last_text
end

--- True if a year has 366 days.
local function is_leap(year)
  return year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
end

--- Returns the number of days from 1970-01-01 to a date; nil if there is no such date.
local function days_of(year, month, day)
  if month < 1 or month > 12 then return nil end
  local length = month == 2 and is_leap(year) and 29 or DAYS[month]
  if day < 1 or day > length then return nil end
  local before = year - 1
  local n = (year - 1970) * 365 + math.floor(before / 4) - math.floor(before / 100) + math.floor(before / 400) - 477
  for i = 1, month - 1 do n = n + (i == 2 and is_leap(year) and 29 or DAYS[i]) end
  return n + day - 1
end

--- Returns the seconds of an offset such as "Z" or "+02:00"; nil if it is malformed.
local function offset_of(text)
  if text == "Z" or text == "z" then return 0 end
  local sign, hours, minutes = text:match("^([+-])([0-9][0-9]):([0-9][0-9])$")
  if not sign or tonumber(hours) > 23 or tonumber(minutes) > 59 then return nil end
  return (hours * 3600 + minutes * 60) * (sign == "-" and -1 or 1)
end

--- Returns the seconds since 1970 of a time in RFC 3339, with fractions cut; nil if the text is malformed.
local function parse(text)
  if #text > 64 then return nil end
  local year, month, day, hour, minute, second, rest =
    text:match("^([0-9][0-9][0-9][0-9])%-([0-9][0-9])%-([0-9][0-9])[Tt]([0-9][0-9]):([0-9][0-9]):([0-9][0-9])(.*)$")
  if not year then return nil end
  local days = days_of(tonumber(year), tonumber(month), tonumber(day))
  local offset = offset_of((rest:gsub("^%.[0-9]+", "")))
  hour, minute, second = tonumber(hour), tonumber(minute), tonumber(second)
  if not days or not offset or hour > 23 or minute > 59 or second > 60 then return nil end
  return days * DAY + hour * 3600 + minute * 60 + second - offset
end

--- Returns the time since a moment as kubectl shows ages: "42s", "5m30s", "3h", "2d".
local function age(seconds)
  if seconds < -1 then return "<invalid>" end
  if seconds < 0 then return "0s" end
  local s = math.floor(seconds)
  if s < 120 then return ("%ds"):format(s) end
  local minutes, hours, days = math.floor(s / 60), math.floor(s / 3600), math.floor(s / DAY)
  if minutes < 10 then return s % 60 == 0 and ("%dm"):format(minutes) or ("%dm%ds"):format(minutes, s % 60) end
  if minutes < 180 then return ("%dm"):format(minutes) end
  if hours < 8 then
    return minutes % 60 == 0 and ("%dh"):format(hours) or ("%dh%dm"):format(hours, minutes % 60)
  end
  if hours < 48 then return ("%dh"):format(hours) end
  if hours < 192 then return hours % 24 == 0 and ("%dd"):format(days) or ("%dd%dh"):format(days, hours % 24) end
  if days < 730 then return ("%dd"):format(days) end
  local years = math.floor(days / 365)
  if years < 8 then
    local left = days % 365
    return left == 0 and ("%dy"):format(years) or ("%dy%dd"):format(years, left)
  end
  return ("%dy"):format(years)
end

return { now = now, format = format, parse = parse, age = age }
