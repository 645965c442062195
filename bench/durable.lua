-- SPDX-License-Identifier: MIT
--- What durable writes of a store in process cost: flushes, bytes that are written, and how long a put waits.
--
--   lua5.4 bench/durable.lua [part]
--
-- The data are on the disk that this tree is on. Flushes and bytes are counted by strace, in runs of their
-- own.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"
local step = require("keywatch.core").inner.step

local row = measure.row

local KEY_BYTES, VALUE_BYTES, RECORD_BYTES = 32, 256, 300 -- a record has some numbers, too
local KEYS = 10000
local GROUP = 32 -- puts of a commit group
local GROUPS = 1000
local PUTS = 5000 -- alone; few enough for one checkpoint at the end
local PUTS_OF_CHECKPOINT = 50
local MANY_PUTS = 40000 -- alone; enough for several checkpoints that nobody asks for

local COLUMNS = { { name = "store" } }

local value = ("v"):rep(VALUE_BYTES)

local function key_of(i)
  return ("/registry/pods/default/%09d"):format(i * 7919 % KEYS)
end
assert(#key_of(1) == KEY_BYTES)

local function capture(command)
  local pipe = assert(io.popen(command))
  local output = pipe:read("*a")
  assert(pipe:close(), command .. " failed")
  return output
end

--- Calls fn with the path of an empty directory, which is then removed.
local function with_directory(fn)
  local path = capture("mktemp -d -p $PWD/build keywatch-bench.XXXXXX"):match("%S+")
  local ok, err = pcall(fn, path)
  capture(("rm -r '%s'"):format(path))
  if not ok then error(err, 0) end
end

local function open(path, now) return assert(keywatch.open { path = path, now = now }) end

-- Groups -------------------------------------------------------------------------------------------------------------

--- Puts that go to the disk together, so many times. The last checkpoint is that of the end.
local function put_groups(path)
  local store = open(path)
  local function put(i) assert(store:put(key_of(i), value)) end
  keywatch.run(function()
    for i = 1, GROUPS do
      local tasks = {}
      for j = 1, GROUP do tasks[j] = keywatch.spawn(put, i * GROUP + j) end
      for j = 1, GROUP do tasks[j]:join() end
    end
  end)
  local commits = store:status().commits
  store:close()
  return commits
end

local TRACE = "strace -f --seccomp-bpf -qq -o %s -e trace=openat,fsync,fdatasync,pwrite64,pwritev2,writev "

--- What a trace of strace has: flushes, which are calls that flush, and writes that do so by their descriptor or by a
-- flag; and the bytes of all writes. The kernel's own counter, write_bytes of /proc, counts whole folios, of which a
-- write may fill a small part.
local function read_trace(path)
  local found, is_flushed = { flushes = 0, bytes = 0 }, {}
  for line in io.lines(path) do
    local opened, fd = line:match("openat%(.* = (%d+)$"), line:match("pwrite64%((%d+),")
    if opened then is_flushed[opened] = line:find("O_D?SYNC") ~= nil end
    if line:find("%d +f%l*sync%(") or line:find("RWF_D?SYNC") or is_flushed[fd] then
      found.flushes = found.flushes + 1
    end
    if line:find("^%d+ +%l*write") or line:find("write%w+ resumed") then
      found.bytes = found.bytes + (tonumber(line:match("= (%d+)$")) or 0)
    end
  end
  return found
end

--- Puts groups in a process of its own, which is traced.
local function trace_groups(path)
  local trace = path .. "/trace"
  local commits = capture(TRACE:format(trace) .. ("%s %s groups %s/data"):format(arg[-1], arg[0], path))
  local found = read_trace(trace)
  found.commits = tonumber(commits)
  return found
end

--- Measures the groups of a column: once for what it takes to make the files of the journal, once for what it takes
-- when they are there, and once for time.
local function measure_groups_of(column)
  with_directory(function(path)
    column.new = trace_groups(path)
    column.old = trace_groups(path)
    local start = keywatch.now()
    column.commits = put_groups(path .. "/data")
    column.seconds = keywatch.now() - start
  end)
end

local function measure_groups()
  measure.headline(COLUMNS, function(column) return column.name end)
  for _, column in ipairs(COLUMNS) do measure_groups_of(column) end
  row("puts in a group", "puts", COLUMNS, function(column) return GROUPS * GROUP / column.commits end)
  row("groups", "groups/s", COLUMNS, function(column) return column.commits / column.seconds end)
  for _, case in ipairs { { "new", "a new store" }, { "old", "a store with files" } } do
    row(("flushes for a group, with checkpoints, %s"):format(case[2]), "flushes", COLUMNS, function(column)
      return column[case[1]].flushes / column[case[1]].commits
    end)
    row(("bytes written for a byte of records, %s"):format(case[2]), "bytes", COLUMNS, function(column)
      return column[case[1]].bytes / (GROUPS * GROUP * RECORD_BYTES)
    end)
  end
end

-- Puts alone ---------------------------------------------------------------------------------------------------------

--- Puts `n` times, one put after the other, and then closes the store. `after` is called after each put, with its
-- number. Returns how long each put took, in microseconds, in order.
local function time_puts(store, n, after)
  local times = {}
  for i = 1, n do
    local start = keywatch.now()
    assert(store:put(key_of(i), value))
    times[i] = (keywatch.now() - start) * 1e6
    if after then after(i) end
  end
  store:close()
  table.sort(times)
  return times
end

--- Puts while the time of the store stands still: there is no checkpoint.
local function put_calmly(path)
  return time_puts(open(path, 0), PUTS)
end

--- Puts while the time of the store is moved by hand: checkpoints begin after every PUTS_OF_CHECKPOINT puts, and go on
-- beside the next puts.
local function put_beside_many(path)
  local store, now = open(path, 0), 0
  return time_puts(store, PUTS, function(i)
    if i % PUTS_OF_CHECKPOINT > 0 then return end
    step(store, now) -- sets the time of the checkpoint, a second later
    now = now + 1
    step(store, now)
  end)
end

--- Puts while the time of the store is that of the clock: checkpoints come at their own pace.
local function put_by_clock(path)
  return time_puts(open(path), MANY_PUTS)
end

local function report_times(name, of)
  for _, part in ipairs { { "median", 0.5 }, { "99 %", 0.99 }, { "99.9 %", 0.999 }, { "longest", 1 } } do
    row(("%s, %s"):format(name, part[1]), "us", COLUMNS, function(column)
      return column[of] and column[of][math.ceil(part[2] * #column[of])]
    end)
  end
end

--- The first puts make the files of the journal.
local function measure_alone()
  measure.headline(COLUMNS, function(column) return column.name end)
  for _, column in ipairs(COLUMNS) do
    with_directory(function(path)
      put_calmly(path .. "/data")
      column.calm = put_calmly(path .. "/data")
      column.busy = put_beside_many(path .. "/data")
      column.usual = put_by_clock(path .. "/data")
    end)
  end
  report_times("put alone, no checkpoint", "calm")
  report_times(("put alone, a checkpoint every %d puts"):format(PUTS_OF_CHECKPOINT), "busy")
  report_times("put alone, checkpoints by the clock", "usual")
end

if arg[1] == "groups" then
  io.stdout:write(("%d\n"):format(put_groups(arg[2])))
  return
end

measure.run(("durable puts in process: records of %d bytes"):format(RECORD_BYTES), {
  { ("groups of %d"):format(GROUP), measure_groups },
  { "puts alone", measure_alone },
})
