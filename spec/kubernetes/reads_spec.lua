--- Gets and lists: resourceVersion and resourceVersionMatch in all combinations, limit and continue, selectors; what is
-- answered by the cache and what by the store; caches that are late, empty, or begin again.

local continue_token = require "keywatch.kubernetes.continue_token"
local core = require "keywatch.core"
local entries = require "keywatch.kubernetes.entry"
local keywatch = require "keywatch"

local widgets = require "spec.kubernetes.widgets"
local within = require "spec.support.within"

local EXACT, NOT_OLDER = "Exact", "NotOlderThan"
local FUTURE = 1000000

--- The names of listed objects: "a b c".
local function names(list)
  local found = {}
  for i, object in ipairs(list.items) do found[i] = object.metadata.name end
  return table.concat(found, " ")
end

--- Creates widgets in a namespace, one after the other. Returns the revision of each.
local function create(handle, namespace, ...)
  local revisions = {}
  for _, name in ipairs { ... } do
    local made = assert(handle:create(widgets.new(namespace .. "/" .. name, nil, { name = name })))
    revisions[name] = made.metadata.resourceVersion
  end
  return revisions
end

--- A list, or its failure, as a text: "a b @4 more 2", or "410 Expired".
local function shown(list, err)
  if not list then return ("%d %s"):format(err.http_status, err.reason) end
  local rest = list.continue and (" more%s"):format(list.remaining and " " .. list.remaining or "") or ""
  return ("%s @%s%s"):format(names(list), list.resource_version, rest)
end

--- A widget, of which every third one has an empty spec, and every seventh a text that must be escaped.
local function new_widget(key, i)
  local object = widgets.new(key, i % 3 == 0 and {} or nil)
  if i % 7 == 0 then object.metadata.annotations = { note = 'a "resourceVersion" \\ in a text' } end
  return object
end

local function each_store(title, fn) widgets.each_store(it, title, fn) end

describe("get", function()
  each_store("returns an object, nil if there is none, and waits for a revision", function(handle)
    local at = create(handle, "n", "a")
    for _, version in ipairs { false, "", "0", at.a, tonumber(at.a) } do
      local found = assert(handle:get("n/a", { resource_version = version or nil }))
      assert.equal(at.a, found.metadata.resourceVersion)
      local none, err = handle:get("n/b", { resource_version = version or nil })
      assert.is_nil(none)
      assert.is_nil(err)
    end
    local before = keywatch.now()
    local none, err = handle:get("n/a", { resource_version = FUTURE })
    assert.is_nil(none)
    assert.equal("ResourceVersionTooLarge", err.causes[1].reason)
    assert.equal(1, err.retry_after)
    assert.is_true(math.abs(keywatch.now() - before - 3) < 0.5)
    for _, version in ipairs { "abc", "-1", "1.5", "0x10", ("9"):rep(30), " 1" } do
      assert.equal(400, select(2, handle:get("n/a", { resource_version = version })).http_status, version)
    end
  end)

  it("never takes a lost server for an absent object", within.world(function(world)
    local api, handle = widgets.open(world:client())
    create(handle, "n", "a")
    world.server:stop()
    for _, name in ipairs { "n/a", "n/b" } do
      local found, err = handle:get(name)
      assert.is_nil(found)
      assert.is_true(err.http_status >= 500)
    end
    assert.equal("a", handle:get("n/a", { resource_version = "0" }).metadata.name)
    api:close()
  end, { leftovers = "cancel" }))

  it("never takes a closed store for an absent object", within.world(function()
    local store = keywatch.open()
    local _, handle = widgets.open(store)
    create(handle, "n", "a")
    store:close()
    for _, version in ipairs { "", "0", "2" } do
      local ok, found, err = pcall(handle.get, handle, "n/a", { resource_version = version })
      assert.is_true(not ok or not found and err.http_status == 503)
    end
    assert.equal(503, select(2, handle:list()).http_status)
  end, { leftovers = "cancel" }))
end)

describe("list", function()
  each_store("returns the objects of a scope, and none whose name only begins like it", function(handle, _, store)
    create(handle, "n", "a", "b")
    create(handle, "n2", "c")
    create(handle, "m", "d")
    assert(store:put("/registry/demo.example/widgetsx/n/e", "{}"))
    assert.equal("d a b c", names(handle:list()))
    assert.equal("a b", names(handle:namespace("n"):list()))
    assert.equal("a b", names(handle:list { namespace = "n" }))
    assert.equal("", names(handle:list { namespace = "none" }))
    local each = {}
    for object in handle:each { namespace = "n" } do each[#each + 1] = object.metadata.name end
    assert.same({ "a", "b" }, each)
  end)

  each_store("selects by labels and fields", function(handle)
    create(handle, "n", "a", "b")
    create(handle, "m", "a")
    assert.equal("a a", names(handle:list { labels = "name=a" }))
    assert.equal("a", names(handle:list { namespace = "n", labels = "name in (a,c)" }))
    assert.equal("b", names(handle:list { fields = "metadata.name!=a" }))
    assert.equal("a", names(handle:list { fields = "metadata.name=a,metadata.namespace=m" }))
    assert.equal("a b", names(handle:list { fields = "metadata.namespace=n" }))
    assert.equal("", names(handle:list { namespace = "m", fields = "metadata.namespace=n" }))
    assert.equal("", names(handle:list { namespace = "m", fields = "metadata.name=b" }))
    assert.equal(400, select(2, handle:list { fields = "spec.size=1" }).http_status)
    assert.equal(400, select(2, handle:list { labels = "a=b=c" }).http_status)
  end)

  each_store("follows the table of resourceVersion and resourceVersionMatch", function(handle, _, store)
    local at = create(handle, "n", "a", "b", "c")
    assert(store:put("/other", "x"))
    local now = ("%d"):format(tonumber(at.c) + 1)
    local function list(version, match, limit)
      return shown(handle:list { resource_version = version, resource_version_match = match, limit = limit })
    end
    assert.equal("a b c @" .. now, list())
    assert.equal("a b @" .. now .. " more 1", list(nil, nil, 2))
    assert.equal("a b c @" .. now, list(now))
    assert.equal("a b c", list("0"):match "^[^@]*[^ @]")
    assert.equal("a b c", list("0", nil, 1):match "^[^@]*[^ @]")      -- the limit is ignored
    assert.equal("a b c", list(at.a):match "^[^@]*[^ @]")             -- not older
    assert.equal("a b c", list(at.a, NOT_OLDER):match "^[^@]*[^ @]")
    assert.equal("a", list(at.b, NOT_OLDER, 1):match "^[^@]*[^ @]")
    assert.equal("a @" .. at.a, list(at.a, EXACT))
    assert.equal("a b @" .. at.b, list(at.b, EXACT))
    assert.equal("a b @" .. at.b, list(at.b, nil, 5))                 -- exactly, because of the limit
    assert.equal("a @" .. at.b .. " more 1", list(at.b, EXACT, 1))
    for _, match in ipairs { false, EXACT, NOT_OLDER } do
      assert.equal("504 Timeout", list(FUTURE, match or nil))
      assert.equal("504 Timeout", list(FUTURE, match or nil, 2))
    end
  end)

  each_store("refuses combinations that mean nothing", function(handle)
    create(handle, "n", "a", "b")
    local token = handle:list({ limit = 1 }).continue
    for _, case in ipairs {
      { 422, resource_version_match = EXACT }, { 422, resource_version_match = NOT_OLDER },
      { 422, resource_version = "0", resource_version_match = EXACT },
      { 422, resource_version = "2", resource_version_match = "Newer" },
      { 422, resource_version = "0", resource_version_match = NOT_OLDER, continue = token },
      { 400, resource_version = "2", continue = token }, { 400, resource_version = "x" },
      { 400, continue = "x" }, { 400, continue = token .. "00" }, { 400, continue = "zz" },
      { 400, continue = continue_token.encode(1e300, "b") }, { 400, continue = continue_token.encode(1.5, "b") },
      { 400, continue = token:sub(1, -3) }, { 400, continue = ("00"):rep(10000) },
    } do
      local status = case[1]
      case[1] = nil
      assert.equal(status, select(2, handle:list(case)).http_status)
    end
    assert.equal("b", names(handle:list { resource_version = "0", continue = token }))
  end)

  each_store("continues at the revision of the first page", function(handle)
    create(handle, "n", "a", "c", "e", "g", "i")
    local first = handle:list { limit = 2 }
    assert.equal(3, first.remaining)
    create(handle, "n", "d", "f")
    assert(handle:delete "n/g")
    local second = handle:list { limit = 2, continue = first.continue }
    local third = handle:list { limit = 2, continue = second.continue }
    assert.equal("a c|e g|i", names(first) .. "|" .. names(second) .. "|" .. names(third))
    assert.is_nil(third.continue)
    assert.equal(1, second.remaining)
    for _, page in ipairs { second, third } do assert.equal(first.resource_version, page.resource_version) end
    assert.equal("e g i", names(handle:list { continue = first.continue }))
  end)

  each_store("continues with a selector, without the number of remaining objects", function(handle)
    create(handle, "n", "a", "b", "c", "d", "e")
    local opts, found = { limit = 1, labels = "name notin (b,d)" }, {}
    for _ = 1, 5 do
      local page = handle:list(opts)
      found[#found + 1] = names(page)
      assert.is_nil(page.remaining)
      opts.continue = page.continue
      if not page.continue then break end
    end
    assert.equal("a c e", table.concat(found, " "))
  end)

  each_store("finds a rare object with a small limit", function(handle)
    for i = 1, 300 do
      assert(handle:create(widgets.new(("n/w%03d"):format(i), nil, i == 250 and { is = "rare" } or nil)))
    end
    local page = handle:list { limit = 1, labels = "is=rare" }
    assert.equal("w250", names(page))
    if page.continue then
      assert.equal("", names(handle:list { limit = 1, labels = "is=rare", continue = page.continue }))
    end
  end)

  each_store("has a token for the rest as it is now when its revision was compacted", function(handle, api, store)
    create(handle, "n", "a", "b", "c")
    local first = handle:list { limit = 1 }
    create(handle, "n", "d")
    local root = api.store.compact and api.store or store
    assert(root:compact(tonumber(handle:list().resource_version)))
    local page, err = handle:list { limit = 1, continue = first.continue }
    if page then return assert.equal("b", names(page)) end -- the cache still has it
    assert.equal("410 Expired", shown(nil, err))
    local rest = handle:list { limit = 2, continue = err.continue }
    assert.equal("b c", names(rest))
    assert.equal("d", names(handle:list { continue = rest.continue }))
  end)

  it("of a revision that is compacted is expired", within.world(function()
    local store = keywatch.open()
    local api, handle = widgets.open(store)
    local at = create(handle, "n", "a", "b", "c")
    store:compact(tonumber(at.c))
    assert.equal("410 Expired", shown(handle:list { resource_version = at.a, resource_version_match = EXACT }))
    assert.equal("410 Expired", shown(handle:list { resource_version = at.a, limit = 1 }))
    local first = handle:list { limit = 1 }
    create(handle, "n", "d")
    store:compact(tonumber(handle:list().resource_version))
    local _, err = handle:list { limit = 1, continue = first.continue }
    assert.equal("b c d", names(handle:list { continue = err.continue }))
    api:close()
  end, { leftovers = "cancel" }))

  it("reads a revision that only the server still has from there", within.world(function(world)
    local client = world:client()
    local _, before = widgets.open(client)
    local at = create(before, "n", "a", "b", "c")
    local api, handle = widgets.open(world:client()) -- its cache begins now
    assert.equal("a b @" .. at.b, shown(handle:list { resource_version = at.b, resource_version_match = EXACT }))
    assert.equal("a @" .. at.b .. " more 1", shown(handle:list { resource_version = at.b, limit = 1 }))
    api:close()
  end, { leftovers = "cancel" }))

  each_store("without a limit is one state, also while it is changed", function(handle)
    for i = 1, 250 do assert(handle:create(widgets.new(("n/w%03d"):format(i)))) end
    local n, first = 0, nil
    for object in handle:each() do
      n = n + 1
      if n == 1 then
        first = object.metadata.name
        for _, name in ipairs { "n/w200", "n/w201" } do assert(handle:delete(name)) end
        create(handle, "n", "w999")
      end
    end
    assert.equal(250, n)
    assert.equal("w001", first)
  end)

  each_store("sees what was written before, by anyone", function(handle, _, store, world)
    create(handle, "n", "a")
    local other = store.compact and store or world.server.store
    if other == store then return end
    local prefix = store.namespace and "/registry" or "tenant//registry"
    for i = 1, 20 do
      other:put(prefix .. "/demo.example/widgets/n/x" .. i, '{"apiVersion":"demo.example/v1","kind":"Widget",'
        .. '"metadata":{"name":"x","namespace":"n"}}')
      assert.equal(other:status().revision, tonumber(handle:list().resource_version))
    end
  end)

  it("that a lost server cannot confirm fails, and resourceVersion=0 is answered", within.world(function(world)
    local api, handle = widgets.open(world:client())
    create(handle, "n", "a")
    world.server:stop()
    local list, err = handle:list()
    assert.is_nil(list)
    assert.is_true(err.http_status == 503 or err.http_status == 504)
    assert.equal("a", names(handle:list { resource_version = "0" }))
    world.server:start()
    assert.equal("a", names(handle:list()))
    api:close()
  end, { leftovers = "cancel" }))

  it("is too early while the cache has never had content", within.world(function(world)
    world.server:stop()
    local api, handle = widgets.open(world:client())
    local before = keywatch.now()
    local list, err = handle:list()
    assert.is_nil(list)
    assert.equal("429 TooManyRequests", shown(nil, err))
    assert.equal(1, err.retry_after)
    assert.is_true(keywatch.now() - before < 4)
    world.server:start()
    keywatch.sleep(10)
    assert.equal("", names(handle:list()))
    api:close()
  end, { leftovers = "cancel" }))

  it("of a server with slow progress comes from the server", within.world(function(world)
    local api, handle = widgets.open(world:client())
    create(handle, "n", "a")
    assert(handle:list())
    world.server:slow(0.9)
    local list = handle:list()
    assert.equal("a", names(list))
    api:close()
  end, { leftovers = "cancel" }))

  it("with an object that cannot be decoded fails if it must be decoded", within.world(function()
    local store = keywatch.open()
    local api, handle = widgets.open(store)
    create(handle, "n", "a")
    store:put("/registry/demo.example/widgets/n/b", "rubbish")
    assert.equal("500 InternalError", shown(handle:list()))
    assert.equal("500 InternalError", shown(handle:list { labels = "a=b" }))
    assert.equal(500, select(2, handle:get "n/b").http_status)
    api:close()
  end, { leftovers = "cancel" }))

  it("begins again if the server got another history on the way", within.world(function(world)
    local client, server = world:client(), world.server
    local api, handle = widgets.open(client)
    local at = create(handle, "n", "a", "b")
    local token = handle:list({ limit = 1 }).continue
    assert(server:restore(tonumber(at.a)))
    assert.equal("a", names(handle:list()))
    local page, err = handle:list { continue = token }
    assert.is_true(page and names(page) == "" or err.http_status == 410 or err.http_status == 504)
    api:close()
  end, { leftovers = "cancel" }))

  each_store("is the same as text and as entries", function(handle, _, store)
    for i = 1, 250 do
      assert(handle:create(new_widget(("n/w%03d"):format(i), i)))
    end
    local foreign = '{ "kind":"Widget", "metadata": {"name":"w1x","namespace":"n"}, "apiVersion":"demo.example/v1" }'
    for _, name in ipairs { "w1x", "w1y", "w999" } do
      assert(store:put("/registry/demo.example/widgets/n/" .. name, foreign))
    end
    local reads = handle.resource.reads
    for _, opts in ipairs {
      {}, { limit = 1 }, { limit = 120 }, { limit = 253 }, { limit = 5000 }, { namespace = "m" },
    } do
      local expected, parts, n, texts = {}, {}, 0, 0
      for i, entry in ipairs(assert(assert(reads:list(opts)):entries())) do expected[i] = entries.json(entry) end
      local list = assert(reads:list(opts))
      while true do
        local text, count, bytes = list:next_text ","
        if text then
          texts, n = texts + 1, n + count
          assert.equal(bytes, #tostring(text))
          parts[#parts + 1] = tostring(text):sub(2)
          text:close()
          assert.equal("", tostring(text))
        else
          local page = list:next_page()
          if not page then break end
          for _, entry in ipairs(page) do
            parts[#parts + 1], n = entries.json(entry), n + 1
          end
        end
      end
      assert.equal(#expected, n)
      assert.equal(table.concat(expected, ","), table.concat(parts, ","))
      if n > 0 and not core.probe then assert.is_true(texts > 0) end -- a turn of probe builds is too short
    end
    assert.is_nil(assert(reads:list { filter = { matches = function() return true end } }):next_text "")
  end)

  it("lets other tasks run", within.world(function()
    local store = keywatch.open()
    local api, handle = widgets.open(store)
    for i = 1, 2000 do
      store:put(("/registry/demo.example/widgets/n/w%04d"):format(i),
        '{"apiVersion":"demo.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"n"}}')
    end
    local n, is_done = 0, false
    keywatch.spawn(function()
      while not is_done do
        n = n + 1
        keywatch.sleep(0)
      end
    end)
    keywatch.sleep(0)
    local before = n
    assert.equal(2000, #handle:list().items)
    assert.equal(0, #handle:list({ labels = "a=b" }).items)
    is_done = true
    assert.is_true(n > before + 10)
    api:close()
  end, { leftovers = "cancel" }))
end)
