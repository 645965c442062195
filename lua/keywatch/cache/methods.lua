-- SPDX-License-Identifier: MIT
--- methods: the methods of stores, clients, namespaces, fences and caches that open caches and object watches.

local cache = require "keywatch.cache.cache"
local check = require "keywatch.support.check"
local object_watch = require "keywatch.cache.object_watch"

--- Raises if a method was not called with a colon, on a cache.
local function check_cache(self, name)
  check.self(self, name, cache.mt)
end

--- Adds the methods to tables of methods.
local function install(stores, clients, namespaces, fences)
  stores.cache = cache.open_local
  clients.cache = cache.open_remote
  namespaces.cache = cache.open_in_namespace
  for _, methods in ipairs { stores, clients, namespaces, fences } do
    methods.object_watch = object_watch.opener(check.self)
  end
  cache.methods.object_watch = object_watch.opener(check_cache)
end

return { install = install }
