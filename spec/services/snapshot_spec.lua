--- Maintenance's Snapshot: the store as etcd's file has it, in pieces.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local snapshot_reader = require "keywatch.server.snapshot_reader"

local luv = require "spec.support.luv"
local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local PATH = "/etcdserverpb.Maintenance/Snapshot"
local PIECE, SUM = 32768, 32
local OK, ABORTED, RESOURCE_EXHAUSTED = 0, 10, 8

--- How many files without a name this process holds.
local function held_files()
  local n = 0
  local entries = assert(luv.fs_scandir("/proc/self/fd"))
  for name in luv.fs_scandir_next, entries do
    local target = luv.fs_readlink("/proc/self/fd/" .. name) or ""
    if target:find("/#%d+ %(deleted%)$") or target:find("/snapshot%.%w+ %(deleted%)$") then n = n + 1 end
  end
  return n
end

describe("Snapshot", function()
  local peer, client

  serving.for_each_test(function(...) peer, client = ... end)

  local function begin()
    return client:begin_message(PATH)
  end

  --- Waits until no file is held: those of other tests are closed by threads, which may be late.
  local function await_no_file()
    client:wait(function() return held_files() == 0 end)
  end

  local function fill(n)
    for i = 1, n do serving.put(client, "key" .. i, ("x"):rep(100000)) end
  end

  it("comes in messages with the remaining size, and ends with its checksum", function()
    fill(3)
    local call = begin()
    assert.equal(OK, (client:finish(call)))
    local answers = rpc.answers(call, PATH)
    local total = 0
    for i = 1, #answers - 1 do total = total + #answers[i].blob end
    assert.is_true(total > 300000)
    assert.equal(0, total % 512)
    local left = total
    for i, answer in ipairs(answers) do
      local is_last = i == #answers
      if not is_last then left = left - #answer.blob end
      assert.equal(is_last and SUM or math.min(PIECE, left + #answer.blob), #answer.blob)
      assert.equal(left, answer.remaining_bytes or 0)
      assert.is_nil(answer.header)
      if not serving.is_etcd then assert.matches("^3%.%d+%.0$", answer.version) end -- it came later
    end
  end)

  if serving.is_etcd then return end

  it("keeps no file after it was read", function()
    await_no_file()
    fill(3)
    client:finish(begin())
    await_no_file()
  end)

  it("continues for a slow reader", function()
    fill(10)
    local call = begin()
    client:wait(function() return #call.messages > 0 end)
    client:pause()
    client:settle()
    serving.put(peer:client(), "a", "1") -- a write does not wait
    client:resume()
    assert.equal(OK, (client:finish(call)))
  end)

  it("ends for a reader that has stopped, and keeps no file", function()
    await_no_file()
    peer.server.stall_seconds = 0.05
    fill(20)
    local call = begin()
    client:wait(function() return #call.messages > 0 end)
    client:pause()
    assert.equal(1, held_files())
    await_no_file()
    client:resume()
    assert.same({ ABORTED, "keywatch: the snapshot was not read for too long" }, { client:finish(call) })
  end)

  it("keeps no file for a disconnected reader", function()
    await_no_file()
    fill(20)
    local call = begin()
    client:wait(function() return #call.messages > 0 end)
    client:cancel(call)
    await_no_file()
    assert.equal("key1", serving.keys(client, "key")[1])
  end)

  it("keeps no file after the server was closed", function()
    await_no_file()
    fill(20)
    local call = begin()
    client:wait(function() return #call.messages > 0 end)
    client:pause()
    peer.server:close()
    await_no_file()
  end)

  it("is refused if there are too many concurrent ones", function()
    fill(20)
    local snapshots = {}
    for i = 1, 8 do snapshots[i] = assert(peer.store:open_snapshot()) end
    assert.same({ RESOURCE_EXHAUSTED, core.errors.too_many_snapshots.message }, { client:finish(begin()) })
    for i = 1, 8 do snapshots[i]:close() end
    assert.equal(OK, (client:finish(begin())))
  end)

  describe("with waiting requests", function()
    local calls, stuck, other -- the calls of a client that does not read; and another one

    --- The readers of the snapshots, once all can read.
    local function readers()
      local list = {}
      for reader in pairs(snapshot_reader.readers_of[peer.store] or {}) do
        if reader.before then list[#list + 1] = reader end
      end
      return list
    end

    before_each(function()
      fill(5)
      calls, stuck, other = {}, rpc.attach(peer.server), peer:client()
      table.insert(peer.clients, stuck)
      stuck:settle()
      stuck:pause()
      for i = 1, 8 do calls[i] = stuck:begin_message(PATH) end
      stuck:wait(function() return #readers() == 8 end)
    end)

    --- Has a reader have begun to read 20 seconds ago, and have read so much in a second.
    local function set_speed(reader, speed)
      reader.before.at, reader.taken = keywatch.now() - 20, speed * 20
    end

    local function finish_other()
      return other:finish(other:begin_message(PATH))
    end

    it("continues while all readers have just begun, or read fast", function()
      for i, reader in ipairs(readers()) do
        if i % 2 == 0 then set_speed(reader, 1e6) end
      end
      assert.equal(RESOURCE_EXHAUSTED, (finish_other()))
      assert.equal(8, #readers())
    end)

    it("is ended if it is read slowly: the slowest reader gives way, with an error", function()
      local all = readers()
      for i, reader in ipairs(all) do set_speed(reader, i == 3 and 1e3 or i == 5 and 2e5 or 1e6) end
      assert.equal(OK, (finish_other()))
      assert.is_true(all[3].is_ended)
      assert.equal(7, #readers())
      stuck:resume()
      local ended = {}
      for i = 1, 8 do
        local status, text = stuck:finish(calls[i])
        if status ~= OK then ended[#ended + 1] = { status, text } end
      end
      assert.same({ { ABORTED, "keywatch: the snapshot was read slowly, and another client needs its place" } }, ended)
    end)

    it("is ended, too, if its reader has stopped after a fast start", function()
      local stopped = readers()[1]
      stopped.taken = stopped.taken + 1e9
      stopped.before = { at = keywatch.now() - 15, taken = stopped.taken }
      assert.equal(OK, (finish_other()))
      assert.is_true(stopped.is_ended)
    end)
  end)

  it("is sent to many readers at the same time", function()
    fill(2)
    local calls = {}
    for i = 1, 8 do calls[i] = begin() end
    for i = 1, 8 do assert.equal(OK, (client:finish(calls[i]))) end
    for i = 2, 8 do assert.equal(#calls[1].messages, #calls[i].messages) end
  end)
end)
