--- Connections on which anything happens: windows that are shut and opened, large answers that are not read, handlers
-- that do not receive, hooks that wait, sockets that take little, calls that are cancelled. After each step the
-- connection keeps its invariants (csrc/probe/h2/fault.c), a client that reads is served, and at last every call ends.

local core = require "keywatch.core"

local dose = require "spec.support.dose"
local h2 = require "spec.support.h2"
local occurrences = require "spec.support.occurrences"
local pair = require "spec.support.pair"
local random = require "spec.support.random"

local paths = pair.paths

local KIB = 1024
local WIDE = 2 ^ 31 - 1
local MAX_QUEUED = 16 * KIB -- so that little is much
local KEYS, VALUE_BYTES = 8, 20000
local ALL = { key = "large/", range_end = "large0" }
local FILLED = 600 * KIB -- of a stream's window
local RESOURCE_EXHAUSTED, INTERNAL = 8, 13
local STREAM, UNARY = "/spec.Service/Stream", "/spec.Service/Unary"

local PROGRAMS = dose.of(3, 12)
local STEPS = 150

local function encoded(method, request) return core.encode(pair.request_name(method), request) end

-- The program -------------------------------------------------------------------------------------------------

local program = {}
local program_mt = { __index = program }

local function new_program(seed)
  local rnd = random.new(seed)
  local host = pair.host(nil, { max_queued = MAX_QUEUED })
  host.server:mount(STREAM, true)
  host.server:mount(UNARY)
  for i = 1, KEYS do host.store:put("large/" .. i, ("%d"):format(i):rep(VALUE_BYTES)) end
  local self = setmetatable({ rnd = rnd, host = host, streams = {}, last = -1, calls = {}, did = {} }, program_mt)
  self.is_limited = rnd:one_in(3)
  self.raw = host:raw(h2.hello { initial_window_size = rnd:pick { 0, 1, 100, 65535, 2 ^ 20 } } ..
    h2.window(0, WIDE - 65535), self.is_limited and 5 or nil)
  self:turn()
  self.raw:say(h2.settings("ack"))
  return self
end

--- Everything that is due is done.
function program:turn()
  local host, peer = self.host, self.raw.peer
  host:pump()
  while (peer:deadline() or math.huge) <= host.now and not self.raw:is_done() do
    peer:step(host.now)
    host:pump()
  end
  host:check()
  if core.probe then core.probe.check(host.store) end
end

function program:say(...)
  self.raw:send(...)
  self:turn()
end

function program:open(kind, path, window)
  self.last = self.last + 2
  local stream = { id = self.last, kind = kind, sent = 0, is_live = true }
  self.streams[#self.streams + 1] = stream
  self:say(h2.request(stream.id, path))
  if window and window > 0 then self:say(h2.window(stream.id, window)) end
  return stream
end

function program:call(method, request, window)
  local stream = self:open(method, paths[method] or method, window)
  self:say(h2.data(stream.id, h2.message(paths[method] and encoded(method, request) or request), { ends = true }))
  stream.is_half_closed = true
  return stream
end

function program:window() return self.rnd:pick { 0, 0, 1, 10, 1000, 30000, 2 ^ 20 } end

--- A stream of a kind that has not ended, or of any; or nil.
function program:pick(kind)
  local list = {}
  for _, stream in ipairs(self.streams) do
    local seen = self.raw.reader:stream(stream.id)
    if stream.is_live and not seen.is_ended and not seen.reset and (not kind or stream.kind == kind) then
      list[#list + 1] = stream
    end
  end
  return #list > 0 and self.rnd:pick(list) or nil
end

-- Steps -------------------------------------------------------------------------------------------------------

local steps = {}

function steps:ask_all() self:call("Range", ALL, self:window()) end
function steps:ask_one() self:call("Range", { key = "large/1" }, self:window()) end
function steps:put() self:call("Put", { key = "a", value = "x", prev_kv = true }, self:window()) end

function steps:change_all()
  self:call("Txn", { success = { { request_put = { key = "b" } }, { request_range = ALL } } }, self:window())
end

function steps:keep_alive()
  local stream = self:pick("LeaseKeepAlive") or self:open("LeaseKeepAlive", paths.LeaseKeepAlive, self:window())
  if stream.is_half_closed then return end
  local n = self.rnd:between(1, 60)
  self:say(h2.data(stream.id, h2.message(encoded("LeaseKeepAlive", { ID = 7 })):rep(n)))
end

function steps:watch()
  local stream = self:pick("Watch") or self:open("Watch", paths.Watch, self:window())
  if stream.is_half_closed then return end
  self:say(h2.data(stream.id, h2.message(encoded("Watch", { create_request = { key = "a", range_end = "c",
    start_revision = self.rnd:pick { 0, 1, 1000 } } }))))
end

function steps:fill()
  local stream = self:pick(STREAM) or self:open(STREAM, STREAM, self:window())
  if stream.is_half_closed or stream.sent > FILLED then return end
  local size = self.rnd:pick { 10, 5000, 15000 }
  for _ = 1, self.rnd:between(1, 10) do
    self:say(h2.data(stream.id, h2.message(("x"):rep(size))))
    stream.sent = stream.sent + size + 5
  end
end

function steps:tear()
  local stream = self:pick(STREAM) or self:open(STREAM, STREAM, self:window())
  if stream.is_half_closed or stream.is_torn then return end
  stream.is_torn = true
  self:say(h2.data(stream.id, "\0" .. h2.pack(50000, 4) .. ("x"):rep(self.rnd:between(0, 10000))))
  stream.sent = math.huge
end

function steps:call_lua() self:call(UNARY, ("x"):rep(self.rnd:pick { 0, 10, 15000 }), self:window()) end

function steps:half_close()
  local stream = self:pick()
  if not stream or stream.is_half_closed then return end
  self:say(h2.data(stream.id, "", { ends = true }))
  stream.is_half_closed = true
end

function steps:give_up()
  local stream = self:pick()
  if not stream then return end
  self:say(h2.reset(stream.id))
  stream.is_live = false
end

function steps:open_window()
  local stream = self:pick()
  if stream then self:say(h2.window(stream.id, self.rnd:pick { 1, 100, 10000, 200000 })) end
end

function steps:open_windows()
  self:say(h2.settings { initial_window_size = self.rnd:pick { 0, 1, 1000, 65535, 2 ^ 20 } })
end

function steps:stop_reading() self.raw.is_deaf = true end
function steps:sip() self.raw.reader:feed(self.raw.peer:pending(self.rnd:pick { 1, 1000, 100000 })) end
function steps:read() self.raw.is_deaf = false end

function steps:pass_time() self:pass(self.rnd:pick { 1, 4, 6 }) end
function steps:change_store() self.host.store:put("b", ("y"):rep(self.rnd:pick { 1, 3000 })) end

function steps:intercept()
  if self.rnd:one_in(4) then self.host.server:intercept() end
end

function program:pass(seconds)
  self.host.now = self.host.now + seconds
  self.host.server:step(self.host.now)
  self.raw.peer:step(self.host.now)
end

-- Lua's part: calls by id.
function program:hear()
  for id, is_new, _, _, status in self.host.server.next_news, self.host.server do
    if is_new then self.calls[#self.calls + 1] = id end
    if status then
      for i, known in ipairs(self.calls) do
        if known == id then table.remove(self.calls, i) break end
      end
    end
  end
end

--- Nothing that Lua does with a call changes its answer, once the call has gone on to its method.
function program:meddle(id)
  local server = self.host.server
  assert.is_false(server:send(id, "meddled"))
  server:finish(id, INTERNAL, "meddled")
end

function steps:answer()
  self:hear()
  if #self.calls == 0 then return end
  local id, server = self.rnd:pick(self.calls), self.host.server
  local _, _, is_intercepted = server:info(id)
  if is_intercepted then
    server:proceed(id)
    self:meddle(id)
    return
  end
  for _ = 1, self.rnd:between(0, 20) do server:receive(id) end
  if self.rnd:one_in(2) then server:send(id, ("z"):rep(self.rnd:pick { 1, 500, 20000 })) end
  if self.rnd:one_in(4) then server:finish(id, 0, "") end
end

local names = {}
for name in pairs(steps) do names[#names + 1] = name end
table.sort(names)

-- What holds --------------------------------------------------------------------------------------------------

--- A call with a window is answered, whatever the other streams wait for.
function program:expect_served()
  local stream = self:call("Put", { key = "witness", value = "w" }, 1000)
  for _ = 1, 50 do -- a hook lets it proceed
    if self.raw.reader:status(stream.id) then break end
    self:hear()
    for _, id in ipairs(self.calls) do
      if select(3, self.host.server:info(id)) then self.host.server:proceed(id) end
    end
    self:turn()
  end
  assert.equal(0, (self.raw.reader:status(stream.id)))
end

local function expect_whole(reader, stream)
  local answer = core.decode("RangeResponse", reader:messages(stream.id)[1])
  for _, kv in ipairs(answer.kvs) do assert.equal(VALUE_BYTES, #kv.value) end
end

function program:let_go(id)
  local server = self.host.server
  if select(3, server:info(id)) then
    server:proceed(id)
    return
  end
  while server:receive(id) do self.did.received = true end
  server:finish(id, 0, "")
end

--- Everything is let go, and every call has an end.
function program:expect_ends()
  local reader = self.raw.reader
  self.raw.is_deaf = false
  self:say(h2.settings { initial_window_size = 2 ^ 24 })
  for _ = 1, 400 do
    local stream = self:pick()
    if not stream then break end
    self:hear()
    for _, id in ipairs(self.calls) do self:let_go(id) end
    if not stream.is_half_closed then
      self:say(stream.is_torn and h2.reset(stream.id) or h2.data(stream.id, "", { ends = true }))
      stream.is_half_closed, stream.is_live = true, not stream.is_torn
    elseif stream.kind == "Watch" then
      self:say(h2.reset(stream.id))
      stream.is_live = false
    else
      self:turn()
    end
  end
  assert.is_nil(self:pick())
  for _, stream in ipairs(self.streams) do
    local status = reader:status(stream.id)
    if stream.kind == "Range" and status == 0 then expect_whole(reader, stream) end
    if status == RESOURCE_EXHAUSTED then self.did.refused = true end
    if reader:stream(stream.id).reset == "enhance_your_calm" then self.did.lost = true end
    assert(not stream.is_live or status or reader:stream(stream.id).reset, stream.kind)
  end
end

function program:run()
  for _ = 1, STEPS do
    local name = self.rnd:pick(names)
    steps[name](self)
    self:turn()
    self.did[name] = true
    if self.raw:is_done() then error("the connection has ended") end
    if not self.raw.is_deaf and self.rnd:one_in(5) then self:expect_served() end
  end
  self:expect_ends()
  self:expect_served()
end

-- Programs ----------------------------------------------------------------------------------------------------

describe("a connection with random events #slow", function()
  it("is consistent after each step, serves readers, and ends every call", function()
    local base, wanted = tonumber(os.getenv("KW_SEED")) or os.time(), { "refused", "lost" }
    for _, name in ipairs(names) do table.insert(wanted, name) end
    occurrences.await(wanted, PROGRAMS, function(i)
      local one = new_program(base + i)
      local ok, err = xpcall(one.run, debug.traceback, one)
      one.host:close()
      if not ok then error(("seed %d, program %d: %s"):format(base, i, err)) end
      local did = {}
      for name in pairs(one.did) do did[name] = 1 end
      return did
    end)
  end)
end)

describe("a call that Lua has let proceed", function()
  local KEYS_OF_PAGES = 1001 -- csrc/rpc/range_answer.h: more than a page
  local host

  after_each(function() host:close() end)

  it("is answered only by its method", function()
    host = pair.host()
    for i = 1, KEYS_OF_PAGES do host.store:put(("k%d"):format(i), "") end
    host.server:intercept()
    local raw = host:raw(h2.hello { initial_window_size = WIDE } .. h2.window(0, WIDE - 65535))
    raw:say(h2.call(1, paths.Range, encoded("Range", { key = "k", range_end = "l" })))
    local id = assert(host.server:next_news())
    assert.is_false(host.server:send(id, "before"))
    host.server:proceed(id)
    assert.is_false(host.server:send(id, "after"))
    host.server:finish(id, INTERNAL, "after")
    host:pump()
    assert.equal(0, (raw.reader:status(1)))
    assert.equal(1, #raw.reader:messages(1))
    assert.equal(KEYS_OF_PAGES, #core.decode("RangeResponse", raw.reader:messages(1)[1]).kvs)
    host:check()
  end)
end)
