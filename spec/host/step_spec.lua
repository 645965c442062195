--- Another event loop turns keywatch's: by its descriptor, its timeout, and steps.

local program = require "spec.support.program"
local virtual = require "keywatch.driver.virtual"

-- A loop that serves only keywatch. `poll` uses luv's loop, which is not turned otherwise: keywatch.driver "uv" keeps
-- keywatch out of luv's loop.
local BEGIN = [[
  local uv = require "luv"
  local keywatch = require "keywatch"
  keywatch.driver "uv"
  local function poll(seconds)
    local poll, timer, came = uv.new_poll(keywatch.fd()), uv.new_timer(), nil
    poll:start("r", function() came = "readable" end)
    if seconds then
      timer:start(math.ceil(seconds * 1000), 0, function() poll:stop() came = came or "timeout" end)
    end
    while not came do uv.run("once") end
    poll:close() timer:close() uv.run("nowait")
    return came
  end
  local function turn_until(task)
    while not tostring(task):find("done") do
      local seconds = keywatch.timeout()
      if seconds ~= 0 then poll(seconds) end
      keywatch.step()
    end
    return select(2, assert(task:join()))
  end
]]

local expect = program.expecting(BEGIN)

describe("a loop of the program", function()
  it("runs tasks that sleep", function()
    expect("1\n", [[
      local task = keywatch.spawn(function() keywatch.sleep(0.01) keywatch.sleep(0.01) return 1 end)
      print(turn_until(task))
    ]])
  end)

  it("serves, requests and watches", function()
    expect("2\n", [[
      local store = keywatch.open()
      local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
      local client = keywatch.connect(server:addresses()[1])
      print(turn_until(keywatch.spawn(function()
        local w = assert(client:watch("a"))
        client:put("a", "1")
        keywatch.spawn(function() client:put("a", "2") end)
        return w:next() and w:next().value
      end)))
    ]])
  end)

  it("waits for the disk of a durable store", function()
    expect("2\n", [[
      local path = os.tmpname()
      os.remove(path)
      local store = assert(keywatch.open { path = path })
      print(turn_until(keywatch.spawn(function() return store:put("a", "1").revision end)))
      store:close()
      os.execute("rm -r " .. path)
    ]])
  end)

  it("looks a name up", function()
    expect("2\n", [[
      local server = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
      local client = keywatch.connect((server:addresses()[1]:gsub("127.0.0.1", "localhost")))
      print(turn_until(keywatch.spawn(function() return client:put("a", "1").revision end)))
    ]])
  end)

  it("is woken only by the descriptor for outside events", function()
    expect("open\nreadable\n1\n", [[
      local server = assert(keywatch.serve { listen = "http://127.0.0.1:0", thread = true })
      local url = server:addresses()[1]
      local client = keywatch.connect(url)
      local is_open = false
      local task = keywatch.spawn(function()
        local w = assert(client:watch("a"))
        is_open = true
        return w:next().value
      end)
      while not is_open do poll(keywatch.timeout()) keywatch.step() end
      print "open"
      while poll(0.01) == "readable" do keywatch.step() end
      local writer = io.popen("exec etcdctl --endpoints " .. url:match("//(.*)") .. " put a 1", "r")
      print(poll())
      print(turn_until(task))
      writer:close()
    ]])
  end)

  it("may block without limit if there is nothing to do, and not at all if a task is ready", function()
    expect("nil\n0\nnil\ntrue\nnil\n", [[
      keywatch.step()
      print(keywatch.timeout())
      keywatch.spawn(function() end)
      print(keywatch.timeout())
      keywatch.step()
      print(keywatch.timeout())
      local task = keywatch.spawn(function() keywatch.sleep(1000) end)
      keywatch.step()
      local seconds = keywatch.timeout()
      print(seconds > 900 and seconds <= 1000)
      task:cancel()
      keywatch.step()
      print(keywatch.timeout())
    ]])
  end)

  it("must not block when the program has changed a store that a task watches", function()
    expect("nil\n0\n1\n", [[
      local store = keywatch.open()
      local task = keywatch.spawn(function() return store:watch("a"):next().value end)
      keywatch.step()
      print(keywatch.timeout())
      store:put("a", "1")
      print(keywatch.timeout())
      print(turn_until(task))
    ]])
  end)

  it("must not block when the program has changed a store that is served", function()
    expect("true\nevent\n", [[
      local store = keywatch.open()
      local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
      local client = keywatch.connect(server:addresses()[1])
      local is_open = false
      local task = keywatch.spawn(function()
        local w = assert(client:watch("a"))
        is_open = true
        return w:next() and "event"
      end)
      while not is_open do poll(keywatch.timeout()) keywatch.step() end
      for _ = 1, 3 do keywatch.step() end
      store:put("a", "1")
      print(keywatch.timeout() == 0)
      print(turn_until(task))
    ]])
  end)

  it("is not turned inside of a task, nor by a finalizer", function()
    local status, printed = program.run [[
      local keywatch = require "keywatch"
      keywatch.run(function()
        for _, name in ipairs { "step", "timeout" } do
          print((select(2, pcall(function() keywatch[name]() end)):gsub("^.-:%d+: ", "")))
        end
      end)
    ]]
    local text = "%s: the loop turns already: only another event loop, outside of tasks, may call this\n"
    assert.same({ 0, text:format("step") .. text:format("timeout") }, { status, printed })
  end)

  it("continues after a task has failed, and gets the failure once", function()
    local printed = program.printed_by [[
      local keywatch = require "keywatch"
      keywatch.spawn(function() error "oh" end)
      keywatch.step()
      print "stepped"
      keywatch.run(function() end)
      print "run"
    ]]
    assert.matches("a task has failed: [^\n]*oh\n.*stepped\nrun\n$", printed)
  end)

  it("may be cqueues", function()
    expect("1\n", [[
      local cqueues = require "cqueues"
      local store = keywatch.open()
      local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
      local client = keywatch.connect(server:addresses()[1])
      local loop, is_over = cqueues.new(), false
      loop:wrap(function()
        while not is_over do
          cqueues.poll(keywatch)
          keywatch.step()
        end
      end)
      local value
      keywatch.spawn(function()
        local w = client:watch("a")
        keywatch.spawn(function() client:put("a", "1") end)
        value = w:next().value
        is_over = true
      end)
      assert(loop:loop())
      print(value)
    ]])
  end)
end)

describe("in virtual time, a step", function()
  it("runs what is ready, and no more", function()
    local driver, list = virtual.new(), {}
    driver.spawn(function()
      table.insert(list, "begins")
      driver.sleep(5)
      table.insert(list, "ends")
    end)
    assert.equal(5, driver.step())
    assert.same({ "begins" }, list)
    assert.equal(5, driver.timeout())
  end)
end)

describe("a spawned task that has never run", function()
  local SPAWN = "local keywatch = require 'keywatch' keywatch.spawn(function() end)\n"

  for name, case in pairs {
    ["is reported at the end of the program"] = { SPAWN,
      "a task was spawned and has never run: keywatch.run turns the loop that runs tasks" },
    ["is counted with others"] = { SPAWN .. "for _ = 1, 2 do keywatch.spawn(function() end) end",
      "3 tasks were spawned and have never run: keywatch.run turns the loop that runs tasks" },
    ["is reported with the note that luv's loop would have run it"] = { "require 'luv' " .. SPAWN,
      "a task was spawned and has never run: uv.run turns luv's loop, which runs tasks" },
    ["is reported with the note that it was spawned before luv was loaded"] = { SPAWN .. "require('luv').run()",
      "a task was spawned and has never run: luv's loop runs only tasks that are spawned after luv was loaded" },
    ["is not reported if the program ends in a task"] = {
      SPAWN .. "keywatch.run(function() keywatch.spawn(function() end) os.exit(0, true) end)",
    },
    ["is not reported if a task has spawned it, as servers do"] = { [[
      local keywatch = require "keywatch"
      keywatch.spawn(function() keywatch.spawn(function() end) end)
      keywatch.sleep(0)
    ]] },
    ["is not reported if it was cancelled, or has begun"] = { [[
      local keywatch = require "keywatch"
      keywatch.spawn(function() end):cancel()
      keywatch.spawn(function() keywatch.sleep(1000) end)
      keywatch.sleep(0)
    ]] },
  } do
    it(name, function()
      assert.same({ 0, case[2] and ("keywatch: %s\n"):format(case[2]) or "" }, { program.run(case[1]) })
    end)
  end
end)
