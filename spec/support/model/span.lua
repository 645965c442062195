--- The span of keys of a request, in etcd's convention:
--
--   end ""     exactly the key
--   end "\0"   every key from the key on
--   else       key <= k < end

--- Returns the first key after all keys with a prefix; "\0", for no such key, if the prefix is all 0xff.
local function after_prefix(prefix)
  local head = prefix:match("^(.-)\255*$")
  if head == "" then return "\0" end
  return head:sub(1, -2) .. string.char(head:byte(-1) + 1)
end

--- Returns the span of `key` and the options prefix, from_key and range_end.
local function new(key, options)
  if options.prefix then
    if key == "" then return { key = "\0", last = "\0" } end
    return { key = key, last = after_prefix(key) }
  end
  if options.from_key then return { key = key == "" and "\0" or key, last = "\0" } end
  return { key = key, last = options.range_end or "" }
end

local function contains(span, key)
  if span.last == "" then return key == span.key end
  if span.last == "\0" then return key >= span.key end
  return key >= span.key and key < span.last
end

return { new = new, contains = contains }
