--- Messages through their records in C: the fields of a record are encoded as they were decoded. Only for probe builds.

local core = require "keywatch.core"

local dose = require "spec.support.dose"
local probed = require "spec.support.probed"
local schema = require "spec.support.schema"
local wire = require "spec.support.wire"
local new_random = require("spec.support.random").new

local probe = probed.get("records of messages")
if not probe then return end

local seed = tonumber(os.getenv("KW_SEED") or 1)

local bytes, hex = wire.bytes, wire.hex

local function compact(text)
  return (text:gsub(" ", ""))
end

-- What records leave out: fields without a place. Headers have one in replies, for their revision.
local LEFT_OUT = {
  LeaseGrantResponse = { "header", "error" },
  LeaseKeepAliveResponse = { "header" },
  LeaseTimeToLiveResponse = { "header" },
  LeaseLeasesResponse = { "header" },
  WatchResponse = { "header", "events" },
}

local REPLIES = { RangeResponse = true, PutResponse = true, DeleteRangeResponse = true, TxnResponse = true }

local KEPT = { "KeyValue", "ResponseHeader", "RangeRequest", "RangeResponse", "PutRequest", "PutResponse",
  "DeleteRangeRequest", "DeleteRangeResponse", "RequestOp", "ResponseOp", "Compare", "TxnRequest", "TxnResponse",
  "CompactionRequest", "WatchRequest", "WatchCreateRequest", "WatchCancelRequest", "WatchProgressRequest",
  "WatchResponse", "LeaseGrantRequest", "LeaseGrantResponse", "LeaseRevokeRequest", "LeaseKeepAliveRequest",
  "LeaseKeepAliveResponse", "LeaseTimeToLiveRequest", "LeaseTimeToLiveResponse", "LeaseLeasesRequest", "LeaseStatus",
  "LeaseLeasesResponse" }

local TARGETS = { VERSION = "version", CREATE = "create_revision", MOD = "mod_revision", VALUE = "value",
  LEASE = "lease" }

--- Removes the values of other targets than that of a compare.
local function settle_compare(message)
  local meant = TARGETS[message.target or "VERSION"]
  for _, member in pairs(TARGETS) do
    if message[member] and member ~= meant then message[member] = member == "value" and "" or 0 end
  end
end

--- Returns a message after its way through a record.
local function keep(name, message, is_inner)
  for _, left_out in ipairs(LEFT_OUT[name] or {}) do message[left_out] = nil end
  if REPLIES[name] then
    local revision = message.header and message.header.revision
    message.header = { revision = not (is_inner and name == "TxnResponse") and revision or nil }
  end
  if name == "Compare" then settle_compare(message) end
  for _, field in ipairs(schema.messages[name]) do
    local value = message[field.name]
    if value and schema.messages[field.type] and field.name ~= "header" then
      for _, inner in ipairs(field.is_list and value or { value }) do keep(field.type, inner, true) end
    end
  end
  return message
end

local function recoded(name, encoded, how)
  return hex(assert(probe.recode(name, bytes(encoded), how)))
end

describe("a record", function()
  it("keeps the fields of its message", function()
    local random = new_random(seed)
    for _ = 1, dose.of(300, 5000) do
      local name = random:pick(KEPT)
      local message = wire.random(random, name, random:between(0, 5), random:one_in(3))
      local encoded = wire.encode(name, message)
      assert.equal(hex(wire.encode(name, keep(name, message))), hex(probe.recode(name, encoded)))
    end
  end)

  it("keeps no fields that are only for Lua", function()
    assert.equal("", probe.recode("StatusResponse", core.encode("StatusResponse", { version = "3", errors = { "a" } })))
  end)

  it("is the same for fields in any order, and for split lists", function()
    assert.equal(compact "0a0910021a03666f6f3005 0a00 12020a00 1200 1200 1a00",
      recoded("TxnRequest", "1a00 12020a00 0a0910021a03666f6f3005 1200 f80105 0a00 1200"))
    assert.equal(compact "0a03666f6f 1203626172 1807", recoded("PutRequest", "1807 1203626172 0a03666f6f"))
  end)

  it("packs numbers in a list, however they were encoded", function()
    assert.equal("0a052a03010001", recoded("WatchRequest", "0a08 2801 2a00 2a020001"))
  end)

  it("has the last member of a oneof, and nothing of the previous one", function()
    assert.equal("0a00", recoded("RequestOp", "1207 0a03666f6f1801 0a00"))
    assert.equal("12020a00", recoded("ResponseOp",
      "0a16 0a021805 12100a03666f6f1002180220012a03626172 1200"))
    assert.equal("0a030a0161", recoded("WatchRequest", "0a0a0a03666f6f1203666f70 12020805 0a030a0161"))
    assert.equal("10033a0161", recoded("Compare", "1003 2005 3a0161"))
  end)

  it("takes the compared value only if it belongs to the target", function()
    assert.equal("10023005", recoded("Compare", "10023005"))
    assert.equal("10022000", recoded("Compare", "10022005")) -- a version, though the revision is asked for
    assert.equal("10033a0161", recoded("Compare", "3a0161 1003")) -- in any order
    assert.equal("10042000", recoded("Compare", "2005 1004"))
    assert.equal("10632000", recoded("Compare", "2005 1063"))
    assert.equal("1002", recoded("Compare", "1002")) -- nothing was given
  end)

  it("keeps enums without a name", function()
    assert.equal("28073063", recoded("RangeRequest", "28073063"))
    assert.equal("28ffffffffffffffffff01", recoded("RangeRequest", "28ffffffffffffffffff01"))
  end)

  it("omits an empty range_end", function()
    assert.equal("0a0161", recoded("RangeRequest", "0a0161 1200"))
  end)

  it("of an answer has its revision as a header, and the rest without it", function()
    local kv = "12100a03666f6f1002180220012a03626172"
    assert.equal("0a021807" .. kv .. "2001", recoded("RangeResponse", "0a061007 1807 2002" .. kv .. "2001"))
    assert.equal(kv .. "2001", recoded("RangeResponse", "0a021807" .. kv .. "2001", "rest"))
    assert.equal("0a00", recoded("PutResponse", ""))
    assert.equal("", recoded("PutResponse", "0a021807", "rest"))
    assert.equal("1005", recoded("LeaseGrantResponse", "0a021807 1005", "rest"))
  end)

  it("of a transaction in a transaction has an empty header", function()
    assert.equal(compact "0a021807 1001 1a0622040a001001",
      recoded("TxnResponse", "0a021807 1001 1a08 2206 0a0218071001"))
  end)

  it("leaves values out if only keys were requested", function()
    local bare = "120b0a03666f6f100218022001"
    assert.equal("0a00" .. bare, recoded("RangeResponse", "12100a03666f6f1002180220012a03626172", "bare"))
    assert.equal("0a00" .. bare, recoded("RangeResponse", bare, "bare"))
    assert.equal(compact "0a00 1207 0a03666f6f 3007", recoded("RangeResponse",
      "120c 0a03666f6f 2a03626172 3007", "bare"))
    local value = ("v"):rep(1000)
    local encoded = core.encode("RangeResponse", { kvs = { { key = "a", value = value, lease = 5 } } })
    assert.same({ header = {}, kvs = { { key = "a", lease = 5 } } },
      core.decode("RangeResponse", probe.recode("RangeResponse", encoded, "bare")))
  end)

  it("reports that memory has run out, and loses no record", function()
    local encoded = core.encode("TxnRequest", { compare = { { key = "a", version = 1 } }, success = {
      { request_put = { key = "a" } }, { request_txn = { success = { { request_range = { key = "a" } } } } } } })
    local live = probe.live()
    local n = 0
    repeat
      n = n + 1
      probe.fail_core(n)
      local again, err = probe.recode("TxnRequest", encoded)
      probe.fail_core(0)
      assert.is_true(again == encoded or err.code == "out_of_memory")
      assert.equal(live, probe.live())
    until again
    assert.is_true(n > 3)
  end)
end)
