-- SPDX-License-Identifier: MIT
--- world: one run of a program in virtual time: a driver, a network with servers, and faults.
--
-- While a world is open its driver is that of the program: every function of keywatch uses its time, its network and
-- its random numbers. `close` ends the world, and restores the previous driver.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local drivers = require "keywatch.task.driver"
local faults = require "keywatch.testing.faults"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local randoms = require "keywatch.support.random"
local servers = require "keywatch.testing.server"
local tasks = require "keywatch.task.task"
local virtual = require "keywatch.driver.virtual"
local waiting = require "keywatch.task.waiting"

local SEED = 1
local MAX_LINES = 1000 -- of the log: the oldest ones are dropped first
local FIRST_URL = "http://127.0.0.1:2379" -- of the first server

local world_methods, world_mt = check.class "keywatch.testing.world"

--- Returns a method; or the first server, which is made at its first use.
function world_mt:__index(name)
  if name ~= "server" then return world_methods[name] end
  if rawget(self, "is_closed") then check.misuse("server: the world is closed") end
  local server = servers.open(self, "server", FIRST_URL)
  rawset(self, "server", server)
  return server
end

function world_mt:__tostring()
  return ("keywatch.testing.world<seed=%s%s>"):format(self.seed, self.is_closed and " closed" or "")
end

-- {====== Opening and closing ======

-- The options, and their kinds: see check.known.
local OPTIONS = {
  seed = "amount", now = "0 seconds or more", limit = "some seconds", idle = "some seconds", turns = "positive",
  leftovers = check.one_of("fail", "cancel"),
}

--- Raises if a world cannot be opened here: in a task, or while another world is open.
local function check_here(name)
  if not compat.is_main() then
    check.misuse("%s: a world can be opened only at top level, outside of tasks and coroutines", name)
  end
  local current = drivers.use(nil)
  drivers.use(current)
  if current and current.network then check.misuse("%s: a world is open already: close it first", name) end
end

--- Returns an open world. Its driver is that of the program until the world is closed.
local function new(opts)
  local seed = opts.seed or SEED
  local driver = virtual.new(opts.now, { seed = seed, limit = opts.limit, idle = opts.idle, turns = opts.turns })
  local random = randoms.new(seed)
  local self = setmetatable({
    seed = seed,
    random = function(...) return random(...) end,
    counts = faults.new_counts(),
    driver = driver,
    network = driver.network,
    servers = {},   -- all servers of the world
    clients = setmetatable({}, { __mode = "v" }), -- by origin, a number
    origins = setmetatable({}, { __mode = "k" }), -- by client
    last_origin = 0,
    ranges = {},    -- by token: the keys of a request, see faults.lua
    last_token = 0,
    rules = {},     -- the active rules, see faults.lua
    has_had_rules = false, -- a rule was added before, so servers and clients must support rules
    leftovers = opts.leftovers or "fail",
    log = {},       -- lines: { time =, level =, text =, fields = }
    left = nil,     -- lines about the tasks that have not ended
    is_closed = false,
  }, world_mt)
  driver.on_connect = function(client) faults.adopt(self, client) end
  self.before = drivers.use(driver)
  log.use_world { now = driver.now, keep = function(level, text, fields)
    if #self.log >= MAX_LINES then table.remove(self.log, 1) end
    table.insert(self.log, { time = driver.now(), level = level, text = text, fields = fields or {} })
  end }
  return self
end

--- Opens a world.
local function open(opts)
  opts = check.options(opts, "world", OPTIONS)
  check_here("world")
  return new(opts)
end

--- Calls a function for each object of a list. Returns nil, or { the first error }.
local function close_each(list, close)
  local raised
  for _, object in pairs(list) do
    local ok, err = pcall(close, object)
    if not ok then raised = raised or { err } end
  end
  return raised
end

--- Closes the world: its clients, servers and stores, and the tasks that have not ended. Idempotent.
function world_methods:close()
  if self.is_closed then return end
  if self.driver.current() then check.misuse("close: a world cannot be closed in one of its tasks") end
  if self.driver.inside().is_turning then check.misuse("close: a finalizer cannot close a world that runs") end
  self.is_closed = true
  self.driver.on_connect = nil
  local of_clients = close_each(self.clients, function(client) client:close() end)
  local raised = close_each(self.servers, servers.discard) or of_clients
  local ok, err = pcall(self.driver.run, function() end) -- cancels the tasks
  drivers.use(self.before)
  log.use_world(nil)
  if not ok then error(err, 0) end
  if raised then error(raised[1], 0) end
end

world_mt.__close = world_methods.close

-- }======

-- {====== Running ======

--- Returns the lines about tasks of the program that have not ended, except the caller's; or nil if there are none.
local function leftovers_of(self)
  local _, scheduler = self.driver.inside()
  local list = {}
  for _, task in ipairs(tasks.in_order(scheduler.tasks)) do
    if task.spawned_at and task ~= scheduler.running and not task.cancelled_at then list[#list + 1] = task end
  end
  return #list > 0 and waiting.lines(scheduler, list) or nil
end

local function pack(...) return { n = select("#", ...), ... } end

--- Runs fn(world) as a task of the world, until it has ended. Returns its results, or raises its error. Unless the
-- option leftovers is "cancel", also raises an error if other tasks have not ended.
function world_methods:run(fn)
  check.argument(type(fn) == "function", 1, "run", "function", fn)
  if self.is_closed then check.misuse("run: the world is closed") end
  local left
  local results = pack(self.driver.run(function()
    local found = pack(fn(self))
    left = self.leftovers == "fail" and leftovers_of(self) or nil
    return compat.unpack(found, 1, found.n)
  end))
  if left then
    check.misuse("%s", "run: the function has ended, but tasks that it has spawned have not: join or cancel them, or "
      .. "give the option leftovers = 'cancel':" .. left)
  end
  return compat.unpack(results, 1, results.n)
end

--- Opens a world, runs fn(world) in it, and closes it. Returns the results of fn, or raises its error.
local function run(fn, opts)
  check.argument(type(fn) == "function", 1, "run", "function", fn)
  opts = check.options(opts, "run", OPTIONS)
  check_here("run")
  local world = new(opts)
  local results = pack(pcall(world.run, world, fn))
  local ok, err = pcall(world.close, world)
  if not results[1] then error(results[2], 0) end
  if not ok then error(err, 0) end
  return compat.unpack(results, 2, results.n)
end

-- }======

-- {====== Servers and clients ======

local function check_open(self, name)
  if self.is_closed then check.misuse("%s: the world is closed", name) end
end

--- Makes another server, with its own store. Options: url, and open, the options of its store.
function world_methods:serve(opts)
  opts = check.options(opts, "serve", { url = "string", open = "table" })
  check_open(self, "serve")
  local name = "server-" .. #self.servers + 1
  local ok, server = pcall(servers.open, self, name, opts.url or ("http://%s:2379"):format(name), opts.open)
  if not ok then check.raise_again(server, "serve", "open") end
  return server
end

--- Returns the URLs of the option `server` of world:client: a server of this world, or a list of them.
local function urls_of(self, given)
  if given == nil then return { self.server.url } end
  if servers.is_server(given, self) then return { given.url } end
  local urls = {}
  for i, server in ipairs(type(given) == "table" and given or {}) do
    if not servers.is_server(server, self) then urls = {} break end
    urls[i] = server.url
  end
  if #urls == 0 then check.misuse("client: option 'server' must be a server of this world, or a list of them") end
  return urls
end

--- Returns a client of the world's server, or of those of the option `server`. The other options are those of
-- keywatch.connect.
function world_methods:client(opts)
  opts = check.options(opts, "client")
  check_open(self, "client")
  local urls = urls_of(self, opts.server)
  local ok, client, err = pcall(keywatch.connect, urls, check.copy(opts, "server"))
  if not ok then check.raise_again(client, "client", "connect") end
  return client, err
end

-- }======

-- {====== Faults ======

--- Adds a rule by which requests fail. See faults.lua.
function world_methods:fault(rule)
  check.argument(type(rule) == "table", 1, "fault", "table", rule)
  check_open(self, "fault")
  local made = faults.new_rule(self, rule)
  if not self.has_had_rules then
    self.has_had_rules = true
    for _, server in ipairs(self.servers) do servers.intercept(server) end
  end
  return made
end

--- Returns the origin of a client of this world. Raises if it is not one.
local function origin_of(self, client, name)
  local origin = type(client) == "table" and self.origins[client]
  if not origin then check.misuse("%s: that is not a client of this world", name) end
  return origin
end

--- Cuts the connections of a client. The client connects again as soon as it can. Returns how many there were.
function world_methods:cut(client)
  local origin = origin_of(self, client, "cut")
  local n = self.network:cut(function(link) return link.origin == origin end)
  self.counts.cut = self.counts.cut + n
  return n
end

--- Isolates a client: until `join`, nothing that the client sends arrives, and nothing arrives at the client.
function world_methods:isolate(client)
  self.network.isolated[origin_of(self, client, "isolate")] = true
  self.counts.isolate = self.counts.isolate + 1
end

--- Ends the isolation of a client. Bytes that were sent during the isolation arrive, unless their connection was
-- abandoned.
function world_methods:join(client)
  self.network.isolated[origin_of(self, client, "join")] = nil
end

--- Lets this many seconds pass while the whole process stands still: tasks, clients and servers. Events that were due
-- in that time happen afterwards.
function world_methods:pause(seconds)
  local is_time = type(seconds) == "number" and seconds >= 0 and seconds < math.huge
  check.argument(is_time, 1, "pause", "a number of seconds", seconds)
  check_open(self, "pause")
  self.counts.pause = self.counts.pause + 1
  self.driver.pause(seconds)
end

-- }======

return { run = run, open = open, methods = world_methods }
