--- A stream with many watches: closing the stream, and requesting progress, delays no other stream.

local core = require "keywatch.core"

local pair = require "spec.support.pair"

local WATCHES = 2000

describe("a watch stream with many watches", function()
  local host, crowd, other, stream, witness

  before_each(function()
    host = pair.host()
    crowd, other = host:client(), host:client()
    stream, witness = crowd:stream("Watch"), other:stream("Watch")
    witness:ask { create_request = { key = "a" } }
  end)
  after_each(function() host:close() end)

  --- Watchers of every kind: synced, lagging, of one key, of ranges, with periodic progress.
  local function watch_all()
    for i = 1, WATCHES do
      stream:send { create_request = { key = "a", range_end = i % 3 == 0 and "b" .. i or nil,
        start_revision = i % 5 == 0 and 1 or nil, progress_notify = i % 7 == 0 or nil } }
    end
    stream:take()
  end

  local function check()
    if core.probe then core.probe.check(host.store) end
    host:check()
  end

  local function leave()
    crowd:close()
    table.remove(host.ends, 1)
  end

  --- Closes the connection of the stream; returns how many turns the server wants after that.
  local function close(each)
    leave()
    local turns = 0
    while host.server:step(host.now) == host.now do
      turns = turns + 1
      check()
      if each then each(turns) end
    end
    return turns
  end

  it("is closed in several turns", function()
    host.store:put("a", "1")
    watch_all()
    assert.is_true(close() >= 2)
  end)

  it("delays no event of another stream while it is closed, and gets no more events", function()
    host.store:put("a", "1")
    watch_all()
    witness:take()
    local turns = close(function(turn)
      host.store:put("a", tostring(turn))
      local responses = witness:take()
      assert.equal(1, #responses)
      assert.equal(tostring(turn), responses[1].events[1].kv.value)
    end)
    assert.is_true(turns >= 1)
  end)

  it("frees all of its memory", function()
    if not core.probe then return end
    host.store:put("a", "1")
    local before = core.probe.bytes()
    watch_all()
    local with_all = core.probe.bytes()
    close()
    host.store:put("a", "2")
    witness:take()
    assert.is_true(core.probe.bytes() - before < (with_all - before) / 20)
  end)

  it("may lose its history, its server or its store while it is closed", function()
    for _, ends in ipairs { "compact", "server", "store" } do
      host:close()
      host = pair.host()
      crowd = host:client()
      stream = crowd:stream("Watch")
      host.store:put("a", "1")
      watch_all()
      host.store:put("a", "2")
      host.store:put("a", "3")
      leave()
      if ends == "compact" then host.store:compact(4) end
      if ends == "server" then host.server:close() end
      if ends == "store" then host.store:close() else check() end
    end
  end)

  it("reports progress as soon as the last of its future watches has begun, or is cancelled", function()
    watch_all()
    stream:send { create_request = { key = "a", start_revision = 4, watch_id = 77777 } }
    stream:send { create_request = { key = "a", start_revision = 90, watch_id = 88888 } }
    stream:take()
    assert.equal(0, #stream:ask { progress_request = {} })
    for _ = 1, 4 do host.store:put("b", "1") end
    stream:take()
    assert.equal(0, #stream:ask { progress_request = {} })
    stream:ask { cancel_request = { watch_id = 88888 } }
    local responses = stream:ask { progress_request = {} }
    assert.equal(1, #responses)
    assert.equal(5, responses[1].header.revision)
    check()
  end)
end)
