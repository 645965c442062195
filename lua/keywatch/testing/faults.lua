-- SPDX-License-Identifier: MIT
--- faults: rules by which requests fail, and the effects of rules on requests.
--
-- A rule is { kind, method =, key =, prefix =, client =, server =, skip =, count =, chance =, error =, seconds = }. A
-- rule is evaluated when a request has arrived at a server, before the server executes the request; and again for each
-- attempt of a request that the client repeats. Kinds:
--
--   refuse        the server refuses the request with `error`
--   delay         the server waits `seconds` before it executes the request
--   hang          the request is not executed, and never answered
--   lose_request  the connection is lost, and the request is not executed
--   lose_answer   the request is executed, and then the connection is lost, with the answer
--   mute          the request is executed, and then the server sends nothing more on this connection
--
-- A server finds the keys of a request by a number, the token, which each client of a world sends as metadata. The
-- world remembers the last requests, since a request may arrive late, when its client no longer waits for it.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local drivers = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local requests = require "keywatch.testing.requests"

local TOKEN = "keywatch-testing" -- name of the metadata
local REMEMBERED = 1000 -- requests whose keys are known
local NO_LEADER = { grpc_status = 14, message = "etcdserver: no leader" }

local KINDS = { "refuse", "delay", "hang", "lose_request", "lose_answer", "mute" }
local MOMENTS = { "cut", "isolate", "stop", "kill", "compact", "restore", "replace", "lose_lease", "pause" }

local rule_methods, rule_mt = check.class "keywatch.testing.rule"

function rule_mt:__tostring()
  return ("keywatch.testing.rule<%s hits=%d%s>"):format(self.kind, self.hits, self.is_stopped and " stopped" or "")
end

--- Returns the counters of all faults, each 0.
local function new_counts()
  local counts = {}
  for _, list in ipairs { KINDS, MOMENTS } do
    for _, name in ipairs(list) do counts[name] = 0 end
  end
  return counts
end

-- {====== Rules ======

local is_kind = {}
for _, name in ipairs(KINDS) do is_kind[name] = true end

--- Returns the error of a rule's field `error`: a code, an error, or a table with grpc_status and message.
local function read_error(given)
  if given == "no_leader" then return NO_LEADER end
  if type(given) == "string" then
    local ok, err = pcall(core.new_error, given)
    if ok then return err end
    check.misuse("fault: there is no error with the code '%s'", given)
  end
  local status = type(given) == "table" and given.grpc_status
  if type(status) == "number" and status >= 1 and status <= 16 and status % 1 == 0 then
    return { grpc_status = status, message = errors.text_of(given.message or "") }
  end
  check.misuse("fault: 'error' must be a code, or a table with grpc_status and message")
end

--- Returns a function that returns the seconds of a delay: a number, or { least, most }.
local function read_seconds(world, given)
  local least, most = given, given
  if type(given) == "table" then least, most = given[1], given[2] end
  local function is_time(value) return type(value) == "number" and value >= 0 and value < math.huge end
  if not is_time(least) or not is_time(most) or most < least then
    check.misuse("fault: 'seconds' must be a number of seconds, or { least, most }")
  end
  return function() return least + (most > least and world.random() * (most - least) or 0) end
end

-- The fields of a rule, and their kinds: see check.known.
local FIELDS = {
  "any", method = "any", key = "string", prefix = "boolean", client = "any", server = "any", skip = "amount",
  count = "amount", error = "any", seconds = "any",
  chance = { "a number from 0 to 1", function(value) return type(value) == "number" and value >= 0 and value <= 1 end },
}

--- Raises if a field of a rule is unknown or invalid.
local function check_fields(given)
  check.known(given, "fault", FIELDS)
  if not is_kind[given[1]] then
    check.misuse("fault: there is no fault %s: use %s", check.shown(given[1]), table.concat(KINDS, ", "))
  end
  if (given[1] == "refuse") ~= (given.error ~= nil) then
    check.misuse("fault: 'error' belongs to 'refuse', and 'refuse' needs it")
  end
  if (given[1] == "delay") ~= (given.seconds ~= nil) then
    check.misuse("fault: 'seconds' belongs to 'delay', and 'delay' needs it")
  end
  if given.prefix ~= nil and given.key == nil then check.misuse("fault: 'prefix' needs 'key'") end
end

--- Adds a rule to the world, from the table `given` of the user. Returns the rule, which is active. Raises if it is
-- invalid.
local function new_rule(world, given)
  check_fields(given)
  if given.client ~= nil and not world.origins[given.client] then
    check.misuse("fault: 'client' must be a client of this world")
  end
  local server = given.server
  if server ~= nil and not (type(server) == "table" and rawget(server, "world") == world) then
    check.misuse("fault: 'server' must be a server of this world")
  end
  local paths, why = requests.paths(given.method)
  if paths == nil then check.misuse("fault: %s", why) end
  if given.key and paths and not requests.has_any_keys(paths) then
    check.misuse("fault: 'key' is for requests that have keys: get, range, put, delete and txn")
  end
  local rule = setmetatable({
    world = world,
    kind = given[1],
    paths = paths,   -- as keys; false: all
    range = given.key and requests.range(given.key, given.prefix) or nil,
    origin = given.client and world.origins[given.client] or nil,
    server = server,
    skip = given.skip or 0,
    left = given.count or math.huge, -- how often the rule may still fire
    chance = given.chance or 1,
    err = given.error and read_error(given.error) or nil,
    seconds = given.seconds and read_seconds(world, given.seconds) or nil,
    hits = 0,        -- how often the rule has fired
    is_stopped = false,
  }, rule_mt)
  table.insert(world.rules, rule)
  return rule
end

--- Ends the rule. Effects that have begun continue. Idempotent.
function rule_methods:stop()
  self.is_stopped = true
  for i, rule in ipairs(self.world.rules) do
    if rule == self then return table.remove(self.world.rules, i) end
  end
end

--- True if a rule applies to a request.
local function is_about(rule, request)
  if rule.paths and not rule.paths[request.path] then return false end
  if rule.server and rule.server ~= request.server then return false end
  if rule.origin and rule.origin ~= request.origin then return false end
  return not rule.range or requests.touches(request.ranges, rule.range)
end

--- True if a rule that applies to a request fires. Counts this.
local function fires(rule)
  if rule.left <= 0 then return false end
  if rule.skip > 0 then
    rule.skip = rule.skip - 1
    return false
  end
  if rule.chance < 1 and rule.world.random() >= rule.chance then return false end
  rule.left, rule.hits = rule.left - 1, rule.hits + 1
  local counts = rule.world.counts
  counts[rule.kind] = counts[rule.kind] + 1
  return true
end

-- }======

-- {====== Effects ======

-- The effects of faults on a call, in `before` of the middleware. Each function returns the results of `before`;
-- nothing lets the call proceed to the next rule.
local does = {}

function does.refuse(rule) return nil, rule.err end
function does.delay(rule) drivers.get().sleep(rule.seconds()) end

--- The task of the call waits until the call has ended, and is then cancelled.
function does.hang() drivers.get().event():wait() end

function does.lose_request(rule, _, link)
  rule.world.network:cut(function(one) return one == link end)
  does.hang()
end

function does.lose_answer(_, call, link)
  if not link then return end
  link.is_mute, call.is_to_be_cut = true, true
end

function does.mute(_, _, link)
  if link then link.is_mute = true end
end

--- Returns the request of a call that has arrived.
local function request_of(world, server, call, link)
  return {
    path = call.path,
    ranges = world.ranges[call.metadata[TOKEN] or ""],
    origin = link and link.origin,
    server = server,
  }
end

--- Returns the middleware of a world's server.
local function middleware(world, server)
  return {
    before = function(call)
      local link = world.network:find(call.peer)
      local request = request_of(world, server, call, link)
      local rules = {}
      for i, rule in ipairs(world.rules) do rules[i] = rule end -- a rule may end while another one waits
      for _, rule in ipairs(rules) do
        if not rule.is_stopped and is_about(rule, request) and fires(rule) then
          local ok, err = does[rule.kind](rule, call, link)
          if err then return ok, err end
        end
      end
      return true
    end,
    after = function(call)
      if not call.is_to_be_cut then return end
      world.network:cut(function(link) return link.remote == call.peer end)
    end,
  }
end

-- }======

-- {====== Clients ======

--- Returns metadata with a token for a request, and remembers the keys of the request. Returns nil if the world never
-- had a rule, or requests of the path have no keys.
local function mark(world, path, bytes)
  if not world.has_had_rules or not requests.has_keys(path) then return nil end
  local token = world.last_token + 1
  world.last_token = token
  world.ranges[tostring(token)] = requests.ranges(path, bytes)
  world.ranges[tostring(token - REMEMBERED)] = nil
  return { [TOKEN] = tostring(token) }
end

--- Adds a token to each request of a transport, so that a server knows the keys. The reads of watches and caches have
-- one token for all attempts.
local function mark_requests(world, transport)
  local unary = transport.unary
  function transport:unary(path, bytes, deadline, is_read, metadata, ...)
    local own = mark(world, path, bytes)
    for name, value in pairs(own and metadata or {}) do own[name] = value end
    return unary(self, path, bytes, deadline, is_read, own or metadata, ...)
  end
  transport.reads.mark = function(path, bytes) return mark(world, path, bytes) end
end

--- Adds a client to the world: its connections get an origin, and gRPC requests get tokens.
local function adopt(world, client)
  local transport, network = client.transport or client.pool, world.network
  world.last_origin = world.last_origin + 1
  local origin = world.last_origin
  world.clients[origin], world.origins[client] = client, origin
  local poll = transport.poll
  function transport.poll(self)
    local before = network.origin
    network.origin = origin
    local ok, seconds = pcall(poll, self)
    network.origin = before
    if not ok then error(seconds, 0) end
    return seconds
  end
  if client.transport then mark_requests(world, transport) end
end

-- }======

return {
  new_counts = new_counts, new_rule = new_rule, middleware = middleware, adopt = adopt, methods = rule_methods,
}
