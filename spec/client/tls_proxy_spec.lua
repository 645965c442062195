--- TLS over a bad network: a proxy cuts, delays, splits and swallows the bytes of TLS, in the handshake and after it.
-- No event is lost, none comes twice, no write is made twice, and nobody waits for ever.
--
-- In the tls pass of spec/run all of spec/client does the same. This is for all passes, and about the handshake: there
-- is one that is full, and one that resumes the session of a connection before. KW_DOSE=n goes round n times as
-- often.

local keywatch = require "keywatch"

local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local proxy = require "spec.support.proxy"
local secure = require "spec.support.secure"
local weather = require "spec.support.weather"
local writer = require "spec.support.writer"

local DIRECTIONS, PATIENCE = network.DIRECTIONS, network.PATIENCE
local FAULTS, SEED, IS_FAST = network.FAULTS, network.SEED, network.IS_FAST
local WAYS = { "close", "reset", "swallow" }
local CUTS = (IS_FAST and 5 or 25) * FAULTS -- of each handshake, in each direction and way

network.of_each(function(kind, tag)
  describe(("TLS over a bad network, of %s #slow %s"):format(kind, tag), function()
    local s, p, direct, random
    local counts = { cut = 0, made = 0, unknown = 0, events = 0, resumed = 0 }

    setup(function() s = network.serve(kind, { is_tls = true }) end)

    teardown(function()
      s:stop()
      print(("  %s: %d connections cut; %d writes acknowledged, %d unknown, none made twice; %d events, all told once, "
        .. "by watches that resumed %d times"):format(kind, counts.cut, counts.made, counts.unknown, counts.events,
        counts.resumed))
    end)

    before_each(function()
      network.begin()
      random = new_random(SEED)
      p = proxy.start(s.url)
      direct = network.connect(s.url, { timeout = PATIENCE, tls = secure.tls(true) })
    end)

    after_each(network.finish)

    --- A client that soon notices that nobody answers, also while it connects.
    local function connect(url)
      return network.connect(url or p.url, {
        connect_timeout = 0.3, keepalive = 0.1, keepalive_timeout = 0.3, timeout = PATIENCE,
        tls = secure.tls(true),
      })
    end

    -- {====== Handshakes that are cut ======

    local n_keys = 0

    --- Puts a key that nobody else puts. Returns whether that was acknowledged; it was made once at most, and exactly
    -- once if it was.
    local function put_once(client)
      n_keys = n_keys + 1
      local key = "once/" .. n_keys
      local ok, err = client:put(key, "")
      if not ok then assert.equal("unavailable", err.code) end
      local kv, failure = direct:get(key)
      assert(not failure, failure)
      local version = kv and kv.version or 0
      assert.is_true(version == 1 or not ok and version == 0)
      if ok then counts.made = counts.made + 1 else counts.unknown = counts.unknown + 1 end
      return ok
    end

    --- How many bytes pass while a function runs, by direction.
    local function measure(fn)
      local total = {}
      for _, direction in ipairs(DIRECTIONS) do total[direction] = -p:bytes(direction) end
      fn()
      for _, direction in ipairs(DIRECTIONS) do total[direction] = total[direction] + p:bytes(direction) end
      return total
    end

    --- The next connection is cut, and a key is put over it. `begin` gives a client that is about to make that.
    local function put_at_cut(begin, n, direction, how)
      local client = begin()
      p:cut_once(n, direction, how)
      put_once(client)
      p:cut_once(nil)
      client:close()
      counts.cut = counts.cut + 1
    end

    local function cut_handshakes(begin)
      local client = begin()
      local total = measure(function() assert.truthy(put_once(client)) end)
      client:close()
      for _, direction in ipairs(DIRECTIONS) do
        assert.is_true(total[direction] > 300, "a handshake has more bytes")
        for _, how in ipairs(WAYS) do
          local n_cuts = how == "swallow" and math.ceil(CUTS / 5) or CUTS -- they take long to notice
          for i = 1, n_cuts do
            local part = total[direction] / n_cuts
            put_at_cut(begin, math.floor(part * (i - 1) + random:between(0, math.floor(part))), direction, how)
          end
        end
      end
    end

    it("makes no write twice, wherever a full handshake is cut", function()
      cut_handshakes(function() return connect() end)
    end)

    it("makes no write twice, wherever a handshake is cut that resumes a session", function()
      cut_handshakes(function()
        local client = connect()
        assert(client:get("any") or true)
        p:cut()
        p:wait_connections(0, function() keywatch.sleep(0.001) end)
        return client
      end)
    end)

    it("sends what was not sent again: until the handshake is over that is all", function()
      local client = connect()
      p:stall("to_client")
      local putting = keywatch.spawn(client.put, client, "unsent", "")
      for _ = 1, 10 do
        local n = p:accepted()
        p:wait_held(1, "to_client", function() keywatch.sleep(0.001) end) -- the server's answer to the hello
        p:cut()
        p:wait_accepted(n + 1, function() keywatch.sleep(0.001) end)
        counts.cut = counts.cut + 1
      end
      p:restore()
      assert(select(2, assert(putting:join(PATIENCE))))
      assert.equal(1, assert(direct:get("unsent")).version)
    end)

    -- }======

    it("passes in pieces of any size, and late", function()
      for n = 1, IS_FAST and 4 or 16, 3 do
        p:split(n)
        p:delay(n % 2 == 0 and 5 or nil)
        local client = connect()
        assert.truthy(put_once(client))
        client:close()
      end
    end)

    -- {====== Watches ======

    local n_prefixes = 0

    local function new_writer()
      n_prefixes = n_prefixes + 1
      return writer.new(direct, random, ("/%d/"):format(n_prefixes), { size = 3000 })
    end

    --- Some watches of a client while a writer writes, and `disturb` is called now and then: each is told everything.
    local function watch_while(n_writes, disturb, settle)
      keywatch.run(function()
        local client, one, readers = connect(), new_writer(), {}
        local from, n = one:write(), p:accepted()
        for i = 1, 5 do
          local w = assert(client:watch(one.prefix, { prefix = true, timeout = PATIENCE }))
          readers[i] = keywatch.spawn(one.gather, one, w)
        end
        for _ = 1, n_writes do
          one:write()
          if random:one_in(6) then disturb() end
          if random:one_in(6) then keywatch.sleep(random:between(1, 50) / 1000) end
        end
        settle()
        one:finish()
        one:compare_all(readers, from)
        counts.events = counts.events + #readers * (one.revision - from)
        counts.resumed = counts.resumed + p:accepted() - n - 1
      end)
    end

    it("tells watches everything, wherever their connections are cut", function()
      occurrences.await({ "resumed" }, FAULTS, function()
        local before = counts.resumed
        watch_while(IS_FAST and 40 or 120, function()
          p:cut_after(random:between(0, 6000), random:pick(DIRECTIONS), random:pick { "close", "reset" })
          counts.cut = counts.cut + 1
        end, function() p:cut_after(nil) end)
        return { resumed = counts.resumed - before }
      end)
    end)

    it("tells watches everything, though what was said is swallowed", function()
      for _ = 1, FAULTS do
        watch_while(IS_FAST and 20 or 60, function()
          p:cut_once(random:between(0, 6000), random:pick(DIRECTIONS), "swallow")
          p:blackhole()
          keywatch.sleep(0.1)
          p:restore()
          counts.cut = counts.cut + 1
        end, function() p:restore() end)
      end
    end)

    it("tells watches everything in any weather", function()
      for _ = 1, FAULTS do
        local sky = weather.new(p, random)
        watch_while(IS_FAST and 40 or 120, function() sky:change() end, function() sky:clear() end)
      end
    end)

    -- }======
  end)
end)
