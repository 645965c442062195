--- gRPC frames and the few messages that are sent without a client library.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local int64 = require "spec.support.int64"

local frame = { new = h2.message }

--- Returns a protobuf field with bytes.
function frame.field(number, bytes) return int64.varint(number * 8 + 2) .. int64.varint(#bytes) .. bytes end

function frame.range(key) return frame.new(core.encode("RangeRequest", { key = key })) end
function frame.put(key, value) return frame.new(core.encode("PutRequest", { key = key, value = value })) end

--- Returns the frame of a request that creates a watcher of a key.
function frame.watch(key) return frame.new(core.encode("WatchRequest", { create_request = { key = key } })) end

return frame
