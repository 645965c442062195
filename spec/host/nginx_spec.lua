--- Inside of nginx with its Lua module, before it serves.

local nginx_stage = require "spec.support.nginx_stage"

-- Makes a client of a server in a thread, which needs no loop.
local SERVE = [[
  server = assert(keywatch.serve { listen = "http://127.0.0.1:0", thread = true })
  client = keywatch.connect(server:addresses()[1])
]]

local WORK = [[
  keywatch.run(function()
    local watch = assert(client:watch("a"))
    local putter = keywatch.spawn(function() return assert(client:put("a", "1")).revision > 1 end)
    say(ngx.get_phase(), watch:next().value, putter:join())
    say(pcall(string.gsub, "x", "x", function() keywatch.sleep(0) end))
  end)
]]

local NOT_HERE = "keywatch: sleep waits, but the task cannot be suspended here"

--- Returns the recorded lines of the texts, without positions.
local function run(texts)
  local said, errors = nginx_stage.said(texts)
  return (said:gsub("%S+:%d+: ", ""):gsub("(cannot be suspended here)[^\n]*", "%1")), errors
end

describe("in nginx #once #peer", function()
  nginx_stage.with_tests()

  for _, phase in ipairs { "init", "init_worker" } do
    it("tasks run, and calls at top level wait, in " .. phase, function()
      local said, errors = run { [phase] = SERVE .. "assert(client:get('b') == nil)\n" .. WORK }
      assert.equal(phase .. " 1 true true\nfalse " .. NOT_HERE .. "\n", said, errors)
    end)
  end

  it("a server without a thread is refused, since nothing would serve", function()
    local try = "say(pcall(keywatch.serve, { store = keywatch.open(), listen = 'http://127.0.0.1:0' }))\n"
    local said, errors = run { init = try, init_worker = try, content = try }
    assert.equal(("false serve: nginx turns no loop that would serve: give the server a thread, with the option "
      .. "thread = true\n"):rep(3), said, errors)
  end)

  it("a server may live inside of run", function()
    local said, errors = run { init = [[
      keywatch.run(function()
        local own = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
        say(keywatch.connect(own:addresses()[1]):put("a", "1").revision)
        own:close()
      end)
    ]] }
    assert.equal("2\n", said, errors)
  end)
end)
