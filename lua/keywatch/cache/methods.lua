-- SPDX-License-Identifier: MIT
--- methods: the methods of stores, clients, namespaces, fences and caches that open caches, object watches and
-- informers.

local cache = require "keywatch.cache.cache"
local check = require "keywatch.support.check"
local informer = require "keywatch.cache.informer"
local object_watch = require "keywatch.cache.object_watch"

--- Raises if a method was not called with a colon, on a cache.
local function check_cache(self, name)
  check.self(self, name, cache.mt)
end

cache.methods.object_watch = object_watch.opener(check_cache)

--- Opens an informer of keys of the cache. Returns it, or nil and an error.
function cache.methods:informer(prefix, opts)
  check.self(self, "informer", cache.mt)
  check.argument(type(prefix) == "string", 1, "informer", "string", prefix)
  local err = cache.check_prefix(self, "informer", prefix)
  if err then return nil, err end
  return informer.open(self, prefix, opts)
end

--- Adds the methods to those of a store, a client, a namespace or a fence.
local function install(methods)
  methods.cache = cache.open
  methods.object_watch = object_watch.opener(check.self)
  methods.informer = informer.open_on_face
end

return { install = install }
