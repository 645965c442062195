--- The objects for sessions, locks and elections: a store in memory, a durable one, and clients of keywatch and of a
--- real etcd.
--
--   owners.each(function(with) ... end)
--
-- declares a group of tests for each of them. In a test with.owner is the object, with.other another one on the same
-- data: the same store, or a second client. Both are new for each test, and the data is empty.

local busted = require "busted"
local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local near = require "spec.support.near"
local server = require "spec.support.server"
local uv = require "spec.support.luv"

local openers = {
  ["a store"] = function()
    local store = keywatch.open()
    return store, function() store:close() end
  end,
  ["a durable store"] = function()
    local store = assert(keywatch.open { path = directory.new() })
    return store, function()
      store:close()
      directory.remove_all()
    end
  end,
  ["a client"] = function()
    local client, _, close = near()
    return client, close
  end,
}

--- Returns a function that opens one store, which is both `owner` and `other`.
local function opening(name)
  return function(with)
    local store, close = openers[name]()
    with.owner, with.other = store, store
    return close
  end
end

local kinds = {
  { name = "a store in memory", open = opening "a store" },
  { name = "a durable store", open = opening "a durable store" },
}

kinds[3] = {
  name = "a client of keywatch",
  is_client = true,
  open = function(with)
    local store = keywatch.open()
    local serving = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
    local url = serving:addresses()[1]
    with.url, with.store = url, store
    with.owner, with.other = keywatch.connect(url), keywatch.connect(url)
    return function()
      with.owner:close()
      with.other:close()
      serving:close()
      store:close()
    end
  end,
}

kinds[4] = {
  name = "a client of etcd",
  is_client = true,
  open = function(with)
    with.peer = with.peer or server.start { kind = "etcd" }
    uv.run("nowait") -- reads its output, so that its pipe does not fill up
    with.url = with.peer.url
    with.owner, with.other = keywatch.connect(with.url), keywatch.connect(with.url)
    for _, id in ipairs(assert(with.owner:leases())) do with.owner:lease_by_id(id):revoke() end
    assert(with.owner:delete("", { prefix = true }))
    return function()
      with.owner:close()
      with.other:close()
    end
  end,
  stop = function(with)
    if with.peer then with.peer:stop() end
    with.peer = nil
  end,
}

local owners = {}

--- Declares tests for each kind of owner.
function owners.each(declare)
  for _, kind in ipairs(kinds) do
    busted.describe("on " .. kind.name, function()
      local with, close = { kind = kind.name, is_client = kind.is_client }, nil
      busted.before_each(function() close = kind.open(with) end)
      busted.after_each(function()
        pcall(keywatch.run, function() end) -- ends the tasks that a failed test has left
        close()
      end)
      busted.teardown(function()
        if kind.stop then kind.stop(with) end
      end)
      declare(with)
    end)
  end
end

--- Returns a new table of functions by name: each opens an empty store or client, and returns the object and a function
-- that closes it.
function owners.openers()
  local copy = {}
  for name, open in pairs(openers) do copy[name] = open end
  return copy
end

--- Returns the keys below a prefix, in the order of their creation.
function owners.keys(owner, prefix)
  local keys = {}
  local result = assert(owner:range(prefix, { prefix = true, sort_target = "create", sort_order = "ascend" }))
  for i, kv in ipairs(result.kvs) do keys[i] = kv.key end
  return keys
end

--- Waits until a prefix has `n` keys.
function owners.await_keys(owner, prefix, n)
  local watch = assert(owner:watch(prefix, { prefix = true }))
  while #owners.keys(owner, prefix) ~= n do assert(watch:next(30)) end
  watch:close()
end

--- Declares a test that runs in a task.
function owners.test(name, fn) busted.it(name, function() keywatch.run(fn) end) end

return owners
