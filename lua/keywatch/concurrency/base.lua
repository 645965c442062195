-- SPDX-License-Identifier: MIT
--- base: the store or client below an object with the methods of a store.
--
-- Namespaces and fences wrap another object. Their metatable has the field __base, a function: base(object, key)
-- returns the wrapped object, and the name of a key of `object` there. With the field __only_renames = true a request
-- to the object is the same request to the wrapped object, with other key names.

local compat = require "keywatch.support.compat"

--- Returns the store or the client below an object, and the name of the object's key there.
local function resolve(object, key)
  while true do
    local base = getmetatable(object).__base
    if not base then return object, key end
    object, key = base(object, key)
  end
end

--- Returns the store or the client below an object that only renames keys, and the prefix of the object's keys there;
-- or nil if the object, or one below it, changes requests otherwise.
local function renamed(object)
  local before = ""
  while true do
    local mt = getmetatable(object)
    if not mt.__base then return object, before end
    if not mt.__only_renames then return nil end
    object, before = mt.__base(object, before)
  end
end

--- True if a store is in this process: its calls are always answered, in order.
local function is_local(root)
  return type(root) == "userdata"
end

--- Returns the table in which this folder keeps data of a store or a client, for as long as that lives.
local function companion(root)
  return compat.companion(root, "concurrency")
end

return { resolve = resolve, renamed = renamed, is_local = is_local, companion = companion }
