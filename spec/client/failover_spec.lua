--- Clients of several endpoints: who does not answer is passed over, and who answers is kept.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local code = require("spec.support.answer").code
local directory = require "spec.support.directory"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local writer = require "spec.support.writer"

local FAULTS, SEED, PATIENCE = network.FAULTS, network.SEED, network.PATIENCE
local HANDSHAKE = 60 -- bytes of a server, with which it has answered; more follow with any answer
local ALERT = { connect_timeout = 0.3, keepalive = 0.1, keepalive_timeout = 0.3, timeout = PATIENCE }

network.of_each(function(kind, tag)
  describe(("a client of several endpoints, of %s %s"):format(kind, tag), function()
    local s, first, second, direct

    before_each(function()
      network.begin()
      s = network.start(kind)
      first, second = proxy.start(s.url), proxy.start(s.url)
      direct = network.connect(s.url)
    end)

    after_each(function()
      network.finish()
      directory.remove_all()
    end)

    local function connect(urls, options)
      return network.connect(urls or { first.url, second.url }, options or ALERT)
    end

    local function endpoint_of(client)
      return assert(client:status()).endpoint
    end

    it("tries all addresses of a name", function()
      local d, asked = require("keywatch.task.driver").get(), nil
      local lookup = d.lookup
      function d.lookup(name)
        asked = name
        return { result = function() return { "127.0.0.9", "127.0.0.1" } end } -- nobody listens on the first
      end
      local client = connect((s.url:gsub("127%.0%.0%.1", "two-addresses.example.test")))
      local ok, result, err = pcall(client.range, client, "a")
      d.lookup = lookup
      assert(ok and result, err or result)
      assert.equal("two-addresses.example.test", asked)
    end)

    it("uses the first that answers, and stays there", function()
      local client = connect()
      assert.equal(first.url, endpoint_of(client))
      first:refuse()
      first:cut()
      assert.equal(second.url, endpoint_of(client))
      first:accept_again()
      assert.equal(second.url, endpoint_of(client))
      assert.equal(0, first:connections())
    end)

    it("passes over one that refuses", function()
      first:refuse()
      assert.equal(second.url, endpoint_of(connect()))
    end)

    it("passes over one that is not there", function()
      local missing = directory.new() .. "/socket"
      assert.equal(second.url, endpoint_of(connect { "unix:" .. missing, second.url }))
    end)

    it("passes over one that never answers", function()
      first:blackhole()
      assert.equal(second.url, endpoint_of(connect()))
    end)

    it("passes over one that ends every connection", function()
      first:cut_after(HANDSHAKE, "to_client")
      local client = connect()
      assert.equal(second.url, endpoint_of(client))
      assert(client:put("a", ""))
      first:cut_after(nil)
    end)

    it("passes over one whose server cannot be reached", function()
      first:retarget("unix:" .. directory.new() .. "/socket")
      assert.equal(second.url, endpoint_of(connect()))
    end)

    it("says whom it has asked last, and why that has failed, if nobody answers", function()
      first:refuse()
      second:refuse()
      local client = connect()
      local _, err = client:get("a", { timeout = 1 })
      assert.equal("unavailable", err.code)
      assert.truthy(err.message:find("https?://127.0.0.1:%d+: connection refused"), err.message)
      first:accept_again()
      first:blackhole()
      first:wait_accepted(first:accepted() + 1, function() client:get("a", { timeout = 0.01 }) end)
      _, err = client:get("a", { timeout = 0.01 })
      assert.equal("unavailable", err.code)
      second:accept_again()
      assert.equal(second.url, endpoint_of(client))
    end)

    it("names the one that does not answer", function()
      first:blackhole()
      local client = connect(first.url, { connect_timeout = 0.1 })
      local _, err = client:get("a", { timeout = 0.5 })
      assert.equal("unavailable", err.code)
      assert.truthy(err.message:find(("keywatch: %s: "):format(first.url), 1, true), err.message)
    end)

    it("goes on when one comes back", function()
      keywatch.run(function()
        first:refuse()
        second:refuse()
        local client = connect()
        local writing = keywatch.spawn(client.put, client, "a", "")
        local watching = keywatch.spawn(client.watch, client, "b")
        assert.equal("unavailable", code(client:get("a", { timeout = 0.1 })))
        second:accept_again()
        assert.equal(2, select(2, writing:join()).revision)
        local _, w = watching:join()
        assert(direct:put("b", ""))
        assert.equal("b", assert(w:next(PATIENCE)).key)
      end)
    end)

    it("goes on with watches and requests, whichever endpoint is lost", function()
      keywatch.run(function()
        local random = new_random(SEED)
        local client, one = connect(), writer.new(direct, random, "/f/")
        local from = one:write()
        local w = assert(client:watch("/f/", { prefix = true }))
        local reader = keywatch.spawn(one.gather, one, w)
        for i = 1, 12 * FAULTS do
          local lost, other = first, second
          if i % 2 == 0 then lost, other = second, first end
          other:restore()
          other:accept_again()
          if random:one_in(3) then lost:blackhole() else lost:refuse() end
          if random:one_in(2) then lost:cut { how = "reset" } end
          lost:cut { direction = random:pick { "to_client", "to_server" } }
          one:write()
          assert(client:range("/f/", { prefix = true }))
          one:write()
        end
        one:finish()
        one:compare_all({ reader }, from)
      end)
    end)

    it("goes on elsewhere when a server ends in order", function()
      keywatch.run(function()
        local path = directory.new()
        local old = network.start(kind, { path = path })
        local client = connect { old.url, second.url }
        local one = writer.new(client, new_random(SEED), "/s/")
        local from, readers, reads, writes = one:write(), {}, {}, {}
        for i = 1, 5 do
          readers[i] = keywatch.spawn(one.gather, one, assert(client:watch("/s/", { prefix = true })))
        end
        for _ = 1, 20 do one:write() end

        second:refuse()
        for i = 1, 20 do
          reads[i] = keywatch.spawn(client.range, client, "/s/", { prefix = true })
          writes[i] = keywatch.spawn(client.put, client, "once" .. i, "")
        end
        old.process:signal("sigterm")
        repeat keywatch.sleep(0) until process.turn_until(function() return not old:is_running() end, 0)
        assert.equal(old.end_status, old.process:wait())
        local new = network.start(kind, { path = path })
        second:retarget(new.url)
        second:accept_again()

        for i = 1, 20 do
          assert(select(2, reads[i]:join()))
          local _, made, err = writes[i]:join()
          -- etcd has no code for a proposal that its end has overtaken.
          if not made and not (kind == "etcd" and err.code == "unknown") then assert.equal("unavailable", err.code) end
          local kv = client:get("once" .. i)
          assert.is_true(kv and kv.version == 1 or not made and not kv)
        end
        assert.equal(second.url, endpoint_of(client))
        one.revision = assert(client:status()).revision
        for _ = 1, 20 do one:write() end
        one:finish()
        one:compare_all(readers, from)
      end)
    end)
  end)
end)

describe("a client of several endpoints, the first of which hangs, #plain", function() -- no TLS in virtual time
  local SECONDS = 6 -- 3 without an answer, 2 without a status, and the other member

  --- Has a client that is connected to the first of two members, and has a cache and a watch there, do something after
  -- the member has stopped. Checks that this is done by the other member in time, and by the first one at once if it
  -- does not hang.
  local function check(name, act)
    it("comes to the other one in time: " .. name, function()
      for _, hangs in ipairs { false, true } do
        testing.run(function(world)
          local server = world.server
          local other = assert(keywatch.serve { store = server.store, listen = "http://127.0.0.1:2380",
            cluster_token = "server 1" })
          local client = keywatch.connect { server.url, "http://127.0.0.1:2380" }
          assert(client:put("a", "1"))
          local cache, watch = assert(client:cache("a")), assert(client:watch("a"))
          assert(cache:wait_ready())
          assert(watch:sync(1))
          if hangs then server:isolate() end
          local began = keywatch.now()
          assert(act(client, cache, watch))
          local seconds = keywatch.now() - began
          assert(seconds <= (hangs and SECONDS or 0.2), seconds)
          client:close()
          other:close()
        end)
      end
    end)
  end

  check("a read", function(client) return client:get("a") end)
  check("a consistent read of a cache", function(_, cache) return cache:get("a", { consistent = true }) end)
  check("a cache", function(client) return client:cache("b"):wait_ready() end)
  check("a watch", function(client) return client:watch("b") end)
  check("a watch from the beginning", function(client) return client:watch("a", { initial = true }) end)
  check("a watch that comes up to date", function(_, _, watch) return watch:sync() end)
end)
