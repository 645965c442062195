--- Messages of the wire as Lua tables.

local core = require "keywatch.core"

local dose = require "spec.support.dose"
local int64 = require "spec.support.int64"
local schema = require "spec.support.schema"
local starve = require "spec.support.starve"
local wire = require "spec.support.wire"
local new_random = require("spec.support.random").new

local seed = tonumber(os.getenv("KW_SEED") or 1)

local bytes, hex = wire.bytes, wire.hex

--- Both ways.
local function expect(name, encoded, message)
  assert.same(message, core.decode(name, bytes(encoded)))
  assert.equal((encoded:gsub("%s", "")), hex(core.encode(name, message)))
end

local function expect_decoded(name, encoded, message)
  assert.same(message, core.decode(name, bytes(encoded)))
end

local function expect_raised(text, name, message)
  local ok, err = pcall(core.encode, name, message)
  assert.is_false(ok)
  assert.truthy(tostring(err):find(text, 1, true), err)
end

local function header(revision)
  return { cluster_id = math.type and -3605105004744373198 or "14841639068965178418",
    member_id = math.type and -8170086329776576179 or "10276657743932975437", revision = revision, raft_term = 2 }
end

describe("a message", function()
  it("is one of the schema's", function()
    assert.same(schema.names, core.messages)
  end)

  it("has etcd's bytes", function()
    expect("ResponseHeader", "08b298eaf1948386fccd0110cdd2918bd2b881cf8e0118012002", header(1))
    expect("WatchRequest", "0a050a03666f6f", { create_request = { key = "foo" } })
    expect("WatchRequest", "1200", { cancel_request = {} })
    expect("WatchRequest", "1a00", { progress_request = {} })
    expect("WatchResponse", "0a1a08b298eaf1948386fccd0110cdd2918bd2b881cf8e01180120021801",
      { header = header(1), created = true })
    expect("WatchResponse", "0a1a08b298eaf1948386fccd0110cdd2918bd2b881cf8e011807200210ffffffffffffffffff01",
      { header = header(7), watch_id = -1 })
    expect("WatchResponse", "0a1808b298eaf1948386fccd0110cdd2918bd2b881cf8e01200220012805",
      { header = header(nil), canceled = true, compact_revision = 5 })
    expect("WatchResponse", "0a1a08b298eaf1948386fccd0110cdd2918bd2b881cf8e011801200210ffffffffffffffffff0118012001"
      .. "32346d7663633a206475706c69636174652077617463682049442070726f7669646564206f6e2074686520576174636853747265616d",
      { header = header(1), watch_id = -1, created = true, canceled = true,
        cancel_reason = core.errors.duplicate_watch_id.message })
    expect("KeyValue", "0a03666f6f1002180220012a03626172",
      { key = "foo", create_revision = 2, mod_revision = 2, version = 1, value = "bar" })
    expect("WatchResponse", "5a1212100a03666f6f1002180220012a03626172 5a0b080112070a03666f6f1803", { events = {
      { kv = { key = "foo", create_revision = 2, mod_revision = 2, version = 1, value = "bar" } },
      { type = "DELETE", kv = { key = "foo", mod_revision = 3 } },
    } })
  end)

  it("is equal to a naive encoder's, with every field of the schema", function()
    local random = new_random(seed)
    local function compare(name, message)
      local encoded = wire.encode(name, message)
      assert.equal(hex(encoded), hex(core.encode(name, message)))
      assert.same(message, core.decode(name, encoded))
    end
    for _, name in ipairs(schema.names) do
      for _ = 1, 5 do compare(name, wire.random(random, name, 2, true)) end -- each member of a oneof has its turn
    end
    for _ = 1, dose.of(300, 5000) do
      local name = random:pick(schema.names)
      compare(name, wire.random(random, name, random:between(0, 4)))
    end
  end)

  it("leaves out what is zero, false or empty", function()
    assert.equal("", core.encode("RangeRequest", { key = "", limit = 0, sort_order = "NONE", keys_only = false }))
    assert.equal("", core.encode("ResponseHeader", { cluster_id = 0, revision = "0" }))
    assert.equal("", core.encode("HashResponse", { hash = 0 }))
    assert.equal("", core.encode("MemberAddRequest", { peerURLs = {}, isLearner = false }))
    assert.equal("", core.encode("WatchCreateRequest", { filters = {} }))
    expect_decoded("RangeRequest", "0a001800280038 00", {})
  end)

  it("forgets values before a later zero", function()
    expect_decoded("RangeRequest", "0a0161 0a00 1805 1800 2801 2800 3801 3800", {})
  end)

  it("encodes empty items in a list", function()
    expect("MemberAddRequest", "0a00 0a0161 0a00", { peerURLs = { "", "a", "" } })
    expect("TxnRequest", "0a00 1200 1200", { compare = { {} }, success = { {}, {} } })
  end)

  it("encodes an empty message that is present", function()
    expect("PutResponse", "0a00 1200", { header = {}, prev_kv = {} })
  end)

  it("merges the parts of one message", function()
    expect_decoded("PutResponse", "1203 0a0161 1202 1005 1203 0a0162", { prev_kv = { key = "b", create_revision = 5 } })
  end)

  it("has the last of repeated numbers and bytes", function()
    expect_decoded("PutRequest", "0a0161 1801 0a0162 1802", { key = "b", lease = 2 })
  end)

  it("ignores unknown fields", function()
    expect_decoded("PutRequest", "f80105 0a0161 fa0103 616263 f90108 0807060504 0302 fd0101 020304 1203 616263",
      { key = "a", value = "abc" })
  end)

  it("takes text that is not UTF-8", function()
    expect("WatchResponse", "3202 c3 28", { cancel_reason = "\195\40" })
  end)

  it("can be large", function()
    local value, list = ("v"):rep(3000000), {}
    for i = 1, 2000 do list[i] = { key = "k" .. i, value = ("x"):rep(i % 50 + 1) } end
    for name, message in pairs { PutRequest = { key = "k", value = value }, RangeResponse = { kvs = list } } do
      local encoded = wire.encode(name, message)
      assert.is_true(encoded == core.encode(name, message)) -- too long to be shown
      assert.is_true(encoded == core.encode(name, core.decode(name, encoded)))
    end
  end)
end)

describe("a oneof", function()
  it("has a member even if its value is zero or empty", function()
    expect("Compare", "2000", { version = 0 })
    expect("Compare", "3a00", { value = "" })
    expect("RequestOp", "0a00", { request_range = {} })
    expect("ResponseOp", "2200", { response_txn = {} })
  end)

  it("has only the last member", function()
    expect_decoded("Compare", "2005 3a0161", { value = "a" })
    expect_decoded("Compare", "3a0161 2005 3000", { mod_revision = 0 })
    expect_decoded("WatchRequest", "0a050a03666f6f 12020805", { cancel_request = { watch_id = 5 } })
    expect_decoded("WatchRequest", "12020805 0a050a03666f6f 1a00", { progress_request = {} })
  end)

  it("merges nothing of a repeated member", function()
    expect_decoded("RequestOp", "12030a0161 120312 0162", { request_put = { value = "b" } })
    expect_decoded("RequestOp", "12030a0161 0a00 1200", { request_put = {} })
  end)

  it("takes only one member", function()
    expect_raised("WatchRequest: only one of the fields 'cancel_request' and 'progress_request' may be given",
      "WatchRequest", { cancel_request = {}, progress_request = {} })
    expect_raised("Compare: only one of the fields", "Compare", { version = 0, value = "" })
  end)
end)

describe("a number", function()
  local max, min = "9223372036854775807", "-9223372036854775808"

  it("has all of its 64 bits", function()
    for _, text in ipairs { "1", "-1", "9007199254740992", "9007199254740993", "-9007199254740992", max, min } do
      local encoded = "\24" .. int64.varint(text)
      assert.same({ lease = int64.canonical(text) }, core.decode("PutRequest", encoded))
      assert.equal(encoded, core.encode("PutRequest", { lease = text }))
      assert.equal(encoded, core.encode("PutRequest", { lease = int64.canonical(text) }))
    end
  end)

  it("has no sign where etcd's has none, and may be given in any form", function()
    local encoded = bytes("08ffffffffffffffffff01")
    for _, form in ipairs { "18446744073709551615", "-1", -1 } do
      assert.equal(encoded, core.encode("ResponseHeader", { cluster_id = form }))
    end
    assert.same({ cluster_id = math.type and -1 or "18446744073709551615" }, core.decode("ResponseHeader", encoded))
    assert.same({ cluster_id = 5 }, core.decode("ResponseHeader", "\8\5"))
  end)

  it("has 32 bits in a hash, and higher bits are lost", function()
    expect("HashResponse", "10ffffffff0f", { hash = 4294967295 })
    expect_decoded("HashResponse", "10ffffffff1f", { hash = 4294967295 })
    expect_decoded("HashResponse", "108080808010", {})
  end)

  it("may be longer than necessary", function()
    expect_decoded("PutRequest", "1885808000", { lease = 5 })
    expect_decoded("PutRequest", "18ffffffffffffffffff7f", { lease = -1 })
    expect_decoded("PutRequest", "8a8080808080 00 83808080808000 616263", { key = "abc" }) -- also of a tag or a length
  end)

  it("is true for a boolean if it is not zero", function()
    expect_decoded("PutRequest", "2002", { prev_kv = true })
    expect_decoded("PutRequest", "2080808080808080808001", { prev_kv = true })
  end)
end)

describe("an enum", function()
  it("is a name, or a number without a name", function()
    expect("RangeRequest", "2802 3004", { sort_order = "DESCEND", sort_target = "VALUE" })
    expect("RangeRequest", "2803 3005", { sort_order = 3, sort_target = 5 })
    expect("RangeRequest", "28ffffffffffffffffff01", { sort_order = -1 })
    expect("HealthCheckResponse", "0801", { status = "SERVING" })
    assert.equal("\40\1", core.encode("RangeRequest", { sort_order = 1 }))
  end)

  it("has 32 bits, and higher bits are lost", function()
    expect_decoded("RangeRequest", "2881808080 10", { sort_order = "ASCEND" })
    expect_decoded("RangeRequest", "2880808080 10", {})
  end)

  it("is packed in a list, and may be decoded unpacked", function()
    expect("WatchCreateRequest", "2a03000105", { filters = { "NOPUT", "NODELETE", 5 } })
    expect_decoded("WatchCreateRequest", "2800 2801", { filters = { "NOPUT", "NODELETE" } })
    expect_decoded("WatchCreateRequest", "2801 2a020001 2a00 2807",
      { filters = { "NODELETE", "NOPUT", "NODELETE", 7 } })
    expect_decoded("WatchCreateRequest", "2a00", {})
  end)
end)

describe("a table that cannot be encoded", function()
  it("raises, naming the message", function()
    assert.has_error(function() core.encode("Nothing", {}) end)
    assert.has_error(function() core.decode("Nothing", "") end)
    assert.has_error(function() core.encode(nil, {}) end)
    assert.has_error(function() core.encode("PutRequest") end)
    assert.has_error(function() core.decode("PutRequest", 5) end)
    local _, err = pcall(core.encode, "Nothing", {})
    assert.truthy(err:find("there is no message 'Nothing'", 1, true))
  end)

  it("raises, naming the field", function()
    expect_raised("PutRequest: there is no field 'kee'", "PutRequest", { key = "a", kee = "b" })
    expect_raised("PutRequest: names of fields are strings, and one is a number", "PutRequest", { "a" })
    expect_raised("PutRequest: field 'key' must be a string, not 5", "PutRequest", { key = 5 })
    expect_raised("PutRequest: field 'key' must be a string, not a boolean", "PutRequest", { key = false })
    expect_raised("PutRequest: field 'lease' must be a whole number, or a decimal string, not 'x'", "PutRequest",
      { lease = "x" })
    expect_raised("PutRequest: field 'lease' must be", "PutRequest", { lease = 1.5 })
    expect_raised("PutRequest: field 'lease' must be", "PutRequest", { lease = "9223372036854775808" })
    expect_raised("ResponseHeader: field 'cluster_id' must be", "ResponseHeader",
      { cluster_id = "18446744073709551616" })
    expect_raised("ResponseHeader: field 'cluster_id' must be", "ResponseHeader", { cluster_id = "" })
    expect_raised("HashResponse: field 'hash' must be a whole number of 32 bits, not -1", "HashResponse", { hash = -1 })
    expect_raised("PutRequest: field 'prev_kv' must be a boolean, not 1", "PutRequest", { prev_kv = 1 })
    expect_raised("'sort_order' must be a whole number of 32 bits, or one of 'NONE', 'ASCEND', 'DESCEND', not 'UP'",
      "RangeRequest", { sort_order = "UP" })
    expect_raised("RangeRequest: field 'sort_order' must be", "RangeRequest", { sort_order = 2147483648 })
    expect_raised("PutResponse: field 'header' must be a table, not 'x'", "PutResponse", { header = "x" })
    expect_raised("ResponseHeader: there is no field 'x'", "PutResponse", { header = { x = 1 } })
  end)

  it("raises for values that are not lists", function()
    expect_raised("MemberAddRequest: field 'peerURLs' must be a list, not 'a'", "MemberAddRequest", { peerURLs = "a" })
    expect_raised("MemberAddRequest: field 'peerURLs' must be a list, not a table", "MemberAddRequest",
      { peerURLs = { "a", n = 1 } })
    expect_raised("MemberAddRequest: each item of field 'peerURLs' must be a string, not 2", "MemberAddRequest",
      { peerURLs = { "a", 2 } })
    expect_raised("WatchCreateRequest: each item of field 'filters' must be", "WatchCreateRequest",
      { filters = { "NOPUT", "NOTHING" } })
    assert.has_error(function() core.encode("MemberAddRequest", { peerURLs = { "a", nil, "b" } }) end)
  end)

  it("raises for tables that contain themselves", function()
    local op = {}
    op.request_txn = { success = { op, op, op } }
    expect_raised("nested too deep", "RequestOp", op)
  end)

  it("does not use metatables", function()
    local message = setmetatable({ key = "a" }, { __index = function() error("asked") end,
      __pairs = function() error("asked") end })
    assert.equal("\10\1a", core.encode("PutRequest", message))
  end)
end)

if core.probe then
  describe("a message without memory", function()
    it("raises, and is made once there is memory", function()
      local message = { header = header(5), kvs = { { key = "k", value = ("v"):rep(5000) }, {} }, count = 2 }
      local encoded = wire.encode("RangeResponse", message)
      starve.try_all(function() return core.encode("RangeResponse", message) end,
        function(got) assert.equal(encoded, got) end)
      starve.try_all(function() return core.decode("RangeResponse", encoded) end,
        function(got) assert.same(message, got) end)
    end)
  end)
end
