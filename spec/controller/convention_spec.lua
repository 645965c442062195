--- Objects name their owners, and are marked for deletion.

local cjson = require "cjson"
local ownership = require("keywatch.controller").ownership
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local dose = require "spec.support.dose"
local owners = require "spec.support.owners"
local randoms = require "spec.support.random"
local within = require "spec.support.within"

local ROUNDS = dose.of(100, 400)

local test = owners.test

--- A store or client, and the namespaces and fences of it, by name.
local function stores_of(owner)
  local lock = assert(owner:lock("lock"))
  return {
    itself = owner,
    namespace = owner:namespace("space/"),
    fence = lock:fence(),
    ["namespace of a fence"] = lock:fence():namespace("deep/"),
    ["fence of a namespace"] = owner:namespace("other/"):lock("lock"):fence(),
  }
end

describe("The deletion of an object", function()
  owners.each(function(with)
    test("deletes the key of an object without finalizers, through every kind of store", function()
      for name, store in pairs(stores_of(with.owner)) do
        for _, text in ipairs { "{}", '{"metadata":null}', '{"metadata":{}}', '{"metadata":{"finalizers":[]}}',
          '{"metadata":{"finalizers":null,"owner":"x","deleting":false}}' } do
          assert(store:put("job", text))
          assert.is_true(ownership.delete(store, "job"), name)
          assert.is_nil(store:get("job"))
        end
        assert.is_false(ownership.delete(store, "job"))
      end
    end)

    test("marks an object with finalizers; its key is deleted with the last one", function()
      for name, store in pairs(stores_of(with.owner)) do
        assert(store:put("job", '{ "n": 12345678901234567890, "list": [] }'))
        assert.is_true(ownership.add_finalizer(store, "job", "a"))
        assert.is_false(ownership.add_finalizer(store, "job", "a"))
        assert.is_true(ownership.add_finalizer(store, "job", "b"))
        assert.equal('{ "n": 12345678901234567890, "list": [],"metadata":{"finalizers":["a","b"]} }',
          store:get("job").value)
        assert.is_true(ownership.delete(store, "job"), name)
        assert.is_false(ownership.delete(store, "job"))
        assert.is_false(ownership.add_finalizer(store, "job", "c"))
        assert.equal('{ "n": 12345678901234567890, "list": [],"metadata":{"finalizers":["a","b"],"deleting":true} }',
          store:get("job").value)
        assert.is_false(ownership.remove_finalizer(store, "job", "c"))
        assert.is_true(ownership.remove_finalizer(store, "job", "a"))
        local object = cjson.decode(store:get("job").value)
        assert.is_true(ownership.is_deleting(object))
        assert.is_true(ownership.has_finalizer(object, "b"))
        assert.is_false(ownership.has_finalizer(object, "a"))
        assert.is_true(ownership.remove_finalizer(store, "job", "b"))
        assert.is_nil(store:get("job"))
        assert.is_false(ownership.remove_finalizer(store, "job", "b"))
      end
    end)

    test("keeps the lease of the key", function()
      local owner = with.owner
      local lease = assert(owner:lease(60))
      assert(owner:put("job", "{}", { lease = lease }))
      assert(ownership.add_finalizer(owner, "job", "a"))
      assert.equal(lease.id, owner:get("job").lease)
      assert(ownership.delete(owner, "job"))
      assert.equal(lease.id, owner:get("job").lease)
      assert(lease:revoke())
      assert.is_nil(owner:get("job"))
    end)

    test("changes nothing through the fence of a lock that is lost", function()
      local owner = with.owner
      local lock = assert(owner:lock("lock"))
      local fence = lock:fence()
      assert(owner:put("job", "{}"))
      assert(with.other:delete(lock.key))
      assert.equal("lost", answer.code(ownership.delete(fence, "job")))
      assert.equal("lost", answer.code(ownership.add_finalizer(fence, "job", "a")))
      assert.equal("{}", owner:get("job").value)
    end)
  end)
end)

describe("A finalizer", function()
  local store

  before_each(function() store = keywatch.open() end)
  after_each(function() store:close() end)

  --- The text of an object after a function of the controller.
  local function after(text, fn, ...)
    assert(store:put("x", text))
    local ok, err = fn(store, "x", ...)
    assert.is_true(ok, err and err.message)
    local kv = store:get("x")
    return kv and kv.value
  end

  it("is added at the end, and every other byte stays the same", function()
    local add = ownership.add_finalizer
    assert.equal('{"metadata":{"finalizers":["a"]}}', after("{}", add, "a"))
    assert.equal(' { "metadata":{"finalizers":["a"]} } ', after(' { "metadata":null } ', add, "a"))
    assert.equal('{"metadata":{"finalizers":["a"]},"z":1}', after('{"metadata":{},"z":1}', add, "a"))
    assert.equal('{"metadata":{"finalizers":["a"]}}', after('{"metadata":{"finalizers":null}}', add, "a"))
    assert.equal('{"metadata":{"finalizers":[ "b" ,"c","c","a" ]}}',
      after('{"metadata":{"finalizers":[ "b" ,"c","c" ]}}', add, "a"))
    assert.equal('{"metadata":{"owner":"o","finalizers":["\\"q\\n"]}}',
      after('{"metadata":{"owner":"o"}}', add, '"q\n'))
  end)

  it("is found under an escaped name, and is not written a second time", function()
    local add, remove = ownership.add_finalizer, ownership.remove_finalizer
    assert.equal('{"\\u006detadata":{"final\\u0069zers":["b","a"]}}',
      after('{"\\u006detadata":{"final\\u0069zers":["b"]}}', add, "a"))
    assert.equal('{"\\u006detadata":{"final\\u0069zers":["b"]}}',
      after('{"\\u006detadata":{"final\\u0069zers":["b","\\u0061"]}}', remove, "a"))
    assert.equal('{"\\u006detadata":{"finalizers":["a"],"delet\\u0069ng":true}}',
      after('{"\\u006detadata":{"finalizers":["a"],"delet\\u0069ng":false}}', ownership.delete))
    assert(store:put("x", '{"metadata":{"finalizers":["\\u0061"]}}'))
    assert.is_false(add(store, "x", "a"))
  end)

  it("is read from the last member, if there are several of one name", function()
    local remove = ownership.remove_finalizer
    assert.equal('{"metadata":{"finalizers":["x"]},"metadata":{"finalizers":["b","a"]}}',
      after('{"metadata":{"finalizers":["x"]},"metadata":{"finalizers":["b"]}}', ownership.add_finalizer, "a"))
    assert.equal('{"metadata":{"z":1}}',
      after('{"metadata":{"finalizers":["a"],"z":1,"finalizers":["b"]}}', remove, "b"))
    assert.is_nil(after('{"metadata":{"finalizers":["a"],"finalizers":[]}}', ownership.delete))
  end)

  it("is removed permanently even if it was there twice", function()
    local remove = ownership.remove_finalizer
    assert.equal('{"metadata":{"finalizers":["b","c"]}}',
      after('{"metadata":{"finalizers":["a","b","a","c","a"]}}', remove, "a"))
    assert.equal('{"metadata":{}}', after('{"metadata":{"finalizers":["a","a"]}}', remove, "a"))
    assert.is_nil(after('{"metadata":{"deleting":true,"finalizers":["a","a"]}}', remove, "a"))
  end)

  it("is not changed in a value that cannot be parsed", function()
    local deep = ('{"a":'):rep(1001) .. "1" .. ("}"):rep(1001)
    for _, text in ipairs {
      "", "text", "[]", "1", "null", '"x"', "{} {}", "{", '{"a":"\255"}', '{"metadata":{"finalizers":["a"]}', deep,
      '{"metadata":"x"}', '{"metadata":[]}', '{"metadata":1}', '{"metadata":true}',
      '{"metadata":{"finalizers":"a"}}', '{"metadata":{"finalizers":{}}}', '{"metadata":{"finalizers":{"a":1}}}',
      '{"metadata":{"finalizers":["a",1]}}', '{"metadata":{"finalizers":[null]}}',
      '{"metadata":{"finalizers":[["a"]]}}',
      '{"metadata":{"finalizers":true}}', '{"metadata":{"deleting":1,"finalizers":["a"]}}',
      '{"metadata":{"deleting":"true"}}', '{"metadata":{"deleting":{}}}',
    } do
      assert(store:put("x", text))
      local before = store:get("x")
      for _, fn in ipairs { ownership.delete, ownership.add_finalizer, ownership.remove_finalizer } do
        local ok, err = fn(store, "x", fn ~= ownership.delete and "a" or nil)
        assert.same({ nil, "malformed" }, { ok, err and err.code }, text)
        assert.is_truthy(err.message:find("the value of 'x' is malformed", 1, true))
      end
      assert.same(before, store:get("x"))
    end
  end)

  it("may be added and removed at random: everything else decodes to the same", function()
    local random = randoms.new(tonumber(os.getenv("KW_SEED") or 1))
    local names = { "a", "b/c", '"', "\195\164" }
    local text = ' {"big":12345678901234567890, "empty":[] ,"metadata" : {"owner":"o","o":{}},"z":[{},[[]]] } '
    assert(store:put("x", text))
    local model, is_deleting = {}, false
    for _ = 1, ROUNDS do
      local name, kind = random:pick(names), random:between(1, 20)
      local at
      for i, one in ipairs(model) do at = one == name and i or at end
      if kind == 1 then
        assert.equal(#model == 0 or not is_deleting, ownership.delete(store, "x"))
        is_deleting = #model > 0
      elseif kind <= 11 then
        assert.equal(not at and not is_deleting, ownership.add_finalizer(store, "x", name))
        if not at and not is_deleting then model[#model + 1] = name end
      else
        assert.equal(at ~= nil, ownership.remove_finalizer(store, "x", name))
        if at then table.remove(model, at) end
      end
      local kv = store:get("x")
      if not kv then
        assert.same({}, model)
        assert(store:put("x", text))
        is_deleting = false
      else
        local expected, found = cjson.decode(text), cjson.decode(kv.value)
        expected.metadata.finalizers = #model > 0 and model or nil
        local list = found.metadata.finalizers
        assert.is_true(list == nil or type(list) == "table")
        if list and #list == 0 then found.metadata.finalizers = nil end
        expected.metadata.deleting = is_deleting or nil
        assert.same(expected, found)
        assert.equal(' {"big":12345678901234567890, "empty":[] ,"metadata" : {"owner":"o","o":{}',
          kv.value:match("^(.-),\"finalizers") or kv.value:match("^(.-),\"deleting")
            or kv.value:match("^(.*)},\"z\""))
        assert.equal(',"z":[{},[[]]] } ', kv.value:match(',"z":.*$'))
      end
    end
    ownership.delete(store, "x")
    for _, name in ipairs(model) do assert.is_true(ownership.remove_finalizer(store, "x", name)) end
    assert.is_nil(store:get("x"))
  end)

  it("is added and removed by several tasks at once, and no change is lost", within.world(function(world)
    assert(world.server.store:put("x", '{"n":1}'))
    local tasks = {}
    for i = 1, 8 do
      local client = world:client()
      tasks[i] = keywatch.spawn(function()
        assert(ownership.add_finalizer(client, "x", "keep " .. i))
        assert(ownership.add_finalizer(client, "x", "drop " .. i))
        assert(ownership.remove_finalizer(client, "x", "drop " .. i))
      end)
    end
    assert(keywatch.join(tasks))
    local object = cjson.decode(world.server.store:get("x").value)
    assert.equal(8, #object.metadata.finalizers)
    for i = 1, 8 do assert.is_true(ownership.has_finalizer(object, "keep " .. i)) end
  end))

  it("is given up after many attempts, if other writers are always faster", within.world(function(world)
    local store_below, client = world.server.store, world:client()
    assert(store_below:put("x", "{}"))
    local gets = world:fault { "delay", seconds = 1, method = "txn" }
    local busy = keywatch.spawn(function()
      while true do
        keywatch.sleep(0.5)
        store_below:put("x", "{}")
      end
    end)
    assert.same({ "aborted", true }, { answer.code(ownership.add_finalizer(client, "x", "a")), gets.hits >= 100 })
    assert.equal("deadline_exceeded", answer.code(ownership.add_finalizer(client, "x", "a", { timeout = 10 })))
    busy:cancel()
  end))

  it("is reported as in doubt if the write is in doubt", within.world(function(world)
    local client = world:client()
    assert(world.server.store:put("x", "{}"))
    world:fault { "lose_answer", method = "txn", count = 1 }
    local ok, err = ownership.add_finalizer(client, "x", "a")
    assert.same({ nil, "unavailable", true }, { ok, err.code, err.maybe_done })
    assert.is_false(ownership.add_finalizer(client, "x", "a"))
  end))
end)

describe("A decoded object", function()
  it("has its owner, its finalizers and whether it is being deleted", function()
    local object = cjson.decode '{"metadata":{"owner":"/parents/a","finalizers":["a",1],"deleting":true}}'
    assert.same({ "/parents/a", true }, { ownership.owner_of(object), ownership.is_deleting(object) })
    assert.is_true(ownership.has_finalizer(object, "a"))
    assert.is_false(ownership.has_finalizer(object, "b"))
  end)

  it("has none of these if its fields have other types, or it is not an object", function()
    for _, text in ipairs {
      "[null]", "[1]", "[true]", "[[]]", '[{"metadata":null}]', '[{"metadata":"x"}]', '[{"metadata":[]}]',
      '[{"metadata":{"owner":1,"finalizers":"a","deleting":"true"}}]',
      '[{"metadata":{"owner":null,"finalizers":{"a":"a"},"deleting":null}}]',
    } do
      local object = cjson.decode(text)[1]
      assert.same({ nil, false }, { ownership.owner_of(object), ownership.is_deleting(object) })
      assert.is_false(ownership.has_finalizer(object, "a"))
    end
    assert.same({ nil, false }, { ownership.owner_of(nil), ownership.is_deleting(nil) })
  end)

  it("must not be a text", function()
    for _, fn in ipairs { ownership.owner_of, ownership.is_deleting, ownership.has_finalizer } do
      assert.error_matches(function() fn('{"metadata":{}}', "a") end, "the object is a string, and not decoded")
    end
  end)
end)
