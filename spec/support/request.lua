--- Requests as data: { verb = "put", "key", "value", { lease = 7 }, n = 3 }. They can be made of a store and of the
-- model, and printed.

local difference = require("spec.support.difference").difference
local show_scalar = require("spec.support.difference").show

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function new(verb, ...) return { verb = verb, n = select("#", ...), ... } end

-- Requests that are not plain method calls.
local special = {}

function special.lease(target, ttl, options)
  local lease, err = target:lease(ttl, options)
  if not lease then return nil, err end
  return { id = lease.id, ttl = lease.ttl }
end

--- Grants a lease whose id the target chooses, and revokes it at once: later requests do not depend on the id.
function special.brief_lease(target, ttl)
  local lease, err = target:lease(ttl)
  if not lease then return nil, err end
  local is_fit = lease.id > 0 and lease.id < 2 ^ 53
  return { ttl = lease.ttl, is_fit = is_fit, revoked = lease:revoke() }
end

function special.keepalive(target, id) return target:lease_by_id(id):keepalive() end
function special.remaining(target, id) return target:lease_by_id(id):remaining() end
function special.lease_keys(target, id) return target:lease_by_id(id):keys() end
function special.revoke(target, id) return target:lease_by_id(id):revoke() end

local function collect(target, key, options)
  local kvs = {}
  for kv in target:each(key, options) do kvs[#kvs + 1] = kv end
  return kvs
end

function special.each(target, key, options)
  local ok, result = pcall(collect, target, key, options)
  if ok then return result end
  return nil, result
end

--- Moves the clock, and does all due work.
function special.pass_time(target, now)
  while target:step(now) do end -- luacheck: ignore 542
  return true
end

--- Does a bounded step of the due work.
function special.nudge(target, now)
  target:step(now)
  return true
end

--- Makes a request of a target. Returns the target's results.
local function perform(request, target)
  local act = special[request.verb] or target[request.verb]
  return act(target, unpack(request, 1, request.n))
end

--- Returns the public fields of an error, as a plain table.
local function plain_error(err)
  if err == nil then return nil end
  return {
    code = err.code,
    message = err.message,
    grpc_status = err.grpc_status,
    compact_revision = err.compact_revision,
  }
end

--- Makes a request of both targets. Returns a text about the first difference, or nil.
local function disagreement(request, got_from, expected_from)
  local got, got_err = perform(request, got_from)
  local expected, expected_err = perform(request, expected_from)
  return difference(got_err and got_err.code, expected_err and expected_err.code, "the error's code")
    or difference(plain_error(got_err), plain_error(expected_err), "the error")
    or difference(got, expected, "the answer")
end

local function sorted_names(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  return names
end

local function show_value(value)
  if type(value) ~= "table" then return show_scalar(value) end
  local parts = {}
  for i, item in ipairs(value) do parts[i] = show_value(item) end
  for _, name in ipairs(sorted_names(value)) do
    if type(name) == "string" then parts[#parts + 1] = name .. " = " .. show_value(value[name]) end
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

--- Returns a request as Lua text.
local function show(request)
  local parts = {}
  for i = 1, request.n do parts[i] = show_value(request[i]) end
  return request.verb .. "(" .. table.concat(parts, ", ") .. ")"
end

return { new = new, perform = perform, disagreement = disagreement, show = show }
