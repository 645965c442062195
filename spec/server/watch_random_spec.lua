--- Random conversations with watch streams whose windows are shut and opened at random. After each step the hub's
-- invariants are checked; what each watch was told is compared with a list of all that happened.
--
-- A failure tells the seed, the step and what was done. KW_SEED=… repeats it.

local core = require "keywatch.core"

local dose = require "spec.support.dose"
local h2 = require "spec.support.h2"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local pair = require "spec.support.pair"

local probe = core.probe
local is_fast = dose.is_small
local seed = tonumber(os.getenv("KW_SEED")) or os.time()
local steps = dose.of(200, 1500)
local runs = is_fast and 2 or 6
local MUST_HAPPEN = { "events", "failure", "progress of all", "periodic progress", "watch of the past",
  "watch of the present", "watch of the future", "cancellation" }

local KEYS = { "a", "b", "c", "c1", "c2", "d" }
local STREAMS = { 1, 3, 5 }
local MOST_WATCHES = 12 -- of a stream
local OPEN = 2 ^ 24     -- more than all that is ever said

local world = {}
world.__index = world

local function new_world(random)
  local host = pair.host({ progress_interval = 5 }, { outlet_bytes = random:pick { 0, 200, 1000, 10000 } })
  local one = setmetatable({
    random = random,
    host = host,
    peer = host:raw(h2.hello { initial_window_size = random:pick { 0, 0, 100, 5000 } }),
    time = 0,          -- of the store, in seconds
    happened = {},     -- by revision: a list of { key, is_delete, value, previous }
    values = {},       -- by key: what it has now
    revision = 1,
    compacted = 0,
    compactions = {},  -- by revision: what was before the changes of that revision may be gone
    streams = {},      -- by id: { watches by id, asked = requests to create that were not answered, n = watches }
    counts = {},       -- how often each thing happened
    doing = "opening",
  }, world)
  for _, id in ipairs(STREAMS) do
    one.peer:send(h2.request(id, pair.paths.Watch))
    one.streams[id] = { watches = {}, asked = {}, n = 0 }
  end
  return one
end

function world:count(what) self.counts[what] = (self.counts[what] or 0) + 1 end

-- {====== What happens in the store ======

function world:happen(list)
  self.revision = self.revision + 1
  self.happened[self.revision] = list
  for _, change in ipairs(list) do
    change.previous = self.values[change.key]
    self.values[change.key] = change.value
  end
end

local does = {}

function does:put()
  local key, value = self.random:pick(KEYS), ("v"):rep(self.random:pick { 1, 10, 100, 300, 2000, 20000 })
  self.host.store:put(key, value)
  self:happen { { key = key, value = value } }
end

function does:delete()
  local key = self.random:pick(KEYS)
  if self.host.store:delete(key).deleted > 0 then self:happen { { key = key, is_delete = true } } end
end

function does:txn()
  local ops, list = {}, {}
  for i = 1, self.random:between(2, #KEYS) do
    local value = ("w"):rep(self.random:between(1, 200))
    ops[i] = { put = KEYS[i], value = value }
    list[i] = { key = KEYS[i], value = value }
  end
  self.host.store:txn { success = ops }
  self:happen(list)
end

function does:compact()
  local revision = self.random:between(self.compacted, self.revision)
  if revision <= self.compacted or not self.random:one_in(4) then return end
  self.host.store:compact(revision)
  self.compacted = revision
  self.compactions[revision] = true
end

function does:pass_time()
  self.time = self.time + self.random:pick { 0, 1, 5, 6 }
  self.host.store:step(self.time)
end

-- }======

-- {====== What the client does ======

function world:ask(stream, request)
  self.peer:send(h2.data(stream, h2.message(core.encode("WatchRequest", request))))
end

local function start_of(self)
  local kind = self.random:pick { "past", "past", "present", "future" }
  self:count("watch of the " .. kind)
  if kind == "past" then return self.random:between(1, self.revision) end
  return kind == "future" and self.revision + self.random:between(1, 20) or nil
end

function does:create()
  local random, id = self.random, self.random:pick(STREAMS)
  local stream = self.streams[id]
  if stream.n == MOST_WATCHES then return end
  stream.n = stream.n + 1
  local key = random:pick { "a", "b", "c", "nothing", "\0" }
  local request = { key = key, start_revision = start_of(self), prev_kv = random:one_in(4) or nil,
    range_end = key == "\0" and "\0" or random:one_in(3) and key .. "\255" or nil,
    filters = random:one_in(5) and { random:pick { "NOPUT", "NODELETE" } } or nil,
    fragment = random:one_in(3) or nil, progress_notify = random:one_in(2) or nil }
  stream.asked[#stream.asked + 1] = request
  self:ask(id, { create_request = request })
end

function does:cancel()
  local id = self.random:pick(STREAMS)
  local watch_id = self.random:between(0, MOST_WATCHES)
  local watch = self.streams[id].watches[watch_id]
  if not watch or watch.is_over then return end
  self:count("cancellation")
  self:ask(id, { cancel_request = { watch_id = watch_id } })
  watch.is_leaving = true
end

function does:request_progress() self:ask(self.random:pick(STREAMS), { progress_request = {} }) end

function does:open_window()
  self.peer:send(h2.window(self.random:pick { 0, 1, 3, 5 }, self.random:pick { 1, 64, 500, 5000, 50000 }))
end

--- A smaller window for all streams may make those that are in use negative.
function does:resize_windows()
  self.peer:send(h2.settings { initial_window_size = self.random:pick { 0, 0, 100, 5000, 60000 } })
end

-- }======

-- {====== What was told ======

local function contains(request, key)
  if not request.range_end then return key == request.key end
  return key >= request.key and (request.range_end == "\0" or key < request.range_end)
end

local function wants(request, change)
  local filter = request.filters and request.filters[1]
  if not contains(request, change.key) then return false end
  return filter ~= (change.is_delete and "NODELETE" or "NOPUT")
end

--- One event in a line: only lengths are told of values.
function world:line(revision, is_delete, key, value, previous)
  local before = self.compactions[revision] and "?" or #(previous or "")
  return ("%d %s %s %d %s"):format(revision, is_delete and "-" or "+", key, #(value or ""), before)
end

--- All that a watch is to be told of the revisions from `from` to `to`, as text.
function world:expected(request, from, to)
  local lines = {}
  for revision = from, to do
    for _, change in ipairs(self.happened[revision] or {}) do
      if wants(request, change) then
        lines[#lines + 1] = self:line(revision, change.is_delete, change.key, change.value,
          request.prev_kv and change.previous)
      end
    end
  end
  return table.concat(lines, "\n")
end

function world:told_by(events)
  local lines = {}
  for i, event in ipairs(events) do
    local kv = event.kv
    local previous = event.prev_kv and event.prev_kv.value
    lines[i] = self:line(kv.mod_revision, event.type == "DELETE", kv.key, kv.value, previous)
  end
  return table.concat(lines, "\n")
end

--- A watch was told all up to a revision: `events` is the list of what came since the last time.
function world:reach(watch, revision, events)
  assert(revision >= watch.next - 1, "a watch goes back")
  assert.equal(self:expected(watch.request, watch.next, revision), self:told_by(events))
  watch.next = revision + 1
end

local function hear_created(stream, response)
  local request = table.remove(stream.asked, 1)
  assert(request and not response.canceled, "a watch that nobody asked for, or that was refused")
  stream.watches[response.watch_id or 0] = {
    request = request,
    next = request.start_revision or response.header.revision + 1,
    torn = {}, -- events of fragments
  }
end

function world:hear_events(watch, response)
  assert(not watch.is_over, "events of a watch that has ended")
  for _, event in ipairs(response.events) do watch.torn[#watch.torn + 1] = event end
  if response.fragment then return end
  local events = watch.torn
  watch.torn = {}
  self:count("events")
  self:reach(watch, events[#events].kv.mod_revision, events)
end

function world:hear_canceled(stream, watch, response)
  stream.n = stream.n - 1
  if response.compact_revision then
    assert(watch.next < response.compact_revision + 1, "a watch that had not lost anything has failed")
    self:count("failure")
    watch.is_over = true
  else
    assert(watch.is_leaving, "a watch was cancelled that nobody cancelled")
    stream.watches[response.watch_id or 0] = nil
  end
end

function world:hear_progress(stream, response)
  local revision = response.header.revision
  self:count(response.watch_id == -1 and "progress of all" or "periodic progress")
  for id, watch in pairs(stream.watches) do
    local is_meant = response.watch_id == -1 or id == (response.watch_id or 0)
    if is_meant and not watch.is_over and watch.next <= revision then self:reach(watch, revision, {}) end
  end
end

function world:hear(stream, response)
  local watch = stream.watches[response.watch_id or 0]
  if response.created then return hear_created(stream, response) end
  if response.canceled then return self:hear_canceled(stream, watch, response) end
  if response.events then return self:hear_events(watch, response) end
  return self:hear_progress(stream, response)
end

--- Takes what has come on all streams.
function world:listen()
  for _, id in ipairs(STREAMS) do
    local stream = self.streams[id]
    for _, bytes in ipairs(self.peer.reader:take(id)) do self:hear(stream, core.decode("WatchResponse", bytes)) end
    assert(not self.peer.reader:stream(id).reset, "the stream was reset")
  end
end

-- }======

local CHOICES = { { 8, "put" }, { 2, "delete" }, { 2, "txn" }, { 1, "compact" }, { 2, "pass_time" }, { 4, "create" },
  { 1, "cancel" }, { 3, "request_progress" }, { 4, "open_window" }, { 1, "resize_windows" } }

function world:act()
  self.doing = self.random:weighted(CHOICES)
  does[self.doing](self)
  self.host:pump()
  if probe then probe.check(self.host.store) end
  self:listen()
end

--- Every window is opened: all that is not over has then been told everything.
function world:finish()
  self.doing = "opening all windows"
  self.peer:send(h2.settings { initial_window_size = OPEN }, h2.window(0, OPEN))
  for _ = 1, 10 do
    self.host:pump()
    self:listen()
    self.peer:send(h2.window(0, OPEN))
  end
  if probe then probe.check(self.host.store) end
  for _, id in ipairs(STREAMS) do
    local stream = self.streams[id]
    assert.equal(0, #stream.asked)
    for _, watch in pairs(stream.watches) do
      assert.same({}, watch.torn)
      if not watch.is_over then assert.equal("", self:expected(watch.request, watch.next, self.revision)) end
    end
  end
end

describe("watch streams with shut windows", function()
  it("tell every watch all of its events, once and in order", function()
    occurrences.await(MUST_HAPPEN, runs, function(run)
      local one = new_world(new_random(seed + run))
      local step = 0
      local ok, err = xpcall(function()
        for i = 1, steps do
          step = i
          one:act()
        end
        one:finish()
      end, debug.traceback)
      one.host:close()
      if not ok then error(("KW_SEED=%d, run %d, step %d, %s: %s"):format(seed, run, step, one.doing, err), 0) end
      return one.counts
    end)
  end)
end)
