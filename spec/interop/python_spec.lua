--- Python's etcd3, and gRPC's own library by hand. Every case is a function of its name in spec/support/python.

local python = require "spec.support.python"
local server = require "spec.support.server"

local PROGRESS = "--experimental-watch-progress-notify-interval=200ms"

local CLIENT = {
  { "put_and_get", "puts and gets" },
  { "delete", "deletes" },
  { "prefix_and_range", "gets prefixes and ranges" },
  { "sort", "sorts" },
  { "transaction", "makes transactions" },
  { "lease", "binds keys to a lease, and revokes it" },
  { "lease_ids", "chooses ids of leases" },
  { "lease_expiry", "sees a lease end" },
  { "lease_refreshed", "keeps a lease" },
  { "lock", "locks" },
  { "watch_callback", "watches with a callback" },
  { "watch_iterator", "watches with an iterator" },
  { "watch_prefix_from_revision", "watches a prefix from an old revision on" },
  { "watch_once", "watches for one event" },
  { "watch_previous", "is told what was before" },
  { "watch_progress", "is told of progress" },
  { "watch_cancel", "ends a watch" },
  { "compaction", "compacts, and is told that it has" },
  { "status_and_members", "asks for the status and the members" },
  { "alarm", "raises an alarm, and disarms it" },
  { "defragment", "defragments" },
}

local RAW = {
  { "range_options", "ranges by every option" },
  { "txn_nested", "nests transactions" },
  { "txn_compares", "compares leases and ranges" },
  { "no_write_no_revision", "finds no new revision where nothing was written" },
  { "errors", "is told what is wrong, in etcd's words" },
  { "large_answer", "gets 20 MiB in one answer" },
  { "range_stream", "gets the messages of a range stream, which are the answer to the range" },
  { "watch_ids", "chooses ids of watchers" },
  { "watch_refusals", "is told what cannot be watched" },
  { "watch_cancel_unknown", "may cancel what is not there" },
  { "watch_compacted", "is told that the past is compacted" },
  { "watch_everything", "watches everything" },
  { "watch_atomic", "gets a revision whole" },
  { "watch_filters", "watches for puts or for deletes alone" },
  { "watch_fragments", "gets a large revision in parts" },
  { "watch_progress_request", "asks for progress" },
  { "watch_progress_behind_events", "gets progress behind what it covers" },
  { "watch_half_closed", "is told of events after its last request" },
  { "watch_deadline", "watches up to a deadline" },
  { "watch_cancelled", "gives up a stream" },
  { "watch_many_on_one_stream", "has a thousand watchers on one stream" },
  { "streams_many_on_one_channel", "has a hundred streams on one connection" },
  { "watch_slow_reader", "reads late" },
  { "keep_alive_half_closed", "is answered after its last request, and then the stream ends" },
  { "lease_list", "lists leases" },
  { "unknown_names", "calls what is not there" },
  { "oversized_message", "sends messages that are too large" },
  { "compressed_request", "sends compressed messages" },
  { "malformed_message", "sends what is no message" },
  { "unknown_fields", "sends fields of times to come" },
  { "metadata", "sends metadata" },
  { "health", "asks for health" },
  { "calls_cancelled", "gives up calls" },
}

describe("Python #once #peer", function()
  local peer, client

  setup(function()
    peer = server.start { PROGRESS }
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

  it("has no case that is not tried", function()
    table.sort(tried)
    assert.same(tried, client:cases())
  end)
end)
