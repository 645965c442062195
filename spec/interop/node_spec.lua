--- npm's etcd3. Every case is a function of its name in spec/support/node.

local node = require "spec.support.node"
local process = require "spec.support.process"
local server = require "spec.support.server"

local PROGRESS = "--experimental-watch-progress-notify-interval=200ms"

local CASES = {
  { "put_and_get", "puts and gets" },
  { "large_values", "puts and gets large values" },
  { "transactions", "makes transactions" },
  { "software_transactions", "makes software transactions, each done once" },
  { "watch_key", "watches a key" },
  { "watch_and_cancel_while_writing", "ends watchers during events" },
  { "watch_progress", "receives progress" },
  { "watch_compacted", "gets an error for compacted history" },
  { "lease", "binds keys to a lease, and revokes it" },
  { "lease_kept_alive", "keeps a lease" },
  { "lease_lost", "reports a lost lease" },
  { "election", "elects leaders" },
}

describe("Node #once #peer", function()
  local peer, client

  setup(function()
    peer = server.start { PROGRESS }
    client = node.new(peer)
  end)

  teardown(function()
    if client then client:stop() end
    if peer then peer:stop() end
  end)

  local tried = { "watch_across_restart", "no_connection" } -- below, and in tls_spec.lua

  for _, case in ipairs(CASES) do
    tried[#tried + 1] = case[1]
    it(case[2], function() client:case(case[1]) end)
  end

  it("has no untested case", function()
    table.sort(tried)
    assert.same(tried, client:cases())
  end)
end)

describe("Node, when the server ends and returns #once #peer", function()
  after_each(process.end_all)

  it("continues watches where they stopped", function()
    local peer = server.start()
    local client = node.new(peer)
    finally(function()
      client:stop()
      if peer:is_running() then peer:stop() end
    end)
    client:begin("watch_across_restart", "watching")
    peer:stop()
    peer = server.start { port = peer.port }
    client:finish("watch_across_restart")
  end)
end)
