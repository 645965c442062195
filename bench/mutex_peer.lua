-- SPDX-License-Identifier: MIT
--- Our own client, locking and unlocking a free lock, for bench/mutex.lua. spec/support/go/measure.go is the same.
--
--   mutex_peer.lua URL mutex N

local keywatch = require "keywatch"

local NAME = "/bench/mutex"
local WARMING = 500 -- pairs, before what is measured

local function lock_and_unlock(session, n)
  for _ = 1, n do
    local lock = assert(session:lock(NAME))
    assert(lock:unlock())
  end
end

keywatch.run(function()
  local n = tonumber(arg[3])
  local client = keywatch.connect(arg[1])
  local session = assert(client:session())
  lock_and_unlock(session, WARMING)
  local start, cpu = keywatch.now(), os.clock()
  lock_and_unlock(session, n)
  print(("seconds=%.6f cpu=%.6f"):format(keywatch.now() - start, os.clock() - cpu))
  session:close()
  client:close()
end)
