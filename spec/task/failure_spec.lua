--- A failure of a task is never swallowed: join returns it, run raises it, or stderr has it.
--
-- Each case is a separate program, whose whole output is compared.

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local program = require "spec.support.program"

-- What all of them begin with. attempt(fn) prints what becomes of a run; fail(...) makes a task fail that is not
-- joined.
local BEFORE = [[
  io.stdout:setvbuf("no")
  local keywatch = require "keywatch"
  local function attempt(fn) print(pcall(keywatch.run, fn)) end
  local function fail(...)
    keywatch.spawn(error, ...)
    keywatch.sleep(0)
  end
]]

--- Runs a program, which must by default succeed. Returns its output.
local function run(text, expected)
  local status, printed = program.run(BEFORE .. text, 20)
  assert.equal(expected or 0, status, printed)
  return printed
end

--- Runs a program, whose output must match patterns. Returns the output.
local function match(text, ...)
  local printed = run(text)
  for _, pattern in ipairs { ... } do assert.matches(pattern, printed) end
  return printed
end

--- A test of a program, by all that it prints.
local function prints(title, printed, text)
  it(title, function() assert.equal(printed, run(text)) end)
end

--- A test of a program, by patterns of what it prints.
local function matches(title, text, ...)
  local patterns = { ... }
  it(title, function() match(text, unpack(patterns)) end)
end

--- How often something stands in a text.
local function count(text, words) return select(2, text:gsub(words, "")) end

describe("a task that fails", function()
  matches("and is not joined is reported on stderr, with its traceback", [[
    local function innermost() error("on purpose") end
    keywatch.spawn(function() innermost() keywatch.sleep(0) end)
    keywatch.sleep(0)
    print "end"
  ]], "^keywatch: a task has failed: [^\n]*: on purpose\nstack traceback:\n", "innermost", "\nend\n$")

  matches("makes run raise, if it is not joined", [[
    attempt(function()
      fail("on purpose", 0)
      print "goes on"
    end)
  ]], "^keywatch: a task has failed: on purpose\n", "\ngoes on\nfalse\ton purpose\n$")

  it("makes a program fail that is one run", function()
    assert.not_matches("not reached", run('keywatch.run(function() fail("on purpose", 0) end) print "not reached"', 1))
  end)

  prints("is not reported if it is joined", ("false\ton purpose\n"):rep(2), [[
    keywatch.run(function() print(keywatch.spawn(error, "on purpose", 0):join()) end)
    print(keywatch.spawn(error, "on purpose", 0):join())
  ]])

  prints("is not reported if it is the function of run: run raises", "false\ton purpose\n",
    "attempt(function() keywatch.sleep(0) error('on purpose', 0) end)")

  it("and is joined later is reported, and does not make run raise", function()
    local printed = match([[
      print(keywatch.run(function()
        local task = keywatch.spawn(error, "on purpose", 0)
        keywatch.sleep(0)
        return task:join()
      end))
    ]], "\nfalse\ton purpose\n$")
    assert.equal(1, count(printed, "a task has failed: on purpose"))
  end)

  it("is reported each time, and the first failure is raised", function()
    local printed = match([[
      attempt(function()
        for i = 1, 3 do keywatch.spawn(error, "number " .. i, 0) end
        keywatch.sleep(0)
      end)
    ]], "\nfalse\tnumber 1\n$")
    for i = 1, 3 do assert.equal(1, count(printed, "a task has failed: number " .. i)) end
  end)

  for what, case in pairs {
    ["is written as the object prints, and raised as the object"] = { 'return "I am an object"', "I am an object\n" },
    ["that cannot be printed is written all the same"] = { 'error("not me")', "" },
  } do
    matches("with an object " .. what, ([[
      local object = setmetatable({}, { __tostring = function() %s end })
      local ok, err = pcall(keywatch.run, function() fail(object) end)
      print(ok, rawequal(err, object))
    ]]):format(case[1]), "^keywatch: a task has failed: " .. case[2], "\nfalse\ttrue\n$")
  end

  matches("with nothing is a failure too", [[
    print(keywatch.spawn(error):join())
    fail()
  ]], "^false\tnil\nkeywatch: a task has failed: nil\n")

  matches("by an unchecked error of keywatch is reported with its text", [[
    local store = keywatch.open()
    local w = store:watch("a")
    keywatch.spawn(function() for _ in w:events() do end end)
    keywatch.sleep(0)
    store:close()
    for _ = 1, 2 do keywatch.sleep(0) end
  ]], "^keywatch: a task has failed: keywatch: the store is closed %(closed%)\n")

  matches("together with the function of run is reported, while run raises, and does not affect the next run", [[
    attempt(function()
      fail("the other", 0)
      error("the main one", 0)
    end)
    attempt(function() return "well" end)
  ]], "^keywatch: a task has failed: the other\n", "\nfalse\tthe main one\ntrue\twell\n$")

  it("just when its joiner was cancelled is reported", function()
    local printed = run [[
      print(pcall(keywatch.run, function()
        local gate = keywatch.spawn(keywatch.sleep, 0.001)
        local joiner, failing
        keywatch.spawn(function() gate:join() joiner:cancel() end) -- before the next one continues
        failing = keywatch.spawn(function() gate:join() error("on purpose", 0) end)
        joiner = keywatch.spawn(function() failing:join() end)
        joiner:join()
        keywatch.sleep(0)
        print(joiner, failing)
      end))
    ]]
    assert.equal(1, count(printed, "a task has failed: on purpose"))
    assert.matches("\nkeywatch.task<failed>\tkeywatch.task<failed>\nfalse\ton purpose\n$", printed)
  end)

  it("just when its joiner timed out is reported, or returned to the joiner", function()
    local printed = run [[
      print(pcall(keywatch.run, function()
        local failing = keywatch.spawn(function() keywatch.sleep(0.01) error("on purpose", 0) end)
        keywatch.sleep(0)
        local joiner = keywatch.spawn(function()
          local ok, err = failing:join(0.02)
          if ok == false then print("told: " .. err) end
        end)
        keywatch.sleep(0)
        local late = keywatch.now() + 0.05
        repeat until keywatch.now() > late -- both are due now
        keywatch.sleep(0)
        keywatch.sleep(0)
      end))
    ]]
    assert.equal(1, count(printed, "a task has failed: on purpose") + count(printed, "told: on purpose"))
  end)

  it("inside of a coroutine of the task has a traceback", function()
    local printed = run [[
      keywatch.spawn(function()
        coroutine.wrap(function() error("deep inside") end)()
      end)
      keywatch.sleep(0)
    ]]
    assert.matches("deep inside\nstack traceback:\n", printed)
  end)

  it("does not affect other tasks", function()
    local printed = run [[
      local store = keywatch.open()
      local w = store:watch("a")
      local reader = keywatch.spawn(function() return w:next().value end)
      for i = 1, 3 do keywatch.spawn(function() keywatch.sleep(0) error("on purpose", 0) end) end
      keywatch.spawn(function() keywatch.sleep(0.001) store:put("a", "well") end)
      print(reader:join())
    ]]
    assert.equal(3, count(printed, "a task has failed: on purpose"))
    assert.matches("true\twell\n$", printed)
  end)

  it("while every other task waits is reported in addition to the deadlock", function()
    local printed = run [[
      local w = keywatch.open { now = 0 }:watch("a")
      print(pcall(keywatch.run, function()
        keywatch.spawn(error, "on purpose", 0)
        w:next()
      end))
    ]]
    assert.equal(1, count(printed, "a task has failed: on purpose"))
    assert.matches("false\t[^\n]*: keywatch: deadlock: every task is waiting", printed)
  end)
end)

describe("a task that fails with an error of keywatch", function()
  -- A program that fails in `innermost`, with an error of keywatch.
  local FAILING = [[
    local store = keywatch.open()
    store:put("a", "1")
    store:compact(2)
    local _, refused = store:range("a", { revision = 1 })
    local function innermost() keywatch.sleep(0) error(refused) end
  ]]

  local TEXT = "etcdserver: mvcc: required revision has been compacted %(compacted%)"

  it("returns that object from join and run, with the traceback of the task and otherwise unchanged", function()
    local printed = run(FAILING .. [[
      local function fail() innermost() end
      for _, try in ipairs { function() return keywatch.spawn(fail):join() end,
        function() return pcall(keywatch.run, fail) end } do
        refused.traceback = nil
        local before = {}
        for name, value in pairs(refused) do before[name] = value end
        local ok, err = try()
        print(ok, rawequal(err, refused), err.traceback:find("innermost") ~= nil)
        for name, value in pairs(err) do assert(before[name] == value or name == "traceback") end
      end
    ]])
    assert.equal(("false\ttrue\ttrue\n"):rep(2), printed)
  end)

  it("prints the traceback if run is not called by pcall", function()
    local printed = run(FAILING .. "keywatch.run(function() innermost() end)", 1)
    assert.matches(TEXT .. "\nstack traceback:\n", printed)
    assert.equal(1, count(printed, "innermost"))
  end)

  it("and is not joined is reported with one traceback, and then raised with it", function()
    local printed = run(FAILING .. [[
      local ok, err = pcall(keywatch.run, function()
        keywatch.spawn(function() innermost() end)
        keywatch.sleep(0.001)
      end)
      print("raised", ok, rawequal(err, refused), err)
    ]])
    local written, raised = printed:match("^(.*)raised\tfalse\ttrue\t(.*)$")
    for _, text in ipairs { written, raised } do
      assert.matches(TEXT .. "\nstack traceback:\n", text)
      assert.same({ 1, 1 }, { count(text, "stack traceback"), count(text, "innermost") })
    end
  end)

  it("keeps the first traceback when another task raises the same error", function()
    local printed = run(FAILING .. [[
      local function outermost()
        local _, err = keywatch.spawn(function() innermost() end):join()
        error(err, 0)
      end
      local ok, err = pcall(keywatch.run, function() outermost() end)
      print(ok, err.traceback)
    ]])
    assert.same({ 1, 0 }, { count(printed, "innermost"), count(printed, "outermost") })
  end)

  prints("has no traceback if its code never ran", "false\tcancelled\tnil\n", [[
    local task = keywatch.spawn(function() end)
    task:cancel()
    local ok, err = task:join()
    print(ok, err.code, err.traceback)
  ]])
end)

describe("a task that fails with a table of the program's own", function()
  prints("keeps that table as it is", ("true\ttrue\n"):rep(3), [[
    local frozen = setmetatable({}, { __newindex = function() error("it was changed") end })
    for _, object in ipairs { {}, { code = "closed", message = "mine" }, frozen } do
      local before = {}
      for name, value in pairs(object) do before[name] = value end
      local _, joined = keywatch.spawn(error, object):join()
      local _, raised = pcall(keywatch.run, error, object)
      print(rawequal(joined, object), rawequal(raised, object))
      for name in pairs(object) do assert(before[name], name) end
    end
  ]])
end)
