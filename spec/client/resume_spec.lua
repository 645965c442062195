--- Watches whose server goes away, and comes back as it was, older, as another one, or not at all for a while.

local keywatch = require "keywatch"

local luv = require "spec.support.luv"

local directory = require "spec.support.directory"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local weather = require "spec.support.weather"
local writer = require "spec.support.writer"

local FAULTS, SEED, PATIENCE = network.FAULTS, network.SEED, network.PATIENCE
local SOON = 8 -- seconds: before anybody looks after a watch by himself

network.of_each(function(kind, tag)
  describe(("a watch of %s %s"):format(kind, tag), function()
    local s, p, random

    before_each(function()
      network.begin()
      random = new_random(SEED)
    end)

    after_each(function()
      network.finish()
      directory.remove_all()
    end)

    local function connect(url, options)
      return network.connect(url or p.url, options)
    end

    --- Starts a server, with a proxy before it.
    local function start(options)
      s = network.start(kind, options)
      p = proxy.start(s.url)
    end

    local function kill()
      s.process:signal("sigkill")
      s.process:wait()
    end

    local function new_writer(options)
      return writer.new(connect(s.url, { timeout = PATIENCE }), random, "/w/", options)
    end

    local function expect_failure(w, code)
      local event, err = w:next(PATIENCE)
      assert.is_nil(event)
      assert.equal(code, err.code)
      assert.equal(code, w:error().code)
      return err
    end

    describe("of a server that is killed", function()
      local path

      before_each(function()
        path = directory.new()
        start { path = path }
      end)

      local function start_again(options)
        options = options or {}
        options.path, options.port, options.peer_port = options.path or path, s.port, s.peer_port
        s = network.start(kind, options)
      end

      it("goes on where it was, again and again", function()
        local client, one = connect(s.url), new_writer()
        local from = one:write()
        local watches = {}
        for i = 1, 5 do watches[i] = assert(client:watch("/w/", { prefix = true, prev_kv = true })) end
        for _ = 1, 3 * FAULTS do
          for _ = 1, 5 do one:write() end
          kill()
          start_again()
          assert(one.client:get("any") or true)
          for _ = 1, 5 do one:write() end
        end
        one:finish()
        for _, w in ipairs(watches) do one:compare(one:gather(w, true), from, true) end
      end)

      it("fails if it comes back older than it was", function()
        local client, one = connect(s.url), new_writer()
        for _ = 1, 5 do one:write() end
        kill()
        local older = directory.new()
        process.run { "cp", "-r", path .. "/.", older }
        start_again()
        one.client:get("any")
        local w = assert(client:watch("/w/", { prefix = true }))
        local from = one.revision
        for _ = 1, 5 do one:write() end
        for revision = from + 1, one.revision do assert.equal(revision, assert(w:batch(PATIENCE)).revision) end
        kill()
        start_again { path = older }
        expect_failure(w, "regressed")
        assert(client:watch("/w/", { prefix = true }))
      end)

      it("gives what it was told before that", function()
        local client, one = connect(s.url), new_writer()
        one:write()
        kill()
        local older = directory.new()
        process.run { "cp", "-r", path .. "/.", older }
        start_again()
        one.client:get("any")
        local w = assert(client:watch("/w/", { prefix = true }))
        local revision = one:write()
        assert(client:watch("/w/", { prefix = true, start_revision = revision }):next(PATIENCE)) -- so it has come
        kill()
        start_again { path = older }
        assert.equal(revision, assert(w:batch(PATIENCE)).revision)
        expect_failure(w, "regressed")
      end)

      it("fails if another cluster comes in its place", function()
        local client, one = connect(s.url), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        kill()
        start_again { "--initial-cluster-token", "other", path = directory.new() }
        expect_failure(w, "cluster_changed")
      end)

      it("fails if an empty store comes in its place", function()
        local client, one = connect(s.url), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        kill()
        start_again { path = directory.new() }
        expect_failure(w, kind == "etcd" and "regressed" or "cluster_changed")
      end)

      if kind == "keywatch" then -- each of whose stores is a cluster of its own
        it("fails if another store comes in its place, which is further by then", function()
          local client, one = connect(s.url), new_writer()
          one:write()
          local w = assert(client:watch("/w/", { prefix = true }))
          kill()
          s = network.start(kind, { port = s.port })
          local other = network.connect(s.url)
          for i = 1, 5 do assert(other:put("/w/" .. i, "new")) end
          expect_failure(w, "cluster_changed")
        end)
      end

      it("fails if what it needs is compacted meanwhile", function()
        p:close()
        p = proxy.start(s.url)
        local client, one = connect(), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        local behind = assert(client:watch("/other/", { prefix = true }))
        p:refuse()
        p:cut()
        for _ = 1, 5 do one:write() end
        assert(one.client:compact(one.revision))
        p:accept_again()
        assert.equal(one.revision, expect_failure(w, "compacted").compact_revision)
        assert.equal("compacted", expect_failure(behind, "compacted").code)
      end)
    end)

    it("gives what came before the end of its connection", function()
      start()
      keywatch.run(function()
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
        p:accept_again()
      end)
    end)

    describe("of a server with nothing to say", function()
      before_each(function() start() end)

      it("is no error, and notices that the server has gone", function()
        local client, one = connect(), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        local _, err = w:next(1)
        assert.equal("timeout", err.code)
        assert.equal(1, p:accepted())
        p:blackhole()
        p:wait_accepted(2, function() w:next(0.01) end)
        p:restore()
        local revision = one:write()
        assert.equal(revision, assert(w:batch(PATIENCE)).revision)
        assert.is_nil(w:error())
      end)

      it("hears what came while nobody turned the loop", function()
        local client, one = connect(nil, { keepalive = 0.05, keepalive_timeout = 1 }), new_writer()
        one:write()
        local w = assert(client:watch("/w/", { prefix = true }))
        p:stall("to_client")
        p:wait_held(1, "to_client", function() w:next(0.01) end)
        local n = p:bytes("to_client")
        p:resume()
        p:wait_bytes(n + 1, "to_client")
        luv.sleep(1100)
        local revision = one:write()
        assert.equal(revision, assert(w:batch(PATIENCE)).revision)
        assert.equal(1, p:accepted())
      end)

      it("heeds those who do not want to be asked so often", function()
        start { is_strict = true }
        local one = new_writer()
        one:write()
        local w = assert(connect(s.url, { keepalive = 0.02 }):watch("/w/", { prefix = true }))
        local _, err = w:next(1)
        assert.equal("timeout", err.code)
        local revision = one:write()
        assert.equal(revision, assert(w:batch(PATIENCE)).revision)
      end)
    end)

    it("is told everything in any weather, if it may not ask often", function()
      start { is_strict = true }
      keywatch.run(function()
        local client, one = connect(nil, { connect_timeout = 1, keepalive = 6, timeout = PATIENCE }), new_writer()
        local from, readers = one:write(), {}
        for i = 1, 5 do
          readers[i] = keywatch.spawn(one.gather, one, assert(client:watch("/w/", { prefix = true })))
        end
        local sky = weather.new(p, random)
        for _ = 1, 60 * FAULTS do
          one:write()
          if random:one_in(5) then sky:change() end
        end
        sky:clear()
        p:cut() -- silent ones are noticed late, as servers do not want to be asked often
        one:finish()
        one:compare_all(readers, from)
      end)
    end)

    --- etcd 3.4 tells a watch how far it is before it has told it everything.
    if kind == "etcd" then
      it("cannot be brought up to date, as progress comes too early", function()
        start()
        local w = assert(connect(s.url):watch("/w/", { prefix = true }))
        assert.equal("unsupported", select(2, w:sync(PATIENCE)).code)
      end)
    end

    if kind == "keywatch" then
      describe("that is brought up to date", function()
        --- Reads all that is there.
        local function read_now(w)
          local last = 0
          while true do
            local event = w:next(0)
            if not event then return last end
            last = event.mod_revision
          end
        end

        it("has all that was written before, in any weather", function()
          start()
          keywatch.run(function()
            local client, one = connect(), new_writer()
            one:write()
            local w = assert(client:watch("/w/", { prefix = true }))
            local idle = assert(client:watch("/idle/", { prefix = true }))
            local sky = weather.new(p, random)
            for _ = 1, 20 * FAULTS do
              for _ = 1, random:between(1, 5) do one:write() end
              sky:change()
              if sky.is_dark then
                keywatch.spawn(function()
                  keywatch.sleep(0.05)
                  sky:clear()
                end)
              end
              assert.is_true(assert(w:sync(PATIENCE)) >= one.revision)
              assert.equal(one.revision, read_now(w))
              assert.is_true(assert(idle:sync(PATIENCE)) >= one.revision)
              assert.equal("timeout", select(2, idle:next(0)).code)
            end
          end)
        end)

        it("says if that takes too long", function()
          start()
          local client = connect(nil, { keepalive = 1000 })
          local w = assert(client:watch("/w/", { prefix = true }))
          p:stall("to_client")
          assert.equal("timeout", select(2, w:sync(0.05)).code)
          p:resume()
          assert(w:sync(PATIENCE))
        end)

        it("is told so over a new connection, too", function()
          start()
          keywatch.run(function()
            local client, one = connect(), new_writer()
            local w = assert(client:watch("/idle/", { prefix = true }))
            assert(w:sync(PATIENCE))
            for i = 1, 20 do
              one:write()
              local syncing = keywatch.spawn(w.sync, w, PATIENCE)
              keywatch.sleep(i / 10000)
              p:cut()
              local ok, revision, err = syncing:join(SOON)
              assert.is_true(ok)
              assert.is_true(assert(revision, err) >= one.revision)
            end
          end)
        end)
      end)
    end

    describe("that nobody reads", function()
      local N, SIZE = 3000, 8000
      local MAX = 2 ^ 18

      before_each(function() start() end)

      --- The memory of this process, in bytes.
      local function resident()
        local file = assert(io.open("/proc/self/status"))
        local text = file:read("*a")
        file:close()
        return tonumber(text:match("VmRSS:%s*(%d+) kB")) * 1024
      end

      it("keeps nobody else waiting, and is told everything at last #slow", function()
        keywatch.run(function()
          local client, one = connect(), new_writer { size = SIZE }
          local from, readers = one:write(), {}
          local slow = assert(client:watch("/w/", { prefix = true, max_bytes = MAX }))
          for i = 1, 9 do
            local w = assert(client:watch("/w/", { prefix = true, max_bytes = MAX }))
            readers[i] = keywatch.spawn(one.gather, one, w)
          end
          local pause = collectgarbage("setpause", 100) -- garbage would hide what the watch holds
          collectgarbage()
          for _ = 1, N / 10 do one:write() end
          collectgarbage()
          collectgarbage()
          local before = resident()
          for _ = 1, N do one:write() end
          one:finish()
          one:compare_all(readers, from)
          readers = nil -- luacheck: ignore
          collectgarbage()
          collectgarbage() -- what the finalizers of the first one have left
          collectgarbage("setpause", pause)
          if require("spec.support.vm").how == "rock" then
            assert.is_true(resident() - before < N * SIZE) -- the writer has half of it
          end
          one:compare(one:gather(slow), from)
        end)
      end)

      it("holds no more for every connection that is cut", function()
        local client, one = connect(), new_writer { size = SIZE }
        one:write()
        local slow = assert(client:watch("/w/", { prefix = true, max_bytes = MAX }))
        for _ = 1, 200 do one:write() end
        local from = one.revision
        for _ = 1, 20 do
          local n = p:accepted()
          p:cut()
          client:get("any")
          p:wait_accepted(n + 1)
          client:get("any")
        end
        assert.is_true(p:bytes("to_client") < 5 * MAX)
        one:finish()
        assert.equal(from, one.revision - 1)
        one:compare(one:gather(slow), one.revision - 201)
      end)
    end)
  end)
end)
