--- Failed allocations in a client: its watches still receive every event once.
--
-- In builds with a probe the n-th allocation of the core fails, for n = 1, 2, 3, … until the operation makes fewer
-- allocations. A failure may end a call or the connection: then the watches are attached again, at their revisions, to
-- a server with the whole history. Each watch must have received the whole history, and no memory may leak.

local core = require "keywatch.core"
local probe = core.probe

local h2 = require "spec.support.h2"
local hand = require "spec.support.hand"
local starve = require "spec.support.starve"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

if not probe then
  describe("a release build", function()
    it("has no probe that could let memory run out", function()
      assert.is_nil(probe)
    end)
  end)
  return
end

local PAST = starve.PAST
local ROUNDS = 20 -- of repair: nothing here needs as many
local FIRST = 11  -- revision that is watched

local created, events, progress = hand.created, hand.events, hand.progress

-- {====== A server that knows all ======

local world = {}
local world_mt = { __index = world }

local function new_world(options)
  local w = setmetatable({ server = hand.new(), streams = {}, numbers = {}, subs = {}, given = {}, last = FIRST - 1 },
    world_mt)
  for i, opts in ipairs(options) do
    w.subs[i], w.given[i] = core.subscription(i, "k", opts), {}
  end
  return w
end

--- A Watch call: its number and stream.
function world:open()
  local call, stream = self.server:watch()
  self.streams[stream] = { last_id = -1, watches = {} }
  self.numbers[call] = stream
  return call, stream
end

local function answer(self, stream, request)
  local state = self.streams[stream]
  if request.create_request then
    state.last_id = state.last_id + 1
    local from = request.create_request.start_revision or self.last + 1
    state.watches[state.last_id] = from
    self.server:answer(stream, created(state.last_id, self.last))
  elseif request.cancel_request then
    local id = request.cancel_request.watch_id or 0
    if not state.watches[id] then return end
    state.watches[id] = nil
    self.server:answer(stream, hand.canceled(id))
  end
end

--- Answers requests, and sends all events, each revision in two fragments.
function world:serve()
  for stream, state in pairs(self.streams) do
    for _, request in ipairs(self.server:requests(stream)) do answer(self, stream, request) end
    for id, from in pairs(state.watches) do
      for revision = from, self.last do
        self.server:answer(stream, events(id, { revision }, { fragment = true }), events(id, { revision }))
      end
      state.watches[id] = self.last + 1
    end
  end
end

--- Answers in frames.
local function framed(stream, ...)
  local frames = {}
  for i, one in ipairs { ... } do
    frames[i] = h2.data_in_parts(stream, h2.message(core.encode("WatchResponse", one)), 16384)
  end
  return frames
end

-- }======

-- {====== Watches ======

local function note(given, kind, what)
  assert(kind == "events" or kind == "progress", kind)
  if kind == "progress" then return end
  for _, event in ipairs(what) do given[#given + 1] = event.mod_revision end
end

function world:take()
  for i, sub in ipairs(self.subs) do
    for kind, what in sub.take, sub do note(self.given[i], kind, what) end
  end
end

local function is_done(self) return (select(2, self.server.client:state())) end

--- Handles ended calls and connections, like the owner of a connection.
local function attend(self)
  local client = self.server.client
  for number in client.next, client do
    local message, status, text = client:receive(number)
    assert.is_false(message)
    assert(status == 14 or status == 13 or status == 8 and text == "keywatch: out of memory", status)
    self.streams[self.numbers[number]] = nil
    self.numbers[number] = nil
  end
  for _ in client.next_watch, client do end -- luacheck: ignore 542
  if not is_done(self) then return end
  self.server:close()
  self.server, self.streams, self.numbers = hand.new(), {}, {}
end

function world:attach()
  local number = next(self.numbers)
  for _, sub in ipairs(self.subs) do
    if sub:state() == "idle" then
      number = number or (self:open())
      assert.is_true(sub:attach(self.server.client, number))
    end
  end
end

local function is_whole(self)
  for _, given in ipairs(self.given) do
    if given[#given] ~= self.last then return false end
  end
  return true
end

--- Continues until each watch has received every event.
function world:repair()
  for _ = 1, ROUNDS do
    self.server:read()
    attend(self)
    self:attach()
    self:serve()
    self:take()
    if is_whole(self) then return end
  end
  error("an event is missing")
end

--- Checks that each revision was received once, in order. A revision in two pieces has two events.
function world:check()
  self.last = self.last + 1
  self:repair()
  for _, given in ipairs(self.given) do
    local distinct = {}
    for _, revision in ipairs(given) do
      if distinct[#distinct] ~= revision then distinct[#distinct + 1] = revision end
    end
    local all = {}
    for revision = FIRST, self.last do all[#all + 1] = revision end
    assert.same(all, distinct)
    assert(#given <= 2 * #all, "an event came twice")
  end
end

function world:close()
  for _, sub in ipairs(self.subs) do sub:close() end
  self.server:close()
end

-- }======

--- Tries a thing for every allocation that can fail in it.
local function try_all(try)
  try(PAST) -- fills caches for later calls
  starve.try_each(try)
end

local two = { { start_revision = FIRST }, { start_revision = FIRST } }

--- Two watches on one call, both created: with the call and its stream.
local function begin(options)
  local w = new_world(options or two)
  local call, stream = w:open()
  w:attach()
  w:serve()
  for _ in w.server.client.next_watch, w.server.client do end -- luacheck: ignore 542
  return w, call, stream
end

local SLOW = { start_revision = FIRST, max_bytes = 3000 }
local function begin_slow() return begin { SLOW, two[2] } end
local function begin_slow_alone() return begin { SLOW } end
local function unattached() return new_world(two) end

--- Declares a test of fn(during, …), with what `make` returns, a world first. It runs again for every allocation that
-- fails in what during(act) calls. At the end the world is checked.
local function starved(title, make, fn)
  it(title, function()
    try_all(function(n)
      local made, is_come_to = { make() }, nil
      fn(function(act) is_come_to = starve.during(probe.fail_core, n, act) end, unpack(made))
      made[1]:check()
      made[1]:close()
      return is_come_to
    end)
  end)
end

describe("when memory runs out in a client #starved", function()
  setup(function() if jit then jit.off() end end) -- its compiler asks for memory too
  teardown(function() if jit then jit.on() end end)

  starved("requested watches are created in the end", unattached, function(during, w)
    during(function()
      local call = w:open()
      for _, sub in ipairs(w.subs) do sub:attach(w.server.client, call) end
      w.server.client:ask(call)
      w.server:read()
    end)
    w.last = w.last + 2
  end)

  starved("watches whose creation is answered continue", unattached, function(during, w)
    local _, stream = w:open()
    w:attach()
    local frames = framed(stream, created(0, w.last), created(1, w.last))
    w.server:requests(stream)
    w.streams[stream] = { last_id = 1, watches = { [0] = FIRST, [1] = FIRST } }
    during(function() w.server:feed(unpack(frames)) end)
  end)

  starved("fragmented revisions, and progress, are delivered once", begin, function(during, w, call, stream)
    local fragment = { fragment = true }
    w.server.client:trust(call)
    local frames = framed(stream, events(0, { FIRST }), events(1, { FIRST }, fragment), events(1, { FIRST + 1 }),
      events(0, { FIRST + 1 }, fragment), events(0, { FIRST + 1 }, fragment), events(0, { FIRST + 2 }),
      events(1, { FIRST + 2 }), progress(1, FIRST + 2), progress(-1, FIRST + 2))
    w.last = FIRST + 2
    w.streams[stream].watches = { [0] = w.last + 1, [1] = w.last + 1 }
    for _, sub in ipairs(w.subs) do sub:arm() end
    during(function() w.server:feed(unpack(frames)) end)
  end)

  starved("a watch that is not read leaves its call, and continues", begin_slow, function(during, w, _, stream)
    local large = { value = ("x"):rep(1000) }
    local frames = {}
    for i = 0, 5 do
      local both = framed(stream, events(0, { FIRST + i }, large), events(1, { FIRST + i }, large))
      frames[#frames + 1], frames[#frames + 2] = both[1], both[2]
    end
    w.last = FIRST + 5
    w.streams[stream].watches = { [0] = w.last + 1, [1] = w.last + 1 }
    during(function()
      w.server:feed(unpack(frames))
      w.server:read()
    end)
  end)

  starved("a blocked call continues when its watch is read", begin_slow_alone, function(during, w, _, stream)
    local large = { value = ("x"):rep(1000) }
    local frames = {}
    for i = 0, 9 do frames[i + 1] = framed(stream, events(0, { FIRST + i }, large))[1] end
    w.last = FIRST + 9
    w.streams[stream].watches = { [0] = w.last + 1 }
    local came = {}
    during(function()
      w.server:feed(unpack(frames))
      for _ = 1, 5 do came[#came + 1] = { w.subs[1]:take() } end
      w.server:read()
    end)
    for _, one in ipairs(came) do
      if one[1] then note(w.given[1], one[1], one[2]) end
    end
  end)

  it("the client keeps values that it cannot return", function()
    for _, arm in ipairs { probe.fail_core, probe.fail_all } do
      try_all(function(n)
        local w = begin()
        w.last = FIRST + 2
        w:serve()
        local sub, is_come_to = w.subs[1], false
        for _ = 1, 3 do
          collectgarbage("stop")
          local is_hit, kind, what = starve.during(arm, n, function() return sub:take() end)
          collectgarbage("restart")
          if kind then note(w.given[1], kind, what) end
          is_come_to = is_come_to or is_hit
        end
        w:check()
        w:close()
        return is_come_to
      end)
    end
  end)

  it("a replica that a watch feeds has all revisions, and its own watch receives each once", function()
    --- Events of the key "k" and, in the same revisions, of the key "kk", as a server has them.
    local function puts(revisions, more)
      local one = { watch_id = 0, events = {}, header = hand.header(revisions[#revisions]), fragment = more }
      for _, revision in ipairs(revisions) do
        for _, key in ipairs { "k", "kk" } do
          local kv = { key = key, value = ("v"):rep(300), mod_revision = revision, create_revision = 1, version = 2 }
          table.insert(one.events, { kv = kv })
        end
      end
      return one
    end

    --- The events of a watch of the replica.
    local function received(watch)
      local list = {}
      for kind, what in watch.take, watch do note(list, kind, what) end
      return list
    end

    local all = { 11, 12, 13, 14, 15, 17 }
    try_all(function(n)
      local w = new_world { { prefix = true, start_revision = FIRST } }
      local sub, replica = w.subs[1], core.open { replica = true, now = 0 }
      assert(replica:load_kvs(FIRST - 1, {}))
      local watch = replica:open_watch("k", { range_end = "l", start_revision = FIRST })
      replica:feed_from(sub)
      local _, stream = w:open()
      w:attach()
      w:serve()
      local frames = framed(stream, puts { 11 }, puts { 12, 13 }, puts({ 14 }, true), puts { 15 }, progress(0, 16),
        puts { 17 })
      local is_come_to = starve.during(probe.fail_core, n, function() w.server:feed(unpack(frames)) end)
      w.last = 17
      for _ = 1, ROUNDS do
        assert.equal("number", type((replica:feed(sub))))
        w.server:read()
        attend(w)
        w:attach()
        for other in pairs(w.streams) do
          for _, request in ipairs(w.server:requests(other)) do
            answer(w, other, request)
            local from, missing = request.create_request and request.create_request.start_revision or math.huge, {}
            for _, revision in ipairs(all) do
              if revision >= from then missing[#missing + 1] = revision end
            end
            if missing[1] then w.server:answer(other, puts(missing)) end
          end
        end
      end
      assert.equal(17, replica:status().revision)
      assert.same({ 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 17, 17 }, received(watch))
      replica:close()
      w:close()
      return is_come_to
    end)
  end)

  starved("a watch that leaves is gone, and others get all events", begin, function(during, w)
    w.last = FIRST + 2
    during(function()
      w.subs[1]:detach()
      w.server:read()
    end)
    assert.equal("idle", (w.subs[1]:state()))
  end)

  starved("a failed watch has failed, and delivers nothing afterwards", begin, function(during, w, _, stream)
    local frames = framed(stream, hand.canceled(0, { cancel_reason = "no" }), events(0, { FIRST }))
    during(function() w.server:feed(unpack(frames)) end)
    local sub = table.remove(w.subs, 1)
    table.remove(w.given, 1)
    if sub:state() == "failed" then
      local list = hand.take(sub)
      assert(#list == 0 or #list == 1 and list[1][1] == "failed")
      assert.is_nil((sub:take()))
    end
    sub:close()
    w.streams[stream].watches[0] = nil
  end)

  it("a server with malformed answers fails all watches", function()
    try_all(function(n)
      local w, _, stream = begin()
      local is_come_to = starve.during(probe.fail_core, n, function()
        w.server:feed(h2.data(stream, h2.message("\255")))
        w.server:read()
      end)
      for _, sub in ipairs(w.subs) do assert.not_equal("open", (sub:state())) end
      w:close()
      return is_come_to
    end)
  end)
end)
