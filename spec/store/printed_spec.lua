--- Kvs, events and results as print shows them, of stores and clients.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

--- Expects of a store, or a client, that what its methods return prints well.
local function expect_printed(x)
  local watch = x:watch("a", { prefix = true, progress = true, prev_kv = true })
  assert.equal("{ revision = 2 }", tostring(x:put("a/b", "value")))
  local result = x:put("a/b", "one\n\255", { prev_kv = true })
  assert.equal('{ prev_kv = kv "a/b" = "value" (revision 2, version 1), revision = 3 }', tostring(result))
  assert.equal('kv "a/b" = "one\\x0a\\xff" (revision 3, version 2)', tostring(x:get("a/b")))
  assert.equal("{ #kvs = 1, count = 1, more = false, revision = 3 }", tostring(x:range("a", { prefix = true })))
  x:put("a/c", ("x"):rep(61))
  local text = ('"%s"... (61 bytes)'):format(("x"):rep(60))
  assert.equal(('kv "a/c" = %s (revision 4, version 1)'):format(text), tostring(x:get("a/c")))
  assert.equal("{ deleted = 1, revision = 5 }", tostring(x:delete("a/b")))
  assert.equal("{ #responses = 1, revision = 5, succeeded = true }", tostring(x:txn { success = { { get = "n" } } }))
  local printed = {}
  for i = 1, 4 do printed[i] = tostring(watch:next()) end
  assert.are.same({ 'put "a/b" = "value" at 2', 'put "a/b" = "one\\x0a\\xff" at 3', 'put "a/c" = ' .. text .. " at 4",
    'delete "a/b" at 5' }, printed)
  local initial = x:watch("a", { prefix = true, initial = true })
  assert.equal('put "a/c" = ' .. text .. " at 4", tostring(initial:next()))
  assert.equal("synced at 5", tostring(initial:next()))
  local objects = x:object_watch("a", { prefix = true, initial = true })
  assert.equal('added "a/c" at 4', tostring(objects:next()))
end

describe("what is printed", function()
  it("is the key, the value and the revision: of a store", function() expect_printed(keywatch.open()) end)

  it("is the key, the value and the revision: of a client", function()
    testing.run(function(world) expect_printed(world:client()) end)
  end)

  it("is what the program has put into the fields", function()
    local store = keywatch.open()
    store:put("a", "1")
    local kv = store:get("a")
    kv.value, kv.version = 7, nil
    assert.equal('kv "a" = 7 (revision 2, version nil)', tostring(kv))
  end)
end)
