--- TLS in every host: at top level, in run, in tasks, in luv's loop, in another loop of the program, in Neovim, with
-- the server in a thread; and the parent's connections in a child process.

local certificates = require "spec.support.certificates"
local neovim = require "spec.support.neovim"
local program = require "spec.support.program"

-- A server and a client, with certificates of both sides.
local BEGIN = [[
  local keywatch = require "keywatch"
  local path = %q
  local function serve(opts)
    opts.listen = "https://127.0.0.1:0"
    opts.tls = { cert = path .. "/server.pem", key = path .. "/server.key", ca = path .. "/ca.pem" }
    local server = assert(keywatch.serve(opts))
    return server, assert(keywatch.connect(server:addresses()[1], {
      tls = { ca = path .. "/ca.pem", cert = path .. "/alice.pem", key = path .. "/alice.key" },
    }))
  end
  local function work(client)
    local w = assert(client:watch("a"))
    local revision = assert(client:put("a", ("x"):rep(100000))).revision
    local event = w:next()
    w:close()
    return revision, #event.value, #client:get("a").value
  end
]]

local begin = BEGIN:format(certificates.directory())
local expect = program.expecting(begin)

describe("TLS", function()
  it("works at top level", function()
    expect("2 100000 100000\n", [[
      local server, client = serve { store = keywatch.open() }
      print(work(client))
    ]])
  end)

  it("works in run, and in tasks of it", function()
    expect("2 100000 100000\ntrue 3 100000 100000\n", [[
      keywatch.run(function()
        local server, client = serve { store = keywatch.open() }
        print(work(client))
        print(keywatch.spawn(work, client):join())
        client:close()
        server:close()
      end)
    ]])
  end)

  it("works with the server in a thread, at top level and in tasks", function()
    expect("2 100000 100000\n3 100000 100000\ntrue\n", [[
      local server, client = serve { thread = true }
      print(work(client))
      keywatch.run(function() print(work(client)) end)
      client:close()
      print(server:shutdown())
    ]])
  end)

  it("works in luv's loop", function()
    expect("2 100000 100000\ntrue\nended\n", [[
      local uv = require "luv"
      local ticks, ticker = 0, uv.new_timer()
      ticker:start(1, 1, function() ticks = ticks + 1 end)
      local server, client = serve { store = keywatch.open() }
      keywatch.spawn(function()
        print(work(client))
        while ticks < 2 do keywatch.sleep(0.001) end
        ticker:close()
        client:close()
        print(server:shutdown())
      end)
      uv.run()
      print "ended"
    ]])
  end)

  it("works in a loop of the program", function()
    expect("2 100000 100000\n", [[
      local cqueues = require "cqueues"
      local server, client = serve { store = keywatch.open() }
      local loop, is_over = cqueues.new(), false
      loop:wrap(function()
        while not is_over do
          cqueues.poll(keywatch)
          keywatch.step()
        end
      end)
      keywatch.spawn(function()
        print(work(client))
        is_over = true
      end)
      assert(loop:loop())
    ]])
  end)

  it("has work left in a step, and reports that: a host must not block before the end of handshakes", function()
    expect("32\n", [[
      local uv = require "luv"
      keywatch.driver "uv"
      local server, client = serve { store = keywatch.open() }
      local n, url = 0, server:addresses()[1]
      for _ = 1, 32 do
        keywatch.spawn(function()
          local one = assert(keywatch.connect(url, { tls = {
            ca = path .. "/ca.pem", cert = path .. "/alice.pem", key = path .. "/alice.key" } }))
          assert(one:put("a", "1"))
          one:close()
          n = n + 1
        end)
      end
      local poll = uv.new_poll(keywatch.fd())
      while n < 32 do
        local seconds, is_ready = keywatch.timeout(), false
        if seconds ~= 0 then
          poll:start("r", function() is_ready = true end)
          local timer = uv.new_timer()
          if seconds then timer:start(math.ceil(seconds * 1000), 0, function() is_ready = true end) end
          while not is_ready do uv.run("once") end
          timer:close()
          poll:stop()
        end
        keywatch.step()
      end
      poll:close()
      uv.run("nowait")
      print(n)
    ]])
  end)

  it("works inside of Neovim #once #peer", function()
    local status, printed, errors = neovim.run(begin .. [[
      vim.loop.new_timer():start(60000, 0, vim.schedule_wrap(function() vim.cmd "cquit" end))
      local server, client = serve { store = keywatch.open() }
      local threaded, second = serve { thread = true }
      keywatch.spawn(function()
        io.stdout:write(table.concat({ work(client) }, " "), "\n")
        io.stdout:write(table.concat({ work(second) }, " "), "\n")
        vim.cmd "qall!"
      end)
    ]])
    assert.same({ 0, ("2 100000 100000\n"):rep(2), "" }, { status, printed, errors })
  end)
end)

describe("the connections of a program that forks", function()
  local expect_forking = program.expecting(begin, program.run_forking)

  for _, finish in ipairs {
    "client:close() server:close()", "client, server, w = nil, nil, nil collectgarbage() collectgarbage()",
    "pcall(client.get, client, 'a', { timeout = 0.01 })", "os.exit(0, true)", "os.exit(0)",
  } do
    it("are not disturbed by the child's use of its copies: " .. finish, function()
      expect_forking("1\n2\n3 100000 100000\n", [[
        local server, client = serve { store = keywatch.open() }
        local w = assert(client:watch("k"))
        client:put("k", "1")
        print(w:next().value)
        child(function() ]] .. finish .. [[ end)
        client:put("k", "2")
        print(w:next().value)
        local seen = client:get("k").mod_revision
        w:close()
        local revision, a, b = work(client)
        print(revision - seen + 2, a, b)
      ]])
    end)
  end

  it("are not used by the child, which opens its own", function()
    expect_forking("3 100000 100000\n4 100000 100000\n", [[
      local server, client = serve { thread = true }
      client:put("a", "1")
      child(function() print(work(client)) end)
      print(work(client))
    ]])
  end)
end)
