-- SPDX-License-Identifier: MIT
--- compactor: compacts the store every five minutes, up to the revision of five minutes ago, as apiserver does.
--
-- Several programs may do this to one cluster, and agree by a key, whose version is a clock that they share: the one
-- that moves the clock compacts, the others take over its time. The first pass only reads the clock, so history of five
-- to ten minutes remains.

local bases = require "keywatch.concurrency.base"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local workers = require "keywatch.task.worker"

local KEY = "compact_rev_key" -- apiserver's, so that both together compact once
local INTERVAL = 300 -- seconds

local compactor_methods = {}
local compactor_mt = { __name = "keywatch.kubernetes.compactor", __index = compactor_methods }

--- Moves the clock, if it is still at the time of the last pass. Returns true, false, or nil and an error.
local function move_clock(self)
  local result, err = self.store:txn {
    compare = { { key = KEY, version = self.time } },
    success = { { put = KEY, value = ("%d"):format(self.revision) } },
    failure = { { get = KEY } },
  }
  if not result then return nil, err end
  local found = result.responses[1]
  local last = self.revision
  self.time = result.succeeded and self.time + 1 or found and found.version or 0
  self.revision = result.revision
  return result.succeeded and last > 0, nil, last
end

--- Makes one pass. May wait.
function compactor_methods:pass()
  local is_mine, err, revision = move_clock(self)
  if is_mine then
    local result, failed = self.store:compact(revision)
    if not result and failed.code ~= "compacted" then err = failed end
  end
  if err then log.warn("the store was not compacted: %s", errors.text_of(err)) end
end

--- Makes a pass every five minutes.
local function work(self)
  while not self.is_closed do
    self:pass()
    driver.get().sleep(INTERVAL)
  end
end

--- Ends the compactor. Idempotent.
function compactor_methods:close()
  self.is_closed = true
  self.worker:stop(true)
end

--- Returns a compactor of a store, of a client, or of the one below a namespace.
local function open(owner)
  local self = setmetatable({
    store = bases.resolve(owner, ""), -- all keys are compacted together
    time = 0,         -- the version of the key
    revision = 0,     -- of the last pass
    worker = nil,
    is_closed = false,
  }, compactor_mt)
  self.worker = workers.start(work, self)
  return self
end

return { open = open }
