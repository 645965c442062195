--- Ctrl-C while the program waits: the handler of Lua's interpreter is called, and its error is raised out of the wait.

local files = require "spec.support.files"
local luv = require "spec.support.luv"

local process = require "spec.support.process"
local vm = require "spec.support.vm"

-- The numbers of the system calls in which a wait is spent: epoll_pwait, or epoll_wait, at first, and ppoll in the end.
local CALLS = {
  aarch64 = { beginning = { ["22"] = true, ["73"] = true }, long = { ["73"] = true } },
  x86_64 = { beginning = { ["232"] = true, ["281"] = true, ["271"] = true }, long = { ["271"] = true } },
}

local BEFORE = [[
  io.stdout:setvbuf("no")
  local keywatch = require "keywatch"
  local is_interrupted = function(err) return (tostring(err):match("interrupted!$")) end
  local function is_in(mask)
    for line in io.lines("/proc/self/status") do
      local digits = line:match("^" .. mask .. ":%s*(%x+)")
      if digits then return math.floor(tonumber(digits:sub(-1), 16) / 2) % 2 == 1 end
    end
  end
]]

local function start(text, env)
  return process.start({ vm.interpreter, "-e", BEFORE .. text }, { env = vm.environment(env) })
end

--- Expects that a process ends well, and has printed so much.
local function expect_end(child, printed)
  assert.equal(0, child:wait())
  assert.equal(printed, child:stdout())
end

--- Waits until a process is in one of these system calls.
local function await_call(child, which)
  local calls = assert(CALLS[luv.os_uname().machine], "which numbers have these system calls on this machine?")
  for _ = 1, 10000 do
    if calls[which][files.read(("/proc/%d/syscall"):format(child.pid)):match("^%d+")] then return end
    luv.sleep(5)
  end
  error("it does not wait: " .. child:transcript())
end

--- Waits until a process waits.
local function await_wait(child) await_call(child, "beginning") end

--- Waits until a process has waited for so long that a signal ends its wait at once.
local function await_long_wait(child) await_call(child, "long") end

--- Interrupts a process after it has printed a word, and a long wait.
local function interrupt(child, word)
  child:expect(word or "waiting\n")
  await_long_wait(child)
  child:signal("sigint")
end

-- Each waits at top level, and is given to pcall.
local WAITS = {
  ["sleep"] = "local function wait() keywatch.sleep(1000) end",
  ["a request to a server that does not answer"] = [[
    local client = keywatch.connect(os.getenv("SILENT"))
    local function wait() return client:get("a", { timeout = 1000 }) end
  ]],
  ["the next event of a watch"] = [[
    local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
    local client = keywatch.connect(server:addresses()[1])
    local w = client:watch("a")
    local function wait() return w:next() end
  ]],
  ["join, while other tasks run"] = [[
    keywatch.spawn(function() while true do keywatch.sleep(0.2) end end)
    local function wait() keywatch.spawn(keywatch.sleep, 1000):join() end
  ]],
  ["signals of other names"] = [[
    local signals = keywatch.signals { "TERM" }
    local function wait() signals:wait() end
  ]],
}

local WAIT = [[
  print(is_in "SigCgt", is_in "SigIgn")
  local ok, err = pcall(function()
    print "waiting"
    wait()
  end)
  print(ok, is_interrupted(err) or err)
  print(is_in "SigCgt")
  print(pcall(keywatch.sleep, 0.001))
  print(keywatch.run(function() keywatch.sleep(0.001) return "ran" end))
  print "waiting again"
  wait()
]]

describe("Ctrl-C", function()
  local silent

  before_each(function()
    silent = luv.new_tcp() -- accepts connections, and never sends a byte
    assert(silent:bind("127.0.0.1", 0))
    assert(silent:listen(16, function() end))
  end)

  after_each(function()
    silent:close()
    luv.run("nowait")
    process.end_all()
  end)

  local function url() return "http://127.0.0.1:" .. silent:getsockname().port end

  for name, text in pairs(WAITS) do
    for moment, await in pairs { ["at its beginning"] = await_wait, ["when it has lasted long"] = await_long_wait } do
      it(("ends %s %s; the interpreter's own default ends the process the next time"):format(name, moment), function()
        local child = start(text .. WAIT, { SILENT = url() })
        child:expect("^true\tfalse\nwaiting\n")
        await(child)
        child:signal("sigint")
        -- the interpreters set the default inside of their handlers
        child:expect("^false\tinterrupted!\nfalse\ntrue\nran\nwaiting again\n")
        await(child)
        child:signal("sigint")
        assert.equal(128 + 2, child:wait())
      end)
    end
  end

  it("is raised at the line that waits", function()
    local child = start [[
      local text = "local keywatch = ...\nprint 'waiting'\nkeywatch.sleep(1000)"
      print(pcall(assert((loadstring or load)(text, "@the program")), keywatch))
    ]]
    interrupt(child)
    expect_end(child, "waiting\nfalse\tthe program:3: interrupted!\n")
  end)

  it("is raised there, whatever code of keywatch it interrupts", function()
    for _, folder in ipairs { "driver", "task", "watch" } do
      local child = start(([[
        if jit then jit.off() end -- compiled code calls no hooks
        local text = "local wait = ...\nwait(1000)"
        local main = coroutine.running()
        local function interrupt() -- as the interpreters do: in a hook, at the line that runs
          local info = debug.getinfo(2, "S")
          if not info or not info.source:find("/keywatch/%s/", 1, true) then return end
          debug.sethook(main)
          debug.sethook()
          error("interrupted!", 2)
        end
        keywatch.spawn(function()
          local store = keywatch.open()
          local w = store:watch("a")
          keywatch.spawn(function() while true do w:next() end end)
          if main then debug.sethook(main, interrupt, "l") else debug.sethook(interrupt, "l") end
          while true do
            keywatch.sleep(0)
            store:put("a", "1")
          end
        end)
        print(pcall(assert((loadstring or load)(text, "@the program")), keywatch.sleep))
        os.exit(0, false)
      ]]):format(folder))
      assert.equal(0, child:wait())
      assert.equal(folder .. ": false\tthe program:2: interrupted!\n", folder .. ": " .. child:stdout())
    end
  end)

  it("ends a run: its tasks are cancelled and clean up, and then run raises", function()
    local child = start [[
      local ok, err = pcall(keywatch.run, function()
        keywatch.spawn(function()
          local _, why = pcall(keywatch.sleep, 1000)
          print("task", why.code)
        end)
        print "waiting"
        local _, why = pcall(keywatch.sleep, 1000)
        print("main", why.code)
      end)
      print(ok, is_interrupted(err))
      print(keywatch.run(function() keywatch.sleep(0.001) return "ran" end))
    ]]
    interrupt(child)
    expect_end(child, "waiting\nmain\tcancelled\ntask\tcancelled\nfalse\tinterrupted!\nran\n")
  end)

  it("ends the wait at top level while tasks run, and no task is lost", function()
    local child = start [[
      local function work()
        while true do
          for i = 1, 1000 do tostring(i) end
          keywatch.sleep(0)
        end
      end
      local ended = 0
      local ok, err = pcall(keywatch.run, function()
        for _ = 1, 10 do
          keywatch.spawn(function()
            local _, why = pcall(work)
            ended = ended + 1
            error(why, 0)
          end)
        end
        keywatch.sleep(0.01)
        print "waiting"
        keywatch.sleep(1000)
      end)
      print(ok, is_interrupted(err), ended)
      print(pcall(keywatch.sleep, 0.001))
    ]]
    child:expect("waiting\n")
    child:signal("sigint")
    assert.same({ 0, "" }, { child:wait(), (child:stderr()) })
    assert.matches("^waiting\nfalse\tinterrupted!\t%d+\ntrue\n$", child:stdout())
    assert.equal("10", child:stdout():match("!\t(%d+)"))
  end)

  it("ends the program in order if it is not caught: to-be-closed variables are closed, finalizers run", function()
    local child = start [[
      local compat = require "keywatch.support.compat"
      kept = compat.sentinel(function() print "finalized" end)
      local text = "print 'waiting' keywatch.sleep(1000)"
      if not jit then
        text = "local one <close> = setmetatable({}, { __close = function() print 'closed' end }) " .. text
      end
      local chunk = assert((loadstring or load)("local keywatch = ... " .. text))
      print(is_interrupted(select(2, pcall(chunk, keywatch))))
      print "waiting again"
    ]]
    interrupt(child)
    child:expect("waiting again\n")
    assert.equal(0, child:wait())
    local closed = vm.interpreter == "luajit" and "" or "closed\n"
    assert.equal("waiting\n" .. closed .. "interrupted!\nwaiting again\nfinalized\n", child:stdout())
    child = start "print 'waiting' keywatch.sleep(1000)"
    interrupt(child)
    assert.equal(1, child:wait())
    assert.matches("interrupted!", child:stderr())
  end)

  it("leaves no incomplete request when it ends one: the client continues", function()
    local child = start([[
      local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
      local silent = keywatch.connect(os.getenv("SILENT"))
      local client = keywatch.connect(server:addresses()[1])
      client:put("a", "1")
      print(is_interrupted(select(2, pcall(function()
        print "waiting"
        silent:get("a", { timeout = 1000 })
      end))))
      print(client:get("a").value, silent:get("a", { timeout = 0.01 }))
      silent:close()
      client:close()
      print(server:close())
    ]], { SILENT = url() })
    interrupt(child)
    assert.equal(0, child:wait())
    assert.matches("^waiting\ninterrupted!\n1\tnil\t[^\n]+\ntrue\n$", child:stdout())
  end)

  it("is delivered to signals objects, and to the interpreter again once they are closed", function()
    local child = start [[
      local signals = keywatch.signals { "INT" }
      print "waiting"
      print(signals:wait())
      signals:close()
      local ok, err = pcall(function()
        print "waiting again"
        keywatch.sleep(1000)
      end)
      print(ok, is_interrupted(err))
    ]]
    interrupt(child)
    child:expect("INT\nwaiting again\n")
    interrupt(child, "")
    child:expect("false\tinterrupted!\n")
    assert.equal(0, child:wait())
  end)

  it("has no effect if the program ignores it", function()
    local child = start [[
      package.loadlib("build/fault.so", "kw_fault_ignore_interrupts")()
      print "waiting"
      keywatch.signals({ "HUP" }):wait()
      print(is_in "SigCgt", is_in "SigIgn")
    ]]
    child:expect("waiting\n")
    for _, await in ipairs { await_wait, await_long_wait } do
      await(child)
      child:signal("sigint")
    end
    child:signal("sighup")
    expect_end(child, "waiting\nfalse\ttrue\n")
  end)

  it("calls the program's own handler, which stays, and a wait that it does not end continues", function()
    local child = start [[
      package.loadlib("build/fault.so", "kw_fault_handle_interrupts")()
      print "waiting"
      keywatch.signals({ "HUP" }):wait()
      print(is_in "SigCgt", is_in "SigIgn")
    ]]
    child:expect("waiting\n")
    for _, await in ipairs { await_wait, await_long_wait, await_long_wait } do
      await(child)
      child:signal("sigint")
      child:expect("^handled\n")
    end
    child:signal("sighup")
    expect_end(child, "waiting\n" .. ("handled\n"):rep(3) .. "true\tfalse\n")
  end)

  it("lets a debug hook run while the program waits", function()
    local child = start [[
      local n = 0
      debug.sethook(function() n = n + 1 end, "", 1000000)
      keywatch.sleep(0.2)
      print(keywatch.run(function() keywatch.sleep(0.1) return "ran" end))
    ]]
    expect_end(child, "ran\n")
  end)
end)
