--- Reads /proc for processes: their children, memory, processor time, descriptors and connections. A process is named
-- by its pid; this one is "self".

local uv = require "spec.support.luv"

local proc = {}

local ESTABLISHED = "01"
local CONNECTED = "03" -- of a unix socket

--- Returns the text of a file in /proc/PID; nil if the process has ended.
local function text_of(pid, name)
  local file = io.open(("/proc/%s/%s"):format(pid, name))
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

--- True if a process runs. A zombie does not.
function proc.is_running(pid)
  local text = text_of(pid, "stat")
  return text ~= nil and not text:find("%) [ZX] ")
end

--- Returns the sorted pids of a process's children.
function proc.children(pid)
  local list = {}
  for child in (text_of(pid, ("task/%d/children"):format(pid)) or ""):gmatch("%d+") do
    if proc.is_running(tonumber(child)) then list[#list + 1] = tonumber(child) end
  end
  table.sort(list)
  return list
end

--- Returns the command line of a process, as ps shows it.
function proc.title(pid) return ((text_of(pid, "cmdline") or ""):gsub("%z+$", "")) end

--- Returns a function of a pid: a size in /proc/PID/status, in bytes.
local function size_of(name)
  return function(pid)
    return tonumber(assert(text_of(pid, "status"), "no such process"):match(name .. ":%s*(%d+) kB")) * 1024
  end
end

--- The memory of a process: now; the peak since reset_peak; and the part that belongs to no file.
proc.resident, proc.peak, proc.anonymous = size_of("VmRSS"), size_of("VmHWM"), size_of("RssAnon")

function proc.reset_peak(pid)
  local file = assert(io.open(("/proc/%s/clear_refs"):format(pid), "w"))
  file:write("5")
  file:close()
end

--- Returns the number of open descriptors of a process; with `below`, of those below a number.
function proc.descriptors(pid, below)
  local n = 0
  local entries = assert(uv.fs_scandir(("/proc/%s/fd"):format(pid)))
  for name in uv.fs_scandir_next, entries do
    if tonumber(name) < (below or math.huge) then n = n + 1 end
  end
  return n
end

--- Returns the processor time of a process's first thread, in seconds, to the nanosecond.
function proc.seconds(pid)
  return tonumber(assert(text_of(pid, "schedstat"), "no such process"):match("^%d+")) / 1e9
end

--- Returns the set of the inodes of a process's sockets.
local function sockets_of(pid)
  local set = {}
  local path = ("/proc/%d/fd/"):format(pid)
  local entries = uv.fs_scandir(path)
  if not entries then return set end
  for name in uv.fs_scandir_next, entries do
    local inode = (uv.fs_readlink(path .. name) or ""):match("^socket:%[(%d+)%]$")
    if inode then set[inode] = true end
  end
  return set
end

--- Returns the number of TCP connections of a process, to a port if one is given.
function proc.connections(pid, port)
  local sockets, n = sockets_of(pid), 0
  for line in (text_of(pid, "net/tcp") or ""):gmatch("[^\n]+") do
    local far, state, inode = line:match("^%s*%d+: %x+:%x+ %x+:(%x+) (%x%x) %S+ %S+ %S+ +%d+ +%d+ (%d+)")
    if state == ESTABLISHED and sockets[inode] and (not port or tonumber(far, 16) == port) then n = n + 1 end
  end
  return n
end

--- Returns the number of a server's connections at its unix socket.
function proc.unix_connections(pid, path)
  local sockets, n = sockets_of(pid), 0
  for line in (text_of(pid, "net/unix") or ""):gmatch("[^\n]+") do
    local state, inode, name = line:match("^%x+: %x+ %x+ %x+ %x+ (%x%x) +(%d+) (.+)$")
    if state == CONNECTED and name == path and sockets[inode] then n = n + 1 end
  end
  return n
end

return proc
