--- The log: levels, loggers, handlers, and bytes that must not get into it.

local controller = require "keywatch.controller"
local errors = require "keywatch.support.errors"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local testing = require "keywatch.testing"

local within = require "spec.support.within"

--- A finalizer that Lua calls while the stack is full fails, and what it has to close is lost: fn runs without any.
local function without_collection(fn)
  return function()
    collectgarbage()
    collectgarbage("stop")
    local ok, err = pcall(fn)
    collectgarbage("restart")
    if not ok then error(err, 0) end
  end
end

local written -- to stderr

--- For the calling block of tests: `written` has the output to stderr.
local function with_stderr()
  local stderr

  before_each(function()
    written, stderr = "", io.stderr
    rawset(io, "stderr", { write = function(_, ...) written = written .. table.concat { ... } end })
  end)

  after_each(function()
    rawset(io, "stderr", stderr)
    keywatch.log { level = "info", handler = false }
  end)
end

describe("the log", function()
  with_stderr()

  local STAMP = "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ "

  it("writes lines with time and level, from its level on", function()
    log.debug("not %s", "this")
    log.info("this %d", 1)
    assert.matches(STAMP .. "info this 1\n$", written)
    assert.is_true(log.set_level("debug"))
    assert.is_true(log.has("debug"))
    assert.is_false(log.set_level("loud"))
    written = ""
    log.debug("100 %")
    assert.matches(STAMP .. "debug 100 %%\n$", written)
  end)

  it("escapes control bytes, and indents further lines", function()
    log.warn("%s", "a\0b\27[2Jc\r\n2026-01-01T00:00:00.000Z info forged\tx\127\194\155y \195\188")
    assert.matches(STAMP .. "warn a\\x00b\\x1b%[2Jc\\x0d\n    2026[^\n]* info forged\tx\\x7f\\xc2\\x9by \195\188\n$",
      written)
  end)

  it("quotes a peer's text, on one line, in printable ASCII", function()
    assert.equal('"/a b"', log.quote("/a b"))
    assert.equal([["\"\\x\x0a\x00\xff\xc3\xbc"]], log.quote('"\\x\n\0\255\195\188'))
  end)

  it("has loggers with their own level and destination", function()
    local lines = {}
    local logger = log.new("warn", function(level, text) table.insert(lines, level .. " " .. text) end)
    logger.info("no")
    logger.warn("a\rb %d %s", 1, "%d")
    assert.same({ "warn a\\x0db 1 %d" }, lines)
    assert.equal("", written)
    assert.is_false(logger.has("info"))
    logger = log.new()
    logger.info("as the program")
    logger.debug("has it")
    assert.matches(STAMP .. "info as the program\n$", written)
  end)

  it("continues when a destination raises, and logs that", function()
    log.new("info", function() error("a slip") end).error("x")
    assert.matches(STAMP .. "error the function for log lines has failed: [^\n]*a slip\n[^\n]* error x\n$", written)
  end)

  it("continues when a destination raises a value that cannot be printed", function()
    local unprintable = setmetatable({}, { __tostring = function() error("a slip") end })
    log.new("info", function() error(unprintable, 0) end).error("x")
    assert.matches(STAMP .. "error the function for log lines has failed: an error that cannot be printed\n[^\n]* x\n$",
      written)
  end)
end)

describe("the handler of keywatch.log", function()
  local lines

  with_stderr()
  before_each(function() lines = {} end)

  local function keep(level, text, fields) lines[#lines + 1] = { level, text, fields } end

  it("gets every line from its level on, with fields, and nothing is written to stderr", function()
    keywatch.log { level = "warn", handler = keep }
    log.info("no")
    log.warn({ key = "a" }, "one %s", "text\0")
    log.error("two")
    log.new("error").error("of a server")
    keywatch.spawn(error, "of a task")
    pcall(keywatch.run, function() keywatch.sleep(0) end)
    assert.equal("", written)
    assert.same({ "warn", "one text\\x00", "a", "number" },
      { lines[1][1], lines[1][2], lines[1][3].key, type(lines[1][3].time) })
    assert.same({ "two", "of a server" }, { lines[2][2], lines[3][2] })
    assert.matches("^a task has failed: of a task\n", lines[4][2])
    keywatch.log { handler = false }
    log.warn("at the end")
    assert.matches("warn at the end\n$", written)
    assert.equal(4, #lines)
  end)

  for fault, case in pairs {
    ["raises"] = { function() error("a slip", 0) end, "has failed: a slip" },
    ["raises nil"] = { function() error(nil) end, "has failed: nil" },
    ["yields"] = { function() (coroutine.yield)() end, "has waited, which it must not" },
    ["waits"] = { function() keywatch.sleep(1) end, "has failed: .*sleep waits" },
    ["overflows the stack"] = { function()
      local function f() return 1 + f() end
      f()
    end, "has failed: .*stack overflow" },
  } do
    it("does no harm if it " .. fault .. ": the line goes to stderr, with the reason", without_collection(function()
      keywatch.log { handler = case[1] }
      log.warn("x")
      assert.matches("error the function for log lines " .. case[2], written)
      assert.matches("warn x\n$", written)
      written = ""
      keywatch.run(function() log.warn("y") end)
      assert.matches("error the function for log lines .*warn y\n$", written)
    end))
  end

  it("may log and call keywatch: its own lines go to stderr", function()
    local store = keywatch.open()
    keywatch.log { handler = function(level, text)
      keep(level, text)
      store:put("a", text)
      log.error("inside %s", text)
      log.new("info", keep).warn("by another logger")
    end }
    log.warn("x")
    assert.same({ { "warn", "x" } }, lines)
    assert.equal("x", store:get("a").value)
    assert.matches("error inside x\n.*warn by another logger\n$", written)
  end)

  it("gets the lines that a function on_log could not take", function()
    keywatch.log { handler = keep }
    log.new("info", function() error("a slip", 0) end).warn("x")
    assert.same({ "the function for log lines has failed: a slip", "x" }, { lines[1][2], lines[2][2] })
    assert.equal("", written)
  end)

  it("is checked like any option", function()
    for words, opts in pairs {
      ["option 'level' must be debug"] = { level = "loud" }, ["there is no option 'handle'"] = { handle = keep },
      ["option 'handler' must be a function or false"] = { handler = "x" },
    } do
      assert.error_matches(function() keywatch.log(opts) end, words)
    end
  end)

  it("has the time of a world, which keeps the lines", function()
    keywatch.log { handler = keep }
    testing.run(function(world)
      keywatch.sleep(5)
      log.warn({ key = "a" }, "x")
      assert.same({ { time = 5, level = "warn", text = "x", fields = { key = "a" } } }, world.log)
      keywatch.log { handler = false }
      for _ = 1, 1000 do log.warn("y") end
      assert.same({ 1000, "y" }, { #world.log, world.log[1].text })
    end)
    assert.same({ { "warn", "x", { time = 5, key = "a" } } }, lines)
    assert.equal("", written)
  end)
end)

describe("a reconcile that fails again and again", function()
  it("is logged with its traceback once, and then with a count", within.world(function(world)
    local left = 4
    local requests = keywatch.channel(1)
    local one = controller.new { name = "c", sources = { requests }, reconcile = function(key)
      left = left - 1
      if left > 0 then error(("failure %d of %s"):format(left, key), 0) end
    end }
    requests:send("/a/1")
    one:start()
    while left > 0 do keywatch.sleep(1) end
    one:stop()
    local texts = {}
    for _, line in ipairs(world.log) do
      if line.level == "error" then texts[#texts + 1] = line.text end
      assert.same({ controller = "c", request = "/a/1" }, line.fields)
    end
    assert.equal(3, #texts)
    assert.matches("failure 3 of /a/1\n%s+stack traceback:", texts[1])
    assert.matches("failure 2 of /a/1 %(failure 2 with a traceback that was logged%)$", texts[2])
    assert.matches("failure 1 of /a/1 %(failure 3 with a traceback that was logged%)$", texts[3])
  end))
end)

describe("a function of the program that fails again and again", function()
  --- Returns the texts of the errors that a world has in its log.
  local function errors_of(world)
    local texts = {}
    for _, line in ipairs(world.log) do
      if line.level == "error" then texts[#texts + 1] = line.text end
    end
    return texts
  end

  --- Returns the error of a task that was cancelled, which has the traceback of that task.
  local function foreign_cancellation()
    local task = keywatch.spawn(keywatch.sleep, 100)
    keywatch.sleep(0)
    task:cancel()
    return select(2, task:join())
  end

  local WAYS = {
    ["a handler"] = function(client, fail)
      local informer = assert(client:informer("/a/"))
      informer:add_handler { add = fail }
    end,
    ["a reconcile that raises"] = function(client, fail)
      controller.new { name = "c", sources = { client:informer("/a/") }, reconcile = fail }:start()
    end,
    ["a reconcile that returns an error"] = function(client, fail)
      controller.new { name = "c", sources = { client:informer("/a/") }, reconcile = function()
        return nil, select(2, pcall(fail))
      end }:start()
    end,
    ["on_error of an object watch"] = function(client, fail)
      local w = assert(client:object_watch("/a/", {
        prefix = true, initial = true, on_bad_value = "skip", on_error = fail,
        codec = { decode = function() return nil, "bad" end },
      }))
      keywatch.spawn(w.next, w)
    end,
    ["on_change of a table"] = function(client, fail) assert(client:cache("/a/")):table { on_change = fail } end,
    ["on_call"] = function(client, fail)
      local other = keywatch.connect(client:state().endpoint, { on_call = fail })
      for _ = 1, 2 do other:get("a") end
      other:close()
    end,
  }

  for name, begin in pairs(WAYS) do
    it(("has one traceback in the log though its error has one of its own: %s"):format(name), function()
      testing.run(function(world)
        local client, err = world:client(), foreign_cancellation()
        for _, key in ipairs { "/a/1", "/a/2" } do client:put(key, "x") end
        begin(client, function() error(err, 0) end)
        keywatch.sleep(0.01)
        local texts = errors_of(world)
        assert.matches("keywatch: cancelled %(cancelled%)\n.*stack traceback:", texts[1])
        assert.matches("keywatch: cancelled %(cancelled%) %(failure 2 with a traceback that was logged%)$", texts[2])
      end)
    end)
  end

  it("is logged with the fields of its error, if that is a plain table", within.world(function(world)
    local client, fields = world:client(), { status = 404, reason = "not\0found", of = {}, [1] = "one" }
    client:put("/a/1", "x")
    WAYS["a handler"](client, function() error(fields) end)
    keywatch.sleep(1)
    for i = 1, 1000 do fields["f" .. i] = i end
    fields.long = ("x"):rep(100000)
    client:put("/a/2", "x")
    keywatch.sleep(1)
    local texts = errors_of(world)
    assert.matches("failed: { %[1%] = 'one', of = a table, reason = 'not\\x00found', status = 404 }\n", texts[1])
    assert.is_true(#texts[2] < 2000)
  end))
end)

describe("a client whose server cannot be reached", function()
  it("warns once that watches and informers wait, and reports the server's return", within.world(function(world)
    local client = world:client()
    world.server:stop()
    local informer = assert(client:informer("/a/"))
    local manager = controller.manager { store = client, sync_timeout = 1000 }
    manager:add(client:informer("/b/"))
    manager:start()
    keywatch.sleep(9)
    assert.same({}, world.log)
    keywatch.sleep(110)
    assert.equal(1, #world.log)
    assert.same({ "warn", world.server.url }, { world.log[1].level, world.log[1].fields.endpoint })
    assert.matches("^the watches of a client have waited for a server for 1%d seconds: .*connection refused$",
      world.log[1].text)
    world.server:start()
    assert(informer:wait_synced())
    keywatch.sleep(1)
    assert.matches("^a client is connected again, after %d+ seconds$", world.log[2].text)
    assert(manager:stop())
    informer:close()
    client:close()
  end))
end)

describe("a stack overflow", function()
  it("is reported, however large the frames are, also if the message handler overflows", without_collection(function()
    for n = 0, 6 do
      local list = ("a,"):rep(n) .. "a"
      local overflow = load(("local function f(%s) return 1 + f(%s) end return f"):format(list, list))()
      local _, raised = errors.attempt(overflow)
      assert.matches("^[^\n]*stack overflow", raised.traceback)
    end
  end))
end)

describe("middleware", function()
  local lines, store, server, client

  before_each(function()
    lines, store = {}, keywatch.open()
    server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0", on_log = function(_, text)
      lines[#lines + 1] = text
    end })
    client = keywatch.connect(server:addresses()[1])
  end)

  after_each(function()
    client:close()
    server:close()
    store:close()
  end)

  it("whose `after` is cancelled is not logged, and the others are called", function()
    local calls = {}
    server:use { after = function()
      calls[#calls + 1] = "waits"
      keywatch.sleep(1000)
    end }
    server:use { after = function() calls[#calls + 1] = "is called" end }
    keywatch.run(function()
      client:get("a")
      while not calls[1] do keywatch.sleep(0) end
    end)
    assert.same({ { "waits", "is called" }, {} }, { calls, lines })
  end)

  it("whose `after` overflows the stack is logged as that", without_collection(function()
    local function over() return 1 + over() end
    server:use { after = over }
    client:get("a")
    while not lines[1] do keywatch.sleep(0) end
    assert.matches("^after /etcdserverpb.KV/Range: .*stack overflow", lines[1])
  end))
end)
