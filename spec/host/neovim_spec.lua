--- Inside of Neovim: tasks run beside the editor, and may use its functions.

local document = require "spec.support.document"
local neovim = require "spec.support.neovim"

-- Writes what a program prints to stdout, and has Neovim end with status 1 if nothing else ends it.
local BEGIN = [[
  assert(jit, "this is not LuaJIT")
  local keywatch = require "keywatch"
  function print(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    io.stdout:write(table.concat(words, " "), "\n")
  end
  local function lines() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), "|") end
  local turns = 0
  local function count_turns() vim.loop.new_prepare():start(function() turns = turns + 1 end) end
  vim.loop.new_timer():start(60000, 0, vim.schedule_wrap(function() vim.cmd "cquit" end))
  local store = keywatch.open()
  local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  local client = keywatch.connect(server:addresses()[1])
]]

local function expect(printed, text)
  local status, found, errors = neovim.run(BEGIN .. text)
  assert.same({ 0, printed, "" }, { status, found, errors })
end

describe("in Neovim #once #peer", function()
  it("a watch writes lines into a buffer while a lease and a timer run", function()
    expect("|put 1|put 2|delete nil\ntrue\n", [[
      local ticks, ticker = 0, vim.loop.new_timer()
      ticker:start(5, 5, function() ticks = ticks + 1 end)
      keywatch.spawn(function()
        local w = assert(client:watch("a"))
        keywatch.spawn(function()
          assert(client:put("a", "1"))
          assert(client:put("a", "2", { lease = assert(client:lease(1)).id }))
        end)
        for event in w:events() do
          vim.api.nvim_buf_set_lines(0, -1, -1, true, { event.type .. " " .. tostring(event.value) })
          if event.type == "delete" then break end
        end
        print(lines())
        print(ticks > 10)
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("a manager runs a controller, whose reconcile writes lines into a buffer, and is stopped in a task", function()
    expect("|/a/1|/a/2 true\nstopped\n", [[
      local controller = require "keywatch.controller"
      require("keywatch.support.log").set_level "fatal"
      local manager = controller.manager { store = client, election = "/e" }
      local informer = manager:add(client:informer("/a/"))
      local written = keywatch.channel(2)
      manager:add(controller.new { name = "lines", sources = { informer }, reconcile = function(key, context)
        assert(context.store:put("/b", key))
        vim.api.nvim_buf_set_lines(0, -1, -1, true, { key })
        written:send(key)
      end })
      manager:start()
      store:put("/a/1", "")
      keywatch.spawn(function()
        written:receive()
        vim.loop.new_timer():start(1, 0, function() store:put("/a/2", "") end)
        written:receive()
        print(lines(), manager:stop())
        print(manager:status().state)
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("log lines are Neovim messages, or go to the handler", function()
    expect("3 keywatch: a cache\n4 keywatch: a task has failed: slip\nwarn to the handler\n", [[
      local log = require "keywatch.support.log"
      vim.notify = function(text, level) print(level, text:match("^[^\n]*")) end
      log.warn("a cache")
      keywatch.spawn(function() error("slip", 0) end)
      vim.schedule(function() vim.loop.new_timer():start(10, 0, vim.schedule_wrap(function()
        keywatch.log { handler = function(level, text) print(level, text) end }
        log.warn("to the handler")
        vim.cmd "qall!"
      end)) end)
    ]])
  end)

  it("a callback of vim.loop may change a store that a task watches", function()
    expect("from a callback\n", [[
      keywatch.spawn(function()
        local w = store:watch("a")
        vim.loop.new_timer():start(1, 0, function() store:put("a", "from a callback") end)
        print(w:next().value)
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("vim.uv is used, if it exists", function()
    expect("luv\nin a task\n", [[
      vim.uv, vim.loop = vim.loop, nil
      print(keywatch.driver())
      keywatch.spawn(function()
        keywatch.sleep(0.001)
        print "in a task"
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("a call outside of a task is refused, and the error names what to do", function()
    expect("keywatch: get waits, which would block Neovim: call it in a task, with keywatch.spawn\n", [[
      local _, err = pcall(function() local kv = client:get("a") return kv end)
      print((err:gsub("^.-:%d+: ", "")))
      vim.cmd "qall!"
    ]])
  end)

  it("a call in a callback of the editor that a task has caused is refused, too", function()
    expect("keywatch: get waits, which would block Neovim: call it in a task, with keywatch.spawn\n", [[
      vim.api.nvim_create_autocmd("User", { callback = function()
        local _, err = pcall(client.get, client, "a")
        print((err:gsub("^.-:%d+: ", "")))
      end })
      keywatch.spawn(function()
        vim.cmd "doautocmd User keywatch"
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("a task may wait with vim.wait, without busy waiting", function()
    expect("true\n1\n", [[
      keywatch.spawn(function()
        local w = assert(client:watch("a"))
        store:put("a", "1")
        count_turns()
        vim.wait(300, function() return false end)
        print(turns < 50 or turns)
        print(w:next().value)
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("an idle watch lets the editor rest", function()
    expect("true\n", [[
      keywatch.spawn(function()
        local w = assert(client:watch("a"))
        count_turns()
        w:next(0.5)
        print(turns < 50 or turns)
        vim.cmd "qall!"
      end)
    ]])
  end)

  it("the plugin of docs/loops.md follows a key", function()
    local page, source = document.read("docs/loops.md"), nil
    for _, block in ipairs(page:blocks_of("lua")) do
      if block.section == "Neovim" then source = table.concat(page:lines_of(block), "\n") end
    end
    local plugin = assert(source:match("http://127.0.0.1:2379") and source)
    plugin = plugin:gsub('"http://127.0.0.1:2379"', "server:addresses()[1]")
    expect("|notes/1: hello\n", "local outer = keywatch\nlocal function plugin()\n" .. plugin .. [[
      end
      plugin()
      keywatch.spawn(function()
        keywatch.sleep(0.1)
        repeat
          outer.sleep(0.01)
          store:put("notes/1", "hello")
        until vim.api.nvim_buf_line_count(0) > 1
        print((lines():match("^|notes/1: hello")))
        vim.cmd "qall!"
      end)
    ]])
  end)
end)
