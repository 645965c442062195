-- SPDX-License-Identifier: MIT
--- base: what stands behind an object with the methods of a store.
--
-- Some of these objects stand on another one: a namespace, a fence. Their metatable has the field __base, a function:
-- base(object, key) returns the object below, and the name that a key of `object` has there. The field
-- __only_renames = true says that a request to the object is the same request to the one below, with other names.

local compat = require "keywatch.support.compat"

--- Returns the store or the client that an object stands on, and the name that a key of the object has there.
local function resolve(object, key)
  while true do
    local base = getmetatable(object).__base
    if not base then return object, key end
    object, key = base(object, key)
  end
end

--- Returns the store or the client that does what it is asked for through an object under other names only, and what
-- the keys of the object have in front there; or nil if the object, or one below it, changes requests otherwise.
local function renamed(object)
  local before = ""
  while true do
    local mt = getmetatable(object)
    if not mt.__base then return object, before end
    if not mt.__only_renames then return nil end
    object, before = mt.__base(object, before)
  end
end

--- True if a store is in this process: what is asked of it is certain to be answered, in the order of the calls.
local function is_local(root)
  return type(root) == "userdata"
end

--- Returns a table of concurrency's own that lives as long as a store or a client.
local function companion(root)
  return compat.companion(root, "concurrency")
end

return { resolve = resolve, renamed = renamed, is_local = is_local, companion = companion }
