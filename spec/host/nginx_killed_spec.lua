--- Light threads that nginx kills while they wait for keywatch: they leak nothing, and no other task waits for them.

local http = require "spec.support.http"
local nginx_stage = require "spec.support.nginx_stage"

-- settle() waits until nothing of killed threads is left; counters() returns the client's counters.
local INIT_WORKER = [[
  url = "$url"
  client = keywatch.connect(url)
  driver = require "keywatch.driver.ngx"
  driver.home.sweep = 0.02
  waiting = { n = 0 }
  function counters()
    local transport, calls = client.transport, 0
    for connection in pairs(transport.connections) do calls = calls + connection.count end
    return ("%d %d %d %d"):format(transport.uses, transport.waiting, transport.pausing, transport.retrying), calls
  end
  function await(holds)
    local deadline = keywatch.now() + 60
    while not holds() do
      if keywatch.now() > deadline then error("it does not come", 2) end
      ngx.sleep(0.01)
    end
    return true
  end
  function settle()
    return await(function() return counters() == "0 0 0 0" end)
  end
  function kill(fn)
    local thread = ngx.thread.spawn(fn)
    ngx.sleep(0.02)
    assert(ngx.thread.kill(thread))
  end
]]

describe("light threads that nginx kills #once #peer", function()
  nginx_stage.with_tests()
  local stage, pid

  local function start()
    stage = nginx_stage.start_with_server {
      workers = 1, init_worker = INIT_WORKER,
      http = "lua_check_client_abort on;",
      server = [[
        location = /wait { content_by_lua_block {
          waiting.n = waiting.n + 1
          client:get("a")
          client:watch("n"):next()
        } }
        location = /exit { content_by_lua_block {
          ngx.thread.spawn(function() client:watch("n"):next() end)
          ngx.thread.spawn(function() keywatch.sleep(3600) end)
          ngx.exit(204)
        } }
      ]],
    }
    pid = stage:workers()[1]
  end

  local function ask(text) return stage:ask(pid, text) end

  after_each(function() assert.equal("", stage:troubles()) end)

  it("calls are cancelled, in each place where they wait", function()
    start()
    assert.is_true(ask [[
      client:put("a", "1")
      for _ = 1, 20 do
        local thread = ngx.thread.spawn(function() client:get("a") end) -- killed in the middle
        ngx.thread.kill(thread)
      end
      return settle()
    ]])
    assert.is_true(ask [[
      local nobody = keywatch.connect("http://127.0.0.1:1")
      kill(function() nobody:get("a") end)  -- waits for a connection
      return await(function() return nobody.transport.uses == 0 and nobody.transport.waiting == 0 end)
    ]])
    assert.equal("1", ask [[return client:get("a").value]])
  end)

  it("a watch can be read by other threads", function()
    start()
    assert.equal("1", ask [[
      local watch = assert(client:watch("w"))
      kill(function() watch:next() end)
      client:put("w", "1")
      return watch:next(60).value
    ]])
    assert.equal("2", ask [[
      local store = keywatch.open()
      local watch = store:watch("w")
      kill(function() watch:next() end)
      store:put("w", "2")
      return watch:next(60).value
    ]])
  end)

  it("an index that one of them was filling is filled by the next task that adds it", function()
    start()
    assert.equal("1 1", ask [[
      client:put("k/a", "1")
      local informer, is_slow = client:informer("k/"), true
      assert(informer:wait_synced(60))
      local function by_value(object)
        if is_slow then keywatch.sleep(3600) end
        return object
      end
      kill(function() informer:add_index("value", by_value) end)
      local task = keywatch.spawn(function()
        informer:add_index("value", by_value)
        return informer:index_count("value", "1")
      end)
      is_slow = false
      local ok, count = task:join(60)
      informer:close()
      return tostring(ok and 1) .. " " .. tostring(count)
    ]])
  end)

  it("a channel gives its values to live threads", function()
    start()
    assert.equal("x", ask [[
      local channel = keywatch.channel()
      kill(function() channel:receive() end)
      local task = keywatch.spawn(function() return channel:receive(60) end)
      assert(channel:send("x", 60))
      return select(2, task:join())
    ]])
    assert.equal("timeout", ask [[
      local channel = keywatch.channel()
      kill(function() channel:send("lost") end)
      return select(2, channel:receive(0.01)).code
    ]])
    assert.equal("y", ask [[
      local channel, other = keywatch.channel(), keywatch.channel()
      kill(function() keywatch.select { channel, other } end)
      local task = keywatch.spawn(function() return channel:receive(60) end)
      keywatch.sleep(0.1)
      assert(channel:send("y", 60))
      return select(2, task:join())
    ]])
  end)

  it("a waiter for a lock leaves no key, and blocks no other waiter", function()
    start()
    assert.equal("1 0 true", ask [[
      local lock = assert(client:lock("l", { timeout = 60 }))
      local session = assert(client:session { ttl = 60 })
      kill(function() client:lock("l", { session = session }) end) -- behind the key of another session
      kill(function() client:lock("l") end)                       -- behind another call of the session
      local function count() return client:range("l/", { prefix = true }).count end
      await(function() return count() == 1 end)
      local before = count()
      assert(lock:unlock())
      local after = count()
      local again = assert(client:lock("l", { timeout = 60 }))
      return before .. " " .. after .. " " .. tostring(again:is_held())
    ]])
  end)

  it("the first caller for the default session is not waited for", function()
    start()
    assert.equal("held", ask [[
      local other = keywatch.connect(url)
      local thread = ngx.thread.spawn(function() other:lock("d") end)
      ngx.thread.kill(thread)
      return tostring(assert(other:lock("d", { timeout = 60 }))):match("held")
    ]])
  end)

  it("killed tasks have ended, also those that did not wait for keywatch", function()
    start()
    assert.equal("false cancelled", ask [[
      local task
      local parent = ngx.thread.spawn(function()
        task = keywatch.spawn(function() keywatch.sleep(3600) end)
        ngx.sleep(3600)
      end)
      ngx.sleep(0.02)
      -- the task is a child of that thread; nginx lets only the parent kill it
      ngx.thread.kill(parent)
      task:cancel()
      local ok, err = task:join(60)
      return tostring(ok) .. " " .. err.code
    ]])
    local one = http.connect(stage.port)
    assert.equal(204, one:ask("/exit").status)
    one:close()
    assert.is_true(ask [[return await(function()
      collectgarbage()
      return counters() == "0 0 0 0" and next(select(2, driver.inside()).tasks) == nil
    end)]])
  end)

  it("clients that go away end their requests", function()
    start()
    local ones = {}
    for i = 1, 10 do
      ones[i] = http.connect(stage.port)
      ones[i].socket:write("GET /wait HTTP/1.1\r\nHost: nginx\r\n\r\n")
    end
    stage:await("requests", function() return ask "return waiting.n" == 10 end)
    for _, one in ipairs(ones) do one:close() end
    assert.is_true(ask "return settle()")
    assert.is_true(ask [[
      collectgarbage()
      return await(function() collectgarbage() return select(2, counters()) <= 1 end) -- the one call of all watches
    ]])
  end)
end)
