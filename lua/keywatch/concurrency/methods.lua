-- SPDX-License-Identifier: MIT
--- methods: what every object with the methods of a store has beyond them: sessions, locks, elections.

local election = require "keywatch.concurrency.election"
local fence = require "keywatch.concurrency.fence"
local lock = require "keywatch.concurrency.lock"
local session = require "keywatch.concurrency.session"

--- Adds the methods to a table of methods.
local function install(methods)
  methods.session = session.open
  methods.lock = lock.lock
  methods.try_lock = lock.try_lock
  methods.election = election.open
end

install(fence.methods)

return { install = install }
