--- The examples that are about several processes: workers and leaders are killed, and others go on.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"

local network = require "spec.support.network"
local process = require "spec.support.process"
local replicas = require "spec.controller.replicas"
local vm = require "spec.support.vm"

local TTL = "2s"

--- Starts a program of this VM.
local function start(...) return process.start({ vm.interpreter, ... }, { env = vm.environment() }) end

--- Turns the loop until a function returns something, and returns that.
local function await(fn, what)
  local deadline = keywatch.now() + network.PATIENCE
  while true do
    local found = fn()
    if found then return found end
    if keywatch.now() > deadline then error("this does not happen: " .. what, 2) end
    keywatch.sleep(0.01)
  end
end

network.of_each(function(kind, tag)
  describe(("with a server of %s, the example %s"):format(kind, tag), function()
    local client, server

    before_each(function()
      server = network.start(kind)
      client = network.connect(server.url)
    end)
    after_each(network.finish)

    it("job_runner.lua has another worker do the job of one that was killed", function()
      local ann = start("examples/job_runner.lua", server.url, "ann")
      assert(client:put("/jobs/1", "3600 sweep"))
      ann:expect("ann begins job 1")
      local bob = start("examples/job_runner.lua", server.url, "bob")
      assert(client:put("/jobs/2", "0 wash"))
      local result = await(function() return client:get("/results/2") end, "a result of job 2")
      assert.matches("^WASH by ", result.value)
      ann:signal("sigkill")
      ann:wait()
      bob:expect("bob begins job 1")
      assert.is_nil(client:get("/results/1"))
      bob:signal("sigkill")
      bob:wait()
    end)

    it("job_runner.lua has one result for each job, while workers are killed", function()
      local results = assert(client:watch("/results/", { prefix = true }))
      local worker = start("examples/job_runner.lua", server.url, "first")
      for i = 1, 6 do assert(client:put("/jobs/" .. i, "0.2 sweep")) end
      worker:expect("begins job")
      worker:signal("sigkill")
      worker:wait()
      worker = start("examples/job_runner.lua", server.url, "second")
      local seen = {}
      for _ = 1, 6 do
        local event = assert(results:next(network.PATIENCE))
        assert.equal(1, event.version, event.key)
        assert.is_nil(seen[event.key])
        seen[event.key] = true
      end
      assert.equal(0, client:range("/jobs/", { prefix = true }).count)
      assert.is_nil((results:next(0)))
      worker:signal("sigkill")
      worker:wait()
    end)

    it("replicas.lua has another process go on when the leader is killed", function()
      local processes = {}
      for _, name in ipairs { "ann", "bob" } do
        processes[name] = start("bin/keywatch", "run", "examples/replicas.lua", "--endpoints", server.url, "--election",
          "replicas", "--id", name, "--ttl", TTL)
      end
      local function await_wish(what)
        await(function() return not replicas.difference(client) end, what)
      end
      assert(client:put("/sets/web", replicas.parent(3, "red")))
      await(function() return client:get("/parts/web/3") end, "children")
      await_wish("the children of the first leader")
      local leader = await(function() return client:election("replicas"):leader() end, "a leader").value
      processes[leader]:signal("sigkill")
      processes[leader]:wait()
      assert(client:put("/sets/db", replicas.parent(2, "blue")))
      assert(client:delete("/parts/web/2"))
      await(function() return client:get("/parts/db/2") end, "children of the second leader")
      await_wish("the children of the second leader")
      assert.not_equal(leader, client:election("replicas"):leader().value)
      assert(controller.delete(client, "/sets/web"))
      await(function() return not client:get("/sets/web") end, "the end of a parent")
      await_wish("the end of its children")
      assert.is_nil(client:get("/parts/web/1"))

      local rest = processes[leader == "ann" and "bob" or "ann"]
      rest:signal("sigterm")
      assert.equal(0, rest:wait(), rest:transcript())
      assert.is_nil(client:election("replicas"):leader())
    end)
  end)
end)
