-- SPDX-License-Identifier: MIT
--- process: what the system counts for this process. A number that is unknown is nil or false.

local uv = require "keywatch.uv"

local start -- of the process, in seconds since 1970

local TICKS = 100 -- of Linux for each second, in all files of /proc

--- Returns the text of a file, or nil.
local function read_file(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

--- Returns when the process was started. The name of the program, in parentheses, may have any characters.
local function start_time()
  local fields = (read_file("/proc/self/stat") or ""):match("^.*%) (.*)$")
  local uptime = tonumber((read_file("/proc/uptime") or ""):match("^%S+"))
  local ticks = fields and fields:match("^" .. ("%S+ "):rep(19) .. "(%d+)")
  return ticks and uptime and uv.time() - uptime + tonumber(ticks) / TICKS
end

--- Returns a number of kilobytes in bytes, from a line of /proc/self/status.
local function bytes_of(status, name)
  local kilobytes = status:match("\n" .. name .. ":%s*(%d+) kB")
  return kilobytes and tonumber(kilobytes) * 1024
end

--- Returns the numbers of this process.
local function read()
  local status = read_file("/proc/self/status") or ""
  local descriptors, most = uv.descriptors()
  start = start or start_time()
  return {
    cpu = os.clock(),
    start = start,
    resident = bytes_of(status, "VmRSS"),
    virtual = bytes_of(status, "VmSize"),
    descriptors = descriptors,
    most_descriptors = most,
  }
end

return { read = read }
