-- SPDX-License-Identifier: MIT
--- measure: what the benches share.

--- What the process has in memory, in bytes.
local function resident()
  local f = assert(io.open("/proc/self/statm"))
  local pages = f:read("a"):match("^%d+ (%d+)")
  f:close()
  return tonumber(pages) * 4096
end

--- The processor seconds that fn takes, without the garbage of what was before.
local function seconds(fn)
  collectgarbage()
  local start = os.clock()
  fn()
  return os.clock() - start
end

--- How many of its `n` acts fn does in a second, at best in so many rounds.
local function rate(n, rounds, fn)
  local best = math.huge
  for _ = 1, rounds do best = math.min(best, seconds(fn)) end
  return n / best
end

local function report(name, found, unit, target)
  local digits = found < 100 and 2 or 0
  print(("  %-56s %12." .. digits .. "f %-10s %s"):format(name, found, unit, target or ""))
end

local function number(found)
  if not found then return "" end
  return (math.abs(found) < 100 and "%.2f" or "%.0f"):format(found)
end

--- A line of a table, with what `of` finds in each column, if anything.
local function row(name, unit, columns, of)
  local line = ("  %-56s"):format(name)
  for _, column in ipairs(columns) do line = line .. (" %12s"):format(number(of(column))) end
  print(line .. " " .. unit)
end

local function headline(columns, name_of)
  local line = (" "):rep(58)
  for _, column in ipairs(columns) do line = line .. (" %12s"):format(name_of(column)) end
  print(line)
end

--- Runs each part in a process of its own, so that none finds the memory of another; or the one that is asked for.
local function run(title, parts)
  local part = parts[tonumber(arg[1])]
  if part then
    print(part[1])
    part[2]()
    return
  end
  print(title .. ", " .. _VERSION)
  for i = 1, #parts do
    io.stdout:flush()
    local status = os.execute(("%s %s %d"):format(arg[-1], arg[0], i))
    assert(status == true or status == 0, "a part has failed") -- LuaJIT gives the status
  end
end

--- Returns for how long the processors of a virtual machine had no processor of its host, in ns, by ticks of 10 ms.
local function stolen()
  local file = assert(io.open("/proc/stat"))
  local ticks = file:read("*l"):match("^cpu +%d+ %d+ %d+ %d+ %d+ %d+ %d+ (%d+)")
  file:close()
  return tonumber(ticks) * 1e7
end

--- For how long the processes were ready to run and had no processor, or the machine had none, in ns.
local function waited(pids)
  local sum = stolen()
  for _, pid in ipairs(pids) do
    local file = assert(io.open(("/proc/%s/schedstat"):format(pid)))
    sum = sum + tonumber(file:read("*a"):match("^%d+ (%d+)"))
    file:close()
  end
  return sum
end

return {
  resident = resident,
  seconds = seconds,
  rate = rate,
  report = report,
  row = row,
  headline = headline,
  run = run,
  waited = waited,
}
