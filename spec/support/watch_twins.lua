--- The same watches at two servers: gRPC streams with many watches each.
--
-- The expected events of a watch follow from the history, which the twins know. Both servers are read until they have
-- sent that many; then the events must be equal, in order. spec/support/known_differences.lua lists the exceptions.

local difference = require("spec.support.difference").difference
local new_request = require("spec.support.request").new
local span = require "spec.support.model.span"

local KINDS = { "keywatch", "etcd" }
local SECONDS = 60 -- without a message, after which a missing event is a failure

local watch_twins = {}

-- {====== Expected events ======

--- Returns a watch of both servers. `fields`: stream, within, start (the first revision), filters (a set of NOPUT and
-- NODELETE), has_prev_kv.
local function new_watch(world, fields)
  fields.world = world
  fields.edge = math.max(world.compact_revision, 0) -- the revision of the last compaction when it was created
  fields.received = { keywatch = {}, etcd = {} }
  fields.owed = {}      -- expected events after the edge
  fields.owed_edge = {} -- and at the edge: { event, is_superseded }
  fields.at = 0         -- number of events of the history that were examined
  fields.n_edge = { keywatch = 0, etcd = 0 } -- received, at the edge
  fields.n_equal = { keywatch = 0, etcd = 0 }
  if fields.start <= world.revision then world.has_past = true end
  return fields
end

local function is_owed(watch, event)
  local kv = event.kv
  return kv.mod_revision >= watch.start
    and span.contains(watch.within, kv.key)
    and not watch.filters[event.type == "DELETE" and "NODELETE" or "NOPUT"]
end

--- True if the same revision changes the key again, after event i.
local function is_superseded(events, i)
  local kv = events[i].kv
  for j = i + 1, #events do
    if events[j].kv.mod_revision ~= kv.mod_revision then return false end
    if events[j].kv.key == kv.key then return true end
  end
  return false
end

--- Examines the new events of the history.
local function look_on(watch)
  local all = watch.world.events
  for i = watch.at + 1, #all do
    local event = all[i]
    if is_owed(watch, event) and event.kv.mod_revision == watch.edge then
      table.insert(watch.owed_edge, { event = event, is_superseded = is_superseded(all, i) })
    elseif is_owed(watch, event) then
      table.insert(watch.owed, event)
    end
  end
  watch.at = #all
end

--- Returns an event of the history in the form in which a watch delivers it.
local function form_of(watch, event)
  return { type = event.type, kv = event.kv, prev_kv = watch.has_prev_kv and event.prev_kv or nil }
end

-- }======

-- {====== Comparing ======

--- True if an event of the edge must be delivered; otherwise it may be.
local function is_due(owed, kind)
  return kind == "keywatch" or not owed.is_superseded and owed.event.type ~= "DELETE"
end

local function n_due(watch, kind)
  local n = 0
  for _, owed in ipairs(watch.owed_edge) do
    if is_due(owed, kind) then n = n + 1 end
  end
  return n
end

--- Compares the events at the edge: due ones must be delivered, others may be. Earlier events are compacted.
local function compare_edge(watch, kind)
  local at = 1
  for _, owed in ipairs(watch.owed_edge) do
    local received = at <= watch.n_edge[kind] and watch.received[kind][at]
    local form = { type = owed.event.type, kv = owed.event.kv }
    local words = difference(received or nil, form, kind .. ", at the edge")
    if not words then at = at + 1 end
    if words and is_due(owed, kind) then watch.world:fail(watch.name .. ": " .. words) end
  end
  if at <= watch.n_edge[kind] then watch.world:fail(watch.name .. ": too much from " .. kind .. " at the edge") end
end

local function compare(watch, kind)
  local n_edge, received = watch.n_edge[kind], watch.received[kind]
  if watch.n_equal[kind] == 0 then compare_edge(watch, kind) end
  for i = watch.n_equal[kind] + 1, math.max(#watch.owed, #received - n_edge) do
    local event = watch.owed[i]
    local words = difference(received[n_edge + i], event and form_of(watch, event), ("event %d of %s"):format(i, kind))
    if words then watch.world:fail(("%s: %s"):format(watch.name, words)) end
    watch.world.n_events = watch.world.n_events + 1
  end
  watch.n_equal[kind] = #watch.owed
end

--- Waits until both servers have delivered the expected events, and compares them.
local function settle(watch)
  if watch.is_over then return end
  look_on(watch)
  for _, kind in ipairs(KINDS) do
    local due = n_due(watch, kind)
    watch.stream:receive_until(kind, function()
      local n_edge = watch.n_edge[kind]
      return n_edge >= due and #watch.received[kind] - n_edge >= #watch.owed
    end, "all that " .. watch.name .. " owes")
    compare(watch, kind)
  end
end

-- }======

-- {====== Streams ======

local stream = {}
stream.__index = stream

--- Opens a stream at both servers.
function watch_twins.stream(world)
  local self = setmetatable({
    world = world,
    calls = {},
    watches = {}, -- by their ids
    answers = { keywatch = {}, etcd = {} },
  }, stream)
  for _, kind in ipairs(KINDS) do
    self.calls[kind] = assert(world.clients[kind]:stream("/etcdserverpb.Watch/Watch"))
  end
  return self
end

--- Takes the events of a response. All events of a revision must be in one response, or in its fragments.
local function take_events(self, kind, message)
  local watch = self.watches[message.watch_id or 0]
  if not watch then self.world:fail(kind .. " sends events of an unknown watch") end
  local list = watch.received[kind]
  local last, first = list[#list], message.events[1]
  if last and first.kv.mod_revision <= last.kv.mod_revision and not watch.is_in_parts[kind] then
    self.world:fail(("%s sends revision %d in two parts, or twice"):format(kind, first.kv.mod_revision))
  end
  for _, event in ipairs(message.events) do
    table.insert(list, event)
    if event.kv.mod_revision == watch.edge then watch.n_edge[kind] = watch.n_edge[kind] + 1 end
  end
  if message.header.revision < list[#list].kv.mod_revision then
    self.world:fail(kind .. " sends an event of a revision above that of the header")
  end
  if message.fragment and not watch.has_fragments then self.world:fail(kind .. " sends fragments without a request") end
  if message.fragment then self.world.n_fragments[kind] = self.world.n_fragments[kind] + 1 end
  watch.is_in_parts[kind] = message.fragment
end

local function take(self, kind, message)
  if message.events then
    take_events(self, kind, message)
  else
    table.insert(self.answers[kind], message)
  end
end

--- Receives messages until holds() is true.
function stream:receive_until(kind, holds, what)
  while not holds() do
    local message, err = self.calls[kind]:receive(SECONDS)
    if not message then self.world:fail(("%s does not send %s: %s"):format(kind, what, tostring(err))) end
    take(self, kind, message)
  end
end

--- Returns the next answer of both servers, which must be equal.
local function next_answer(self, what)
  local answers = {}
  for _, kind in ipairs(KINDS) do
    self:receive_until(kind, function() return self.answers[kind][1] end, what)
    answers[kind] = table.remove(self.answers[kind], 1)
  end
  self.world:compare(answers, new_request("watch"), what)
  return answers.keywatch
end

local function send(self, message)
  for _, kind in ipairs(KINDS) do assert(self.calls[kind]:send(message)) end
end

local function set_of(list)
  local set = {}
  for _, item in ipairs(list or {}) do set[item] = true end
  return set
end

--- Creates a watch at both servers. Returns the watch, or nil if both refuse.
function stream:create(message)
  local world = self.world
  world:begin(new_request("create", message))
  send(self, { create_request = message })
  local created = next_answer(self, "the answer to the creation")
  if created.canceled then return nil end
  local start = message.start_revision or 0
  local watch = new_watch(world, {
    name = ("watch %d of %s"):format(created.watch_id or 0, world.doing),
    stream = self,
    id = created.watch_id or 0,
    within = { key = (message.key or "") == "" and "\0" or message.key, last = message.range_end or "" },
    start = start == 0 and created.header.revision + 1 or start,
    filters = set_of(message.filters),
    has_fragments = message.fragment,
    is_in_parts = {}, -- by kind
    has_prev_kv = message.prev_kv,
  })
  self.watches[watch.id] = watch
  if watch.start < world.compact_revision then
    watch.is_over = true
    next_answer(self, "that it is compacted")
  end
  return watch
end

--- Cancels a watch at both servers, after its events were delivered.
function stream:cancel(id)
  self.world:catch_up()
  settle(self.watches[id])
  self.world:begin(new_request("cancel", id))
  send(self, { cancel_request = { watch_id = id } })
  next_answer(self, "the answer to the end")
  self.watches[id] = nil
end

--- Cancels an unknown watch. The servers must not answer: an answer would be taken for that of the next request.
function stream:cancel_none(id)
  self.world:begin(new_request("cancel_none", id))
  send(self, { cancel_request = { watch_id = id } })
end

--- Returns the sorted ids of the stream's watches.
function stream:ids()
  local ids = {}
  for id in pairs(self.watches) do ids[#ids + 1] = id end
  table.sort(ids)
  return ids
end

function stream:settle()
  for _, id in ipairs(self:ids()) do settle(self.watches[id]) end
end

function stream:close()
  for _, kind in ipairs(KINDS) do self.calls[kind]:close() end
end

-- }======

return watch_twins
