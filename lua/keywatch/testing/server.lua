-- SPDX-License-Identifier: MIT
--- server: a server of a world, with its store, and the faults that it can have.
--
--   SERVING <---- start, stop ----> STOPPED: connections are refused
--      ^-------- start, kill ----> KILLED: the same, and the store is closed; only with a disk
--
-- A server keeps its URL. It has another store object after `restore` and `replace`, and after a `start` that follows
-- `kill`.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local faults = require "keywatch.testing.faults"
local keywatch = require "keywatch"
local replay = require "keywatch.testing.replay"

local server_methods, server_mt = check.class "keywatch.testing.server"

function server_mt:__tostring()
  return ("keywatch.testing.server<%s%s>"):format(self.url, self.server and "" or " stopped")
end

--- Opens a store of a server. The ids of its leases depend on the seed of the world.
local function open_store(self, given)
  local opts = check.copy(given or {})
  opts.seed = opts.seed or self.world.random(2 ^ 31)
  local store, err = keywatch.open(opts)
  if not store then check.misuse("serve: %s", err.message) end
  return store
end

--- Returns a running server of a world, with a new store.
local function open(world, name, url, store_opts)
  local self = setmetatable({
    world = world,
    name = name,
    url = url,
    given = store_opts,
    store = nil,      -- nil while a server with a disk is killed
    server = nil,     -- keywatch's server; nil while it is stopped
    n_stops = 0,      -- calls of stop and kill: each ends a `start` that waits for the store in another task
    cluster = 1,      -- number of the cluster, from which the ids are made
    latency = 0,      -- seconds, or a function that returns them
    is_isolated = false,
    is_intercepting = false, -- `server` applies the rules of the world
  }, server_mt)
  self:start()
  table.insert(world.servers, self)
  return self
end

--- True if a value is a server of a world.
local function is_server(value, world)
  return type(value) == "table" and getmetatable(value) == server_mt and value.world == world
end

--- Applies the rules of the world to the requests of the server.
local function intercept(self)
  if self.server and not self.is_intercepting then
    self.is_intercepting = true
    self.server:use(faults.middleware(self.world, self))
  end
end

--- Sets the latency and the isolation of the server in the network.
local function apply(self)
  if not self.server then return end
  local machine = self.world.network:machine(self.server.object)
  machine.latency, machine.is_isolated = self.latency, self.is_isolated
end

--- Counts a fault that a method of a server causes.
local function count(self, name)
  local counts = self.world.counts
  counts[name] = counts[name] + 1
end

--- Raises if the world of a server is closed.
local function check_open(self, name)
  if self.world.is_closed then check.misuse("%s: the world is closed", name) end
end

--- Like check_open; also raises if the server is killed, or with `memory_only`, if its store has a disk.
local function check_store(self, name, memory_only)
  check_open(self, name)
  if not self.store then check.misuse("%s: the server is killed: start it first", name) end
  if memory_only and self.given and self.given.path then check.misuse("%s: the server's store has a disk", name) end
end

-- {====== Stopping and starting ======

--- Stops the server as a crash does: its connections are lost, and new ones are refused. Does nothing if it is stopped.
function server_methods:stop()
  check_open(self, "stop")
  self.n_stops = self.n_stops + 1
  if not self.server then return end
  local server = self.server
  self.server = nil
  server:close()
  count(self, "stop")
end

--- Kills a server with a disk like SIGKILL: changes that are not durable are lost, and `start` opens the store again.
function server_methods:kill()
  check_open(self, "kill")
  if not (self.given and self.given.path) then
    check.misuse("kill: the server's store is in memory: give it a path, or stop the server")
  end
  if not self.store then return end
  self:stop()
  self.store:close()
  self.store = nil
  count(self, "kill")
end

--- Serves the store of the server, which waits for pending writes of a disk. Returns keywatch's server; nil and an
-- error; or nil if the server was stopped or killed, or started by another task or a finalizer, during that.
local function serve(self)
  local n_stops = self.n_stops
  local ok, server, err = pcall(keywatch.serve, {
    store = self.store,
    listen = self.url,
    name = self.name,
    cluster_token = ("%s %d"):format(self.name, self.cluster),
  })
  local is_over = self.server or self.n_stops ~= n_stops
  if not ok and not (is_over and type(server) == "string") then error(server, 0) end -- a text: its store is closed
  if not is_over then return server, err end
  if ok and server then server:close() end
end

--- Serves again, with the same store; after `kill` the store is opened again. Does nothing if the server is not
-- stopped, or if it is stopped or killed by another task before it serves.
function server_methods:start()
  check_open(self, "start")
  if self.server then return end
  self.store = self.store or open_store(self, self.given)
  local server, err = serve(self)
  if err then check.misuse("start: %s", err.message) end
  if not server then return end
  self.server, self.is_intercepting = server, false
  apply(self)
  if self.world.has_had_rules then intercept(self) end
end

--- Stops the server, and starts it `seconds` later, or at once.
function server_methods:restart(seconds)
  check_open(self, "restart")
  check.timeout(seconds, "restart")
  self:stop()
  if seconds and seconds > 0 then keywatch.sleep(seconds) end
  self:start()
end

--- Ends the server and its store, with its world.
local function discard(self)
  if self.server then self.server:close() end
  self.server = nil
  if self.store then self.store:close() end
end

-- }======

-- {====== The network ======

--- Cuts all connections. Clients connect again as soon as they can. Returns how many there were.
function server_methods:cut()
  check_open(self, "cut")
  if not self.server then return 0 end
  local network = self.world.network
  local machine = network:machine(self.server.object)
  local n = network:cut(function(link) return link.machine == machine end)
  self.world.counts.cut = self.world.counts.cut + n
  return n
end

--- Isolates the server: until `join`, nothing arrives at it or from it. Clients are not notified.
function server_methods:isolate()
  check_open(self, "isolate")
  self.is_isolated = true
  apply(self)
  count(self, "isolate")
end

--- Ends the isolation. Bytes that were sent during the isolation arrive, unless their connection was abandoned.
function server_methods:join()
  check_open(self, "join")
  self.is_isolated = false
  apply(self)
end

--- Sets how many seconds bytes take to and from the server: a number, or two numbers between which the delay is random.
function server_methods:slow(least, most)
  check_open(self, "slow")
  local function is_time(value) return type(value) == "number" and value >= 0 and value < math.huge end
  check.argument(is_time(least), 1, "slow", "a number of seconds", least)
  local is_good = most == nil or is_time(most) and most >= least
  check.argument(is_good, 2, "slow", "a number of seconds that is not less", most)
  local random = self.world.random
  self.latency = most and function() return least + random() * (most - least) end or least
  apply(self)
end

-- }======

-- {====== The store ======

--- Compacts the history up to a revision, or up to now. Watches that need older revisions fail. Returns the same as
-- store:compact.
function server_methods:compact(revision)
  check_store(self, "compact")
  local store = self.store
  if revision == nil then revision = store:status().revision end
  local result, err = check.call("compact", store.compact, store, revision)
  if result then count(self, "compact") end
  return result, err
end

--- Replaces the server's store. For clients the server has restarted.
local function exchange(self, store)
  local was_serving, old = self.server ~= nil, self.store
  if self.server then
    self.server:close()
    self.server = nil
  end
  self.store = store
  old:close()
  if was_serving then self:start() end
end

--- Restores the server to its state at a revision, as from a backup: later changes are lost. Returns true; or nil and
-- an error, "compacted" if the store no longer has that revision.
function server_methods:restore(revision)
  check_store(self, "restore", true)
  local newest = self.store:status().revision
  check.argument(type(revision) == "number" and revision % 1 == 0 and revision >= 1 and revision <= newest, 1,
    "restore", ("a revision from 1 to %d"):format(newest), revision)
  local store = open_store(self, replay.options())
  local ok, err = replay.copy(self.store, store, revision, self.world.driver.now())
  if not ok then
    store:close()
    return nil, err
  end
  exchange(self, store)
  count(self, "restore")
  return true
end

--- Replaces the server by one of another cluster, whose store is empty.
function server_methods:replace()
  check_store(self, "replace", true)
  self.cluster = self.cluster + 1
  exchange(self, open_store(self))
  count(self, "replace")
end

--- Ends a lease, given as an object or by its id, with its keys, as if it had expired. Returns true; or nil and an
-- error if there is no such lease.
function server_methods:lose_lease(lease)
  check_store(self, "lose_lease")
  local id = core.id(type(lease) == "table" and lease.id or lease)
  check.argument(id, 1, "lose_lease", "a lease, or its id", lease)
  local result, err = self.store:lease_revoke(id)
  if not result then return nil, err end
  count(self, "lose_lease")
  return true
end

-- }======

return {
  open = open, is_server = is_server, intercept = intercept, discard = discard, methods = server_methods,
}
