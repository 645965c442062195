--- The metrics of a manager: their grammar, what they count, and that no counter goes down.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"

local logs = require "spec.support.logs"
local prometheus = require "spec.support.prometheus"
local within = require "spec.support.within"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

before_each(logs.begin)
after_each(logs.finish)

local function timed(fn) return within.world(function(world) fn(world, world:client()) end) end

--- The names of the families, in order. The age of a cache is known only while it is open.
local function names(families)
  local list = {}
  for _, family in ipairs(families) do
    if family.name ~= "keywatch_cache_age_seconds" then list[#list + 1] = family.name end
  end
  return list
end

describe("the parser of the spec", function()
  for what, text in pairs {
    ["a sample without a type"] = "a 1\n",
    ["a family twice"] = "# HELP a x\n# TYPE a gauge\na 1\n# HELP a x\n# TYPE a gauge\na 2\n",
    ["a sample twice"] = '# HELP a x\n# TYPE a gauge\na{b="1"} 1\na{b="1"} 2\n',
    ["a wrong escape"] = '# HELP a x\n# TYPE a gauge\na{b="\\t"} 1\n',
    ["a quote"] = '# HELP a x\n# TYPE a gauge\na{b="""} 1\n',
    ["no end"] = "# HELP a x\n# TYPE a gauge\na 1",
    ["no number"] = "# HELP a x\n# TYPE a gauge\na 1x\n",
    ["a counter of another name"] = "# HELP keywatch_a x\n# TYPE keywatch_a counter\nkeywatch_a 1\n",
    ["a histogram whose buckets decrease"] = "# HELP a x\n# TYPE a histogram\n"
      .. 'a_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 0\na_count 1\n',
    ["a histogram whose count is not that of its last bucket"] = "# HELP a x\n# TYPE a histogram\n"
      .. 'a_bucket{le="+Inf"} 1\na_sum 0\na_count 2\n',
    ["bytes that are not UTF-8"] = '# HELP a x\n# TYPE a gauge\na{b="\255"} 1\n',
  } do
    it("objects to " .. what, function() assert.has_error(function() prometheus.parse(text) end) end)
  end
end)

describe("the metrics of a manager", function()
  it("follow the grammar, in a stable order", timed(function(_, client)
    local manager = controller.manager { store = client, election = "/e", id = "me" }
    local informer = manager:add(client:informer("/a/"))
    manager:add(client:cache("/a/"))
    for _, name in ipairs { "one", "two" } do
      manager:add(controller.new { name = name, sources = { informer }, reconcile = function() end })
    end
    manager:add { start = function() end, stop = function() end }
    local before = prometheus.parse(manager:metrics())
    manager:start()
    assert(manager:wait_synced(5))
    client:put("/a/1", "x")
    keywatch.sleep(1)
    local now = prometheus.parse(manager:metrics())
    assert.same(names(before), names(now))
    assert.equal("keywatch_manager_healthy", now[1].name)
    for _, name in ipairs {
      "keywatch_controller_reconciles_total", "keywatch_work_queue_depth", "keywatch_work_queue_retries_total",
      "keywatch_elector_leading", "keywatch_informer_objects", "keywatch_informer_gaps_total", "keywatch_cache_keys",
    } do assert(now[name], name) end
    local list = {}
    for i, sample in ipairs(now.keywatch_controller_reconciles_total.samples) do
      list[i] = sample.labels.controller .. " " .. sample.labels.outcome .. " " .. sample.value
    end
    assert.same({ "one done 1", "one later 0", "one again 0", "one failed 0", "one given_up 0", "two done 1",
      "two later 0", "two again 0", "two failed 0", "two given_up 0" }, list)
    manager:stop()
    assert.same(names(before), names(prometheus.parse(manager:metrics())))
  end))

  it("escape names of any bytes, and keep them distinct", timed(function(_, client)
    local prefixes = {
      'quote"', "back\\slash", "new\nline", "zero\0byte", "latin\xe9", "grün€😀", "\xff\xfe", "cut\xe2\x82",
      "\\xff\\xfe", "overlong\xc0\x80", "surrogate\xed\xa0\x80", 'quote"#2',
    }
    local manager = controller.manager { store = client }
    for _, prefix in ipairs(prefixes) do
      manager:add(client:informer(prefix))
      manager:add(client:informer(prefix, { shared = false }))
      manager:add(controller.new { name = prefix, sources = { { every = 1, request = 1 } }, reconcile = print })
    end
    local families = prometheus.parse(manager:metrics())
    local shown = {}
    for i, sample in ipairs(families.keywatch_informer_objects.samples) do shown[i] = sample.labels.informer end
    assert.same({ 'quote"', 'quote"#2', "back\\slash", "back\\slash#2", "new\\x0aline", "new\\x0aline#2",
      "zero\\x00byte", "zero\\x00byte#2", "latin\\xe9", "latin\\xe9#2", "grün€😀", "grün€😀#2" },
      { unpack(shown, 1, 12) })
    manager:stop()
  end))

  it("count the work of controllers", timed(function(_, client)
    local manager = controller.manager { store = client }
    local one = manager:add(controller.new {
      name = "c", sources = { { every = 1000, request = "done" } }, timeout = 3, workers = 2,
      reconcile = function(request, context)
        if request == "raises" and context.retries == 0 then error "no luck" end
        if request == "fails" and context.retries == 0 then return nil, "no luck" end
        if request == "again" and context.retries == 0 then return { again = true } end
        if request == "later" then return { after = 1000 } end
        if request == "never" then return { never = "no use" } end
        if request == "slow" and context.retries == 0 then keywatch.sleep(100) end
      end,
    })
    manager:start()
    assert(manager:wait_synced(5))
    for _, request in ipairs { "raises", "fails", "again", "later", "never", "slow" } do one:add(request) end
    keywatch.sleep(60)
    local families = prometheus.parse(manager:metrics())
    local function of(name, outcome)
      return prometheus.value(families, "keywatch_" .. name, { controller = "c", outcome = outcome })
    end
    local counts = {}
    for i, outcome in ipairs { "done", "later", "again", "failed", "given_up" } do
      counts[i] = of("controller_reconciles_total", outcome)
    end
    assert.same({ 5, 1, 1, 3, 1 }, counts)
    assert.same({ 1, 1, 2, 0, 1 }, { of "controller_raised_total", of "controller_late_total", of "controller_workers",
      of "controller_busy_workers", of "controller_running" })
    assert.same({ 4, 1, 0, 0 }, { of "work_queue_retries_total", of "work_queue_delayed", of "work_queue_depth",
      of "work_queue_active" })
    assert.is_true(of "controller_reconcile_seconds_total" >= 3)
    assert.is_true(of "work_queue_work_seconds_total" >= 3)
    local function as_in_kubernetes(name, labels) return prometheus.value(families, name, labels) end
    local results = {}
    for i, result in ipairs { "success", "error", "requeue", "requeue_after" } do
      results[i] = as_in_kubernetes("controller_runtime_reconcile_total", { controller = "c", result = result })
    end
    assert.same({ 5, 4, 1, 1 }, results)
    assert.equal(4, as_in_kubernetes("workqueue_retries_total", { controller = "c", name = "c" }))
    assert.equal(1, as_in_kubernetes("controller_runtime_reconcile_panics_total"))
    local text = manager:metrics()
    assert.matches('controller_runtime_reconcile_time_seconds_bucket{controller="c",le="2.5"} 10\n', text)
    assert.matches('controller_runtime_reconcile_time_seconds_bucket{controller="c",le="3"} 11\n', text)
    assert.matches('workqueue_work_duration_seconds_count{controller="c",name="c"} 11\n', text)
    assert.matches('workqueue_queue_duration_seconds_bucket{controller="c",name="c",le="%+Inf"} 11\n', text)
    manager:stop()
    assert.equal(0, prometheus.value(prometheus.parse(manager:metrics()), "keywatch_controller_running"))
  end))

  it("have counters that never decrease, however often a controller restarts", timed(function(world, client)
    local manager = controller.manager { store = client, election = "/e", ttl = 5 }
    local informer = manager:add(client:informer("/a/"))
    manager:add(controller.new { name = "c", sources = { informer }, reconcile = function(_, context)
      if context.retries == 0 then return { again = true } end
    end })
    manager:start()
    local last, terms = {}, 0
    for i = 1, 60 do
      client:put("/a/" .. i % 7, tostring(i))
      keywatch.sleep(0.5)
      if i % 10 == 0 then world.server:lose_lease(world.server.store:leases()[1]) end
      local families = prometheus.parse(manager:metrics())
      for _, family in ipairs(families) do
        for n, sample in ipairs(family.type == "counter" and family.samples or {}) do
          local key = family.name .. n
          assert.is_true(sample.value >= (last[key] or 0), key)
          last[key] = sample.value
        end
      end
      terms = prometheus.value(families, "keywatch_elector_terms_total")
    end
    assert.is_true(terms >= 5, terms)
    local families = prometheus.parse(manager:metrics())
    local adds = prometheus.value(families, "keywatch_work_queue_adds_total")
    local calls = 0
    for _, sample in ipairs(families.keywatch_controller_reconciles_total.samples) do calls = calls + sample.value end
    assert.same({ true, true }, { calls >= 60, adds >= calls })
    assert.equal(calls, prometheus.value(families, "keywatch_work_queue_gets_total"))
    manager:stop()
  end))

  it("include leadership, gaps and trouble", timed(function(world, client)
    local manager = controller.manager { store = client, election = "/e" }
    manager:add(client:informer("/a/"))
    manager:add(client:cache("/a/"))
    manager:start()
    assert(manager:wait_synced(5))
    keywatch.sleep(1)
    local function values(more)
      local families, list = prometheus.parse(manager:metrics()), {}
      for name in ("elector_leading elector_terms_total manager_healthy informer_trouble cache_trouble "
        .. (more or "")):gmatch("%S+") do
        list[#list + 1] = prometheus.value(families, "keywatch_" .. name)
      end
      return list
    end
    assert.same({ 1, 1, 1, 0, 0 }, values())
    world.server:stop()
    world.server.store:put("/a/1", "x")
    world.server:compact()
    keywatch.sleep(60)
    assert.same({ 0, 1, 0, 1, 1, 0 }, values "informer_gaps_total")
    world.server:start()
    keywatch.sleep(60)
    assert.same({ 1, 2, 1, 0, 0, 1, 1, 1 }, values "informer_gaps_total informer_objects cache_keys")
    manager:stop()
  end))
end)
