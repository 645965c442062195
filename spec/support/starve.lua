--- Calls during which memory runs out, and calls during which finalizers act.

local busted = require "busted"
local compat = require "keywatch.support.compat"
local probe = require("keywatch.core").probe

local difference = require("spec.support.difference").difference
local dose = require "spec.support.dose"
local vm = require "spec.support.vm"

local starve = {}

local PAST = 2000 -- allocations: more than any call makes
starve.PAST = PAST

--- Lets the n-th allocation of a call fail. Returns true if there was one, and the results or the error of the call.
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
  collectgarbage() -- objects that the first collection has finalized
end

--- Calls attempt(n) for n = 1, 2, …: attempt lets the n-th allocation fail, and returns true if there was one. No
-- attempt may leak memory.
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

--- Calls `act` while arm(n) lets the n-th allocation fail. Returns true if there was one, and the results of `act`,
-- unless it has raised an error of memory.
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

--- Lets every allocation of a call fail once: the call must then fail, or return the usual result. `check` inspects the
-- result.
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

--- Expects that calls leak nothing, whether they fail or succeed.
function starve.expect_nothing_lost(acts)
  for _, act in ipairs(acts) do act() end -- fills caches for later calls
  collect()
  local base = probe.live()
  for _, act in ipairs(acts) do
    for n = 1, 8 do try(n % 2 == 0 and probe.fail_core or probe.fail_all, n, act) end
    act()
  end
  collect()
  assert(probe.live() == base, probe.live() - base)
end

--- Runs a function without compiled code, and with a collector at its usual pace. LuaJIT 2.1 of early 2023 hangs in a
-- compiled loop over pairs inside of a finalizer; and finalizers that make new finalizers let an eager collector start
-- again at every allocation.
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

--- Calls `act` from finalizers repeatedly, but not recursively, while `body` runs. Returns the number of calls; `body`
-- gets a function that returns the number so far.
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

--- Expects that a call returns the usual result while finalizers make the same call. The number of rounds in a cycle of
-- the collector depends on the size of the whole heap.
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

--- Declares tests for `acts`, a list of functions that only make values; `what` names them. Each must return the usual
-- result while finalizers call it, too; and without memory it must fail and leak nothing.
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
    busted.setup(function() if jit then jit.off() end end) -- its compiler allocates memory, too
    busted.teardown(function() if jit then jit.on() end end)

    busted.it("fails, and nothing is lost", function()
      local expected = expected_values()
      for i, act in ipairs(acts) do starve.try_all(act, function(got) check(got, expected[i]) end) end
      starve.expect_nothing_lost(acts)
    end)
  end)
end

return starve
