--- keywatch.signals: objects that catch signals of the process. Every test is a program that signals itself.

local program = require "spec.support.program"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local BEFORE = [[
  local luv = require "luv"
  local compat = require "keywatch.support.compat"
  local function send(name) luv.kill(luv.os_getpid(), "sig" .. name:lower()) end
  local function collect() collectgarbage() collectgarbage() end
  local function shown(name, err) return name, err and err.code end
  local function is_in(mask, number)
    for line in io.lines("/proc/self/status") do
      local digits = line:match("^" .. mask .. ":%s*(%x+)")
      if digits then return math.floor(tonumber(digits:sub(-8), 16) / 2 ^ (number - 1)) % 2 == 1 end
    end
  end
]]

--- Runs a program, and compares its output and its status, which is 0 by default.
local function expect(expected, text, status)
  local found, printed = program.run_forking(BEFORE .. text, 20)
  if status then printed = printed:gsub("Terminated\n$", "") end -- the word of sh
  assert.equal(expected, printed)
  assert.equal(status or 0, found)
end

--- A test of a program.
local function prints(title, ...)
  local arguments = { ... }
  it(title, function() expect(unpack(arguments)) end)
end

describe("signals", function()
  prints("can be selected", "true\tHUP\n", [[
    keywatch.run(function()
      local signals, w = keywatch.signals { "HUP" }, keywatch.open():watch("a")
      keywatch.spawn(function() send "HUP" end)
      local object, name = keywatch.select { w, signals, timeout = 1000 }
      print(object == signals, name)
    end)
  ]])

  prints("are seen by a select that does not wait, at top level and in a task",
    "nil\ttimeout\ntrue\tHUP\nnil\ttimeout\nnil\ttimeout\ntrue\tHUP\nnil\ttimeout\n", [[
    local signals, channel = keywatch.signals { "HUP" }, keywatch.channel()
    local function look()
      local object, name = keywatch.select { channel, signals, timeout = 0 }
      print(object and object == signals, object and name or name.code)
    end
    local function look_thrice()
      look()
      send "HUP"
      look()
      look()
    end
    look_thrice()
    keywatch.run(look_thrice)
  ]])

  prints("can be waited for at top level, by their names with SIG or without", "TERM\tnil\nHUP\tnil\nnil\ttimeout\n", [[
    local signals = keywatch.signals { "TERM", "SIGHUP" }
    keywatch.spawn(function() send "TERM" end)
    print(shown(signals:wait()))
    keywatch.spawn(function() send "HUP" end)
    print(shown(signals:wait(1000)))
    print(shown(signals:wait(0.01)))
  ]])

  prints("can be waited for in a task, while others run", "other\nINT\nHUP\n", [[
    keywatch.run(function()
      local signals = keywatch.signals { "INT", "HUP" }
      local waiter = keywatch.spawn(function()
        print(signals:wait())
        print(signals:wait())
      end)
      keywatch.sleep(0)
      print "other"
      send "INT"
      keywatch.sleep(0.01)
      send "HUP"
      waiter:join()
    end)
  ]])

  prints("may all be caught that are listed", ("true\n"):rep(8), [[
    for _, name in ipairs(require("keywatch.uv").signal_names()) do
      local signals = keywatch.signals { name }
      send(name)
      print(signals:wait() == name)
      signals:close()
    end
  ]])

  prints("are found without waiting", "nil\ttimeout\nUSR1\tnil\nnil\ttimeout\n", [[
    local signals = keywatch.signals { "USR1" }
    print(shown(signals:wait(0)))
    send "USR1"
    print(shown(signals:wait(0)))
    print(shown(signals:wait(-1)))
  ]])

  prints("are given to every object that wants them, once however often they came",
    "INT\tnil\nINT\tnil\nnil\ttimeout\nnil\ttimeout\n", [[
    local a, b = keywatch.signals { "INT" }, keywatch.signals { "TERM", "INT" }
    for _ = 1, 10000 do send "INT" end
    for _ = 1, 2 do
      for _, signals in ipairs { a, b } do print(shown(signals:wait(0.01))) end
    end
  ]])

  prints("are found by a wait whose timeout is over before the loop polls", "INT\tnil\nINT\tnil\n", [[
    local signals = keywatch.signals { "INT" }
    local function keep_busy()
      local ends_at = keywatch.now() + 0.02
      while keywatch.now() < ends_at do end
    end
    keywatch.spawn(keep_busy)
    send "INT"
    print(shown(signals:wait(0.01)))
    keywatch.spawn(keep_busy)
    send "INT"
    print(shown(select(2, keywatch.select { keywatch.channel(), signals, timeout = 0.01 })))
  ]])

  prints("take no more memory with their number", "true\n", [[
    local signals = keywatch.signals { "HUP" }
    local function flood()
      for _ = 1, 5000 do
        send "HUP"
        signals:wait(0)
        send "HUP"
        keywatch.sleep(0)
      end
      collect()
      return collectgarbage("count")
    end
    flood()
    local before = flood()
    print(flood() - before < 10)
  ]])

  prints("wake one of several waiters each", "HUP\nTERM\nnil\tclosed\n", [[
    keywatch.run(function()
      local signals = keywatch.signals { "HUP", "TERM" }
      local tasks = {}
      for i = 1, 3 do tasks[i] = keywatch.spawn(function() return signals:wait() end) end
      keywatch.sleep(0)
      send "HUP"
      keywatch.sleep(0.01)
      send "TERM"
      keywatch.sleep(0.01)
      signals:close()
      local results = {}
      for i = 1, 3 do
        local _, name, err = tasks[i]:join()
        results[i] = name or "nil\t" .. err.code
      end
      table.sort(results)
      print(table.concat(results, "\n"))
    end)
  ]])

  prints("are closed: waiters are woken, and nothing is caught any more",
    "nil\tclosed\nkeywatch: the signals object is closed\nnil\tclosed\nkeywatch.signals<TERM closed>\n", [[
    local signals = keywatch.signals { "TERM" }
    keywatch.spawn(function() signals:close() end)
    print(shown(signals:wait()))
    print((select(2, signals:wait()).message))
    print(shown(signals:wait(0)))
    signals:close()
    print(signals)
    send "TERM"
    keywatch.sleep(1000)
  ]], 128 + 15)

  prints("are closed with their to-be-closed variable", "keywatch.signals<TERM>\n", [[
    local signals = keywatch.signals { "TERM" }
    print(signals)
    getmetatable(signals).__close(signals)
    send "TERM"
    keywatch.sleep(1000)
  ]], 128 + 15)

  prints("have their handler until the last object that wants them is closed", "TERM\n", [[
    local a, b = keywatch.signals { "TERM" }, keywatch.signals { "TERM" }
    a:close()
    send "TERM"
    print(b:wait())
    b:close()
    send "TERM"
    keywatch.sleep(1000)
  ]], 128 + 15)

  prints("are not caught any more once the object was collected, without a turn of the loop", "true\nfalse\n", [[
    keywatch.signals { "TERM" }
    print(is_in("SigCgt", 15))
    collect()
    print(is_in("SigCgt", 15))
    send "TERM"
    keywatch.sleep(1000)
  ]], 128 + 15)

  prints("are not caught for a forgotten task that waits for them", "true\nfalse\n", [[
    io.stderr = { write = function() end } -- a line reports the task
    keywatch.run(function()
      local signals = keywatch.signals { "TERM" }
      keywatch.spawn(function()
        while true do pcall(signals.wait, signals) end
      end)
      keywatch.sleep(0)
    end)
    print(is_in("SigCgt", 15))
    for _ = 1, 3 do
      collect()
      keywatch.sleep(0)
    end
    print(is_in("SigCgt", 15))
  ]])

  prints("that were ignored are ignored again", "false\ttrue\nHUP\nfalse\ttrue\n", [[
    if not os.getenv("IS_CHILD") then
      local path = os.tmpname()
      local file = io.open(path, "w")
      file:write(io.open(arg[0]):read("*a"))
      file:close()
      local interpreter = arg[-1]
      os.execute("trap '' HUP; IS_CHILD=1 " .. interpreter .. " " .. path)
      os.remove(path)
      os.exit(0)
    end
    print(is_in("SigCgt", 1), is_in("SigIgn", 1))
    local signals = keywatch.signals { "HUP" }
    send "HUP"
    print(signals:wait())
    signals:close()
    send "HUP"
    print(is_in("SigCgt", 1), is_in("SigIgn", 1))
  ]])

  prints("are shared with luv, in any order of begin and end",
    "luv\tHUP\nluv\tnil\nluv\tHUP\nnil\tHUP\ntrue\nfalse\n", [[
    local heard
    local function listen()
      local handle = luv.new_signal()
      handle:start("sighup", function() heard = "luv" end)
      return handle
    end
    local function try(signals)
      heard = nil
      send "HUP"
      luv.run("nowait")
      luv.run("nowait")
      print(heard, signals and signals:wait(0) or nil)
    end
    local handle = listen()
    local signals = keywatch.signals { "HUP" }
    try(signals)
    signals:close()
    try()
    handle:stop()
    signals = keywatch.signals { "HUP" }
    handle = listen()
    try(signals)
    handle:stop()
    try(signals)
    print(is_in("SigCgt", 1))
    signals:close()
    print(is_in("SigCgt", 1))
  ]])

  prints("keep the effect that the program has chosen in between", "true\tfalse\nfalse\ttrue\nINT\nhandled\n", [[
    local handle = package.loadlib("build/fault.so", "kw_fault_handle_interrupts")
    local ignore = package.loadlib("build/fault.so", "kw_fault_ignore_interrupts")
    local signals = keywatch.signals { "INT" }
    print(is_in("SigCgt", 2), is_in("SigIgn", 2))
    ignore()
    signals:close()
    print(is_in("SigCgt", 2), is_in("SigIgn", 2))
    local first = keywatch.signals { "INT" }
    handle()
    local second = keywatch.signals { "INT" } -- catches all the same
    send "INT"
    print(second:wait())
    first:close()
    second:close()
    io.stdout:flush()
    send "INT" -- to the handler that the program has chosen last
  ]])

  prints("let the loop wait: there is no deadlock while an object exists", "TERM\nfalse\ttrue\n", [[
    local signals = keywatch.signals { "TERM" }
    local w = keywatch.open():watch("a")
    keywatch.spawn(function()
      print(signals:wait())
      signals:close()
    end)
    keywatch.spawn(function() send "TERM" end)
    local ok, err = pcall(w.next, w)
    print(ok, err:find("deadlock", 1, true) ~= nil)
  ]])

  prints("are cancelled with the task that waits for them, and stay usable", "false\tcancelled\nHUP\n", [[
    keywatch.run(function()
      local signals = keywatch.signals { "HUP" }
      local task = keywatch.spawn(signals.wait, signals)
      keywatch.sleep(0)
      task:cancel()
      local ok, err = task:join()
      print(ok, err.code)
      send "HUP"
      print(signals:wait())
    end)
  ]])

  prints("have their usual effect in a child at once, and the parent does not get the child's",
    "ended\nnil\ttimeout\nTERM\nchild\tTERM\n", [[
    local parent = luv.os_getpid()
    local signals = keywatch.signals { "TERM" }
    fork()
    if luv.os_getpid() ~= parent then
      send "TERM" -- before any call of keywatch
      print "not ended"
      os.exit(1, false)
    end
    wait()
    print "ended"
    print(shown(signals:wait(0.05)))
    fork()
    if luv.os_getpid() ~= parent then
      local own = keywatch.signals { "TERM" }
      send "TERM"
      local name = own:wait()
      send "HUP" -- ends the child
      print(name)
      os.exit(1, false)
    end
    wait()
    send "TERM"
    print(signals:wait())
    fork()
    if luv.os_getpid() ~= parent then
      local own = keywatch.signals { "TERM" }
      send "TERM"
      print("child", own:wait())
      os.exit(0, false)
    end
    wait()
  ]])

  prints("cannot be caught in nginx, in any phase", "signals cannot be caught inside nginx\n", [[
    ngx = { get_phase = function() return "init" end }
    local ok, err = pcall(keywatch.signals, { "TERM" })
    print(not ok and err:match("signals cannot be caught inside nginx"))
  ]])

  prints("have select's methods", "false\ntrue\ttrue\ntrue\ntrue\nUSR2\tnil\nfalse\ntrue\nnil\tclosed\n", [[
    keywatch.run(function()
      local signals = keywatch.signals { "USR2" }
      local protocol = getmetatable(signals).__select
      print(protocol.is_ready(signals))
      local has_nothing = protocol.take(signals) == require("keywatch.task.selection").NOTHING
      local event = protocol.begin(signals)
      print(has_nothing, not event:wait(0.01))
      send "USR2"
      print(event:wait(1000))
      protocol.finish(signals)
      print(protocol.is_ready(signals))
      print(shown(protocol.take(signals)))
      print(protocol.is_ready(signals))
      signals:close()
      print(protocol.is_ready(signals))
      print(shown(protocol.take(signals)))
    end)
  ]])

  it("are said to be unknown, with those that are known #once", function()
    local names = table.concat(require("keywatch.uv").signal_names(), ", ")
    local keywatch = require "keywatch"
    for _, name in ipairs { "KILL", "SIGSTOP", "SEGV", "CHLD", "term", "", 15, {} } do
      assert.error_matches(function() keywatch.signals { "TERM", name } end, "cannot be caught: use " .. names, 1, true)
    end
    for _, other in ipairs { {}, { "TERM", nil, "INT" }, { TERM = true }, "TERM", 15 } do
      assert.error_matches(function() keywatch.signals(other) end, "list")
    end
  end)
end)
