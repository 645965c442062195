--- Python's etcd3, and gRPC's own library by hand. Every case is a function of its name in spec/support/python.

local python = require "spec.support.python"
local server = require "spec.support.server"

local CLIENT = {
  { "put_and_get", "puts and gets" },
  { "transaction", "makes transactions" },
  { "lease", "binds keys to a lease, and revokes it" },
  { "lease_ids", "chooses ids of leases" },
  { "lease_refreshed", "keeps a lease" },
  { "lock", "locks" },
  { "watch_callback", "watches with a callback" },
  { "watch_iterator", "watches with an iterator" },
  { "compaction", "compacts, and gets the error for compacted history" },
  { "status_and_members", "asks for the status and the members" },
  { "alarm", "raises an alarm, and disarms it" },
}

local RAW = {
  { "large_answer", "gets 20 MiB in one answer" },
  { "range_stream", "gets the messages of a range stream, which are the answer to the range" },
  { "watch_cancelled", "gives up a stream" },
  { "watch_many_on_one_stream", "has a thousand watchers on one stream" },
  { "streams_many_on_one_channel", "has a hundred streams on one connection" },
  { "watch_slow_reader", "reads late" },
  { "oversized_message", "sends messages that are too large" },
  { "compressed_request", "sends compressed messages" },
  { "metadata", "sends metadata" },
  { "calls_cancelled", "gives up calls" },
}

describe("Python #once #peer", function()
  local peer, client

  setup(function()
    peer = server.start()
    client = python.new(peer)
  end)

  teardown(function()
    if client then client:stop() end
    if peer then peer:stop() end
  end)

  local tried = { "watch_until_shutdown", "no_connection" } -- in shutdown_spec.lua, and in tls_spec.lua

  local function try(cases)
    for _, case in ipairs(cases) do
      tried[#tried + 1] = case[1]
      it(case[2], function() client:case(case[1]) end)
    end
  end

  describe("with etcd3", function() try(CLIENT) end)

  describe("with gRPC", function() try(RAW) end)

  it("has no untested case", function()
    table.sort(tried)
    assert.same(tried, client:cases())
  end)
end)
