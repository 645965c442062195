--- Actors that test controllers of sets and their parts (spec/controller/replicas.lua): in each step an actor creates,
-- changes or deletes a set, or, without the controller, parts of a set; or it starts, stops, restarts or kills a
-- process with a controller, which runs alone, with an elector or in a manager. Reconciles sometimes raise or hang.
--
-- After some time without changes, each set must have its parts, no other part may exist, and writes must have stopped.
-- A deposed leader must not write; the finalizer must remove a set only after its parts.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"

local replicas = require "spec.controller.replicas"

local NAMES = { "a", "b", "c", "d", "e" }
local IMAGES = { "red", "green", "blue" }
local MOST_PARTS = 6
local ELECTION, TTL = "/electors/sets", 5
local RESYNC = 15
local REST = 10 -- seconds before the end without writes

local people, process = {}, {}

-- {====== Changes by users ======

local function any_key(random) return replicas.SETS .. random:pick(NAMES) end

local function any_set(random) return replicas.parent(random:between(0, MOST_PARTS), random:pick(IMAGES)) end

function people.create(client, random)
  local key = any_key(random)
  client:txn { compare = { { key = key, version = 0 } }, success = { { put = key, value = any_set(random) } } }
end

--- Changes a set, but not its metadata.
function people.change(client, random)
  local key = any_key(random)
  local kv = client:get(key)
  local metadata = kv and kv.value:match('("metadata":%b{})')
  if not kv then return end
  local value = any_set(random)
  if metadata then value = value:gsub("}$", function() return "," .. metadata .. "}" end) end
  client:txn { compare = { { key = key, mod_revision = kv.mod_revision } }, success = { { put = key, value = value } } }
end

people["delete"] = function(client, random) controller.ownership.delete(client, any_key(random)) end

--- Deletes a set without regard to finalizers, unless the set is marked for deletion.
function people.raw_delete(client, random)
  local key = any_key(random)
  local kv = client:get(key)
  if not kv or kv.value:find('"deleting"', 1, true) then return end
  client:txn { compare = { { key = key, mod_revision = kv.mod_revision } }, success = { { delete = key } } }
end

function people.delete_parts(client, random)
  local prefix = replicas.PARTS .. random:pick(NAMES) .. "/"
  client:delete(prefix .. (random:one_in(2) and random:between(1, MOST_PARTS) or ""), { prefix = true })
end

--- Writes a part that belongs to another set or to a missing one, or has the wrong image.
function people.make_up_part(client, random)
  local key = replicas.child_key(any_key(random), random:between(1, MOST_PARTS + 3))
  client:put(key, replicas.child(any_key(random), "wrong", -1))
end

-- }======

-- {====== Processes ======

--- Disturbs a reconcile before its work.
local function disturb(a, random)
  if a.sim.is_over then return end
  local how = random:weighted { { 50, "nothing" }, { 8, "wait" }, { 1, "raise" }, { 1, "hang" } }
  if how == "raise" then error("on purpose", 0) end
  if how == "wait" then keywatch.sleep(random:between(0, 1000) / 1000) end
  if how == "hang" then keywatch.sleep(20) end
end

--- Returns an elector whose controller runs while its process leads.
local function new_elector(one, client, id, terms)
  return controller.elector {
    store = client, name = ELECTION, id = id, ttl = TTL,
    on_lead = function(fence, leadership)
      terms[fence] = leadership.revision
      one.controller:start(fence)
      pcall(one.controller.join, one.controller) -- until this task is cancelled
      one.controller:stop(5)
    end,
  }
end

function process.start(a, random)
  if #a.processes >= (a.mode == "controller" and 1 or 3) then return end
  a.n_started = a.n_started + 1
  local client = a.sim.world:client { server = a.slot.server, timeout = 10 }
  local one, terms, id = { client = client }, {}, a.id .. "." .. a.n_started
  local own = a.sim.new_random(random:next())
  one.parents, one.parts = replicas.informers(client)
  one.controller = replicas.new {
    parents = one.parents, parts = one.parts, store = client, workers = random:between(1, 3), resync = RESYNC,
    count = function(what)
      if what:find("at once") then a.sim:object(a, "%s", what) end
    end,
    disturb = function() disturb(a, own) end,
    term_of = function(store) return terms[store] or 0 end,
  }
  one.outermost = one.controller
  if a.mode == "elector" then one.outermost = new_elector(one, client, id, terms) end
  if a.mode == "manager" then
    one.outermost = controller.manager { store = client, election = ELECTION, id = id, ttl = TTL }
    for _, part in ipairs { one.parents, one.parts, one.controller } do one.outermost:add(part) end
  end
  one.outermost:start()
  table.insert(a.processes, one)
end

--- Stops a controller, and gives the leadership back.
local function stop(a, one, seconds)
  local ok = one.outermost:stop(seconds)
  if not ok and a.mode ~= "manager" then one.outermost:join() end -- waits for running reconciles and on_lead
end

local function remove(a, random)
  local n = #a.processes
  return table.remove(a.processes, random and n > 0 and random:between(1, n) or n)
end

--- Stops a process gracefully.
function process.stop(a, random)
  local one = remove(a, random)
  if not one then return end
  stop(a, one, random and random:pick { 0, 1, 100 } or 100)
  one.parents:close()
  one.parts:close()
  one.client:close()
end

--- Kills a process: requests that it has sent do not arrive any more.
function process.kill(a, random)
  local one = remove(a, random)
  if not one then return end
  a.sim.world:isolate(one.client)
  one.client:close()
  one.outermost:stop(0)
  one.controller:stop(0)
end

--- Stops and starts a controller in its process. A manager is not restarted.
function process.restart(a, random)
  local one = #a.processes > 0 and a.mode ~= "manager" and random:pick(a.processes)
  if not one then return end
  stop(a, one, random:pick { 0, 1, 100 })
  one.outermost:start()
end

-- }======

local STEPS = {
  { 12, "create" }, { 14, "change" }, { 6, "delete" }, { 2, "raw_delete" }, { 9, "delete_parts" },
  { 9, "make_up_part" }, { 6, "start" }, { 2, "stop" }, { 2, "kill" }, { 2, "restart" },
}

--- Checks all writes, revision by revision, in each epoch.
local function judge(a)
  for _, epoch in ipairs(a.truth.epochs) do
    local own = replicas.judge()
    epoch:each("", epoch.first, epoch.last, function(_, events)
      for _, event in ipairs(events) do own:change(event.key, event.value) end
    end)
    if own.failure then a.sim:object(a, "%s", own.failure) end
  end
end

return {
  chance = 3, most = 1, steps = { 10, 40 }, is_whole = true,
  begin = function(a)
    a.mode = a.random:pick { "controller", "elector", "manager" }
    a.what, a.processes, a.n_started = "sets by a " .. a.mode, {}, 0
    process.start(a, a.random)
  end,
  step = function(a, random)
    local name = random:weighted(STEPS)
    if people[name] then people[name](a.slot.client, random) else process[name](a, random) end
  end,
  finish = function(a) process.start(a, a.random) end,
  settle = function(a)
    local epoch = a.truth.epoch
    local words = replicas.difference(a.slot.server.store)
    if words then a.sim:object(a, "in silence: %s", words) end
    for _, prefix in ipairs { replicas.SETS, replicas.PARTS } do
      epoch:each(prefix, epoch.first, epoch.last, function(revision, events)
        if epoch.times[revision] > keywatch.now() - REST then
          a.sim:object(a, "in silence %s is written at %d", events[1].key, revision)
        end
      end)
    end
  end,
  judge = judge,
  close = function(a)
    while #a.processes > 0 do process.stop(a) end
  end,
}
