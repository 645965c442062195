--- Errors: objects with a stable code, etcd's own words, and the status that gRPC gives them.

local keywatch = require "keywatch"
local errors = require("keywatch.core").errors

local failures = require("spec.support.model.failure").known

local ours = { "out_of_memory", "read_only", "stale_revision" }

local function pack(...) return { n = select("#", ...), ... } end

-- Requests, by the code that each fails with.
local function requests()
  local store = keywatch.open { now = 0, max_request_bytes = 1000, max_txn_ops = 2 }
  store:put("a", "")
  store:put("a", "")
  store:compact(3)
  store:lease(10, { id = 7 })
  local put = { put = "a", value = "" }
  local bad = keywatch.open { now = 0 }
  bad:arm("corrupt")
  local full = keywatch.open { now = 0 }
  full:arm("no_space")
  local replica = keywatch.open { now = 0, replica = true }
  replica:advance(5)
  return {
    empty_key = pack(store:get("")),
    key_not_found = pack(store:put("none", nil, { ignore_value = true })),
    value_provided = pack(store:put("a", "v", { ignore_value = true })),
    lease_provided = pack(store:put("a", "", { ignore_lease = true, lease = 7 })),
    too_many_ops = pack(store:txn { success = { put, put, put } }),
    duplicate_key = pack(store:txn { success = { put, put } }),
    request_too_large = pack(store:put("a", ("x"):rep(1000))),
    compacted = pack(store:get("a", { revision = 2 })),
    future_revision = pack(store:get("a", { revision = 4 })),
    no_space = pack(full:put("a", "")),
    lease_not_found = pack(store:lease_by_id(99):revoke()),
    lease_exists = pack(store:lease(10, { id = 7 })),
    lease_ttl_too_large = pack(store:lease(9000000001)),
    corrupt = pack(bad:put("a", "")),
    read_only = pack(replica:put("a", "")),
    stale_revision = pack(replica:merge_kvs(4, {})),
  }
end

describe("the table of errors", function()
  it("has etcd's exact texts and statuses, since its clients compare them", function()
    for code, expected in pairs(failures) do
      assert.same({ grpc_status = expected[1], message = expected[2] }, errors[code])
    end
  end)

  it("has the origin of each text", function()
    local owners = { etcdserver = true, mvcc = true, grpc = true, keywatch = true, context = true } -- context: of Go
    for _, entry in pairs(errors) do assert.is_true(owners[entry.message:match("^%l+")]) end
    for _, code in ipairs(ours) do assert.matches("^keywatch: ", errors[code].message) end
  end)

  it("has gRPC's statuses, and distinct texts", function()
    local seen = {}
    for _, entry in pairs(errors) do
      assert.is_true(entry.grpc_status >= 1 and entry.grpc_status <= 16)
      assert.is_nil(seen[entry.message])
      seen[entry.message] = true
    end
  end)
end)

describe("an error", function()
  it("has the code, the text and the status of the table", function()
    for code, found in pairs(requests()) do
      local answer, err = found[1], found[2]
      assert.is_nil(answer)
      assert.same({ code, errors[code].message, errors[code].grpc_status }, { err.code, err.message, err.grpc_status })
      assert.equal(2, found.n, code)
    end
  end)

  it("has the compacted revision if it is about compaction, and only then", function()
    for code, found in pairs(requests()) do
      assert.equal(code == "compacted" and 3 or nil, found[2].compact_revision)
    end
  end)

  it("prints its text and its code", function()
    for code, found in pairs(requests()) do
      local text = tostring(found[2])
      assert.is_truthy(text:find(errors[code].message, 1, true))
      assert.is_truthy(text:find(code, 1, true))
    end
  end)

  it("can be joined to strings, and to another error", function()
    local _, err = keywatch.open({ now = 0 }):get("")
    local text = tostring(err)
    assert.equal("failed: " .. text, "failed: " .. err)
    assert.equal(text .. " so it is", err .. " so it is")
    assert.equal(text .. text, err .. err)
    assert.equal(text .. 5, err .. 5)
  end)

  it("can be raised and caught, also by assert", function()
    local store = keywatch.open { now = 0 }
    local _, err = store:get("")
    local ok, caught = pcall(error, err)
    assert.same({ false, err }, { ok, caught })
    ok, caught = pcall(function() return assert(store:get("")) end)
    assert.is_false(ok)
    assert.is_truthy(tostring(caught):find("etcdserver: key is not provided", 1, true))
  end)

  it("is the last result of every method: LuaJIT's assert raises it", function()
    local store = keywatch.open { now = 0 }
    local function all()
      for name, found in pairs {
        delete = pack(store:delete("")), txn = pack(store:txn { success = { { put = "", value = "" } } }),
        compact = pack(store:compact(9)), physical = pack(store:compact(9, { physical = true })),
        range = pack(store:range("")), lease = pack(store:lease(9000000001)), hash_kv = pack(store:hash_kv(9)),
        lease_keys = pack(store:lease_by_id(99):keys()), remaining = pack(store:lease_by_id(99):remaining()),
      } do
        assert.is_nil(found[1], name)
        assert.equal(2, found.n, name)
      end
    end
    all()
    keywatch.run(all)
  end)
end)
