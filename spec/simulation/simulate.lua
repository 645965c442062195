--- The program of `make simulate`: simulations of many seeds, in several parallel processes.
--
--   simulate.lua [--seeds=N] [--seed=S] [--jobs=J] [--keep=ATOM,…] [--trace=FILE] [--shrink=SECONDS] [--seconds=T]
--     [--first=1] [--how="VARIABLE=VALUE …"]
--
-- Runs N seeds, from S on. A failing seed is printed with the judge's objection, the command that repeats it, and a
-- short program that fails for the same reason. The last line is "N passed, N failed". With --first each process ends
-- at the first failing seed.

local machines = require "spec.simulation.machines"
local shrink = require "spec.simulation.shrink"
local simulation = require "spec.simulation.simulation"

local SHOWN = 5 -- objections of a seed
local LINES = 80 -- of the trace of a short program
local LEAST_SEEDS, MOST_LEFT = 20, 30000 -- after this many seeds, each may have left this many bytes

local options = { seeds = 1, seed = 1, jobs = 1, shrink = 60, how = "" }
for _, word in ipairs(arg) do
  local name, value = word:match("^%-%-(%a+)=(.*)$")
  if not name then error("simulate: what is " .. word .. "?", 0) end
  options[name] = tonumber(value) or value
end
local MAKE = "make simulate " .. (options.how ~= "" and options.how .. " " or "")

local function show(objections)
  for i = 1, math.min(SHOWN, #objections) do print("  " .. objections[i]:gsub("\n", "\n    "):sub(1, 2000)) end
  if #objections > SHOWN then print(("  and %d more"):format(#objections - SHOWN)) end
end

--- Prints a short program: its trace, and the command that repeats it.
local function show_short(plan, list)
  local again = simulation.run(plan, shrink.set_of(list), true)
  print(("  %d of %d atoms are enough: %s"):format(#list, #simulation.atoms_of(plan), again.objections[1] or "nothing"))
  for i = 1, math.min(LINES, #again.lines) do print("    " .. again.lines[i]) end
  print(("  to repeat: %sSEED=%d KEEP=%s"):format(MAKE, plan.seed, table.concat(list, ",")))
end

--- Runs a seed. Returns true if there is no objection.
local function run(seed)
  local plan, keep = simulation.plan(seed, { seconds = options.seconds }), nil
  if options.keep then
    keep = {}
    for name in tostring(options.keep):gmatch("[^,]+") do keep[name] = true end
  end
  local result = simulation.run(plan, keep, options.trace ~= nil)
  if options.trace then
    local file = assert(io.open(options.trace, "w"))
    file:write(table.concat(result.lines, "\n"), "\n")
    file:close()
  end
  local is_alone = options.seeds == 1
  if is_alone then print(("seed %d: %d operations, trace %s"):format(seed, result.n_operations, result.hash)) end
  if #result.objections == 0 then return true end
  print(("seed %d FAILED:"):format(seed))
  show(result.objections)
  print(("  to repeat: %sSEED=%d"):format(MAKE, seed))
  if not keep and options.shrink > 0 then
    show_short(plan, (shrink.shrink(plan, result.objections[1], options.shrink)))
  end
  return false
end

--- Returns the bytes in use between two simulations.
local function memory()
  machines.begin(0)
  machines.finish()
  if rawget(_G, "jit") then jit.flush() end -- traces hold objects
  for _ = 1, 4 do collectgarbage() end -- finalizers bring objects back
  return collectgarbage("count") * 1024 + (machines.memory() or 0)
end

--- Returns true if `n` simulations have leaked no memory since `before` bytes were in use.
local function has_left_nothing(n, before)
  local left = n >= LEAST_SEEDS and (memory() - before) / n or 0
  if left > MOST_LEFT then print(("memory FAILED:\n  %d bytes stay of each simulation"):format(left)) end
  return left <= MOST_LEFT
end

local function run_all(from, step)
  local passed, failed, before = 0, 0, nil
  for seed = from, options.seed + options.seeds - 1, step do
    if options.step then print("begins " .. seed) end
    io.stdout:flush()
    if run(seed) then passed = passed + 1 else failed = failed + 1 end
    io.stdout:flush()
    before = before or memory()
    if failed > 0 and options.first then return passed, failed end
  end
  if failed == 0 and not has_left_nothing(passed, before) then failed = 1 end
  return passed, failed
end

--- Starts other processes, each of which has some of the seeds, and adds up their results.
local function run_side_by_side()
  local passed, failed, pipes = 0, 0, {}
  local interpreter, i = arg[0], 0
  repeat
    interpreter, i = arg[i - 1] or interpreter, i - 1
  until not arg[i]
  for job = 0, options.jobs - 1 do
    local command = ("%s %s --seed=%d --seeds=%d --step=%d --shrink=%d --how='%s'"):format(interpreter, arg[0],
      options.seed + job, options.seeds - job, options.jobs, options.shrink, options.how)
    pipes[#pipes + 1] = assert(io.popen(options.first and command .. " --first=1" or command))
  end
  for _, pipe in ipairs(pipes) do
    local last, begun
    for line in pipe:lines() do
      local p, f = line:match("^(%d+) passed, (%d+) failed$")
      local seed = line:match("^begins (%d+)$")
      if seed then
        begun = seed
      elseif p then
        passed, failed, last = passed + tonumber(p), failed + tonumber(f), line
      else
        print(line)
      end
    end
    if not last then
      print(("seed %s FAILED:\n  the process has died"):format(tostring(begun)))
      failed = failed + 1
    end
    pipe:close()
  end
  return passed, failed
end

local passed, failed
if options.jobs > 1 and options.seeds > 1 then
  passed, failed = run_side_by_side()
else
  passed, failed = run_all(options.seed, options.step or 1)
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and passed > 0)
