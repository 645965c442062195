--- Ranges and range streams of every kind over the wire, while the store is written and compacted between their pages.
-- Each answer must be what the store answers in one piece at the same revision.

local core = require "keywatch.core"

local directory = require "spec.support.directory"
local occurrences = require "spec.support.occurrences"
local pair = require "spec.support.pair"
local random = require "spec.support.random"

local KEYS = core.probe and 60 or 3000
local ROUNDS = core.probe and 150 or 40
local MOST_ROUNDS = 100 * ROUNDS -- until every case was met
local COMPACTED = "etcdserver: mvcc: required revision has been compacted"

local TARGETS = { "KEY", "VERSION", "CREATE", "MOD", "VALUE" }
local ORDERS = { "NONE", "ASCEND", "DESCEND" }
local VALUES = { "", "a", "same beginning", "same beginning\0", "same beginning, other end", ("long"):rep(600) }

local function key_at(i) return ("k%05d"):format(i) end

--- Writes something: mostly keys one by one, at times many keys in one revision.
local function write(dice, store)
  local at = dice:between(1, KEYS)
  if dice:one_in(8) then
    store:delete(key_at(at), { range_end = key_at(at + dice:between(1, KEYS)) })
  elseif dice:one_in(3) then
    local puts = {}
    for i = 1, dice:between(1, 20) do
      puts[i] = { put = key_at((at + i) % KEYS), value = dice:pick(VALUES) .. (dice:one_in(2) and i or "") }
    end
    store:txn { success = puts }
  elseif dice:one_in(4) then
    store:delete(key_at(at))
  else
    store:put(key_at(at), dice:pick(VALUES))
  end
end

local function random_request(dice, oldest, newest, method)
  local low, high = dice:between(0, KEYS), dice:between(0, KEYS)
  local request = { key = key_at(math.min(low, high)) }
  request.range_end = dice:pick { key_at(math.max(low, high)), "l", "\0" }
  if dice:one_in(12) then request.range_end = nil end
  if dice:one_in(2) then request.limit = dice:pick { 1, 2, 7, 20, KEYS } end
  if dice:one_in(2) then request.revision = dice:between(oldest, newest) end
  if dice:one_in(5) then request.keys_only = true end
  if dice:one_in(6) then request.count_only = true end
  if method == "RangeStream" then return request end
  if dice:one_in(2) then request.sort_target, request.sort_order = dice:pick(TARGETS), dice:pick(ORDERS) end
  for _, bound in ipairs { "mod", "create" } do
    if dice:one_in(4) then request["min_" .. bound .. "_revision"] = dice:between(1, newest) end
    if dice:one_in(4) then request["max_" .. bound .. "_revision"] = dice:between(1, newest) end
  end
  return request
end

--- What the store answers in one piece, in the words of the wire.
local function in_one_piece(store, request)
  local options = {}
  for name, v in pairs(request) do options[name] = v end
  options.key = nil
  options.sort_target = request.sort_target and request.sort_target:lower()
  options.sort_order = request.sort_order and request.sort_order:lower()
  local found = assert(store:range(request.key, options))
  local lines = { ("count %d, more %s"):format(found.count, tostring(found.more or false)) }
  for _, kv in ipairs(found.kvs) do
    lines[#lines + 1] = ("%s=%s %d %d %d"):format(kv.key, request.keys_only and "" or kv.value, kv.create_revision,
      kv.mod_revision, kv.version)
  end
  return table.concat(lines, "\n"), found.revision
end

local function as_text(answer)
  local lines = { ("count %d, more %s"):format(answer.count or 0, tostring(answer.more or false)) }
  for _, kv in ipairs(answer.kvs or {}) do
    lines[#lines + 1] = ("%s=%s %d %d %d"):format(kv.key, kv.value or "", kv.create_revision, kv.mod_revision,
      kv.version)
  end
  return table.concat(lines, "\n")
end

local function suite(method, kind)
  describe(("random answers to %s from %s"):format(method, kind), function()
    local host, client, dice, place

    before_each(function()
      place = kind == "disk" and directory.new() or nil
      host = pair.host { max_txn_ops = KEYS, path = place and place .. "/data" }
      client = host:client()
      dice = random.new(tonumber(os.getenv("KW_SEED")) or os.time())
      local puts = {}
      for i = 1, KEYS do puts[i] = { put = key_at(i), value = dice:pick(VALUES) } end
      assert(host.store:txn { success = puts })
      for _ = 1, 100 do write(dice, host.store) end
    end)

    after_each(function()
      if core.probe then core.probe.check(host.store) end
      host:check()
      host:close()
      if place then directory.remove(place) end
    end)

    --- One turn of the server, and of the client that reads a stream. Returns whether there is more to do.
    local function turn()
      local more = host.server:tend(host.now) == host.now
      if method == "RangeStream" then
        more = client:pull() or more
        more = client:push() or more
      end
      return more
    end

    local function revision() return host.store:status().revision end

    local function answer_of(back)
      if back.status ~= 0 then return nil end
      return method == "Range" and core.decode("RangeResponse", back[1]) or pair.merge(back)
    end

    local function start(request)
      local call = client:start(method, nil, core.encode("RangeRequest", request))
      client.client:half_close(call)
      client:push()
      return call
    end

    local function finish(call)
      host:pump()
      client:take()
      local back = client.returns[call]
      return answer_of(back), back.text
    end

    it("are what one piece is", function()
      local oldest, met, rounds = 2, { unfinished = 0, compacted = 0, restarted = 0 }, 0
      local function has_met_all()
        return met.unfinished > 0 and met.compacted > 0 and (met.restarted > 0 or method == "RangeStream")
      end
      while rounds < ROUNDS or core.probe and not has_met_all() do
        rounds = rounds + 1
        assert(rounds <= MOST_ROUNDS, "some case is never met")
        local request = random_request(dice, oldest, revision(), method)
        local expected, at = in_one_piece(host.store, request)
        local call, is_compacted = start(request), false
        write(dice, host.store)
        while turn() do
          met.unfinished = met.unfinished + 1
          write(dice, host.store)
          if dice:one_in(20) then
            oldest, is_compacted = revision(), true
            host.store:compact(oldest)
          end
        end
        local answer, text = finish(call)
        if not answer then
          assert(is_compacted, text)
          assert.equal(COMPACTED, text)
          met.compacted = met.compacted + 1
        elseif answer.header.revision ~= at then
          assert(is_compacted and not request.revision)
          met.restarted = met.restarted + 1
        else
          assert.equal(expected, as_text(answer))
        end
        for _ = 1, 5 do write(dice, host.store) end
      end
    end)

    it("are counted once for all pages of a list at an old revision", function()
      local at, seen, key = revision(), {}, "k"
      local whole = host.store:range("k", { prefix = true }).kvs
      for _ = 1, 50 do write(dice, host.store) end
      repeat
        local answer = client:unary("Range", { key = key, range_end = "l", limit = 7, revision = at })
        assert.equal(#whole - #seen, answer.count)
        for _, kv in ipairs(answer.kvs) do seen[#seen + 1] = kv.key end
        key = seen[#seen] .. "\0"
        write(dice, host.store)
      until not answer.more or #seen > 700
      for i, name in ipairs(seen) do assert.equal(whole[i].key, name) end
    end)

    it("leave nothing behind when their calls are cancelled", function()
      for _ = 1, ROUNDS do
        local call = start(random_request(dice, 2, revision(), method))
        if turn() then write(dice, host.store) end
        client.client:cancel(call)
        host:pump()
        assert.is_false(turn())
        host:check()
      end
    end)

    if core.probe then
      it("fail for want of memory, or are what one piece is #starved", function()
        occurrences.await({ 0, 8 }, ROUNDS, function(n)
          local request = random_request(dice, 2, revision(), method)
          local expected, at = in_one_piece(host.store, request)
          client = host:client() -- the one before may have lost its connection
          local call = start(request)
          core.probe.fail_core(n % 12 + 1)
          while turn() do end
          core.probe.fail_none()
          host:pump()
          client:take()
          local back = client.returns[call]
          local outcome = back.status or "lost"
          if outcome == "lost" then assert.is_true((select(2, client.peer:state()))) end -- with its connection
          local answer = answer_of(back)
          if answer then
            assert.equal(at, answer.header.revision)
            assert.equal(expected, as_text(answer))
          end
          client:close()
          host.ends[#host.ends] = nil
          write(dice, host.store)
          return { [outcome] = 1 }
        end)
      end)
    end
  end)
end

for _, kind in ipairs { "memory", "disk" } do
  suite("Range", kind)
  suite("RangeStream", kind)
end
