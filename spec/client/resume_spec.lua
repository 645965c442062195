--- Connections of a client that end, at real sockets of keywatch's server and of a real etcd: a server that comes
-- back as another one, messages before the end, and messages while nothing turns the loop. Cuts at every byte are in
-- virtual_network_spec.lua, and under TLS in tls_proxy_spec.lua.

local keywatch = require "keywatch"

local luv = require "spec.support.luv"

local directory = require "spec.support.directory"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local writer = require "spec.support.writer"
local within = require "spec.support.within"

local PATIENCE = network.PATIENCE
local SOON = 8 -- seconds: before the server checks on a watch by itself

network.of_each(function(kind, tag)
  describe(("a client of %s %s"):format(kind, tag), function()
    local s, p

    before_each(network.begin)

    after_each(function()
      network.finish()
      directory.remove_all()
    end)

    local function connect(url, options) return network.connect(url or p.url, options) end

    local function new_writer(options)
      return writer.new(connect(s.url, { timeout = PATIENCE }), new_random(network.SEED), "/w/", options)
    end

    describe("whose server is killed", function()
      local path, client, one

      before_each(function()
        path = directory.new()
        s = network.start(kind, { path = path })
        client, one = connect(s.url), new_writer()
        one:write()
      end)

      --- Kills the server, and starts one in its place.
      local function exchange(options)
        s.process:signal("sigkill")
        s.process:wait()
        options.port, options.peer_port = s.port, s.peer_port
        s = network.start(kind, options)
      end

      --- Keeps the present state as that of an older server. Returns its path.
      local function back_up()
        local older = directory.new()
        s.process:signal("sigkill")
        s.process:wait()
        process.run { "cp", "-r", path .. "/.", older }
        s = network.start(kind, { path = path, port = s.port, peer_port = s.peer_port })
        one.client:get("any")
        return older
      end

      local function expect_failure(w, code)
        local event, err = w:next(PATIENCE)
        assert.same({ nil, code, code }, { event, err.code, w:error().code })
      end

      it("resumes its watches, which receive every event once", function()
        local from, watches = one.revision, {}
        for i = 1, 5 do watches[i] = assert(client:watch("/w/", { prefix = true, prev_kv = true })) end
        for _ = 1, 2 do
          for _ = 1, 5 do one:write() end
          exchange { path = path }
          assert(one.client:get("any") or true)
        end
        one:finish()
        for _, w in ipairs(watches) do one:compare(one:gather(w, true), from, true) end
      end)

      it("fails its watches if the server returns with an older state, after the events before that", function()
        local older = back_up()
        local w = assert(client:watch("/w/", { prefix = true }))
        local revision = one:write()
        assert(client:watch("/w/", { prefix = true, start_revision = revision }):next(PATIENCE)) -- it has arrived
        exchange { path = older }
        assert.equal(revision, assert(w:batch(PATIENCE)).revision)
        expect_failure(w, "regressed")
        assert(client:watch("/w/", { prefix = true }))
      end)

      for what, token in pairs { ["of another cluster"] = "other", ["with an empty store"] = false } do
        it("fails its watches if the server returns as one " .. what, function()
          local w = assert(client:watch("/w/", { prefix = true }))
          local options = token and { "--initial-cluster-token", token } or {}
          options.path = directory.new()
          exchange(options)
          expect_failure(w, kind == "etcd" and not token and "regressed" or "cluster_changed")
        end)
      end
    end)

    describe("behind a proxy", function()
      before_each(function()
        s = network.start(kind)
        p = proxy.start(s.url)
      end)

      it("delivers the events that came before the end of its connection", within.task(function()
        local client, one = connect(nil, { keepalive = 1000 }), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        local reading = keywatch.spawn(w.next, w, PATIENCE)
        p:stall("to_client")
        one:write()
        p:wait_held(1, "to_client")
        p:refuse()
        local n = p:bytes("to_client")
        p:resume()
        p:wait_bytes(n + 1, "to_client")
        p:cut { how = "reset" }
        local ok, event = reading:join(SOON)
        assert.is_true(ok)
        assert.equal(one.revision, event.mod_revision)
      end))

      it("reads what came while nothing turned the loop, before it closes the connection", function()
        local client, one = connect(nil, { keepalive = 0.05, keepalive_timeout = 1 }), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        p:stall("to_client")
        p:wait_held(1, "to_client", function() w:next(0.01) end)
        local n = p:bytes("to_client")
        p:resume()
        p:wait_bytes(n + 1, "to_client")
        luv.sleep(1100)
        assert.equal(one:write(), assert(w:batch(PATIENCE)).revision)
        assert.equal(1, p:accepted())
      end)

      it("writes over a new connection if the old one has ended since", function()
        local client = connect()
        local w = assert(client:watch("k"))
        for version, how in ipairs { "close", "reset", "shutdown" } do
          p:cut { how = how }
          luv.sleep(10) -- there was time for the bytes, and no loop to read them
          assert(client:put("k", how))
          local event = assert(w:next(PATIENCE))
          assert.same({ how, version }, { event.value, event.version })
        end
      end)

      it("receives no more for a slow watch over each connection that is cut", function()
        local max = 2 ^ 18
        local client, one = connect(), new_writer { size = 8000 }
        one:write()
        local slow = assert(client:watch("/w/", { prefix = true, max_bytes = max }))
        for _ = 1, 200 do one:write() end
        for _ = 1, 20 do
          local n = p:accepted()
          p:cut()
          client:get("any")
          p:wait_accepted(n + 1)
          client:get("any")
        end
        assert.is_true(p:bytes("to_client") < 5 * max)
        one:finish()
        one:compare(one:gather(slow), one.revision - 201)
      end)
    end)

    it("tries all addresses of a name", function()
      s = network.start(kind)
      local d, asked = require("keywatch.task.driver").get(), nil
      local lookup = d.lookup
      function d.lookup(name)
        asked = name
        return { result = function() return { "127.0.0.9", "127.0.0.1" } end } -- the first has no listener
      end
      local client = connect((s.url:gsub("127%.0%.0%.1", "two-addresses.example.test")))
      local ok, result, err = pcall(client.range, client, "a")
      d.lookup = lookup
      assert(ok and result, err or result)
      assert.equal("two-addresses.example.test", asked)
    end)

    it("is not disconnected by a server that allows few pings", function()
      s = network.start(kind, { is_strict = true })
      local one = new_writer()
      local w = assert(connect(s.url, { keepalive = 0.02 }):watch("/w/", { prefix = true }))
      assert.equal("timeout", select(2, w:next(0.5)).code)
      assert.equal(one:write(), assert(w:batch(PATIENCE)).revision)
    end)

    --- etcd 3.4 sends progress to a watch before all of its events.
    if kind == "etcd" then
      it("cannot sync a watch, as progress comes too early", function()
        s = network.start(kind)
        local w = assert(connect(s.url):watch("/w/", { prefix = true }))
        assert.equal("unsupported", select(2, w:sync(PATIENCE)).code)
      end)
    end
  end)
end)
