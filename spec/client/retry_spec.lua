--- Requests over a bad network: reads are made again, and no write is made twice.

local keywatch = require "keywatch"

local luv = require "spec.support.luv"

local code = require("spec.support.answer").code
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local proxy = require "spec.support.proxy"
local weather = require "spec.support.weather"

local ALERT, DIRECTIONS, PATIENCE = network.ALERT, network.DIRECTIONS, network.PATIENCE
local FAULTS, SEED, IS_FAST = network.FAULTS, network.SEED, network.IS_FAST
local MAGIC = 24 -- bytes that a client begins with: in none of them is a request

network.of_each(function(kind, tag)
  describe(("requests over a bad network, of %s %s"):format(kind, tag), function()
    local s, p, direct

    setup(function() s = network.serve(kind) end)
    teardown(function() s:stop() end)

    before_each(function()
      network.begin()
      p = proxy.start(s.url)
      direct = network.connect(s.url)
    end)

    after_each(network.finish)

    local function connect(options)
      return network.connect(p.url, options)
    end

    local function version_of(key)
      local kv, err = direct:get(key)
      assert(not err, err)
      return kv and kv.version or 0
    end

    --- A connection that is open, on which nothing is under way.
    local function connected(options)
      local client = connect(options)
      assert(client:put("warm", ""))
      return client
    end

    --- Calls `try` with a client whose connection is cut after n bytes, for all n of a connection that is not.
    local function cut_everywhere(try)
      local client = connect()
      try(client, 0)
      client:close()
      local total = { to_server = p:bytes("to_server"), to_client = p:bytes("to_client") }
      for _, direction in ipairs(DIRECTIONS) do
        assert.is_true(total[direction] > 50)
        for n = 0, total[direction], IS_FAST and 13 or 1 do
          p:cut_once(n, direction, n % 2 == 0 and "close" or "reset")
          client = keywatch.connect(p.url, ALERT)
          try(client, n, direction)
          client:close()
          p:cut_once(nil)
        end
      end
    end

    it("reads at any byte that a connection is cut at", function()
      direct:put("there", "value")
      cut_everywhere(function(client)
        assert.equal("value", assert(client:get("there")).value)
      end)
    end)

    it("makes no write twice, and says so if it was made, at any byte", function()
      cut_everywhere(function(client, n, direction)
        local key = ("counted/%s/%d"):format(direction, n) -- a write before may still be on its way
        local ok, err = client:put(key, tostring(n))
        local made = version_of(key)
        if ok then
          assert.equal(1, made)
        else
          assert.equal("unavailable", err.code)
          assert.is_true(made <= 1)
          assert.is_true(n >= (direction == "to_server" and MAGIC or 0), "what was not sent is sent again")
        end
      end)
    end)

    it("counts what a transaction counts once, at any byte", function()
      cut_everywhere(function(client, n, direction)
        local key = ("counter/%s/%d"):format(direction, n)
        local answer, err = client:txn {
          compare = { { key = key, version = 0 } },
          success = { { put = key, value = "" } },
        }
        if not answer then assert.equal("unavailable", err.code) end
        if answer then assert.is_true(answer.succeeded) end
        local made = version_of(key)
        assert.is_true(made == 1 or not answer and made == 0)
      end)
    end)

    it("makes each write once at most in any weather, and reads always", function()
      keywatch.run(function()
        local random = new_random(SEED)
        local sky, client = weather.new(p, random), connect()
        local tasks, acknowledged, done = {}, {}, 0
        for i = 1, 8 do
          acknowledged[i] = 0
          tasks[i] = keywatch.spawn(function()
            for _ = 1, 20 * FAULTS do
              local ok, err = client:put("weather/" .. i, "")
              if ok then acknowledged[i] = acknowledged[i] + 1 else assert.equal("unavailable", err.code) end
              assert(client:range("weather/", { prefix = true }))
            end
            done = done + 1
          end)
        end
        while done < #tasks do
          sky:change()
          keywatch.sleep(random:between(1, 40) / 1000)
        end
        for i, task in ipairs(tasks) do
          local ok, err = task:join()
          if not ok then error(err, 0) end
          local version = version_of("weather/" .. i)
          assert.is_true(version >= acknowledged[i] and version <= 20 * FAULTS)
        end
      end)
    end)

    it("ends on time if the answer is held back", function()
      local client = connected { keepalive = 1000 }
      p:stall("to_client")
      assert.equal("deadline_exceeded", code(client:put("late", "", { timeout = 0.5 })))
      assert.equal("deadline_exceeded", code(client:get("late", { timeout = 0.05 })))
      assert.equal("deadline_exceeded", code(client:get("late", { deadline = keywatch.now() - 1 })))
      p:resume()
      assert.equal(1, assert(client:get("late")).version)
    end)

    it("ends on time if the request is held back, and does not make it later", function()
      local client = connected { keepalive = 1000 }
      p:stall("to_server")
      assert.equal("deadline_exceeded", code(client:put("held back", "", { timeout = 0.05 })))
      p:resume()
      assert(client:put("other", ""))
    end)

    it("ends on time if nobody answers a connection", function()
      p:stall("to_client")
      local client = connect { connect_timeout = 1000 }
      local ok, err = client:get("a", { timeout = 0.05 })
      assert.is_nil(ok)
      assert.equal("unavailable", err.code)
      assert.truthy(err.message:find(p.url, 1, true), err.message)
      p:resume()
      assert.is_nil(select(2, client:get("a")))
    end)

    it("notices that a server has fallen silent", function()
      keywatch.run(function()
        local client = connected()
        p:blackhole()
        local n = p:accepted()
        local reading = keywatch.spawn(client.get, client, "warm")
        assert.equal("unavailable", code(client:put("silent", "")))
        assert.equal(0, version_of("silent"))
        p:restore()
        local ok, kv = reading:join()
        assert.is_true(ok)
        assert.equal("warm", kv.key)
        assert.is_true(p:accepted() > n)
      end)
    end)

    it("writes over a new connection if the old one has ended meanwhile", function()
      local client = connected()
      local w = assert(client:watch("after the end"))
      for _, how in ipairs { "close", "reset", "shutdown" } do
        local before = version_of("after the end")
        p:cut { how = how }
        luv.sleep(10) -- there was time to hear of it, and nobody who did
        assert(client:put("after the end", how))
        assert.equal(before + 1, version_of("after the end"))
      end
      for version = 1, 3 do assert.equal(version, assert(w:next(PATIENCE)).version) end
    end)

    it("leaves no connection behind when the client is closed", function()
      local client = connected()
      assert(client:watch("a"))
      client:close()
      p:wait_connections(0)
    end)
  end)
end)
