--- Watches over a bad network: nothing is lost, nothing comes twice, and nobody waits for ever.
--
-- A writer beside the proxy changes keys, while the proxy cuts, splits, delays, stalls and swallows what a client is
-- told. KW_DOSE=n goes round n times as often.

local keywatch = require "keywatch"

local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local proxy = require "spec.support.proxy"
local weather = require "spec.support.weather"
local writer = require "spec.support.writer"

local ALERT, DIRECTIONS, PATIENCE = network.ALERT, network.DIRECTIONS, network.PATIENCE
local FAULTS, SEED, IS_FAST = network.FAULTS, network.SEED, network.IS_FAST

network.of_each(function(kind, tag)
  describe(("watches over a bad network, of %s %s"):format(kind, tag), function()
    local s, p, direct, random

    setup(function() s = network.serve(kind, { "--max-request-bytes=8388608" }) end)
    teardown(function() s:stop() end)

    before_each(function()
      network.begin()
      random = new_random(SEED)
      p = proxy.start(s.url)
      direct = network.connect(s.url)
    end)

    after_each(network.finish)

    local function connect(options)
      return network.connect(p.url, options)
    end

    local n_prefixes = 0

    local function new_writer(options)
      n_prefixes = n_prefixes + 1
      return writer.new(direct, random, ("/%d/"):format(n_prefixes), options)
    end

    --- Writes so often, in a weather that changes now and then, and gives everybody a turn. Now and then a watch is
    -- asked how far it is, so that all who share its call are told, too.
    local function write_in_weather(one, n, asked, every, scale)
      local sky = weather.new(p, random, scale)
      for _ = 1, n do
        one:write()
        if random:one_in(every) then sky:change() end
        if random:one_in(every) then keywatch.spawn(asked.sync, asked, PATIENCE) end
        if random:one_in(every) then keywatch.sleep(random:between(1, 50) / 1000) end
      end
      sky:clear()
    end

    --- So many watches of one client while a writer writes: each is told everything.
    local function watch_in_weather(n_watches, n_writes, options)
      options = options or {}
      keywatch.run(function()
        local client, one, readers = connect(), new_writer(options), {}
        local from = one:write()
        local w
        for i = 1, n_watches do
          w = assert(client:watch(one.prefix, {
            prefix = true, prev_kv = i % 2 == 0, progress = i % 3 == 1, timeout = PATIENCE,
          }))
          readers[i] = keywatch.spawn(one.gather, one, w, i % 2 == 0)
        end
        write_in_weather(one, n_writes, w, options.every or 6, options.scale)
        one:finish()
        one:compare_all(readers, from, function(i) return i % 2 == 0 end)
      end)
    end

    it("tells a watch every revision once and in order", function()
      for _ = 1, 2 * FAULTS do watch_in_weather(1, 150) end
    end)

    it("tells fifty watches of one client the same #slow", function()
      for _ = 1, FAULTS do watch_in_weather(50, IS_FAST and 60 or 150) end
    end)

    it("tells them of revisions that come in fragments #slow", function()
      local options = { size = 700000, keys = 4, every = 3, scale = 1000 }
      for _ = 1, FAULTS do watch_in_weather(2, IS_FAST and 10 or 40, options) end
    end)

    --- How many bytes a function's connections take, each way.
    local function measure(fn)
      local before = { to_server = p:bytes("to_server"), to_client = p:bytes("to_client") }
      fn()
      return {
        to_server = p:bytes("to_server") - before.to_server,
        to_client = p:bytes("to_client") - before.to_client,
      }
    end

    it("loses nothing at any byte that a connection is cut at", function()
      local one = new_writer()

      local function session()
        local from = one:write()
        one:write()
        local client = keywatch.connect(p.url, ALERT)
        local w = assert(client:watch(one.prefix, { prefix = true, start_revision = from + 1, timeout = PATIENCE }))
        one:write()
        local other = assert(client:watch(one.prefix .. "end", { start_revision = from + 1, timeout = PATIENCE }))
        one:finish()
        one:compare(one:gather(w), from)
        assert.equal(one.revision, assert(other:next(PATIENCE)).mod_revision)
        assert.equal(one.revision, assert(client:get(one.prefix .. "end", { timeout = PATIENCE })).mod_revision)
        client:close()
      end

      local total = measure(session)
      local step = IS_FAST and 17 or kind == "etcd" and 7 or 1 -- etcd tells the past every 100 ms
      for _, direction in ipairs(DIRECTIONS) do
        assert.is_true(total[direction] > 200)
        for n = random:between(0, step - 1), total[direction], step do
          p:cut_once(n, direction, n % 2 == 0 and "close" or "reset")
          session()
          p:cut_once(nil)
        end
      end
    end)

    it("passes in pieces of any size", function()
      for n = 1, IS_FAST and 9 or 40, 3 do
        p:split(n)
        local client, one = connect(), new_writer { size = 3000 }
        local from = one:write()
        local w = assert(client:watch(one.prefix, { prefix = true, prev_kv = true }))
        for _ = 1, 5 do one:write() end
        one:finish()
        one:compare(one:gather(w, true), from, true)
        client:close()
      end
    end)

    describe("that begin with what exists", function()
      local N = 2500 -- keys, on several pages

      local function fill(one)
        for i = 1, N, 100 do
          local ops = {}
          for j = i, i + 99 do ops[#ops + 1] = { put = ("%s%d"):format(one.prefix, j), value = "old" } end
          one:write(ops)
        end
      end

      local function compare_state(one, ok, state, err)
        if not ok then error(state, 0) end
        one:compare_state(assert(state, err))
      end

      it("come to what there is, wherever their pages are cut #slow", function()
        keywatch.run(function()
          local one = new_writer { keys = N }
          fill(one)
          local bytes = measure(function()
            local client = connect()
            local w = client:watch(one.prefix, { prefix = true, initial = true })
            one:compare_state(writer.rebuild(w, one.revision))
          end).to_client
          for _ = 1, (IS_FAST and 4 or 20) * FAULTS do
            p:cut_once(random:between(0, bytes), "to_client")
            local client = connect()
            local w = assert(client:watch(one.prefix, { prefix = true, initial = true, timeout = PATIENCE }))
            local reader = keywatch.spawn(writer.rebuild, w, one.revision + 8)
            for _ = 1, 8 do one:write() end
            compare_state(one, reader:join())
            client:close()
          end
        end)
      end)

      it("come to what there is in any weather #slow", function()
        for _ = 1, FAULTS do
          keywatch.run(function()
            local client, one = connect(), new_writer { keys = N }
            fill(one)
            local sky, n = weather.new(p, random, 20), 100
            local w = assert(client:watch(one.prefix, { prefix = true, initial = true, timeout = PATIENCE }))
            local reader = keywatch.spawn(writer.rebuild, w, one.revision + n)
            for _ = 1, n do
              one:write()
              if random:one_in(4) then sky:change() end
              if random:one_in(4) then keywatch.sleep(random:between(1, 50) / 1000) end
            end
            sky:clear()
            compare_state(one, reader:join())
          end)
        end
      end)

      it("fail if it is compacted before all of it was read", function()
        local one = new_writer { keys = N }
        fill(one)
        local client = connect()
        local w = assert(client:watch(one.prefix, { prefix = true, initial = true }))
        assert(w:next())
        p:cut()
        one:write()
        assert(direct:compact(one.revision))
        local ok, err = writer.rebuild(w, one.revision)
        assert.is_nil(ok)
        assert.equal("compacted", err.code)
        assert.equal("compacted", w:error().code)
      end)
    end)
  end)
end)
