-- SPDX-License-Identifier: MIT
--- server_revision: asks a server for its revision by a linearizable read, for all callers of a cache together.
--
-- A caller needs a revision that the server had after the call. So it never shares a read that began before the call:
-- while one read is running, all new callers share the next one, which begins when the first is done.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"

local RANGE = "/etcdserverpb.KV/Range"

local asker_methods = {}
local asker_mt = { __index = asker_methods }

--- Sends the read of the waiting round, if there is one and no other read is running.
local function begin(self)
  local round = self.waiting
  if self.current or not round or self.is_closed then return end
  self.current, self.waiting = round, nil
  local reads = self.transport.reads
  local read = reads:begin(RANGE, self.bytes, self)
  round.read = read
  if self.is_closed then return reads:cancel(read) end -- by a finalizer
  if read.is_done then self.arrival:set() end
end

--- Ends the running round, and begins the next one.
local function finish(self)
  local round = self.current
  local read = round and round.read
  if not read or not read.is_done then return end
  self.current = nil
  if read.message then
    local cluster, _, revision = core.header(read.message)
    round.cluster, round.revision = cluster, revision
  end
  round.err = not round.revision and (read.err or core.new_error("malformed")) or nil
  round.is_done = true
  round.event:set()
  begin(self)
end

--- Returns a revision that the server had after this call, and the id of its cluster; or nil and an error.
function asker_methods:ask(deadline)
  local d = driver.get()
  d.check_send()
  if not self.waiting then
    local fresh = { event = d.event(), read = nil, is_done = false, revision = nil, cluster = nil, err = nil }
    self.waiting = self.waiting or fresh -- a finalizer may have asked
  end
  local round = self.waiting
  begin(self)
  while not round.is_done do
    if self.is_closed then return nil, errors.closed("cache") end
    if not round.event:wait(math.max(0, deadline - d.now())) then
      return nil, self.transport.reads:error(round.read or {})
    end
  end
  if not round.revision then return nil, round.err end
  return round.revision, round.cluster
end

--- Wakes all callers, and cancels the read.
function asker_methods:close()
  local current, waiting = self.current, self.waiting
  self.is_closed, self.current, self.waiting = true, nil, nil
  if current and current.read then self.transport.reads:cancel(current.read) end
  if current then current.event:set() end
  if waiting then waiting.event:set() end
end

--- Returns an object that asks the servers of a client for their revision, by a read of a range of keys.
local function new(client, key, range_end)
  local self = setmetatable({
    transport = client.transport,
    bytes = core.requests.range(client, key, { range_end = range_end, limit = 1, keys_only = true }),
    current = nil,  -- the round whose read is running
    waiting = nil,  -- the round whose read comes next
    is_closed = false,
    arrival = nil,  -- of reads.lua: set when the read is done
  }, asker_mt)
  self.arrival = { set = function() finish(self) end }
  return self
end

return { new = new }
