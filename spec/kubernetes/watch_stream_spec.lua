--- Watches of Kubernetes' API over HTTP, in virtual time: where they begin, what they show, and how they end.

local keywatch = require "keywatch"

local kube = require "spec.support.kube"

describe("a watch over HTTP", function()
  it("without a resourceVersion has the present state, then changes", kube.within(function(k)
    k:create("a", { size = 1 })
    for _, query in ipairs { "", "resourceVersion=0", "resourceVersion=" } do
      local watch = k:watch(query)
      assert.equal("application/json", watch.answer.headers["content-type"])
      assert.equal("ADDED a 1", watch:say())
      k:create("b", { size = 2 })
      k:resize("b", 3)
      k:delete "b"
      assert.same({ "ADDED b 2", "MODIFIED b 3", "DELETED b 3", "timeout" },
        { watch:say(), watch:say(), watch:say(), watch:say(1) })
      watch:close()
    end
  end))

  it("shows the present state in the order of revisions, if it is short", kube.within(function(k)
    for _, name in ipairs { "a", "b", "c" } do k:create(name, { size = 1 }) end
    k:resize("a", 2)
    local watch = k:watch ""
    assert.same({ "ADDED b 1", "ADDED c 1", "ADDED a 2" }, { watch:say(), watch:say(), watch:say() })
  end))

  it("with one has the changes after it, which may be still to come", kube.within(function(k)
    local first = k:create("a", { size = 1 })
    k:resize("a", 2)
    local watch = k:watch("resourceVersion=" .. first)
    assert.equal("MODIFIED a 2", watch:say())
    local later = k:watch("resourceVersion=" .. first + 3)
    for size = 3, 5 do k:resize("a", size) end
    assert.same({ "MODIFIED a 3", "MODIFIED a 4", "MODIFIED a 5" }, { watch:say(), watch:say(), watch:say() })
    assert.same({ "MODIFIED a 5", "timeout" }, { later:say(), later:say(1) })
  end))

  it("shows a deleted object as it was, at the revision of the deletion", kube.within(function(k)
    local revision = k:create("a", { size = 1 })
    local watch = k:watch("resourceVersion=" .. revision)
    k:delete "a"
    local event = assert(watch:next())
    assert.equal("DELETED", event.type)
    assert.equal(1, event.object.spec.size)
    assert.equal(("%d"):format(revision + 1), event.object.metadata.resourceVersion)
  end))

  it("goes on after a compaction of the store, and from any revision of the history", kube.within(function(k)
    local revision = k:create("a", { size = 1 })
    k:resize("a", 2)
    k.server:compact()
    local watch = k:watch("resourceVersion=" .. revision)
    assert.equal("MODIFIED a 2", watch:say())
  end))

  it("is refused in its first event if its history was evicted", kube.within(function(k)
    local revision = k:create("a", { color = ("x"):rep(1000) })
    for size = 1, 10 do k:resize("a", size) end
    local watch = k:watch("resourceVersion=" .. revision)
    assert.equal(200, watch.answer.status)
    assert.same({ "ERROR 410 Expired", "end" }, { watch:say(), watch:say() })
    local listed = k:get(kube.ALL).body.metadata.resourceVersion
    assert.equal("timeout", k:watch("resourceVersion=" .. listed):say(1))
  end, { history_bytes = 5000 }))

  it("follows objects into a selector and out of it", kube.within(function(k)
    local watch = k:watch("labelSelector=app%3Dx")
    local by_name = k:watch("fieldSelector=metadata.name%3Da")
    k:create("b", {}, { labels = { app = "y" } })
    k:create("a", { size = 1 }, { labels = { app = "x" } })
    local function label(value)
      k:ask("PATCH", kube.ONES .. "/a", { metadata = { labels = { app = value } } },
        { ["content-type"] = "application/merge-patch+json" })
    end
    label "y"
    label "x"
    k:resize("a", 2)
    assert.same({ "ADDED a 1", "DELETED a 1", "ADDED a 1", "MODIFIED a 2" },
      { watch:say(), watch:say(), watch:say(), watch:say() })
    assert.same({ "ADDED a 1", "MODIFIED a 1" }, { by_name:say(), by_name:say() })
    assert.equal(400, k:get(kube.ALL .. "?watch=1&fieldSelector=spec.size%3D1").status)
    assert.equal(400, k:get(kube.ALL .. "?watch=1&labelSelector=%3D%3D").status)
  end))

  it("is of one namespace or of all", kube.within(function(k)
    local one, all = k:watch("", nil, kube.ONES), k:watch ""
    k:ask("POST", "/apis/demo.example/v1/namespaces/other/widgets", kube.widget("o", { size = 7 }))
    k:create("a", { size = 1 })
    assert.same({ "ADDED a 1", "timeout" }, { one:say(), one:say(1) })
    assert.same({ "ADDED o 7", "ADDED a 1" }, { all:say(), all:say() })
  end))

  it("ends in order after timeoutSeconds, or between half an hour and an hour", kube.within(function(k)
    local watch = k:watch "timeoutSeconds=5"
    local began = keywatch.now()
    assert.equal("end", watch:say(100))
    assert.equal(5, math.floor(keywatch.now() - began + 0.5))
    watch = k:watch ""
    assert.equal("timeout", watch:say(1700))
    assert.equal("end", watch:say(1900))
  end))

  it("has bookmarks each minute and before its end, if they are asked for", kube.within(function(k)
    local watch, silent = k:watch "allowWatchBookmarks=true&timeoutSeconds=100", k:watch "timeoutSeconds=100"
    local revision = k:create "a"
    k.store:put("another", "key")
    local lines, times, began = {}, {}, keywatch.now()
    for i = 1, 4 do
      lines[i] = watch:say(100)
      times[i] = math.floor(keywatch.now() - began + 0.5)
    end
    local now = ("%d"):format(revision + 1)
    assert.same({ "ADDED a 1", "BOOKMARK " .. now, "BOOKMARK " .. now, "end" }, lines)
    assert.same({ 0, 60, 98, 100 }, times)
    assert.same({ "ADDED a 1", "end" }, { silent:say(), silent:say(200) })
  end))

  describe("with sendInitialEvents", function()
    local LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    it("has the state and a bookmark behind it", kube.within(function(k)
      local revision = k:create("a", { size = 1 })
      k.store:put("another", "key")
      for _, version in ipairs { "", "0", revision } do
        local watch = k:watch(LIST .. "&resourceVersion=" .. version)
        assert.same({ "ADDED a 1", ("BOOKMARK %d end"):format(revision + 1), "timeout" },
          { watch:say(), watch:say(), watch:say(1) })
      end
      local silent = k:watch "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
      assert.same({ "ADDED a 1", "timeout" }, { silent:say(), silent:say(1) })
      assert.equal("ERROR 504 Timeout", k:watch(LIST .. "&resourceVersion=1000"):say())
    end))

    it("false has changes from now on", kube.within(function(k)
      k:create "a"
      for i, version in ipairs { "", "0" } do
        local watch = k:watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" .. version)
        k:create("b" .. i, { size = i })
        assert.same({ ("ADDED b%d %d"):format(i, i), "timeout" }, { watch:say(), watch:say(1) })
      end
    end))

    it("or resourceVersionMatch without the other one is refused", kube.within(function(k)
      for _, query in ipairs { "sendInitialEvents=true", "resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=false&resourceVersionMatch=Exact" } do
        assert.equal(422, k:get(kube.ALL .. "?watch=1&" .. query).status, query)
      end
      assert.equal(400, k:get(kube.ALL .. "?watch=1&resourceVersion=abc").status)
    end))
  end)

  it("has tables, whose first event alone has the columns", kube.within(function(k)
    local watch = k:watch("", { accept = kube.TABLE })
    local late = k:watch("resourceVersion=" .. k:create("a", { size = 1 }), { accept = kube.TABLE })
    k:resize("a", 2)
    k:resize("a", 3)
    local event = watch:next()
    assert.same({ "ADDED", "Table", 3 }, { event.type, event.object.kind, #event.object.columnDefinitions })
    assert.same({ "a", 1, require("keywatch.json").null }, event.object.rows[1].cells)
    assert.equal("PartialObjectMetadata", event.object.rows[1].object.kind)
    watch:next()
    assert.matches('"columnDefinitions":null', watch.line)
    event = late:next()
    assert.same({ "MODIFIED", 3 }, { event.type, #event.object.columnDefinitions })
    late:next()
    assert.matches('"columnDefinitions":null', late.line)
  end))

  it("has only metadata", kube.within(function(k)
    local watch = k:watch("allowWatchBookmarks=1", { accept = kube.METADATA })
    k:create "a"
    local event = watch:next()
    assert.same({ "ADDED", "PartialObjectMetadata", "a" },
      { event.type, event.object.kind, event.object.metadata.name })
    assert.is_nil(event.object.spec)
    assert.equal("PartialObjectMetadata", watch:next(100).object.kind)
  end))

  it("lags while its client does not read, and misses nothing", kube.within(function(k)
    local slow, fast = k:watch "", k:watch ""
    local padding = ("x"):rep(20000)
    for i = 1, 60 do
      k:create("a" .. i, { size = i, color = padding })
      assert.equal(("ADDED a%d %d"):format(i, i), fast:say())
    end
    for i = 1, 60 do assert.equal(("ADDED a%d %d"):format(i, i), slow:say()) end
    k:delete "a1"
    assert.equal("DELETED a1 1", slow:say())
  end))

  it("that lags ends without an event once its place is gone", kube.within(function(k)
    local slow = k:watch ""
    local padding = ("x"):rep(20000)
    for i = 1, 100 do k:create("a" .. i, { size = i, color = padding }) end
    local n, event, err = 0, slow:next()
    while event do
      n = n + 1
      assert.equal("a" .. n, event.object.metadata.name)
      event, err = slow:next()
    end
    assert.is_nil(err)
    assert.is_true(n > 10 and n < 100)
  end, { history_bytes = 200000 }))

  it("ends in order when the API closes", kube.within(function(k)
    local watch = k:watch ""
    k:create("a", { size = 1 })
    assert.equal("ADDED a 1", watch:say())
    keywatch.spawn(k.api.close, k.api)
    assert.equal("end", watch:say())
  end))
end)
