-- SPDX-License-Identifier: MIT
--- face: what stands behind an object with the methods of a store.
--
-- Some of these objects stand on another one: a namespace, a fence. Their metatable has the field __base, a function:
-- base(object, key) returns the object below, and the name that a key of `object` has there.

local compat = require "keywatch.support.compat"

--- Returns the store or the client that an object stands on, and the name that a key of the object has there.
local function resolve(object, key)
  while true do
    local base = getmetatable(object).__base
    if not base then return object, key end
    object, key = base(object, key)
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

return { resolve = resolve, is_local = is_local, companion = companion }
