--- The actors of a simulation. A kind of actor is a table:
--
--   chance       one seed in chance + 1 has the kind
--   most         the most actors of this kind in a program
--   steps        { least, most } of an actor
--   is_strict    its judge does not allow for restored servers: a program with this kind does not have such faults
--   begin(a)     called once, before the first step
--   step(a, random)    makes one step. It may be cancelled in the middle, unless is_whole
--   settle(a)    called after the silence that follows all writes and faults: the actor's content must be that of the
--                server
--   judge(a)     called when the run is over
--   close(a)     closes everything that the actor has opened
--
-- An actor `a` has the fields sim, id, slot (whose client it uses), truth (of the slot's server), lanes (functions of
-- steps that run side by side, instead of `step`). All its random choices depend on the seed of the step.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"

local elections = require "spec.simulation.elections"
local handler_judge = require "spec.simulation.handler_judge"
local histories = require "spec.support.history"
local judge = require "spec.simulation.judge"
local leases = require "spec.simulation.leases"
local locks = require "spec.simulation.locks"
local new_request = require("spec.support.request").new
local span = require "spec.support.model.span"
local transfers = require "spec.simulation.transfers"

local PREFIXES = { "/x/", "y\255" } -- the range of the second one ends at "z"
local BULK = "/bulk/"
local TTLS = { 1, 2, 3, 5, 8, 20, 40 }

local kinds = {}

-- {====== Writers and readers of keys ======

local WEIGHTS = {
  { 30, "put" }, { 8, "delete" }, { 20, "txn" }, { 3, "fleeting" }, { 8, "get" }, { 12, "range" }, { 4, "each" },
  { 1, "compact" }, { 4, "lease" }, { 3, "keepalive" }, { 2, "revoke" }, { 1, "remaining" }, { 1, "lease_keys" },
  { 1, "leases" },
}

local VALUES = { { 16, "good" }, { 1, "bad" }, { 2, "hidden" } }
local SIZES = { { 20, 0 }, { 5, 50 }, { 2, 1000 }, { 1, 20000 } }

--- Returns a unique value. Its first word is its tag.
local function new_value(a, random)
  local tag = ("%s-%s.%d"):format(random:weighted(VALUES), a.id, a.n_values)
  a.n_values = a.n_values + 1
  a.tag = tag
  local size = random:weighted(SIZES)
  return size == 0 and tag or tag .. " " .. ("v"):rep(random:between(1, size))
end

kinds.kv = {
  chance = 1, most = 4, steps = { 20, 80 },
  begin = function(a)
    a.n_values = 0
    a.prefix = a.random:pick(PREFIXES)
    a.messages = histories.new(a.random, { ttls = TTLS, weights = WEIGHTS })
    function a.messages.value(messages) return new_value(a, messages.random) end
  end,
  step = function(a, random)
    a.messages.random, a.tag = random, nil
    local epoch = a.truth.epoch
    local view = epoch:view(epoch.last, a.prefix)
    view.lease_ids = a.truth:living_leases()
    local one
    repeat one = a.messages:next(view) until one.verb ~= "arm" and (a.sim.plan.is_compacting or one.verb ~= "compact")
    a.sim:perform(a, one, a.prefix, a.tag)
  end,
}

--- Writes thousands of keys at once, and bursts of large values.
local bulk = {}

function bulk.fill(a, random)
  local ops = {}
  local value = ("good-%s."):format(a.id)
  for i = 1, random:between(200, 2500) do ops[i] = { put = ("k%04d"):format(i), value = value .. i } end
  a.sim:perform(a, new_request("txn", { success = ops }), BULK)
end

function bulk.delete(a, random)
  a.sim:perform(a, new_request("delete", "", { prefix = true, prev_kv = random:one_in(3) or nil }), BULK)
end

function bulk.read(a, random)
  if random:one_in(3) then return a.sim:perform(a, new_request("each", "", { prefix = true, page = 500 }), BULK) end
  local messages = histories.new(random, {})
  local _, fields = messages:range_fields(a.truth.epoch:view(a.truth.epoch.last, BULK))
  fields.prefix, fields.range_end, fields.from_key = true, nil, nil
  if fields.limit then fields.limit = random:between(1, 1000) end
  a.sim:perform(a, new_request("range", "", fields), BULK)
end

--- Writes more than every queue takes, in one turn; and then nothing for a while. If there are many keys, the last
-- write deletes them all in one revision, which with its previous kvs is too large for one response.
function bulk.burst(a, random)
  local tasks, prefix, keys = {}, random:pick(PREFIXES), random:pick { 4, 30 }
  for i = 1, random:between(20, 30) do
    local value = ("good-%s.%d "):format(a.id, a.n_values) .. ("b"):rep(100000)
    a.n_values = a.n_values + 1
    local key = "burst" .. i % keys
    tasks[i] = a.sim:spawn(a, function() a.sim:perform(a, new_request("put", key, value), prefix) end)
  end
  for _, task in ipairs(tasks) do task:join() end
  a.sim:perform(a, new_request("delete", "burst", { prefix = true }), prefix)
end

kinds.bulk = {
  chance = 2, most = 1, steps = { 2, 6 },
  begin = function(a) a.n_values = 0 end,
  step = function(a, random)
    bulk[random:weighted { { 3, "fill" }, { 3, "delete" }, { 2, "read" }, { 4, "burst" } }](a, random)
  end,
}

kinds.compactor = {
  chance = 2, most = 1, steps = { 1, 5 }, is_compacting = true,
  begin = function() end,
  step = function(a, random)
    local last = a.truth.epoch.last
    local revision = random:between(math.max(1, last - 60), last)
    a.sim:perform(a, new_request("compact", revision, { physical = random:one_in(3) or nil }), "")
  end,
}

-- }======

-- {====== Watches ======

--- Returns a range of keys, and its options.
local function any_range(random)
  local key, opts = random:pick(PREFIXES), {}
  local how = random:weighted { { 4, "prefix" }, { 3, "all" }, { 2, "key" }, { 2, "range" }, { 1, "from" } }
  if how == "prefix" then opts.prefix = true end
  if how == "all" then key, opts.prefix = "", true end
  if how == "key" then key = key .. random:pick { "a", "c/1", "b", "\0" } end
  if how == "range" then key, opts.range_end = key .. "a\255", key .. "c/2" end
  if how == "from" then opts.from_key = true end
  return key, opts
end

--- Opens a watch of a client or a cache. Returns its record, or nil.
local function open_watch(a, random, object, inside)
  local epoch = a.truth.epoch
  local key, opts = any_range(random)
  if inside then key, opts = inside, { prefix = true } end
  local within, owner, prefix = span.new(key, opts), object, ""
  if not inside and opts.prefix and key ~= "" and random:one_in(2) then
    owner, prefix, key = object:namespace(key), key, ""
  end
  opts.timeout = a.sim.is_over and 5 or random:between(1, 20)
  opts.prev_kv, opts.progress = random:one_in(3) or nil, random:one_in(3) or nil
  if random:one_in(3) then opts.max_bytes = random:pick { 300, 5000, 200000 } end
  local how = random:weighted { { 4, "now" }, { 3, "initial" }, { 3, "past" }, { 1, "next" }, { 1, "future" },
    { a.last and 4 or 0, "resume" } }
  if how ~= "initial" and not inside and random:one_in(4) then
    opts.filters = { random:pick { "no_put", "no_delete" } }
  end
  if how == "initial" then opts.initial = true end
  if how == "past" then opts.start_revision = random:between(math.max(1, epoch.last - 100), epoch.last) end
  if how == "next" then opts.start_revision = epoch.last + 1 end
  if how == "future" then opts.start_revision = epoch.last + random:between(2, 20) end
  if how == "resume" then opts.start_revision = a.last end
  local watch, err = owner:watch(key, opts)
  if not watch then return nil, err end
  local position = opts.start_revision and opts.start_revision - 1 or watch.revision
  return a.sim:record_watch(a, {
    what = ("%s of %q %s"):format(inside and "watch of a cache" or "watch", prefix .. key, how),
    watch = watch, prefix = prefix, within = within, epoch = epoch, position = position,
    start = position + 1, has_prev = opts.prev_kv, max_bytes = opts.max_bytes,
    no_put = opts.filters and opts.filters[1] == "no_put", no_delete = opts.filters and opts.filters[1] == "no_delete",
    initial = opts.initial and {} or nil, is_cache = inside ~= nil, is_by_event = random:one_in(3),
  })
end

--- Returns an event of a namespace with the key in the owner's store.
local function of_owner(record, event)
  if record.prefix == "" or not event.key then return event end
  local own = {}
  for name, value in pairs(event) do own[name] = value end
  own.key = record.prefix .. event.key
  own.prev = event.prev and of_owner(record, event.prev)
  return own
end

--- Records a batch, or, event by event, the events of one revision.
local function note_batch(record, revision, events)
  for i, event in ipairs(events) do events[i] = of_owner(record, event) end
  local first = events[1]
  if first.initial then
    for _, event in ipairs(events) do table.insert(record.initial, event) end
  elseif first.type == "synced" then
    record.synced = first.revision
  else
    local last = record.batches[#record.batches]
    if record.is_by_event and last and last.revision == revision and first.type ~= "progress"
      and last.events[1].type ~= "progress" then
      table.insert(last.events, first)
    else
      table.insert(record.batches, { revision = revision, events = events, time = keywatch.now() })
    end
    record.truth.epoch.acknowledged = math.max(record.truth.epoch.acknowledged,
      #record.truth.epochs == 1 and revision or 0)
  end
end

--- Reads once. Returns false if nothing has arrived, or the watch has ended.
local function read(record, timeout)
  local watch = record.watch
  local batch, err
  if record.is_by_event then
    local event
    event, err = watch:next(timeout)
    batch = event and { revision = event.initial and 0 or event.mod_revision or event.revision, events = { event } }
  else
    batch, err = watch:batch(timeout)
  end
  if batch then
    note_batch(record, batch.revision, batch.events)
    return true
  end
  if err and err.code ~= "timeout" then
    record.err, record.ended = err, keywatch.now()
    record.sim:trace("%s ends: %s", record.id, err.code)
  end
  return false
end

local function close_watch(a)
  if a.record and not a.record.err then
    a.last = a.record.watch.revision + 1
    a.record.is_closed = true
    a.record.watch:close()
  end
  a.record = nil
end

--- Opens, reads or closes the watch of an actor.
local function step_watch(a, random, object, inside)
  if a.record and a.record.err then a.record = nil end
  if not a.record then
    a.record = open_watch(a, random, object, inside)
    return
  end
  local how = random:weighted { { 6, "some" }, { 4, "all" }, { 1, "close" }, { 1, "sync" } }
  local record, n, timeout = a.record, how == "all" and math.huge or random:between(1, 5), random:pick { 0, 0, 1, 5 }
  if how == "close" then return close_watch(a) end
  if how == "sync" then
    local after = not inside and #a.truth.epochs == 1 and a.truth.epoch.acknowledged or 0
    local revision = record.watch:sync(10)
    if revision and revision < after then
      a.sim:object(record, "is synced to %d, and %d was known", revision, after)
    end
    timeout, n = 0, math.huge
  end
  local deadline = keywatch.now() + timeout
  while n > 0 and read(record, math.max(0, deadline - keywatch.now())) do n = n - 1 end
end

--- Reads all events. The record must then have everything up to the revision `is_drained`.
local function settle_watch(a)
  local record = a.record
  if not record or record.err then return end
  local last, deadline = record.truth.epoch.last, keywatch.now() + a.sim.PATIENCE
  while read(record, math.max(0, deadline - keywatch.now())) do end -- luacheck: ignore 542
  record.is_drained = last
end

kinds.watcher = {
  chance = 1, most = 5, steps = { 5, 30 },
  begin = function() end,
  step = function(a, random)
    if a.record and a.record.client ~= a.slot.client then a.record = nil end
    step_watch(a, random, a.slot.client)
  end,
  settle = settle_watch,
  close = close_watch,
}

-- }======

-- {====== Caches ======

--- Records the content of a cache.
local function sample(a, opts)
  local after = opts and opts.consistent and a.truth.epoch.acknowledged or nil
  local epoch = a.truth.epoch
  local found = a.cache:range(a.prefix, { prefix = true, consistent = opts and opts.consistent, timeout = 10 })
  if not found then return end
  table.insert(a.samples, {
    revision = found.revision, kvs = found.kvs, time = keywatch.now(), after = after, within = a.within, epoch = epoch,
  })
  a.sim:trace("%s has %d kvs at %d", a.id, #found.kvs, found.revision)
end

local function open_cache(a, random)
  local opts = {}
  if random:one_in(3) then opts.history_bytes = random:pick { 1500, 100000 } end
  a.cache, a.client, a.samples = assert(a.slot.client:cache(a.prefix, opts)), a.slot.client, {}
  a.n_opened = a.n_opened + 1
  a.sim:record_samples {
    what = "cache of " .. a.prefix, id = a.id .. "#" .. a.n_opened, truth = a.truth, epoch = a.truth.epoch,
    samples = a.samples,
  }
  if not random:one_in(3) then
    local seen, id = {}, a.id
    local function on_change(key, new, old)
      if seen[key] ~= old then
        a.sim:object({ id = id, what = "table" }, "%s changes from %s, and was %s", key, tostring(old):sub(1, 20),
          tostring(seen[key]):sub(1, 20))
      end
      seen[key] = new
    end
    a.table = a.cache:table { on_change = random:one_in(2) and on_change or nil } -- without it, the core fills it
  end
end

local function close_cache(a)
  close_watch(a)
  a.cache:close()
  a.cache, a.table = nil, nil
end

--- Checks that a cache and its table have the content of the server.
local function settle_cache(a)
  if not a.cache or a.client ~= a.slot.client then return end
  local epoch = a.truth.epoch
  local record, status = { id = a.id, what = "cache of " .. a.prefix }, a.cache:status()
  local expected, got = epoch:kvs(epoch.last, a.within), a.cache:range(a.prefix, { prefix = true })
  local words = not got and "it is not ready" or a.sim.difference(got.kvs, expected, "its content")
  if words then
    return a.sim:object(record, "in silence: %s; at %d, %s, %s", words, status.revision, status.phase,
      tostring(status.trouble))
  end
  sample(a)
  local values = {}
  for _, kv in ipairs(expected) do values[kv.key] = kv.value end
  words = a.table and a.sim.difference(a.table, values, "its table")
  if words then a.sim:object(record, "in silence: %s", words) end
  settle_watch(a)
end

kinds.cache = {
  chance = 1, most = 3, steps = { 5, 25 },
  begin = function(a)
    a.n_opened = 0
    a.prefix = a.random:pick { "/x/", "y\255", "", "/x/c", BULK }
    a.within = span.new(a.prefix, { prefix = true })
  end,
  step = function(a, random)
    if a.cache and a.client ~= a.slot.client then a.cache, a.table, a.record = nil, nil, nil end
    if not a.cache then return open_cache(a, random) end
    local how = random:weighted { { 4, "sample" }, { 2, "consistent" }, { 6, "watch" }, { 1, "close" }, { 1, "sync" } }
    if how == "sample" or how == "consistent" then return sample(a, { consistent = how == "consistent" or nil }) end
    if how == "watch" and a.cache:is_ready() then return step_watch(a, random, a.cache, a.prefix) end
    if how == "close" then return close_cache(a) end
    if how == "sync" then a.cache:sync(10) end
  end,
  settle = settle_cache,
  close = function(a)
    if a.cache then close_cache(a) end
  end,
}

-- }======

-- {====== Informers, and controllers ======

--- Closes a handler. Its calls are judged later.
local function close_handler(one)
  if one.is_closed then return end
  one:sample()
  one.is_closed = true
  one.handler:close()
end

--- Returns the work of a handler in each call: at times it is slow, raises, or closes itself or another handler.
local function work_of(a, is_slow, own)
  return function(judges, one)
    a.sim.n_calls = a.sim.n_calls + 1
    if a.sim.is_over then return end
    if is_slow then keywatch.sleep(own:between(0, 2000) / 1000) end
    local how = own:weighted { { 200, "nothing" }, { 4, "raise" }, { 1, "close" }, { 1, "close another" } }
    if how == "raise" then error("on purpose", 0) end
    if how == "close" then close_handler(one) end
    if how == "close another" then close_handler(own:pick(judges)) end
  end
end

kinds.informer = {
  chance = 2, most = 2, steps = { 5, 20 },
  begin = function(a)
    local opts = handler_judge.options()
    opts.indexes = { size = function(object) return #object.text end }
    opts.shared = not a.random:one_in(3)
    a.prefix, a.judges = a.random:pick(PREFIXES), {}
    local client, is_inside = a.slot.client, a.random:one_in(2)
    a.informer = assert(is_inside and client:namespace(a.prefix):informer("", opts) or client:informer(a.prefix, opts))
    a.cut = is_inside and #a.prefix or 0
  end,
  step = function(a, random)
    for _, one in ipairs(a.judges) do one:sample() end
    if #a.judges > 0 and not random:one_in(3) or #a.judges > 5 then
      if random:one_in(3) then close_handler(a.judges[#a.judges]) end
      return
    end
    local work, one = work_of(a, random:one_in(2), a.sim.new_random(random:next())), nil
    one = handler_judge.open(a.id, a.informer, {
      at_bound = random:one_in(2) and "coalesce" or "wait",
      max_bytes = random:one_in(2) and 2000 or nil,
      resync = random:one_in(4) and 7 or nil,
      work = function() work(a.judges, one) end,
    })
    table.insert(a.judges, one)
  end,
  settle = function(a)
    a.sim:guard({ id = a.id, what = "informer" }, function()
      local ledger = handler_judge.ledger(a.truth, a.prefix, a.cut)
      for _, one in ipairs(a.judges) do
        if one.is_closed then one.handler:join(10) end
        one:judge(ledger, not one.is_closed)
      end
      handler_judge.judge_informer(a.informer, ledger)
      local n = 0
      for _, count in a.informer:index_values("size") do n = n + count end
      if n ~= a.informer:count() then error("its index has " .. n .. " objects", 0) end
    end)
  end,
  close = function(a) a.informer:close() end,
}

local SPEC, STATUS = "/x/", "/status/"

--- Controllers that copy each key of the specification to the status. There are several replicas, of which one leads.
kinds.controller = {
  chance = 3, most = 2, steps = { 1, 3 },
  begin = function(a)
    local client, busy, is_slow = a.slot.client, {}, a.random:one_in(2)
    a.informer, a.statuses = assert(client:informer(SPEC)), assert(client:informer(STATUS))
    local function spec_of(_, status) return SPEC .. status:sub(#STATUS + 1) end
    a.controller = controller.new {
      name = a.id, sources = { a.informer, { a.statuses, map = spec_of } },
      workers = a.random:between(1, 3), timeout = 30,
      reconcile = function(key, context)
        if busy[key] then a.sim:object({ id = a.id, what = "controller" }, "reconciles %q twice at once", key) end
        busy[key] = true
        local spec = a.informer:get(key)
        local ok, result, err = pcall(function()
          if is_slow then keywatch.sleep(a.random:between(0, 1000) / 1000) end
          local status = STATUS .. key:sub(#SPEC + 1)
          if spec == a.statuses:get(status) then return nil end
          if spec then return context.store:put(status, spec) end
          return context.store:delete(status)
        end)
        busy[key] = nil
        if not ok then error(result, 0) end
        return result, err
      end,
    }
    a.elector = controller.elector {
      store = client, name = "/electors/copy", id = a.id, ttl = 5,
      on_lead = function(fence)
        a.controller:start(fence)
        local ok, err = pcall(keywatch.sleep, 1e6)
        keywatch.shield(40, function() a.controller:stop(2) end)
        if not ok then error(err, 0) end
      end,
    }
    a.elector:start()
  end,
  step = function() end,
  settle = function(a)
    local epoch, expected, found = a.truth.epoch, {}, {}
    for _, kv in ipairs(epoch:kvs(epoch.last, span.new(SPEC, { prefix = true }))) do
      expected[kv.key:sub(#SPEC + 1)] = kv.value
    end
    for _, kv in ipairs(epoch:kvs(epoch.last, span.new(STATUS, { prefix = true }))) do
      found[kv.key:sub(#STATUS + 1)] = kv.value
    end
    local words = a.sim.difference(found, expected, "the status")
    local status = a.elector:status()
    if words then
      a.sim:object({ id = a.id, what = "controller" }, "in silence: %s; %s, led by %s", words, status.state,
        tostring(status.leader))
    end
  end,
  close = function(a)
    a.elector:stop(60)
    a.informer:close()
    a.statuses:close()
  end,
}

-- }======

kinds.sets = require "spec.simulation.sets"
kinds.things = require "spec.simulation.kubernetes"

-- {====== Locks, elections, leases, software transactions ======

--- Makes a kind of actors of a module that has its own judge.
local function of_cluster(module, chance, n, finish)
  return {
    chance = chance, most = 1, steps = { 10, 40 }, is_strict = true, is_whole = true,
    begin = function(a)
      a.world = a.sim:cluster_world(a)
      a.records = module.start(a.world, n)
    end,
    finish = function(a, direct)
      if finish then finish(a.world, a.records, direct) end
    end,
    judge = function(a) module.judge(a.world, a.truth.epoch, a.records) end,
  }
end

kinds.locks = of_cluster(locks, 3, 2, locks.finish)
kinds.elections = of_cluster(elections, 4, 1, elections.finish)
kinds.elections.is_without_compaction = true -- after a compaction observers may miss leaders
kinds.transfers = of_cluster(transfers, 2, 3)
kinds.leases = of_cluster(leases, 3, 3, function(world, _, direct) leases.finish(world, direct) end)

-- }======

-- {====== Queues ======

--- Workers take items out of a queue of keys: each item is handed out once.
kinds.queue = {
  chance = 3, most = 2, steps = { 10, 40 }, is_strict = true,
  begin = function(a) a.n, a.taken = 0, {} end,
  step = function(a, random)
    local client = a.slot.client
    if random:one_in(2) then
      a.n = a.n + 1
      client:put("/queue/" .. a.id .. "." .. a.n, "item")
      return
    end
    local found = client:range("/queue/", { prefix = true, limit = 1, sort_target = "create" })
    local kv = found and found.kvs[1]
    if not kv then return end
    local done = client:txn {
      compare = { { key = kv.key, mod_revision = kv.mod_revision } }, success = { { delete = kv.key } },
    }
    if done and done.succeeded then a.sim:take(a, kv.key, done.revision) end
  end,
}

--- Clients are closed at random, and new ones take their place.
kinds.closer = {
  chance = 3, most = 1, steps = { 1, 4 },
  begin = function() end,
  step = function(a, random) a.sim:close_client(random) end,
}

-- }======

--- The names of all kinds, in a fixed order.
local names = {}
for name in pairs(kinds) do names[#names + 1] = name end
table.sort(names)

return { kinds = kinds, names = names, judge = judge }
