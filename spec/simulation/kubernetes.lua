--- Actors of Kubernetes' API, each with two APIs of one kind over a server. In each step an actor writes an object, or
-- goes on with its watch by a client's rules: it lists, watches from the list's resourceVersion, watches again from the
-- last one that it has seen after its watch has ended, by any of its APIs, and lists again after 410.
--
-- A *stretch* is one list and what its watches have received. Stretches and writes are judged at the end
-- (kubernetes_judge.lua).

local json = require "keywatch.json"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local judge = require "spec.simulation.kubernetes_judge"

local DECLARATION = { group = "sim.example", version = "v1", kind = "Thing", plural = "things" }
local NAMESPACES, NAMES, TIERS = { "n1", "n2" }, { "a", "b", "c", "d" }, { "high", "low" }
local HOLD = "sim.example/hold" -- a finalizer
local ROUNDS = 5 -- lists in silence until a watch must last
local PASSING = { TooManyRequests = true, Timeout = true, ServiceUnavailable = true, Expired = true,
  InsufficientStorage = true }
local REFUSALS = { Conflict = true, AlreadyExists = true, NotFound = true }

--- Label and field selectors, and whether an object matches.
local SELECTORS = {
  {}, {},
  { labels = "tier=high", fn = function(o) return o.metadata.labels.tier == "high" end },
  { labels = "tier!=high", fn = function(o) return o.metadata.labels.tier ~= "high" end },
  { labels = "tier in (low,none)", fn = function(o) return o.metadata.labels.tier == "low" end },
  { fields = "metadata.name=a", fn = function(o) return o.metadata.name == "a" end },
}

-- {====== APIs ======

local function close_apis(a)
  if a.stretch and a.stretch.watch then a.stretch.watch:close() end
  if a.stretch then a.stretch.watch = nil end
  for _, api in ipairs(a.apis or {}) do api:close() end
  a.apis = nil
end

--- Opens the APIs of an actor: over the client of its slot, and over the same one or, if the server keeps its store,
-- over the store.
local function open_apis(a)
  if a.apis and a.client == a.slot.client then return end
  close_apis(a)
  local plan, server = a.sim.plan, a.slot.server
  local is_kept = not plan.is_durable and not plan.is_rough and server.store
  a.client, a.apis = a.slot.client, {}
  for i, store in ipairs { a.client, a.is_direct and is_kept and server.store or a.client } do
    a.apis[i] = kubernetes.api { store = store, resources = { DECLARATION }, history_bytes = a.history_bytes }
  end
end

local function handle_of(a, random) return random:pick(a.apis):resource "things" end

--- Objects to errors that no fault explains. Returns true if the error is 410.
local function check_error(a, what, err, more)
  local reason = type(err) == "table" and err.reason
  if not PASSING[reason] and not (more and more[reason]) then
    a.sim:object(a, "%s fails with %s", what, tostring(err))
  end
  return reason == "Expired"
end

--- Notes that a revision was seen: later requests must not be answered from an older state.
local function know(a, epoch, revision)
  if #a.truth.epochs == 1 then epoch.acknowledged = math.max(epoch.acknowledged, revision) end
end

-- }======

-- {====== Writes ======

local writers = {}

--- Returns an object as the actor knows it or as an API reads it, or nil; its key, and its revision or nil.
local function known_object(a, random, handle)
  local key = random:pick(NAMESPACES) .. "/" .. random:pick(NAMES)
  local object, err = random:one_in(2) and a.stretch and a.stretch.state[key], nil
  if not object then object, err = handle:get(key, { resource_version = random:one_in(2) and "0" or nil }) end
  if err then check_error(a, "get", err) end
  return object, key, object and tonumber(object.metadata.resourceVersion)
end

local function new_tag(a)
  a.n_tags = a.n_tags + 1
  return a.id .. "." .. a.n_tags
end

--- Calls a method of a handle, and records the write. `fields` are those of its record.
local function write(a, what, key, fields, handle, ...)
  local record = fields
  record.what, record.id, record.key, record.outcome = what, a.id, judge.PREFIX .. key, "doubt"
  record.epoch, record.began = a.truth.epoch, keywatch.now()
  table.insert(a.writes, record)
  local object, second = handle[what](handle, ...)
  local err = not object and second or nil
  local is_unknown = err and (err.maybe_done or PASSING[err.reason] and err.reason ~= "TooManyRequests")
  record.outcome, record.is_gone = object and "ok" or is_unknown and "doubt" or "refused", second == true
  record.revision = object and tonumber(object.metadata.resourceVersion)
  if object then know(a, record.epoch, record.revision) else check_error(a, what, err, REFUSALS) end
  a.sim:trace("%s %s %s %s", a.id, what, key, err and tostring(err.reason) or "ok")
end

function writers.create(a, random, handle)
  local namespace, name, tag = random:pick(NAMESPACES), random:pick(NAMES), new_tag(a)
  local object = { metadata = { name = name, namespace = namespace, labels = { tier = random:pick(TIERS) },
    finalizers = random:one_in(3) and { HOLD } or nil }, spec = { tag = tag, marks = {} } }
  write(a, "create", namespace .. "/" .. name, { tag = tag, based = 0, sent = object }, handle, object)
end

function writers.update(a, random, handle)
  local object, key, based = known_object(a, random, handle)
  if not object then return end
  object = json.decode(json.encode(object))
  local tag = new_tag(a)
  object.spec.tag, object.metadata.labels.tier = tag, random:pick(TIERS)
  object.spec.marks["of " .. random:between(1, 3)] = tag
  if random:one_in(2) then object.metadata.finalizers = nil end
  write(a, "update", key, { tag = tag, based = based, sent = object }, handle, object)
end

function writers.patch(a, random, handle)
  local object, key, based = known_object(a, random, handle)
  if random:one_in(2) then based = nil end
  local tag, mark, tier = new_tag(a), "of " .. random:between(1, 3), random:pick(TIERS)
  local patch = { metadata = { labels = { tier = tier }, resourceVersion = based and object.metadata.resourceVersion },
    spec = { tag = tag, marks = { [mark] = tag } } }
  if random:one_in(4) then patch.metadata.finalizers = json.null end
  write(a, "patch", key, { tag = tag, based = based, mark = mark, tier = tier }, handle, key, patch)
end

writers["delete"] = function(a, random, handle)
  local object, key, based = known_object(a, random, handle)
  if random:one_in(2) then based = nil end
  local conditions = based and { resourceVersion = object.metadata.resourceVersion }
  write(a, "delete", key, { based = based }, handle, key, { preconditions = conditions })
end

-- }======

-- {====== Watches ======

--- Lists by pages. Returns the items and their revision; or nil and an error.
local function list_pages(a, handle, stretch, opts)
  local items, token, revision = {}, nil, nil
  repeat
    local page, err = handle:list {
      labels = stretch.labels, fields = stretch.fields, namespace = stretch.namespace, limit = opts.limit,
      continue = token, resource_version = not token and opts.version or nil,
      resource_version_match = not token and opts.match or nil,
    }
    if not page then return nil, err end
    revision = revision or page.resource_version
    if page.resource_version ~= revision then
      a.sim:object(stretch, "has pages of %s and %s", revision, page.resource_version)
    end
    for _, object in ipairs(page.items) do items[#items + 1] = object end
    token = page.continue
  until not token
  return items, tonumber(revision)
end

local function key_of(object) return object.metadata.namespace .. "/" .. object.metadata.name end

--- Begins a stretch by a list.
local function begin_stretch(a, random)
  local epoch, selector = a.truth.epoch, random:pick(SELECTORS)
  a.n_stretches = a.n_stretches + 1
  local stretch = {
    id = a.id .. "#" .. a.n_stretches, what = "watch", began = keywatch.now(), epoch = epoch, fn = selector.fn,
    labels = selector.labels, fields = selector.fields, namespace = random:one_in(3) and random:pick(NAMESPACES) or nil,
    events = {}, state = {},
  }
  local opts = { limit = random:one_in(2) and random:between(1, 4) or nil }
  local how = a.is_gone and "newest" or random:weighted { { 4, "newest" }, { 2, "any" }, { 2, "seen" } }
  if how == "newest" then stretch.least = #a.truth.epochs == 1 and epoch.acknowledged or nil end
  if how == "any" then opts.version = "0" end
  if how == "seen" and a.stretch_epoch == epoch then
    stretch.least, opts.version = a.seen, ("%d"):format(a.seen)
    if random:one_in(2) then opts.match = random:one_in(2) and "NotOlderThan" or "Exact" end
  end
  local items, found = list_pages(a, handle_of(a, random), stretch, opts)
  a.is_gone = not items and check_error(a, "list", found)
  if not items then return end
  for _, object in ipairs(items) do stretch.state[key_of(object)] = object end
  stretch.items, stretch.revision, stretch.last = items, found, found
  a.sim:trace("%s lists %d at %d", stretch.id, #items, found)
  a.stretch, a.stretch_epoch, a.seen = stretch, epoch, found
  table.insert(a.stretches, stretch)
  know(a, epoch, found)
end

local function end_stretch(a)
  local stretch = a.stretch
  if stretch.watch then stretch.watch:close() end
  stretch.watch, a.stretch = nil, nil
end

--- Watches from the last seen revision. A revision of a history that is gone cannot be continued.
local function open_watch(a, random)
  local stretch = a.stretch
  if a.truth.epoch ~= stretch.epoch then return end_stretch(a) end
  local watch, err = handle_of(a, random):watch {
    resource_version = ("%d"):format(stretch.last), labels = stretch.labels, fields = stretch.fields,
    namespace = stretch.namespace, bookmarks = random:one_in(2),
  }
  a.sim:trace("%s watches from %d: %s", stretch.id, stretch.last, watch and "ok" or tostring(err.reason))
  if watch and a.truth.epoch == stretch.epoch then
    stretch.watch = watch
  elseif watch then
    watch:close()
    end_stretch(a)
  elseif check_error(a, "watch", err) then
    end_stretch(a)
  end
end

--- Notes an event.
local function note(a, stretch, event)
  local revision = tonumber(event.object.metadata.resourceVersion)
  table.insert(stretch.events, { type = event.type, object = event.object, revision = revision })
  if event.type ~= "BOOKMARK" then
    stretch.state[key_of(event.object)] = event.type ~= "DELETED" and event.object or nil
  end
  stretch.last = revision
  if a.truth.epoch == stretch.epoch then a.seen = math.max(a.seen, revision) end
  know(a, stretch.epoch, revision)
end

--- Reads an event. Returns false if none has come.
local function read(a, timeout)
  local stretch = a.stretch
  local event, err = stretch.watch:next(timeout)
  if event then
    note(a, stretch, event)
    return true
  end
  if err and err.code == "timeout" then return false end
  a.sim:trace("%s ends: %s", stretch.id, tostring(err and err.reason))
  local is_over = a.sim.closed[a.client] and err and err.reason == "ServiceUnavailable"
  if not is_over and not (err and err.reason == "Expired") then
    a.sim:object(stretch, "ends with %s", tostring(err))
  end
  if is_over then stretch.watch = nil else end_stretch(a) end
  return false
end

--- Lists, watches, reads or ends the watch.
local function step_watch(a, random)
  if not a.stretch then begin_stretch(a, random) end
  if a.stretch and not a.stretch.watch then open_watch(a, random) end
  if not a.stretch or not a.stretch.watch then return end
  local n, timeout = random:pick { 1, 3, math.huge }, random:pick { 0, 0, 1, 5 }
  while n > 0 and a.stretch and a.stretch.watch and read(a, timeout) do n = n - 1 end
  if a.stretch and a.stretch.watch and random:one_in(4) then
    a.stretch.watch:close()
    a.stretch.watch = nil
    if random:one_in(4) then end_stretch(a) end
  end
end

local STEPS = { { 8, "watch" }, { 4, "create" }, { 6, "update" }, { 5, "patch" }, { 4, "delete" }, { 1, "reopen" } }

local function step(a, random)
  open_apis(a)
  local how = random:weighted(STEPS)
  if how == "watch" then return step_watch(a, random) end
  if how == "reopen" then return close_apis(a) end
  writers[how](a, random, handle_of(a, random))
end

--- Lists, watches and reads until a watch is quiet: it must then have everything.
local function settle(a)
  local random = a.random
  for _ = 1, ROUNDS do
    open_apis(a)
    if not a.stretch then begin_stretch(a, random) end
    if a.stretch and not a.stretch.watch then open_watch(a, random) end
    while a.stretch and a.stretch.watch and read(a, a.sim.PATIENCE) do end -- luacheck: ignore 542
    if a.stretch and a.stretch.watch then break end
  end
  if not a.stretch then return a.sim:object(a, "in silence: no watch lasts") end
  a.stretch.is_drained = true
end

-- }======

return {
  chance = 1, most = 4, steps = { 10, 60 },
  begin = function(a)
    a.writes, a.stretches, a.n_tags, a.n_stretches = {}, {}, 0, 0
    a.is_direct = a.random:one_in(2)
    a.history_bytes = a.random:one_in(2) and a.random:pick { 3000, 20000 } or nil
    open_apis(a)
  end,
  step = step, settle = settle,
  judge = function(a)
    for _, stretch in ipairs(a.stretches) do judge.stretch(a, stretch) end
    judge.writes(a)
  end,
  close = close_apis,
}
