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
  for _, methods in ipairs { stores, clients, namespaces, fences } do
    methods.cache = cache.open
    methods.object_watch = object_watch.opener(check.self)
  end
  cache.methods.object_watch = object_watch.opener(check_cache)
end

return { install = install }
