-- SPDX-License-Identifier: MIT
--- methods: more methods of every object with the methods of a store: sessions, locks, elections, software
-- transactions, namespaces.

local election = require "keywatch.concurrency.election"
local fence = require "keywatch.concurrency.fence"
local lock = require "keywatch.concurrency.lock"
local namespace = require "keywatch.namespace.namespace"
local session = require "keywatch.concurrency.session"
local stm = require "keywatch.concurrency.stm"

--- Adds the methods to a table of methods.
local function install(methods)
  methods.session = session.open
  methods.lock = lock.lock
  methods.try_lock = lock.try_lock
  methods.election = election.open
  methods.stm = stm.run
  methods.namespace = namespace.new
end

install(fence.methods)
install(namespace.methods)

return { install = install }
