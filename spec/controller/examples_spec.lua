--- The examples with several processes: workers and leaders are killed, and others take over.

local controller = require "keywatch.controller"

local await = require "spec.support.await"
local network = require "spec.support.network"
local process = require "spec.support.process"
local replicas = require "spec.controller.replicas"
local vm = require "spec.support.vm"

local TTL = "2s"

--- Starts a program of this VM.
local function start(...) return process.start({ vm.interpreter, ... }, { env = vm.environment() }) end

local function kill(child)
  child:signal("sigkill")
  child:wait()
end

network.of_each(function(kind, tag)
  describe(("with a server of %s, the example %s"):format(kind, tag), function()
    local client, server

    before_each(function()
      server = network.start(kind)
      client = network.connect(server.url)
    end)
    after_each(network.finish)

    it("job_runner.lua has one result for each job, while workers are killed, and others do their jobs", function()
      local results = assert(client:watch("/results/", { prefix = true }))
      local ann = start("examples/job_runner.lua", server.url, "ann")
      assert(client:put("/jobs/1", "3600 sweep"))
      ann:expect("ann begins job 1")
      local bob, seen = start("examples/job_runner.lua", server.url, "bob"), {}
      for i = 2, 7 do assert(client:put("/jobs/" .. i, "0.2 wash")) end
      bob:expect("bob begins job")
      kill(bob)
      bob = start("examples/job_runner.lua", server.url, "bob")
      for _ = 2, 7 do
        local event = assert(results:next(network.PATIENCE))
        assert.matches("^WASH by ", event.value)
        assert.same({ 1, nil }, { event.version, seen[event.key] })
        seen[event.key] = true
      end
      kill(ann)
      bob:expect("bob begins job 1")
      assert.same({ nil, 1 }, { (results:next(0)), client:range("/jobs/", { prefix = true }).count })
      kill(bob)
    end)

    it("replicas.lua continues in another process when the leader is killed", function()
      local processes = {}
      for _, name in ipairs { "ann", "bob" } do
        processes[name] = start("bin/keywatch", "run", "examples/replicas.lua", "--endpoints", server.url, "--election",
          "replicas", "--id", name, "--ttl", TTL)
      end
      local function await_wish(what) await(function() return not replicas.difference(client) end, what) end
      assert(client:put("/sets/web", replicas.parent(3, "red")))
      await(function() return client:get("/parts/web/3") end, "children")
      await_wish("the children of the first leader")
      local leader = await(function() return client:election("replicas"):leader() end, "a leader").value
      kill(processes[leader])
      assert(client:put("/sets/db", replicas.parent(2, "blue")))
      assert(client:delete("/parts/web/2"))
      await(function() return client:get("/parts/db/2") end, "children of the second leader")
      await_wish("the children of the second leader")
      assert.not_equal(leader, client:election("replicas"):leader().value)
      assert(controller.ownership.delete(client, "/sets/web"))
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
