-- SPDX-License-Identifier: MIT
--- methods: the methods of stores, clients, namespaces, fences and caches that open caches and object watches.

local cache = require "keywatch.cache.cache"
local check = require "keywatch.support.check"
local object_watch = require "keywatch.cache.object_watch"

--- Raises if a method was not called with a colon, on a cache.
local function check_cache(self, name)
  check.self(self, name, cache.mt)
end

cache.methods.object_watch = object_watch.opener(check_cache)

--- Adds the methods to those of a store, a client, a namespace or a fence.
local function install(methods)
  methods.cache = cache.open
  methods.object_watch = object_watch.opener(check.self)
end

return { install = install }
