--- TLS handshakes over a bad network, full and resumed ones: a proxy cuts the connection or swallows bytes. No write is
-- made twice, and no call waits forever. Cuts after a handshake are in virtual_network_spec.lua.

local keywatch = require "keywatch"

local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local proxy = require "spec.support.proxy"
local secure = require "spec.support.secure"

local DIRECTIONS, PATIENCE = network.DIRECTIONS, network.PATIENCE
local FAULTS, SEED, IS_FAST = network.FAULTS, network.SEED, network.IS_FAST
local WAYS = { "close", "reset", "swallow" }
local CUTS = (IS_FAST and 5 or 25) * FAULTS -- of each handshake, in each direction and way

network.of_each(function(kind, tag)
  describe(("TLS over a bad network, of %s #slow %s"):format(kind, tag), function()
    local s, p, direct, random

    setup(function() s = network.serve(kind, { is_tls = true }) end)

    teardown(function() s:stop() end)

    before_each(function()
      network.begin()
      random = new_random(SEED)
      p = proxy.start(s.url)
      direct = network.connect(s.url, { timeout = PATIENCE, tls = secure.tls(true) })
    end)

    after_each(network.finish)

    --- A client that soon notices a silent server, also while it connects.
    local function connect(url)
      return network.connect(url or p.url, {
        connect_timeout = 0.3, keepalive = 0.1, keepalive_timeout = 0.3, timeout = PATIENCE,
        tls = secure.tls(true),
      })
    end

    local n_keys = 0

    --- Puts a new key. Returns whether the put was acknowledged. Checks that the put was made at most once, and exactly
    -- once if it was acknowledged.
    local function put_once(client)
      n_keys = n_keys + 1
      local key = "once/" .. n_keys
      local ok, err = client:put(key, "")
      if not ok then assert.equal("unavailable", err.code) end
      local kv, failure = direct:get(key)
      assert(not failure, failure)
      local version = kv and kv.version or 0
      assert.is_true(version == 1 or not ok and version == 0)
      return ok
    end

    --- Returns how many bytes pass while a function runs, by direction.
    local function measure(fn)
      local total = {}
      for _, direction in ipairs(DIRECTIONS) do total[direction] = -p:bytes(direction) end
      fn()
      for _, direction in ipairs(DIRECTIONS) do total[direction] = total[direction] + p:bytes(direction) end
      return total
    end

    --- Cuts the next connection after n bytes, and puts a key over it. begin() returns a client without a connection.
    local function put_at_cut(begin, n, direction, how)
      local client = begin()
      p:cut_once(n, direction, how)
      put_once(client)
      p:cut_once(nil)
      client:close()
    end

    local function cut_handshakes(begin)
      local client = begin()
      local total = measure(function() assert.truthy(put_once(client)) end)
      client:close()
      for _, direction in ipairs(DIRECTIONS) do
        assert.is_true(total[direction] > 300, "a handshake has more bytes")
        for _, how in ipairs(WAYS) do
          local n_cuts = how == "swallow" and math.ceil(CUTS / 5) or CUTS -- each takes long to be noticed
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

    it("makes no write twice, wherever a resumed handshake is cut", function()
      cut_handshakes(function()
        local client = connect()
        assert(client:get("any") or true)
        p:cut()
        p:wait_connections(0, function() keywatch.sleep(0.001) end)
        return client
      end)
    end)

    it("repeats requests that were not sent, which are all before the end of the handshake", function()
      local client = connect()
      p:stall("to_client")
      local putting = keywatch.spawn(client.put, client, "unsent", "")
      for _ = 1, 10 do
        local n = p:accepted()
        p:wait_held(1, "to_client", function() keywatch.sleep(0.001) end) -- the server's answer to the hello
        p:cut()
        p:wait_accepted(n + 1, function() keywatch.sleep(0.001) end)
      end
      p:restore()
      assert(select(2, assert(putting:join(PATIENCE))))
      assert.equal(1, assert(direct:get("unsent")).version)
    end)
  end)
end)
