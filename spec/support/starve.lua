--- Calls during which memory runs out, and calls during which finalizers act.

local busted = require "busted"
local compat = require "keywatch.support.compat"
local probe = require("keywatch.core").probe

local difference = require("spec.support.difference").difference
local dose = require "spec.support.dose"
local vm = require "spec.support.vm"

local starve = {}

local PAST = 2000 -- allocations: no call here needs as many
starve.PAST = PAST

--- Lets the n-th allocation of a call fail. Returns whether it was come to, and what the call returned or raised.
local function try(arm, n, act)
  collectgarbage()
  collectgarbage("stop")
  local counted = probe.allocations()
  arm(n)
  local ok, value, err = pcall(act)
  probe.fail_none()
  local used = probe.allocations() - counted
  collectgarbage("restart")
  if not ok then value, err = nil, value end
  return used >= n, value, err
end

local function collect()
  collectgarbage()
  collectgarbage() -- what the first one finalized
end

--- Tries a thing for every allocation that can fail in it: attempt(n) has the n-th fail, and returns whether that was
-- come to. Nothing may be left of any.
function starve.try_each(attempt)
  collect()
  local base = probe.live()
  for n = 1, PAST do
    local is_come_to = attempt(n)
    collect()
    assert(probe.live() == base, ("%d is left after allocation %d"):format(probe.live() - base, n))
    if not is_come_to then return end
  end
  error("there is no end")
end

--- Does something while the n-th allocation fails, as `arm` has it. Returns whether it was come to, and what that
-- returned, if it did not run out of memory.
function starve.during(arm, n, act)
  local counted = probe.allocations()
  arm(n)
  local ok, a, b = pcall(act)
  probe.fail_none()
  if not ok and not tostring(a):find("memory", 1, true) then error(a, 0) end
  return probe.allocations() - counted >= n, ok and a or nil, b
end

local function is_out_of_memory(err)
  if type(err) == "string" then return err:find("not enough memory", 1, true) ~= nil end
  return type(err) == "table" and err.code == "out_of_memory"
end

--- Every allocation that a call makes fails once: then the call fails, or is as good as ever. `check` looks at what it
-- returns.
function starve.try_all(act, check)
  for _, arm in ipairs { probe.fail_core, probe.fail_all } do
    local reached = true
    for n = 1, PAST do
      local value, err
      reached, value, err = try(arm, n, act)
      if value ~= nil then
        check(value)
      else
        assert(reached and is_out_of_memory(err), err)
      end
      if not reached then break end
    end
    assert(not reached, "there is no end")
  end
end

--- Expects that nothing is lost by calls that fail, nor by those that do not.
function starve.expect_nothing_lost(acts)
  for _, act in ipairs(acts) do act() end -- what is kept for the next call is there
  collect()
  local base = probe.live()
  for _, act in ipairs(acts) do
    for n = 1, 8 do try(n % 2 == 0 and probe.fail_core or probe.fail_all, n, act) end
    act()
  end
  collect()
  assert(probe.live() == base, probe.live() - base)
end

--- Runs without compiled code, and with a collector at its usual pace. LuaJIT 2.1 of early 2023 does not come out of a
-- compiled loop over pairs inside of a finalizer; and finalizers that make others have an eager collector begin again
-- at every allocation.
local function at_ease(fn)
  if not jit then
    if vm.how == "gc" then collectgarbage("incremental", 200, 100, 13) end -- until the test ends
    return fn()
  end
  local pause, step = collectgarbage("setpause", 200), collectgarbage("setstepmul", 200)
  jit.flush()
  jit.off()
  local ok, err = pcall(fn)
  jit.on()
  collectgarbage("setpause", pause)
  collectgarbage("setstepmul", step)
  if not ok then error(err, 0) end
end

--- Calls `act` from finalizers again and again, but not while it acts, while `body` runs. Returns how often; body is
-- given a function that returns the same.
function starve.haunt(act, body)
  local is_over, acting, runs = false, false, 0
  local function haunt()
    local function finalize()
      if is_over then return end
      haunt()
      if acting then return end
      acting, runs = true, runs + 1
      act()
      acting = false
    end
    compat.sentinel(finalize)
  end
  for _ = 1, 10 do haunt() end
  at_ease(function() body(function() return runs end) end)
  is_over = true
  return runs
end

--- Expects that a call is as good as ever while finalizers make it, too. How many rounds are a cycle of the collector
-- depends on all that the program holds.
function starve.expect_haunted(act)
  local least, most = dose.of(20, 200), 100000
  local runs = starve.haunt(act, function(count)
    local round = 0
    while round < least or count() == 0 and round < most do
      round = round + 1
      collectgarbage("step", round)
      act()
    end
  end)
  assert(runs > 0, "no finalizer has run")
end

--- Declares the tests of calls that only make values, for `what`, a list of functions: each is as good as ever while
-- finalizers make them, too; and where memory runs out, it fails, and nothing is lost.
function starve.declare(what, acts)
  local function expected_values()
    local values = {}
    for i, act in ipairs(acts) do values[i] = assert(act()) end
    return values
  end

  local function check(got, expected)
    local words = difference(got, expected, what)
    if words then error(words, 0) end
  end

  busted.describe(what .. " during which garbage is collected", function()
    busted.it("is whole, whatever finalizers ask for", function()
      local expected = expected_values()
      starve.expect_haunted(function()
        for i, act in ipairs(acts) do check(act(), expected[i]) end
      end)
    end)
  end)

  if not probe then return end

  busted.describe("where memory runs out #slow, " .. what, function()
    busted.setup(function() if jit then jit.off() end end) -- its compiler asks for memory too
    busted.teardown(function() if jit then jit.on() end end)

    busted.it("fails, and nothing is lost", function()
      local expected = expected_values()
      for i, act in ipairs(acts) do starve.try_all(act, function(got) check(got, expected[i]) end) end
      starve.expect_nothing_lost(acts)
    end)
  end)
end

return starve
