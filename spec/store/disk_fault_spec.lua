--- A durable store whose disk fails: see spec/support/fault.c. What was acknowledged is there when it is opened again,
-- and nothing is there by half. power_spec.lua has the power fail.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local command = require "spec.support.command"
local dose = require "spec.support.dose"
local fault = require "spec.support.fault"
local FAILURES = require("spec.support.fault_plan").FAILURES
local process = require "spec.support.process"
local new_random = require("spec.support.random").new
local rpc = require "spec.support.rpc"

local KILLED = 128 + 9
local IS_FAST = dose.is_small

local disk = fault.for_each_test()

local function expect_end(program) assert.equal(0, program:wait(600), program:transcript()) end

local function expect_done(program)
  expect_end(program)
  assert.matches("done %d+\n", program:stdout())
end

describe("a failing disk #slow", function()
  local function expect(what, plan)
    it("loses nothing when it " .. what .. ", whichever call it is", function()
      disk:strike_every("spec/support/fault_program.lua", plan)
    end)
  end

  for what, plan in pairs(FAILURES) do expect(what, plan) end
  expect("is interrupted", "fail any %d once 4")
end)

--- A commit group that is written in parts.
describe("a large delete #slow", function()
  local KEYS = core.probe and 60 or 30000

  for what, plan in pairs { ["has no room"] = "fail any %d once 28", ["is broken"] = "fail any %d once 5" } do
    it("happens whole or not at all when the disk " .. what, function()
      local n = 1
      repeat
        local program = disk:start("large", plan:format(n), tostring(KEYS))
        expect_done(program)
        local has_struck = not program:stdout():find("not struck\n", 1, true)
        n = n + (IS_FAST and 7 or 3)
        disk:renew()
      until not has_struck
      assert.is_true(n > 8)
    end)
  end

  it("is there whole or not at all after the program was killed", function()
    local random, killed = new_random(tonumber(os.getenv("KW_SEED"))), 0
    for _ = 1, dose.of(2, 6) do
      local program = disk:start("large", ("kill any %d after"):format(random:between(2, 12)), tostring(KEYS))
      killed = killed + (program:wait(600) == KILLED and 1 or 0)
      local store = assert(keywatch.open { path = disk.path })
      local count = store:range("key ", { prefix = true, count_only = true }).count
      assert.is_true(count == 0 or count == KEYS, count .. " are left")
      assert.equal(count, assert(store:delete("key ", { prefix = true })).deleted)
      store:close()
      store = assert(keywatch.open { path = disk.path })
      assert.equal(0, store:range("key ", { prefix = true, count_only = true }).count)
      store:close()
      disk:renew()
    end
    assert.is_true(killed > 0)
  end)
end)

describe("a database whose file grows #slow", function()
  -- Values that go to the journal; and how long a sync of the database takes, so that checkpoints are on their way
  -- whenever the file grows. In builds with a probe a checkpoint has many more syncs.
  local BYTES = core.probe and 1800 or 100000
  local SYNC_MS = core.probe and 1 or 20

  it("has every page that a checkpoint writes meanwhile", function()
    disk.slow_ms = SYNC_MS
    expect_done(disk:start("grow", tostring(BYTES)))
  end)
end)

describe("a full disk #slow", function()
  it("is read, freed and filled again", function() expect_end(disk:start("full")) end)

  -- Its error, and bytes beside whole pages, so that the last page is written by a part.
  for what, case in pairs { ["a disk"] = { 28, 0, 4000 }, ["a quota"] = { 122, 100 }, ["a file"] = { 27, 0 } } do
    it("is " .. what .. " whose end deletes have come to: it is read, and compaction makes room", function()
      for i = 2, #case do
        expect_done(disk:start("exhaust", ("room %d %d"):format(12 * 1024 * 1024 + case[i], case[1])))
        disk:renew()
      end
    end)
  end

  it("has no key again that was deleted, where compaction has room for a part of what it removes", function()
    expect_done(disk:start("part", ("room %d 28"):format(12 * 1024 * 1024)))
  end)

  it("is written to again only after a while, where nobody asks for it", function()
    expect_end(disk:start("patient"))
  end)

  it("answers what has changed nothing, also while it takes no write at all", function()
    expect_end(disk:start("read"))
  end)

  it("is no place for a new store, and says why", function() expect_done(disk:start("make")) end)

  it("is a small file system whose end deletes have come to: it is read, and compaction makes room", function()
    expect_done(disk:start_small(12 * 1024 * 1024, "exhaust", ""))
  end)
end)

describe("a server whose disk fails under many writes at once #slow", function()
  local PUTS = 100 -- at once
  local PADDING = ("."):rep(40000) -- so much that they soon fill what was grown ahead
  local server, client

  local function serve()
    server = command.start_in(disk:environment(), "serve", "--data-dir", disk.path,
      "--listen-client-urls", "http://127.0.0.1:0")
    client = rpc.connect(command.wait_until_ready(server)[1])
  end

  after_each(function()
    client:close()
    process.end_all()
  end)

  --- Puts keys of their own, all at once, until each is answered or nobody is there. Adds what it has asked to `asked`.
  local function put_many(asked)
    local last = #asked + PUTS
    for i = #asked + 1, last do
      local put = { key = "key " .. i, value = "value " .. i .. PADDING }
      put.call = client:begin_message("/etcdserverpb.KV/Put", { key = put.key, value = put.value })
      asked[i] = put
    end
    client:wait(function()
      if client.socket.has_ended then return true end
      for i = last, last - PUTS + 1, -1 do
        if not asked[i].call.status then return false end
      end
      return true
    end)
  end

  --- Whether what was acknowledged is there, at its revision, and what was refused is not. Every revision is a put.
  local function check(asked, may_have_happened)
    local store = assert(keywatch.open { path = disk.path })
    local found = 0
    for _, put in ipairs(asked) do
      local kv, status = store:get(put.key), put.call.status
      local answer = status == 0 and rpc.answers(put.call, "/etcdserverpb.KV/Put")[1]
      if answer then assert.equal(answer.header.revision, kv and kv.mod_revision) end
      if kv then assert.equal(put.value, kv.value) end
      if kv and status ~= 0 then assert.is_true(may_have_happened(put.call), put.call.text) end
      if kv then found = found + 1 end
    end
    assert.equal(found + 1, store:status().revision)
    store:close()
    return found
  end

  it("has every acknowledged write after the power has failed", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    for _ = 1, dose.of(2, 6) do
      serve()
      disk:plan(("cut any %d %s %d"):format(random:between(1, 30), random:pick { "before", "after" }, random:next()))
      local asked = {}
      repeat put_many(asked) until client.socket.has_ended
      assert.equal(KILLED, server:wait())
      check(asked, function(call) return call.status == nil end)
      disk:renew()
    end
  end)

  for what, plan in pairs { ["is full"] = "fail size %d on 28", ["is broken"] = "fail sync %d once 5" } do
    it("answers what has happened, and goes on reading, when the disk " .. what, function()
      local random = new_random(tonumber(os.getenv("KW_SEED")))
      for _ = 1, (IS_FAST or core.probe and what == "is full") and 1 or 3 do
        serve()
        local asked = {}
        put_many(asked)
        disk:plan(plan:format(what == "is full" and 1 or random:between(1, 6)))
        for _ = 1, 5 do put_many(asked) end
        local statuses = {}
        for _, put in ipairs(asked) do statuses[put.call.status] = true end
        assert.same({ [0] = true, [what == "is broken" and 14 or 8] = true }, statuses)
        assert.equal(asked[1].value, client:ask("/etcdserverpb.KV/Range", { key = "key 1" }).kvs[1].value)
        server:signal("sigterm")
        assert.equal(0, server:wait())
        disk:plan("")
        check(asked, function(call) return call.status == 14 end)
        disk:renew()
      end
    end)
  end
end)
