--- Malformed messages: decoding them, to tables and in probe builds to records, fails with an error.

local core = require "keywatch.core"
local probe = core.probe

local dose = require "spec.support.dose"
local schema = require "spec.support.schema"
local wire = require "spec.support.wire"
local new_random = require("spec.support.random").new

local seed = tonumber(os.getenv("KW_SEED") or 1)

local bytes = wire.bytes

--- Whether the bytes can be decoded as a message; tables and records must agree. `code` is the error of a record that
-- cannot be decoded, by default "malformed".
local function decodes(name, encoded, code)
  local message, err = core.decode(name, encoded)
  if not message then assert.same({ "malformed", 13 }, { err.code, err.grpc_status }) end
  if probe then
    local again, why = probe.recode(name, encoded)
    if not again then assert.equal(code or "malformed", why.code) end
    -- A record skips the content of fields that it does not have, so it may decode where a table does not.
    if message then assert.is_string(again, wire.hex(encoded)) end
  end
  return message ~= nil
end

local function refuses(name, encoded)
  assert.is_false(decodes(name, bytes(encoded)), encoded)
  if probe then assert.is_nil(probe.recode(name, bytes(encoded)), encoded) end
end

local function accepts(name, encoded)
  assert.is_true(decodes(name, bytes(encoded)), encoded)
end

--- Nested transactions: n messages, each inside the previous one.
local function nested(n)
  local encoded = ""
  for depth = n, 2, -1 do
    encoded = wire.field(depth % 2 == 0 and 2 or 4, encoded) -- success of a TxnRequest, or request_txn of a RequestOp
  end
  return encoded
end

describe("decoding refuses", function()
  it("truncated messages", function()
    local samples = {
      WatchRequest = { "0a050a03666f6f" },
      WatchResponse = { "0a1a08b298eaf1948386fccd0110cdd2918bd2b881cf8e0118012002", "10ffffffffffffffffff01", "1801",
        "2001", "3206 6d7663633a20", "5a1212100a03666f6f1002180220012a03626172", "5a0b080112070a03666f6f1803" },
      TxnRequest = { "0a0910021a03666f6f3005", "120c120a0a03666f6f1203626172", "1a070a050a03666f6f" },
      WatchCreateRequest = { "0a0161", "2a020001", "4001" },
      RangeResponse = { "0a021807", "12100a03666f6f1002180220012a03626172", "2001" },
    }
    for name, fields in pairs(samples) do
      local whole, may_end = "", { [0] = true } -- a message can end only at the end of a field
      for _, field in ipairs(fields) do
        whole = whole .. bytes(field)
        may_end[#whole] = true
      end
      for len = 0, #whole do
        assert.equal(may_end[len] or false, decodes(name, whole:sub(1, len)), name .. " " .. len)
      end
    end
  end)

  it("lengths beyond the end", function()
    refuses("PutRequest", "0a0261")
    refuses("PutRequest", "0affffffff0f61")
    refuses("PutRequest", "0affffffffffffffffff0161")
    refuses("PutRequest", "fa010261") -- also in unknown fields
    refuses("WatchRequest", "0a040a0366 6f")
    refuses("WatchCreateRequest", "2a03 0001")
  end)

  it("numbers that do not end, or have more than 64 bits", function()
    refuses("PutRequest", "18")
    refuses("PutRequest", "18ff")
    refuses("PutRequest", "18ffffffffffffffffffff01")
    refuses("PutRequest", "18808080808080808080808000")
    refuses("PutRequest", "0a80")
    refuses("WatchCreateRequest", "2a01ff")
    refuses("WatchCreateRequest", "2a0bffffffffffffffffffff01")
    refuses("WatchCreateRequest", "2a0201ff")
    accepts("PutRequest", "18ffffffffffffffffff01")
  end)

  it("tags without a field number, or with an unknown wire type", function()
    refuses("PutRequest", "00")
    refuses("PutRequest", "0000")
    refuses("PutRequest", "0201 61")
    refuses("PutRequest", "0e")
    refuses("PutRequest", "fe0100")
    refuses("PutRequest", "ff0100")
    refuses("PutRequest", "88808080 8001 00") -- above 32 bits
    refuses("PutRequest", "80")
  end)

  it("fields with the wrong wire type", function()
    for _, field in ipairs(schema.messages.PutRequest) do
      local is_bytes = field.type == "bytes"
      local kinds = { [0] = "\1", [1] = ("\0"):rep(8), [2] = "\0", [3] = wire.tag(field.number, 4),
        [5] = ("\0"):rep(4) }
      for type, content in pairs(kinds) do
        local encoded = wire.tag(field.number, type) .. content
        assert.equal(type == (is_bytes and 2 or 0), decodes("PutRequest", encoded))
      end
    end
    refuses("RangeRequest", "3a0101") -- also if the record does not have the field
    refuses("WatchRequest", "0801")
    refuses("TxnRequest", "0801")
    refuses("WatchCreateRequest", "29 0000000000000000")
    refuses("RangeResponse", "1001")
  end)

  it("groups, which proto3 does not have", function()
    refuses("PutRequest", "f301 f401")
    refuses("PutRequest", "f401")
    accepts("PutRequest", "f20100")
  end)

  it("messages nested deeper than 200 transactions", function()
    assert.is_true(decodes("TxnRequest", nested(403)))
    assert.is_true(decodes("TxnRequest", nested(404)))
    assert.is_false(decodes("TxnRequest", nested(405), "too_many_ops"))
    assert.is_false(decodes("TxnRequest", nested(20000), "too_many_ops"))
  end)

  it("malformed messages inside of a message", function()
    refuses("TxnRequest", "1204 1202 0a01")
    refuses("TxnRequest", "1203 1201 08")
    refuses("TxnRequest", "1204 1202 0801")
    refuses("LeaseLeasesResponse", "1202 0a00")
    refuses("RangeResponse", "1202 1200")
  end)
end)

describe("decoding", function()
  it("never crashes on altered messages, and tables and records agree", function()
    local random = new_random(seed)
    for _ = 1, dose.of(300, 10000) do
      local name = random:pick(schema.names)
      local encoded = wire.encode(name, wire.random(random, name, 3))
      for _ = 1, random:between(1, 3) do
        local at = random:between(0, #encoded)
        encoded = encoded:sub(1, at) .. random:bytes(random:between(0, 2)) .. encoded:sub(at + 1 + random:between(0, 2))
      end
      decodes(name, encoded)
    end
  end)

  it("takes memory in proportion to the length", function()
    local many = ("\42\0"):rep(500000) -- empty runs of packed numbers
    assert.same({ key = "a" }, core.decode("WatchCreateRequest", many .. "\10\1a"))
    if probe then assert.is_nil((probe.recode("WatchCreateRequest", many .. "\10\1a"))) end -- records are limited
    local ops = ("\18\0"):rep(20000) .. ("\26\0"):rep(20000) .. ("\10\0"):rep(20000)
    assert.equal(20000, #core.decode("TxnRequest", ops).failure)
    if not probe then return end
    assert.is_nil((probe.recode("TxnRequest", ops))) -- records would take fifty times the memory
    local keyed = ("\18\5\10\3\10\1a"):rep(20000)
    assert.equal(keyed, probe.recode("TxnRequest", keyed))
  end)
end)
