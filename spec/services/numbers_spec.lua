--- Numbers that no handler expects, in every field of every request of every service: whatever a client sends, no
-- handler raises, so nothing is logged.

local dose = require "spec.support.dose"
local int64 = require "spec.support.int64"
local methods = require "spec.support.methods"
local schema = require "spec.support.schema"
local serving = require "spec.support.serving"
local wire = require "spec.support.wire"

local AUTH = "/etcdserverpb.Auth/"
local DEPTH = 3 -- of messages inside of messages: transactions nest
local AT_ONCE = 50 -- calls
local INTERNAL = 13

local NUMBERS = { "-1", "-9223372036854775808", "9007199254740992", "9007199254740993", "9223372036854775807" }
if not dose.is_small then
  for _, more in ipairs { "-9007199254740993", "2147483647", "2147483648", "4294967296", "3" } do
    NUMBERS[#NUMBERS + 1] = more
  end
end

if serving.is_etcd then return end -- looks inside the server

local function is_number(field)
  return field.type ~= "bool" and (schema.enums[field.type] or field.type:find("^u?int")) ~= nil
end

--- Calls fn(path) for every number of a message: `path` is the list of fields that leads to it.
local function each_number(name, fn, path)
  path = path or {}
  for _, field in ipairs(schema.messages[name]) do
    path[#path + 1] = field
    if is_number(field) then
      fn(path)
    elseif schema.messages[field.type] and #path <= DEPTH then
      each_number(field.type, fn, path)
    end
    path[#path] = nil
  end
end

--- The bytes of a message with a number in the place that a path leads to. All strings are "a" if `is_full`; else there
-- is nothing else.
local function bytes_of(name, path, number, is_full, depth)
  depth = depth or 1
  local parts = {}
  for _, field in ipairs(schema.messages[name]) do
    if field == path[depth] and is_number(field) then
      table.insert(parts, wire.tag(field.number, 0) .. int64.varint(number))
    elseif field == path[depth] then
      table.insert(parts, wire.field(field.number, bytes_of(field.type, path, number, is_full, depth + 1)))
    elseif is_full and (field.type == "bytes" or field.type == "string") then
      table.insert(parts, wire.field(field.number, "a"))
    end
  end
  return table.concat(parts)
end

--- All requests of a method, as bytes.
local function requests_of(name)
  local list = { "" }
  each_number(name, function(path)
    for _, number in ipairs(NUMBERS) do
      for _, is_full in ipairs { false, true } do
        list[#list + 1] = bytes_of(name, path, number, is_full)
      end
    end
  end)
  return list
end

describe("a number from the wire", function()
  local peer, client

  before_each(function()
    peer = serving.start()
    client = peer:client()
    serving.grant(client, 1000, 3)
    assert(client:ask("/etcdserverpb.KV/Put", { key = "a", value = "a", lease = 3 }))
    assert(client:ask(AUTH .. "UserAdd", { name = "a", options = { no_password = true } }))
    assert(client:ask(AUTH .. "RoleAdd", { name = "a" }))
  end)

  after_each(function() peer:stop() end)

  --- Makes calls at once, and cancels those that do not end. Their statuses.
  local function make(path, requests)
    local statuses = {}
    for from = 1, #requests, AT_ONCE do
      local calls = {}
      for i = from, math.min(#requests, from + AT_ONCE - 1) do calls[#calls + 1] = client:begin(path, requests[i]) end
      client:settle()
      for _, call in ipairs(calls) do
        if not call.status then client:cancel(call) end
        statuses[call.status or "none"] = true
      end
    end
    return statuses
  end

  it("makes no handler raise", function()
    local made = 0
    local lines = serving.log_of(function()
      for _, method in ipairs(methods.of(peer.server)) do
        local requests = requests_of(method.request)
        assert.is_nil(make(method.path, requests)[INTERNAL], method.path)
        made = made + #requests
      end
    end)
    assert.same({}, lines)
    assert.is_true(made > 500)
    assert(client:ask("/etcdserverpb.KV/Range", { key = "a" }))
  end)

  it("is found in every message, in any field", function()
    local found = {}
    each_number("ProclaimRequest", function(path) found[#found + 1] = path[#path].name end)
    assert.same({ "rev", "lease" }, found)
    found = 0
    each_number("TxnRequest", function() found = found + 1 end)
    assert.is_true(found > 20)
    assert.equal("\10\11\24" .. ("\255"):rep(9) .. "\1", bytes_of("ProclaimRequest",
      { schema.messages.ProclaimRequest[1], schema.messages.LeaderKey[3] }, "-1", false))
  end)
end)
