-- SPDX-License-Identifier: MIT
--- methods: the methods of stores, clients, namespaces, fences and caches that open caches, object watches and
-- informers.

local cache = require "keywatch.cache.cache"
local check = require "keywatch.support.check"
local informer = require "keywatch.cache.informer"
local object_watch = require "keywatch.cache.object_watch"

cache.methods.object_watch = object_watch.open

--- Opens an informer of keys of the cache. Returns it, or nil and an error.
function cache.methods:informer(prefix, opts)
  check.argument(type(prefix) == "string", 1, "informer", "string", prefix)
  local err = cache.check_prefix(self, "informer", prefix)
  if err then return nil, err end
  return informer.open(self, prefix, opts)
end

--- Adds the methods to those of a store, a client, a namespace or a fence.
local function install(methods)
  methods.cache = cache.open
  methods.informer = informer.open_on_face
  function methods.object_watch(x, key, opts)
    check.self(x, "object_watch")
    return check.results(object_watch.open(x, key, opts))
  end
end

return { install = install }
