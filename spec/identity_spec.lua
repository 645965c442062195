--- Ids as etcd computes them, and the digest for them.

local core = require "keywatch.core"
local identity = require "keywatch.server.identity"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local directory = require "spec.support.directory"

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

describe("sha1", function()
  it("gives the digests of FIPS 180-4", function()
    assert.equal("da39a3ee5e6b4b0d3255bfef95601890afd80709", hex(core.sha1("")))
    assert.equal("a9993e364706816aba3e25717850c26c9cd0d89d", hex(core.sha1("abc")))
    assert.equal("84983e441c3bd26ebaae4aa1f95129e5e54670f1",
      hex(core.sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")))
    assert.equal("34aa973cd4c4daa4f61eeb2bdbad27316534016f", hex(core.sha1(("a"):rep(1000000))))
  end)

  it("has the right end at every length around a block", function()
    local all = {}
    for len = 50, 130 do all[#all + 1] = core.sha1(("x"):rep(len)) end
    assert.equal("a46a78ce57be98ffe216f6fc0c6c691b40b965bc", hex(core.sha1(table.concat(all))))
  end)

  it("refuses values that are not strings", function() assert.has_error(function() core.sha1(7) end) end)
end)

describe("an identity", function()
  it("is that of an etcd with the same settings", function()
    assert.same({ member_id = "10276657743932975437", cluster_id = "14841639068965178418" },
      identity.new({ "http://localhost:2380" }, "etcd-cluster"))
  end)

  it("does not depend on the order of URLs, and depends on all other settings", function()
    local one = identity.new({ "http://a:1", "http://b:1" }, "t")
    assert.same(one, identity.new({ "http://b:1", "http://a:1" }, "t"))
    assert.not_same(one, identity.new({ "http://a:1" }, "t"))
    assert.not_same(one, identity.new({ "http://a:1", "http://b:1" }, "u"))
  end)

  it("is kept by a durable store", function()
    local path = directory.new()
    local store = keywatch.open { path = path }
    local first = identity.of(store, { "http://a:1" }, "t")
    assert.same(identity.new({ "http://a:1" }, "t"), first)
    store:close()
    store = keywatch.open { path = path }
    assert.same(first, identity.of(store, { "http://b:1" }, "u"))
    store:close()
    directory.remove_all()
    store = keywatch.open()
    assert.same(first, identity.of(store, { "http://a:1" }, "t"))
    assert.same(identity.new({ "http://b:1" }, "u"), identity.of(store, { "http://b:1" }, "u"))
  end)

  it("of a durable store is not replaced when it cannot be read", function()
    local failure, n_changes = { code = "storage" }, 0
    local store = {
      status = function() return { commits = 1 } end,
      rows = function() return nil, failure end,
      change_rows = function()
        n_changes = n_changes + 1
        return true
      end,
    }
    local ids, err = identity.of(store, { "http://a:1" }, "t")
    assert.same({ nil, failure, 0 }, { ids, err, n_changes })
  end)

  it("of a durable store that another task closes cannot be read: serve fails", function()
    testing.run(function(world)
      local store = assert(keywatch.open { path = directory.new() .. "/store" })
      function world.driver.work_seconds() return 2 end
      local writing = keywatch.spawn(store.put, store, "a", "1")
      keywatch.sleep(0)
      local serving = keywatch.spawn(keywatch.serve, { store = store, listen = "http://host:1" })
      keywatch.sleep(1)
      store:close()
      local _, server, err = serving:join()
      assert.same({ nil, "closed" }, { server, err and err.code })
      writing:join()
    end)
    directory.remove_all()
  end)

  it("without a token belongs to a separate cluster for each store", function()
    local urls, path = { "http://a:1" }, directory.new()
    local one, other, durable = keywatch.open(), keywatch.open(), keywatch.open { path = path }
    local ids = identity.of(one, urls)
    assert.equal(identity.new(urls, "etcd-cluster").member_id, ids.member_id)
    assert.same(ids, identity.of(one, urls))
    assert.not_equal(ids.cluster_id, identity.of(other, urls).cluster_id)
    ids = identity.of(durable, urls)
    durable:close()
    durable = keywatch.open { path = path }
    assert.same(ids, identity.of(durable, urls))
    durable:close()
    directory.remove_all()
  end)
end)
