-- SPDX-License-Identifier: MIT
--- variables: the counters of a server as JSON, in the format of Go's package expvar: the endpoint /debug/vars.
--
--   { "file_descriptor_limit":, "memstats":, "raft.status":, "keywatch": }
--
-- The first three have the names of etcd's variables. etcd's variable with the command line is left out, since that may
-- have passwords.

local core = require "keywatch.core"
local metrics = require "keywatch.server.metrics"
local metrics_text = require "keywatch.support.metrics_text"
local process = require "keywatch.server.process"

--- Returns the counters of the calls of a method.
local function call_of(method)
  local ends = {}
  for status, n in pairs(method.handled) do ends[metrics.CODES[status + 1]] = n end
  return {
    started = method.started, handled = ends, received = method.received, received_bytes = method.received_bytes,
    sent = method.sent, sent_bytes = method.sent_bytes, seconds = method.seconds,
  }
end

--- Returns the text for an open server.
local function text(server)
  local counters, methods = server.object:counters()
  counters.calls = {}
  for _, method in ipairs(methods) do counters.calls[metrics_text.to_utf8(method.path)] = call_of(method) end
  local system = process.read()
  local id = server.identity.member_id
  return core.json_encode {
    file_descriptor_limit = system.most_descriptors or nil,
    memstats = { Alloc = collectgarbage "count" * 1024, Sys = system.resident or nil },
    ["raft.status"] = {
      id = id, lead = id, raftState = "StateLeader", term = server.raft_term, commit = counters.applied,
      applied = counters.revision,
    },
    keywatch = counters,
  } .. "\n"
end

return { text = text }
