--- Controllers over the wire: of keywatch's server and of a real etcd, whose connections are cut.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"

local logs = require "spec.controller.logs"
local network = require "spec.support.network"
local proxy = require "spec.support.proxy"
local within = require "spec.support.within"

--- Waits until a function returns true.
local function await(fn)
  local deadline = keywatch.now() + network.PATIENCE
  while not fn() do
    assert(keywatch.now() < deadline, "it takes too long")
    keywatch.sleep(0.005)
  end
end

network.of_each(function(kind, tag)
  describe("a controller of a client of " .. kind .. " " .. tag, function()
    local server

    before_each(function()
      logs.begin()
      network.begin()
      server = network.start(kind)
    end)

    after_each(function()
      network.finish()
      logs.finish()
    end)

    --- Returns a controller that makes each key below /copy/ equal to that below /spec/, and its client. `gate` is
    -- between the client and the server.
    local function copying(gate)
      local client = network.connect(gate and gate.url or server.url)
      local specs, copies = assert(client:informer("/spec/")), assert(client:informer("/copy/"))
      local one = controller.new {
        name = "copy", workers = 3, timeout = 1, store = client,
        limiter = controller.exponential { first = 0.01, longest = 0.1 },
        sources = { specs, { copies, map = function(_, key) return (key:gsub("^/copy/", "/spec/")) end } },
        reconcile = function(request, context)
          local target = request:gsub("^/spec/", "/copy/")
          local wanted, present = specs:get(request), copies:get(target)
          if wanted == present then return end
          local ok, err
          if wanted then ok, err = context.store:put(target, wanted) else ok, err = context.store:delete(target) end
          if not ok then return nil, err end
        end,
      }
      return one, client, function()
        specs:close()
        copies:close()
      end
    end

    --- Asserts that the copies are equal to the specs, soon.
    local function await_equal(client)
      local specs, copies
      await(function()
        specs, copies = {}, {}
        for kv in client:each("/spec/", { prefix = true }) do specs[kv.key:sub(7)] = kv.value end
        for kv in client:each("/copy/", { prefix = true }) do copies[kv.key:sub(7)] = kv.value end
        for name, value in pairs(specs) do
          if copies[name] ~= value then return false end
        end
        for name in pairs(copies) do
          if not specs[name] then return false end
        end
        return true
      end)
      return specs
    end

    it("brings about what is wished: objects that exist, change, and go, also behind its back", within.task(function()
      local one, client, close = copying()
      for i = 1, 30 do client:put("/spec/" .. i, "first") end
      client:put("/copy/orphan", "x")
      one:start()
      await_equal(client)
      for i = 1, 30, 3 do client:put("/spec/" .. i, "second") end
      for i = 2, 30, 3 do client:delete("/spec/" .. i) end
      client:put("/copy/3", "by somebody else")
      client:delete("/copy/6")
      local specs = await_equal(client)
      assert.equal("second", specs["1"])
      assert.is_nil(specs["2"])
      assert.is_true(one:stop())
      local status = one:status()
      assert.same({ 0, 0, "idle" }, { status.failed, status.busy, status.state })
      close()
    end))

    it("works though the connection is cut again and again", within.task(function()
      local gate = proxy.start(server.url)
      local direct = network.connect(server.url)
      local one, _, close = copying(gate)
      one:start()
      for round = 1, 8 do
        for i = 1, 10 do direct:put("/spec/" .. i, ("%d-%d"):format(round, i)) end
        if round % 2 == 0 then direct:delete("/spec/" .. round) end
        gate:cut()
        if round == 4 then
          gate:refuse()
          keywatch.sleep(0.1)
          gate:accept_again()
        end
      end
      await_equal(direct)
      assert.is_true(one:has_synced())
      assert.is_true(one:stop())
      close()
    end))
  end)
end)
