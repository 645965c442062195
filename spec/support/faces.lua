--- Clients instead of stores: runs the specs of stores with clients, a new one for each test.
--
-- With "keywatch" the server and its store are in this process. With "etcd" the server is a process that all tests
-- share: it is emptied before each test, and spec/support/shifted.lua makes revisions begin at 1. With "testing"
-- client and server belong to a world in virtual time.
--
-- Through a cache, a test writes to the server, and reads and watches a cache of the server.
--
-- A test that reads a watch without waiting expects all events so far. Over the network these take time: a watch of a
-- store with the same changes shows how many events to wait for.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"
local pages = require "keywatch.store.pages"
local testing = require "keywatch.testing"

local server = require "spec.support.server"
local shifted = require "spec.support.shifted"
local uv = require "spec.support.luv"

local SECONDS = 30 -- for an event that must arrive

-- {====== Watches ======

--- Reads a watch, and waits for `patient` seconds. A coroutine that is not a task cannot wait: it polls.
local function read(method, watch, timeout, patient)
  if patient == timeout or compat.is_main() or driver.can_park() then return method(watch, patient) end
  local deadline = uv.hrtime() + SECONDS * 1e9
  local result, err
  repeat
    result, err = method(watch, 0)
  until result or not err or err.code ~= "timeout" or uv.hrtime() > deadline
  return result, err
end

--- Makes a watch wait for the events that its twin, a watch of a store, already has.
local function follow(watch, twin)
  local next_event, next_batch, iterate, sync = watch.next, watch.batch, watch.events, watch.sync
  local is_ahead, last = false, nil -- is_ahead: the twin is one event ahead; last: the last event of both

  local function patience(timeout)
    local failure
    if not is_ahead then
      is_ahead, failure = twin:next(0)
      is_ahead = is_ahead ~= nil
    end
    local is_certain = is_ahead or failure and failure.code ~= "timeout"
    return is_certain and timeout and timeout <= 0 and SECONDS or timeout
  end

  local function note(event)
    if not event or event == last then return end
    last = event
    if not is_ahead then twin:next(0) end
    is_ahead = false
  end

  function watch.next(self, timeout)
    local event, err = read(next_event, self, timeout, patience(timeout))
    note(event)
    return event, err
  end

  function watch.batch(self, timeout)
    local batch, err = read(next_batch, self, timeout, patience(timeout))
    for _, event in ipairs(batch and batch.events or {}) do note(event) end
    return batch, err
  end

  function watch.events(self)
    local following = iterate(self)
    return function()
      local event = following()
      note(event)
      return event
    end
  end

  function watch.sync(self, timeout)
    local revision, err = sync(self, timeout)
    if revision then twin:sync(0) end
    return revision, err
  end

  return watch
end

--- Makes the watches of a client follow those of a store.
local function follow_watches(client, store)
  local watch = client.watch
  client.watch = function(self, key, opts)
    local one, err = watch(self, key, opts)
    if not one then return nil, err end
    return follow(one, store:watch(key, opts))
  end
end

-- }======

--- Adds to the status of a client the fields that only a store has, from other calls.
local function complete_status(client)
  local status = client.status
  client.status = function(self)
    local found = status(self)
    found.keys = self:range("", { prefix = true, count_only = true }).count
    found.leases = #self:leases()
    found.compact_revision = self:hash_kv().compact_revision
    return found
  end
end

-- {====== Caches ======

--- Moves the start of a watch that starts at the revision of a cache's base to the next revision: a cache does not know
-- the deletes of its base revision. In a test there are none.
local function start_after(base, opts)
  if type(opts) ~= "table" or opts.start_revision ~= base then return opts end
  local copy = {}
  for name, value in pairs(opts) do copy[name] = value end
  copy.start_revision = base + 1
  return copy
end

--- Makes the methods `names` of a client read a cache of all keys, which is up to date at each call.
local function read_through_cache(client, names)
  local range = client.range
  local cache = assert(client:cache(""))
  assert(cache:wait_ready(SECONDS))
  local base = cache:status().revision
  for _, name in ipairs(names) do
    local of_client = client[name]
    client[name] = function(self, key, opts)
      if self ~= client then return of_client(self, key, opts) end -- misuse
      if type(opts) == "table" then opts[pages.REST] = nil end -- set by a client's `each`
      local now = range(client, "\0", { limit = 1, keys_only = true })
      if now then assert(cache:wait_for(now.revision, SECONDS)) end
      return cache[name](cache, key, name == "watch" and start_after(base, opts) or opts)
    end
  end
end

-- }======

-- {====== keywatch ======

local of_keywatch = { name = "keywatch" }

--- A client of a server in this process. `prepare`, if given, is called with the client before its methods are changed.
local function open_client(opts, prepare)
  local store = keywatch.open(opts)
  local serving = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
  local client = keywatch.connect(serving:addresses()[1])
  if prepare then prepare(client) end
  follow_watches(client, store)
  complete_status(client)
  function client.step(_, now) return store:step(now) end -- the clock of the server
  return client, function()
    client:close()
    serving:close()
    store:close()
  end
end

function of_keywatch.open(opts) return open_client(opts) end

function of_keywatch.stop() end

local cache_of_keywatch = { name = "cache", title = "a cache of keywatch" }

function cache_of_keywatch.open(opts)
  return open_client(opts, function(client) read_through_cache(client, { "get", "range", "each", "watch" }) end)
end

-- }======

-- {====== The testing kit ======

local of_testing = { name = "testing", title = "a client of the testing kit" }

local world, opened = nil, 0 -- the world of all open clients, and their number

--- Closes the world, unless a client is open.
local function leave_world()
  if opened > 0 then return end
  world:close()
  world = nil
end

function of_testing.open(opts)
  world = world or testing.world()
  local ok, serving = pcall(world.serve, world, { open = opts })
  if not ok then
    leave_world()
    error(serving, 0)
  end
  opened = opened + 1
  local client, store = world:client { server = serving }, serving.store
  follow_watches(client, store)
  complete_status(client)
  function client.step(_, now) return store:step(now) end -- the clock of the server
  return client, function()
    client:close()
    serving:stop()
    opened = opened - 1
    leave_world()
  end
end

function of_testing.stop() end

-- }======

-- {====== A namespace ======

local of_namespace = { name = "namespace", title = "a namespace" }

--- Opens a namespace of a store without other keys. Methods that a namespace lacks are those of the store.
function of_namespace.open(opts)
  local store = keywatch.open(opts)
  local space = store:namespace("/name\255")
  for _, name in ipairs { "step", "deadline", "arm", "disarm", "alarms", "defragment", "close" } do
    local of_space = space[name]
    space[name] = function(self, ...)
      if self ~= space then return of_space(self, ...) end -- misuse
      return store[name](store, ...)
    end
  end
  return space, function() store:close() end
end

function of_namespace.stop() end

-- }======

-- {====== etcd ======

local of_etcd = { name = "etcd" }

local FLAGS = { max_request_bytes = "--max-request-bytes=%d", max_txn_ops = "--max-txn-ops=%d" }
local WITHOUT_MEANING = { now = true, step_records = true, quota_backend_bytes = true } -- in the specs that etcd runs

local running = {} -- by flags: unused servers

local function flags_of(opts)
  local flags = {}
  for name, value in pairs(opts) do
    if FLAGS[name] then
      flags[#flags + 1] = FLAGS[name]:format(value)
    elseif not WITHOUT_MEANING[name] then
      error(("etcd has no option '%s'"):format(name), 3)
    end
  end
  table.sort(flags)
  return flags
end

local function take_server(flags)
  local idle = running[table.concat(flags, " ")]
  if idle and idle[1] then return table.remove(idle) end
  local options = { kind = "etcd" }
  for i, flag in ipairs(flags) do options[i] = flag end
  return server.start(options)
end

local function give_back(flags, one)
  local name = table.concat(flags, " ")
  running[name] = running[name] or {}
  table.insert(running[name], one)
end

--- Deletes everything that earlier tests have left, and compacts. Returns the compacted revision.
local function clear(client)
  for _, id in ipairs(assert(client:leases())) do client:lease_by_id(id):revoke() end
  client:put("left", "")
  local revision = assert(client:delete("", { prefix = true })).revision
  assert(client:compact(revision, { physical = true }))
  return revision
end

local function open_etcd(opts, is_for_misuse, prepare)
  local flags = flags_of(opts or {})
  local one = take_server(flags)
  uv.run("nowait") -- reads its output, so that its pipe does not fill up
  local client = keywatch.connect(one.url)
  local store = keywatch.open { now = 0 }
  local base = clear(client) - 1
  if prepare then prepare(client) end
  if not is_for_misuse then
    shifted.shift(client, base)
    shifted.repeat_changes(client, store)
    follow_watches(client, store)
    complete_status(client)
  end
  return client, function()
    client:close()
    store:close()
    give_back(flags, one)
  end
end

--- For specs of misuse, opens a client without wrapped methods, which would inspect the arguments first.
function of_etcd.open(opts, is_for_misuse) return open_etcd(opts, is_for_misuse) end

local cache_of_etcd = { name = "cache of etcd", title = "a cache of etcd" }

--- Opens a cache of a client of etcd. The pages of `each` are answers of range.
function cache_of_etcd.open(opts, is_for_misuse)
  return open_etcd(opts, is_for_misuse, function(client) read_through_cache(client, { "get", "range", "watch" }) end)
end

function of_etcd.stop()
  for _, idle in pairs(running) do
    for _, one in ipairs(idle) do one:stop() end
  end
  running = {}
end

-- }======

cache_of_etcd.stop = of_etcd.stop

return {
  keywatch = of_keywatch,
  etcd = of_etcd,
  namespace = of_namespace,
  testing = of_testing,
  cache = cache_of_keywatch,
  cache_of_etcd = cache_of_etcd,
}
