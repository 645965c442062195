--- The answers of long writes: they are made in turns, take no more memory than their connection may hold, and are
-- refused as soon as that is known. Answers that are not taken are freed in turns.

local core = require "keywatch.core"
local probe = core.probe

local directory = require "spec.support.directory"
local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local KIB, MIB = 1024, 1024 * 1024
local MANY = probe and 100 or 25000 -- keys: more than one turn visits
local QUOTA = probe and 128 * KIB or 8 * MIB
local VALUE = ("v"):rep(probe and 2000 or 400) -- all of them are beyond the quota
local OPS = 128 -- of one transaction
local ALL = { key = "k", range_end = "l" }
local RESOURCE_EXHAUSTED = 8

local function with(fields)
  local request = { key = ALL.key, range_end = ALL.range_end }
  for name, value in pairs(fields) do request[name] = value end
  return request
end

--- Returns a transaction of the operations, with as many of the last one as it may have.
local function txn_of(...)
  local ops = { ... }
  for i = #ops + 1, OPS do ops[i] = ops[#ops] end
  return { success = ops }
end

--- Returns a transaction in a transaction in a transaction, as large as that may be.
local function nested(op)
  local inner = txn_of(op)
  for _ = 1, 2 do table.remove(inner.success) end
  return { success = { { request_txn = { success = { { request_txn = inner } } } } } }
end

local function fill(store, value)
  for i = 1, MANY do assert(store:put(("k%06d"):format(i), value)) end
end

local host, store, client

local function open(value, path, options)
  host = pair.host({ path = path }, options or { quota_connection_bytes = QUOTA })
  store, client = host.store, host:client()
  fill(store, value)
  host:pump()
end

local function close()
  host:check()
  host:close()
  directory.remove_all()
end

local function check()
  host:check()
  if probe then probe.check(store) end
end

--- Turns until a call has its answer. Returns that, and how many turns there were.
local function finish(call)
  local turns = 0
  while call:look() == nil do
    host.server:step(host.now)
    call.who:push()
    check()
    turns = turns + 1
  end
  local answer, bytes = call:look()
  return answer, bytes, turns
end

local function expect_refused(method, request)
  local revision = store:status().revision
  local status = finish(client:begin(method, request))
  assert.equal(RESOURCE_EXHAUSTED, status)
  assert.equal(revision, store:status().revision)
  assert.equal(MANY, store:range("k", { prefix = true, count_only = true }).count)
end

describe("an answer of a long write that is too large", function()
  after_each(close)

  it("is refused at once if the number of keys is enough to decide", function()
    open("")
    local range = { request_range = ALL }
    for _, txn in ipairs {
      txn_of(range),
      txn_of({ request_put = { key = "k1", value = "" } }, { request_range = with { keys_only = true } }),
      txn_of({ request_delete_range = { key = "k000001" } }, { request_range = with { limit = MANY - 1 } }),
      nested(range),
    } do
      local revision = store:status().revision
      assert.equal(RESOURCE_EXHAUSTED, (client:begin("Txn", txn):look()))
      assert.equal(revision, store:status().revision)
    end
    check()
  end)

  it("is not confused with an answer that is smaller than the number of keys", function()
    local middle = ("k%06d"):format(MANY / 2)
    local range = { request_range = ALL }
    for _, txn in ipairs {
      txn_of({ request_delete_range = ALL }, range),
      txn_of({ request_delete_range = { key = "k", range_end = middle } },
        { request_delete_range = { key = middle, range_end = "l" } }, range),
      txn_of { request_range = with { limit = 1 } },
      txn_of { request_range = with { count_only = true } },
      txn_of { request_range = with { min_mod_revision = 2 ^ 40 } },
      txn_of { request_range = with { revision = 1 } },
      txn_of({ request_delete_range = ALL }, { request_delete_range = with { prev_kv = true } }),
    } do
      open("")
      local answer = finish(client:begin("Txn", txn))
      assert.equal(OPS, #answer.responses)
      close()
    end
    open("")
  end)

  for _, kind in ipairs { "memory", "disk" } do
    local function path() return kind == "disk" and directory.new() or nil end

    it("is refused while it is built, and nothing has changed, in " .. kind, function()
      open(VALUE, path())
      expect_refused("DeleteRange", with { prev_kv = true })
      expect_refused("Txn", { success = { { request_put = { key = "k1", value = "" } }, { request_range = ALL } } })
      expect_refused("Txn", { success = {
        { request_txn = { success = { { request_range = with { limit = MANY / 2 } } } } },
        { request_delete_range = with { prev_kv = true } },
      } })
      assert.is_true(host.server:held() < 64 * KIB)
    end)

    if probe then
      it("never takes more memory than the connection may hold, in " .. kind, function()
        open("", path())
        local room = QUOTA / 2 + 16 * KIB
        -- The filter lets all keys pass, which is unknown before.
        local txn = client:begin("Txn", txn_of { request_range = with { min_mod_revision = 1 } })
        collectgarbage()
        local before, most = probe.bytes(), 0
        while txn:look() == nil do
          host.server:step(host.now)
          most = math.max(most, probe.bytes() - before)
          assert.is_true(host.server:held() <= room + 16 * KIB)
        end
        assert.equal(RESOURCE_EXHAUSTED, txn:look())
        assert.is_true(most > QUOTA / 8 and most < room + 16 * KIB, most)
        assert.is_true(probe.bytes() < before + 8 * KIB)
      end)
    end
  end
end)

describe("an answer of a long write", function()
  after_each(close)

  for _, kind in ipairs { "memory", "disk" } do
    it("has the same bytes as an answer in one piece, in " .. kind, function()
      local function ask(compares)
        open("", kind == "disk" and directory.new() or nil)
        for i = 1, 4 do assert(store:put("x" .. i, ("v"):rep(i * 3000))) end
        assert(store:put("put", "old"))
        local txn = client:begin("Txn", { compare = compares, success = {
          { request_put = { key = "put", value = "new", prev_kv = true } },
          { request_put = { key = "put2", value = "new", prev_kv = true } },
          { request_range = { key = "x", range_end = "y", limit = 2 } },
          { request_txn = { success = {
            { request_range = { key = "x", range_end = "y", keys_only = true } },
            { request_delete_range = { key = "x2", range_end = "x4", prev_kv = true } },
            { request_txn = { compare = { { key = "none", target = "VERSION", version = 1 } } } },
            { request_range = { key = "x4" } },
          } } },
          { request_delete_range = { key = "x", range_end = "y", prev_kv = true } },
          { request_range = { key = "x", range_end = "y" } },
        } })
        local _, bytes, turns = finish(txn)
        return bytes, turns
      end
      local short, turns = ask {}
      close()
      local long, more = ask { { key = "k", range_end = "l", target = "VERSION", version = 1 } }
      if kind == "memory" then assert.is_true(more > turns) end -- with a disk both wait for the commit
      assert.equal(short, long)
    end)
  end

  if probe then
    local LARGE = ("v"):rep(3900) -- more than the connection takes from a stream at once

    --- Opens, and asks for an answer of many records, which is not read.
    local function ask()
      open(LARGE, nil, { quota_connection_bytes = 4 * MIB, max_queued = KIB })
      local before = probe.bytes()
      local txn = client:begin("Txn", { success = { { request_put = { key = "z", value = "" } },
        { request_range = ALL } } })
      return txn, before
    end

    --- Turns until the memory is about what it was before. Returns the number of turns.
    local function turns_until(before)
      local turns = 0
      while probe.bytes() > before + 16 * KIB do
        host.server:step(host.now)
        check()
        turns = turns + 1
        assert.is_true(turns < 10000)
      end
      return turns
    end

    it("is freed in turns if its stream ends", function()
      local txn, before = ask()
      while not store:get("z") do host.server:step(host.now) end
      assert.is_true(host.server:held() > MANY * #LARGE)
      client.client:cancel(txn.number)
      client:push()
      assert.is_true(host.server:held() < 64 * KIB)
      assert.is_true(turns_until(before) > 2)
    end)

    it("is freed in turns if its connection ends", function()
      local _, before = ask()
      while not store:get("z") do host.server:step(host.now) end
      table.remove(host.ends, 1):close()
      assert.is_true(turns_until(before) > 2)
    end)

    it("is freed in turns if its connection ends before the write does", function()
      local _, before = ask()
      while host.server:held() < MANY * #LARGE / 2 do host.server:step(host.now) end
      assert.is_nil((store:get("z")))
      table.remove(host.ends, 1):close()
      check()
      assert.is_true(turns_until(before) > 2)
      while not store:get("z") do host.server:step(host.now) end
    end)

    it("is freed with the server, and with the store", function()
      for _, what in ipairs { "server", "store" } do
        ask()
        while not store:get("z") do host.server:step(host.now) end
        table.remove(host.ends, 1):close()
        host.server:step(host.now)
        host[what]:close()
        host:close()
      end
      ask()
    end)

    it("fails if too many answers wait, and the write is rolled back in turns", function()
      ask()
      host:pump()
      local raw = host:raw(h2.hello { initial_window_size = 0 })
      local revision = store:status().revision
      raw:say(h2.call(1, pair.paths.Range, core.encode("RangeRequest", ALL)))
      raw:say(h2.call(3, pair.paths.DeleteRange, core.encode("DeleteRangeRequest", with { prev_kv = true })))
      assert.equal(RESOURCE_EXHAUSTED, (raw.reader:status(3)))
      check()
      assert.equal(revision, store:status().revision)
      assert.equal(MANY, store:range("k", { prefix = true, count_only = true }).count)
    end)
  end
end)
