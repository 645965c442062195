--- The driver in a child of its process: it goes on there, with nothing of what was under way.

local program = require "spec.support.program"
local shell = require "spec.support.shell"

--- A program that may fork: child(fn) runs fn in a child, and waits for its end.
local function run(text)
  local status, printed = program.run([[
    local fork = assert(package.loadlib("build/fault.so", "kw_fault_fork"))
    local wait = assert(package.loadlib("build/fault.so", "kw_fault_wait"))
    io.stdout:setvbuf("no")
    local keywatch = require "keywatch"
    local driver = require("keywatch.driver").get()
    local uv = require "keywatch.uv"
    local function child(fn)
      local parent = uv.pid()
      fork()
      if uv.pid() == parent then
        wait()
      else
        fn()
        os.exit(0, true)
      end
    end
  ]] .. text)
  assert.equal(0, status, printed)
  return printed
end

describe("after a fork", function()
  it("tasks begin, wait and end in the child, and in the parent", function()
    local printed = run [[
      local function work(name)
        return keywatch.run(function()
          local event = driver.event()
          local task = keywatch.spawn(function() keywatch.sleep(0.01) event:set() return name end)
          event:wait()
          return select(2, task:join())
        end)
      end
      print(work("before"))
      child(function() print(work("child")) end)
      print(work("parent"))
    ]]
    assert.equal("before\nchild\nparent\n", printed)
  end)

  it("the task that has forked goes on, and no other does", function()
    local printed = run [[
      keywatch.run(function()
        local event = driver.event()
        local function other(name, fn)
          return keywatch.spawn(function()
            local ok = pcall(fn)
            print(name, ok)
          end)
        end
        local sleeper = other("sleeper", function() keywatch.sleep(0.02) end)
        local waiter = other("waiter", function() event:wait() end)
        keywatch.sleep(0)
        local new = other("new", function() end)
        child(function()
          keywatch.sleep(0.05)
          event:set()
          for _, task in ipairs { sleeper, waiter, new } do
            local ok, err = task:join()
            print(ok, err.code)
          end
          print(keywatch.spawn(function() return "its own" end):join())
        end)
        event:set()
        sleeper:join()
        waiter:join()
      end)
    ]]
    assert.equal("false\tcancelled\nfalse\tcancelled\nfalse\tcancelled\ntrue\tits own\n"
      .. "new\ttrue\nwaiter\ttrue\nsleeper\ttrue\n", printed)
  end)

  it("a task that forks and ends lets nobody else run in the child", function()
    local printed = run [[
      local parent = uv.pid()
      local ok, err = pcall(keywatch.run, function()
        keywatch.spawn(function() fork() end)
        keywatch.sleep(0.01)
        print("main", uv.pid() == parent)
      end)
      if uv.pid() ~= parent then os.exit(0, true) end
      wait()
      print(ok, err)
    ]]
    assert.equal("main\ttrue\ntrue\tnil\n", printed)
  end)

  it("servers are the parent's, and the child has its own", function()
    local directory = shell.must("mktemp -d")
    finally(function() shell.must("rm -rf " .. directory) end)
    local printed = run(([[
      local path = %q
      local store = keywatch.open()
      local server = assert(keywatch.serve { store = store, listen = { "http://127.0.0.1:0", "unix:" .. path } })
      driver.look()
      child(function()
        driver.look()
        local own = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
        print(#own:addresses())
        print(own:close())
      end)
      child(function() end)
      print(#server:addresses(), os.rename(path, path))
      print(server:close(), os.rename(path, path) == nil)
    ]]):format(directory .. "/socket"))
    assert.equal("1\ntrue\n2\ttrue\ntrue\ttrue\n", printed)
  end)
end)
