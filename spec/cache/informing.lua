--- Shared by the specs of informers: backends, which are all objects that an informer can be opened on, and recorders,
-- which are handlers that record their calls.

local keywatch = require "keywatch"

local cjson = require "cjson"

local await = require "spec.support.await"
local logs = require "spec.support.logs"
local network = require "spec.support.network"

local PATIENCE = network.PATIENCE
local LOCAL = "http://127.0.0.1:0"
local MARK = "/a/~mark"
local MANY = 1e6 -- calls that a recorder can queue

local informing = { PATIENCE = PATIENCE, MARK = MARK, await = await }

-- {====== Closed after each test ======

local closing = {}

function informing.close_later(object)
  closing[#closing + 1] = object
  return object
end

local close_later = informing.close_later

--- To be called before each test: the log goes to spec.support.logs.
function informing.begin()
  closing = {}
  logs.begin()
end

--- To be called after each test.
function informing.finish()
  for i = #closing, 1, -1 do closing[i]:close() end
  closing = {}
  logs.finish()
end

-- }======

-- {====== Backends ======

function informing.open_store(opts) return close_later(keywatch.open(opts)) end

--- Returns a client, and the store of its server.
function informing.open_client(opts)
  local store = informing.open_store(opts)
  local server = close_later(assert(keywatch.serve { store = store, listen = LOCAL }))
  return close_later(keywatch.connect(server:addresses()[1])), store
end

local etcd -- a server that the tests of one describe share

--- Each backend: its name, a tag, and a function that returns the object on which an informer is opened, and the object
-- that writes to it. Keys begin with "/a/" in both.
informing.backends = {
  { name = "store", tag = "", open = function()
    local store = informing.open_store()
    return store, store
  end },
  { name = "client", tag = "", open = informing.open_client },
  { name = "cache", tag = "", open = function()
    local client, store = informing.open_client()
    return close_later(assert(client:cache("/a/"))), store
  end },
  { name = "cache of a store", tag = "", open = function()
    local store = informing.open_store()
    return close_later(assert(store:cache("/a/"))), store
  end },
  { name = "namespace", tag = "", open = function()
    local space = informing.open_store():namespace("/space")
    return space, space
  end },
  { name = "namespace of a client", tag = "", open = function()
    local client, store = informing.open_client()
    return client:namespace("/space"), store:namespace("/space")
  end },
  { name = "fence", tag = "", open = function()
    local store = informing.open_store()
    local lock = assert(store:lock("/lock"))
    return lock:fence(), store
  end },
  { name = "client of etcd", tag = "#once", open = function()
    local client = close_later(keywatch.connect(etcd.url))
    assert(client:delete("/a", { prefix = true }))
    return client, client
  end, begin = function() etcd = network.serve("etcd") end, finish = function() etcd:stop() end },
}

-- }======

-- {====== Objects as text ======

--- An object as text.
local function text_of(object)
  if type(object) == "table" then return cjson.encode(object) end
  return tostring(object)
end

function informing.json(object) return cjson.encode(object) end

--- A value with one field.
function informing.field(n) return cjson.encode { n = n } end

--- A call of a handler's function as text: the name of the function, the key, the object, the old object of an update,
-- and the flags of the event.
local function short(call)
  local parts = { call.name, call.key }
  if call.name == "error" then
    parts[#parts + 1] = call.err.code
  else
    parts[#parts + 1] = text_of(call.object)
  end
  if call.name == "update" then parts[#parts + 1] = "was " .. text_of(call.old) end
  for _, flag in ipairs { "initial", "missed", "resync" } do
    if call.event[flag] then parts[#parts + 1] = flag end
  end
  return table.concat(parts, " ")
end

-- }======

-- {====== Recorders ======

local recorder_methods = {}
local recorder_mt = { __index = recorder_methods }

local TYPES = { add = "added", update = "modified", delete = "deleted", error = "error" }

--- Adds a handler that records its calls. Options: those of a handler, whose functions are called before their call is
-- recorded; `before(name, key)`, called before each of them; and `only`, a list of the functions that the handler has.
function informing.record(informer, opts)
  opts = opts or {}
  local self = setmetatable({
    informer = informer,
    calls = {},                       -- all calls that have begun
    channel = keywatch.channel(MANY), -- texts of the calls that were not taken yet
    marks = 0,
    running = 0,
    handler = nil,
  }, recorder_mt)
  local function note(call)
    self.running = self.running + 1
    assert(self.running == 1, "two functions of one handler run at once")
    assert(call.event.type == TYPES[call.name] and call.event.key == call.key, "the event differs from its call")
    if call.name ~= "error" then
      assert(rawequal(call.event.object, call.object) and rawequal(call.event.old, call.old), "not its objects")
    end
    self.calls[#self.calls + 1] = call
    local ok, err = true, nil
    if opts.before then ok, err = pcall(opts.before, call.name, call.key, call) end
    if ok and opts[call.name] then ok, err = pcall(opts[call.name], call.key, call.object, call.event, call) end
    self.running = self.running - 1
    self.channel:send(short(call), 0)
    if not ok then error(err, 0) end
  end
  local given = {
    add = function(key, object, event) note { name = "add", key = key, object = object, event = event } end,
    update = function(key, object, old, event)
      note { name = "update", key = key, object = object, old = old, event = event }
    end,
    delete = function(key, object, event)
      note { name = "delete", key = key, object = object, old = event.old, event = event }
    end,
    error = function(key, err, event) note { name = "error", key = key, err = err, event = event } end,
  }
  if opts.only then
    local all = given
    given = {}
    for _, name in ipairs(opts.only) do given[name] = all[name] end
  end
  for _, option in ipairs { "resync", "max_bytes", "at_bound" } do given[option] = opts[option] end
  self.handler = assert(informer:add_handler(given))
  return self
end

--- A recorder whose functions wait until something is sent over the gate, or the gate is closed. Returns the gate, too.
function informing.record_gated(informer, opts)
  local gate = keywatch.channel()
  local own = { before = function() gate:receive(PATIENCE) end }
  for name, value in pairs(opts or {}) do own[name] = value end
  return informing.record(informer, own), gate
end

--- The texts of the next n calls.
function recorder_methods:take(n)
  local list = {}
  for i = 1, n do
    local text, err = self.channel:receive(PATIENCE)
    list[i] = text or tostring(err)
    if not text then break end
  end
  return list
end

--- The texts of the next n calls, sorted.
function recorder_methods:take_sorted(n)
  local list = self:take(n)
  table.sort(list)
  return list
end

--- Checks that the calls are possible: an added object did not exist, and an update begins at the previous state.
-- Returns the content after the calls, by key.
function recorder_methods:content()
  local received = {}
  for _, call in ipairs(self.calls) do
    local key, name = call.key, call.name
    assert(name == "error" or (received[key] == nil) == (name == "add"), key)
    if name == "update" then assert(received[key] == call.old, key) end
    if name ~= "error" then received[key] = name ~= "delete" and call.object or nil end
  end
  return received
end

--- Waits until so many calls have begun.
function recorder_methods:await_calls(n)
  await(function() return #self.calls == n end, n .. " calls")
end

--- Writes a last change, and returns the texts of all calls before the call for it. `value` must differ each time.
function recorder_methods:rest(writer, value)
  self.marks = self.marks + 1
  assert(writer:put(MARK, value or ("mark %d"):format(self.marks)))
  local list = {}
  while true do
    local text = self:take(1)[1]
    if text:find(MARK, 1, true) then return list end
    list[#list + 1] = text
    if text:find("timeout", 1, true) then return list end
  end
end

-- }======

--- All keys and objects of an iterator, as texts, sorted.
function informing.sorted(iterator, state, first)
  local list = {}
  for key, object in iterator, state, first do list[#list + 1] = key .. " " .. text_of(object) end
  table.sort(list)
  return list
end

--- Collects garbage, and lets the tasks run that finalizers have woken.
function informing.collect()
  for _ = 1, 5 do
    collectgarbage()
    keywatch.sleep(0)
  end
end

return informing
