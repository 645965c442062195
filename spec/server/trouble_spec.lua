--- How a server reports that its store does not work: in its log, by Health, in its status, and to writers.

local keywatch = require "keywatch"
local trouble = require "keywatch.server.trouble"

local command = require "spec.support.command"
local directory = require "spec.support.directory"
local fault = require "spec.support.fault"
local process = require "spec.support.process"
local rpc = require "spec.support.rpc"

local CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
local ALARM, STATUS = "/etcdserverpb.Maintenance/Alarm", "/etcdserverpb.Maintenance/Status"
local SNAPSHOT = "/etcdserverpb.Maintenance/Snapshot"
local PUT = "/etcdserverpb.KV/Put"
local UNAVAILABLE, FAILED_PRECONDITION = 14, 9
local FAILED = "keywatch: the storage has failed: "
local REMOVED = FAILED .. "the data directory, or the lock file in it, was removed or replaced"

describe("a server", function()
  local path, store, server, client, lines

  before_each(function()
    path, lines = directory.new() .. "/data", {}
    store = assert(keywatch.open { path = path })
    server = assert(keywatch.serve {
      store = store, listen = "http://127.0.0.1:0",
      on_log = function(level, text) lines[#lines + 1] = level .. " " .. text end,
    })
    client = rpc.connect(server:addresses()[1])
    assert(client:ask(PUT, { key = "a", value = "1" }))
  end)

  after_each(function()
    client:close()
    server:close()
    store:close()
    directory.remove_all()
  end)

  --- Waits for `n` answers of a call, and returns them.
  local function answers(call, n)
    client:wait(function() return #call.messages >= n or call.status end)
    return rpc.answers(call, WATCH)
  end

  describe("whose data directory was removed", function()
    before_each(function() directory.remove(path) end)

    it("reports that to writers, once in its log, and in its status", function()
      for _ = 1, 3 do
        assert.same({ nil, UNAVAILABLE, REMOVED }, { client:ask(PUT, { key = "a", value = "2" }) })
      end
      assert.same({ REMOVED }, client:ask(STATUS).errors)
      assert.same({ "error " .. REMOVED .. ": writes fail until the server is started again" }, lines)
    end)

    it("is not serving, for Health, also for its watchers", function()
      local call, other = client:begin_message(WATCH), client:begin_message(WATCH, { service = "x" })
      assert.same({ { status = "SERVING" } }, answers(call, 1))
      client:ask(PUT, { key = "a", value = "2" })
      assert.same({ { status = "SERVING" }, { status = "NOT_SERVING" } }, answers(call, 2))
      assert.same({ status = "NOT_SERVING" }, client:ask(CHECK))
      assert.equal(1, #other.messages)
    end)

    it("has an error of the store, with the reason", function()
      local _, err = store:put("a", "2")
      assert.same({ "storage", REMOVED }, { err.code, err.message })
      assert.same({ REMOVED }, store:status().errors)
    end)

    it("ends a snapshot with a status for which clients do not retry", function()
      client:ask(PUT, { key = "a", value = "2" })
      assert.same({ FAILED_PRECONDITION, REMOVED }, { client:finish(client:begin_message(SNAPSHOT)) })
    end)

    it("is not healthy for a client of keywatch, which knows the error", function()
      local other = keywatch.connect(server:addresses()[1])
      local _, err = other:put("a", "2")
      assert.same({ "storage", REMOVED }, { err.code, err.message })
      local row = other:health { timeout = 10 }[1]
      assert.same({ false, "storage", REMOVED }, { row.is_healthy, row.err.code, row.err.message })
      other:close()
    end)
  end)

  it("logs an alarm once, and its end", function()
    for _ = 1, 3 do store:arm("no_space") end
    client:settle()
    assert.equal(1, #lines)
    assert.matches("^warn alarm NOSPACE: the disk is full, or the quota: %d+ of 2147483648 bytes", lines[1])
    assert.same({ status = "SERVING" }, client:ask(CHECK))
    store:disarm("no_space")
    client:settle()
    assert.same({ "info alarm NOSPACE has ended" }, { lines[2], lines[3] })
  end)

  it("is not serving while a record is damaged, for Health", function()
    local call = client:begin_message(WATCH)
    answers(call, 1)
    store:arm("corrupt")
    answers(call, 2)
    store:disarm("corrupt")
    assert.same({ { status = "SERVING" }, { status = "NOT_SERVING" }, { status = "SERVING" } }, answers(call, 3))
  end)

  it("does not fill its log for a client that arms and disarms repeatedly", function()
    local from = keywatch.now()
    for _ = 1, 100 do
      assert(client:ask(ALARM, { action = "ACTIVATE", memberID = server.identity.member_id, alarm = "NOSPACE" }))
      assert(client:ask(ALARM, { action = "DEACTIVATE", memberID = server.identity.member_id, alarm = "NOSPACE" }))
    end
    local later = 2 * math.ceil(keywatch.now() - from) -- a second has one more, and the number of those left out
    assert.is_true(#lines >= 10 and #lines <= 20 + later, #lines .. " lines")
  end)

  it("logs once that it cannot accept connections, and when it can again", function()
    local REASON = "too many open files"
    for _ = 1, 3 do trouble.accept_failed(server, REASON) end
    assert.same({ "warn connections cannot be accepted, and wait: too many open files: see ulimit -n" }, lines)
    assert.same({ "keywatch: connections cannot be accepted: too many open files" }, client:ask(STATUS).errors)
    assert.equal(1, #lines)
    server.trouble.calm_at = keywatch.now()
    assert.is_nil(client:ask(STATUS).errors)
    assert.same({ "info connections are accepted again" }, { lines[2], lines[3] })
  end)

  it("logs an alarm that was armed before its start", function()
    store:arm("no_space")
    local other = {}
    local second = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0",
      on_log = function(level) other[#other + 1] = level end })
    client:settle()
    second:close()
    assert.same({ "warn" }, other)
  end)
end)

describe("a server whose disk fails", function()
  local disk = fault.for_each_test()
  local server, client

  before_each(function()
    server = command.start_in(disk:environment(), "serve", "--data-dir", disk.path,
      "--listen-client-urls", "http://127.0.0.1:0")
    client = rpc.connect(command.wait_until_ready(server)[1])
  end)

  after_each(function()
    client:close()
    process.end_all()
  end)

  it("reports after a failed flush what has failed, with the errno", function()
    assert(client:ask(PUT, { key = "a", value = "1" }))
    disk:plan("fail sync 1 on 5")
    local _, status, text = client:ask(PUT, { key = "a", value = "2" })
    assert.equal(UNAVAILABLE, status)
    assert.matches("^" .. FAILED .. "the %a+ cannot be written: Input/output error %(errno 5%)$", text)
    assert.same({ text }, client:ask(STATUS).errors)
    server:expect_error(" error " .. FAILED .. "the %a+ cannot be written: Input/output error %(errno 5%): ")
  end)

  it("warns once that the disk is full", function()
    disk:plan("fail size 1 on 28")
    local padding = ("."):rep(400000)
    local done, status
    repeat
      done, status = client:ask(PUT, { key = "a", value = padding })
    until not done
    assert.equal(8, status)
    server:expect_error(" warn alarm NOSPACE: ")
    client:ask(PUT, { key = "a", value = padding })
    disk:plan("")
    assert(client:ask(ALARM, { action = "DEACTIVATE", alarm = "NOSPACE",
      memberID = client:ask(STATUS).header.member_id }))
    server:expect_error(" info alarm NOSPACE has ended\n")
    assert.is_nil(server:stderr():find(" warn alarm NOSPACE: .* warn alarm NOSPACE: "))
  end)
end)
