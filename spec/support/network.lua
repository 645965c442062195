--- Common parts of specs of clients over a bad network: clients with short timeouts and pauses, which end with their
-- test; and the number of rounds of such specs.

local busted = require "busted"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local dose = require "spec.support.dose"
local haste = require "spec.support.haste"
local process = require "spec.support.process"
local server = require "spec.support.server"
local writer = require "spec.support.writer"

local network = {
  FAULTS = dose.factor, -- times as often
  SEED = tonumber(os.getenv("KW_SEED")) or os.time(),
  IS_FAST = dose.is_small,
  DIRECTIONS = { "to_server", "to_client" },
  PATIENCE = writer.PATIENCE,
  -- Keepalive pings are frequent, so that a dead connection is detected soon.
  ALERT = { connect_timeout = 1, keepalive = 0.1, keepalive_timeout = 0.3, timeout = writer.PATIENCE },
}

local clients, servers = {}, {}
local world -- the open world of virtual time, or nil

--- begin() is to be called before each test, finish() after it. The proxies and servers of a test end with it, too.
function network.begin() haste.begin() end

function network.finish()
  for _, client in ipairs(clients) do client:close() end
  clients = {}
  haste.stop()
  process.end_all()
  for _, one in ipairs(servers) do
    if one:is_running() then one:stop() end
  end
  servers = {}
end

--- For the calling block of tests: each test runs in a world of virtual time, which is passed to set(world), if given.
-- The world and its clients end with the test.
function network.in_virtual_time(set)
  busted.before_each(function()
    world = testing.world()
    if set then set(world) end
  end)
  busted.after_each(function()
    for _, client in ipairs(clients) do client:close() end
    clients = {}
    world:close()
    world = nil
  end)
end

function network.connect(urls, options)
  local client = keywatch.connect(urls, options or network.ALERT)
  table.insert(clients, client)
  return client
end

--- Turns the loop until is_so() is true.
function network.await(is_so)
  local deadline = keywatch.now() + network.PATIENCE
  while not is_so() do
    assert(keywatch.now() < deadline, "timeout: what the test waits for has not happened")
    keywatch.sleep(0.001)
  end
end

--- Runs use() in a task, and waits until the transport that it returns is closed or collected. LuaJIT's collector scans
-- unused stack slots, so each function that uses the transport runs in a coroutine.
function network.await_forgotten(use)
  local transports = setmetatable({}, { __mode = "v" })
  keywatch.run(function() transports[1] = use() end)
  local function is_forgotten() return not transports[1] or transports[1].is_closed end
  network.await(function()
    collectgarbage()
    return coroutine.wrap(is_forgotten)()
  end)
end

--- Declares a test that runs fn at top level, and another one that runs fn in a task.
function network.through_each_door(name, fn)
  busted.it(name .. ", at top level", fn)
  busted.it(name .. ", in a task", function() keywatch.run(fn) end)
end

--- Runs fn. Returns its output to stderr; in virtual time its log lines, without the times.
function network.written_by(fn, ...)
  local stderr, text, before = io.stderr, "", world and #world.log
  rawset(io, "stderr", { write = function(_, part) text = text .. part end })
  local ok, err = pcall(fn, ...)
  rawset(io, "stderr", stderr)
  if not ok then error(err, 0) end
  for i = (before or math.huge) + 1, world and #world.log or 0 do
    text = ("%s %s %s\n"):format(text, world.log[i].level, world.log[i].text)
  end
  return text
end

--- Starts a server that accepts frequent keepalive pings, unless `is_strict`: keywatch's, in memory unless a path is
-- given, or an etcd. A caller outside of a test must stop the server.
function network.serve(kind, options)
  options = options or {}
  options.kind, options.is_in_memory = kind, not options.path
  if not options.is_strict then table.insert(options, "--grpc-keepalive-min-time=1ms") end
  return server.start(options)
end

--- The same, for the running test: the server ends with it.
function network.start(kind, options)
  local one = network.serve(kind, options)
  table.insert(servers, one)
  return one
end

--- Calls fn(kind, tag) for each kind of server: what clients do must not depend on it.
function network.of_each(fn)
  fn("keywatch", "")
  fn("etcd", "#once")
end

return network
