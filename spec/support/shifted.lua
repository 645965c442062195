--- A client whose revisions are shifted, for specs that begin at revision 1 on a server with a longer history.

local record = require("keywatch.core").record -- the metatable of kvs, events and results

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local REVISIONS = {
  revision = true, create_revision = true, mod_revision = true, compact_revision = true, hash_revision = true,
  start_revision = true, min_mod_revision = true, max_mod_revision = true, min_create_revision = true,
  max_create_revision = true, initial_revision = true,
}

local BEYOND = 2 ^ 52 -- larger numbers are not shifted

--- Returns a copy in which all revisions above 0 are moved by `by`. Objects are not changed.
local function moved(value, by)
  local mt = getmetatable(value)
  if type(value) ~= "table" or mt and mt ~= record then return value end
  local copy = {}
  for name, field in pairs(value) do
    if REVISIONS[name] and type(field) == "number" then
      copy[name] = field > 0 and field < BEYOND and field + by or field
    else
      copy[name] = moved(field, by)
    end
  end
  return setmetatable(copy, mt)
end

--- Moves the revisions of an answer, or of an error, back to those of the spec.
local function back(base, answer, err)
  if type(err) == "table" and err.compact_revision then err.compact_revision = err.compact_revision - base end
  answer = moved(answer, -base)
  if type(answer) == "table" and answer.compact_revision and answer.compact_revision <= 0 then
    answer.compact_revision = -1 -- unknown
  end
  return answer, err
end

-- {====== Watches ======

local watch_mt = {}

local function new_watch(real, base) return setmetatable({ real = real, base = base }, watch_mt) end

local watch_methods = {}

function watch_methods:next(timeout) return back(self.base, self.real:next(timeout)) end

function watch_methods:batch(timeout) return back(self.base, self.real:batch(timeout)) end

function watch_methods:events()
  return function()
    local event, err = self:next()
    if err then error(err, 0) end
    return event
  end
end

function watch_methods:sync(timeout)
  local revision, err = self.real:sync(timeout)
  return revision and revision - self.base, err
end

function watch_methods:error() return self.real:error() end

function watch_methods:close() return self.real:close() end

function watch_mt:__index(name)
  if name == "revision" then return self.real.revision - self.base end
  return watch_methods[name]
end

function watch_mt:__tostring()
  local text = tostring(self.real):gsub("revision=(%d+)", function(digits)
    return ("revision=%d"):format(digits - self.base)
  end)
  return text
end

-- }======

-- Methods whose arguments or results may have revisions.
local METHODS = {
  "get", "range", "put", "delete", "txn", "compact", "lease_grant", "lease_revoke", "hash_kv", "status",
}
local FIRST_IS_REVISION = { compact = true, hash_kv = true }

--- Replaces the methods of a client. The revision `base` becomes 0.
local function shift(client, base)
  for _, name in ipairs(METHODS) do
    local method = client[name]
    client[name] = function(self, ...)
      local args, n = { ... }, select("#", ...)
      for i = 1, n do args[i] = moved(args[i], base) end
      if FIRST_IS_REVISION[name] and type(args[1]) == "number" and args[1] > 0 then args[1] = args[1] + base end
      return back(base, method(self, unpack(args, 1, n)))
    end
  end
  local watch = client.watch
  function client.watch(self, key, opts)
    local one, err = watch(self, key, moved(opts, base))
    if not one then return back(base, nil, err) end
    return new_watch(one, base)
  end
end

--- Makes every change of a client in a store, too.
local function repeat_changes(client, store)
  for _, name in ipairs { "put", "delete", "txn", "compact", "lease_revoke" } do
    local method = client[name]
    client[name] = function(self, ...)
      local answer, err = method(self, ...)
      if answer then store[name](store, ...) end
      return answer, err
    end
  end
  local grant = client.lease_grant
  function client.lease_grant(self, ttl, opts)
    local granted, err = grant(self, ttl, opts)
    if granted then store:lease_grant(ttl, { id = granted.id }) end
    return granted, err
  end
end

return { shift = shift, repeat_changes = repeat_changes }
