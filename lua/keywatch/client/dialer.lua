-- SPDX-License-Identifier: MIT
--- dialer: opens a connection to one of several endpoints, and tries all addresses of each, see attempt.lua.
--
-- A round tries the endpoints until one answers, in the order of the option `prefer`:
--
--   first    one after the other, in the order of the list
--   any      one after the other, in a random order
--   fastest  all in parallel; the first that answers is used
--
-- Endpoints that have failed recently, or were useless, come after the others. Endpoints given to connect that are not
-- in the member list come last. A round has failed when no endpoint has answered. After each failed round the dialer
-- waits, see backoff.lua. The dialer never blocks: `poll` proceeds as far as possible.

local attempts_of = require "keywatch.client.attempt"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local connections = require "keywatch.client.connection"
local sooner = require("keywatch.task.timers").sooner
local url = require "keywatch.support.url"

local STABLE = 5 -- seconds: the end of a connection that has lasted this long is not a failure
local AVOID = 10 -- seconds after a failure during which an endpoint comes after the others

local dialer_methods = {}
local dialer_mt = { __index = dialer_methods }

--- Returns the endpoint of a text, a URL or host:port, which has TLS if `has_tls`; or nil and the reason, as the end of
-- a sentence.
local function parse(text, has_tls)
  local full, why = url.of_endpoint(text, has_tls)
  if not full then return nil, why end
  local address, trouble = url.parse(full)
  if not address then return nil, trouble end
  local authority = full:match("^%a+://([^/]+)")
  if address.path or not authority then authority = "localhost" end
  return {
    url = full,
    address = address,
    authority = authority,
    failed_at = nil, -- the time of its last failure
  }
end

--- Returns a dialer for a list of endpoints. `options` are for core.client, `security` is that of the client, `backoff`
-- is a function of backoff.lua, and `prefer` is the option of connect.
local function new(endpoints, options, security, backoff, prefer)
  return setmetatable({
    dial = function(endpoint, address) return connections.dial(endpoint, address, options, security) end,
    endpoints = endpoints,
    given = endpoints, -- those of connect
    extra = {},        -- those of connect that are not in `endpoints`
    options = options,
    backoff = backoff,
    prefer = prefer,
    steps = nil,       -- lists of endpoints that this round has not tried yet; each list is tried at once
    attempts = {},     -- endpoints that are being tried
    is_closed = false,
    failures = 0,      -- failed rounds and short connections in a row
    retry_at = 0,      -- the earliest time of the next round
    trouble = nil,     -- the text of the last error, with its endpoint
    why = nil,         -- the same at the end of the last round, or of a connection; nil while a connection is in use
  }, dialer_mt)
end

-- {====== Which endpoints ======

--- Returns whether two endpoints are at the same address.
local function is_same(a, b)
  return url.format(a.address) == url.format(b.address)
end

--- Returns the endpoint of a list that has the address of `endpoint`, or nil.
local function find(list, endpoint)
  for _, one in ipairs(list) do
    if is_same(one, endpoint) then return one end
  end
end

--- Replaces the endpoints. Known endpoints stay the same objects, and those given to connect are still tried, after
-- all others. Does nothing if the list is empty.
function dialer_methods:set_endpoints(list)
  local endpoints, extra = {}, {}
  for _, endpoint in ipairs(list) do
    local known = find(self.given, endpoint) or find(self.endpoints, endpoint) or endpoint
    if not find(endpoints, known) then endpoints[#endpoints + 1] = known end
  end
  for _, endpoint in ipairs(self.given) do
    if not find(endpoints, endpoint) then extra[#extra + 1] = endpoint end
  end
  if #endpoints == 0 then return end
  self:stop()
  self.endpoints, self.extra = endpoints, extra
end

--- True if an endpoint is one of those that are tried.
function dialer_methods:has(endpoint)
  return find(self.endpoints, endpoint) ~= nil or find(self.extra, endpoint) ~= nil
end

--- True if there is more than one endpoint.
function dialer_methods:has_choice()
  return #self.endpoints + #self.extra > 1
end

--- Returns a random number for an order of endpoints, from 1 to 2147483646. The processes of a program must not all
-- have the same order, and LuaJIT begins with the same random numbers in each: the id of the process and the time are
-- used, too, unless the driver has random numbers of its own.
local function new_seed()
  local d = driver.get()
  local seed = math.floor(driver.random() * 2 ^ 30)
  if not d.random then seed = seed + core.pid() * 7919 + math.floor(d.now() * 1e6) % 2 ^ 30 end
  return seed % 2147483646 + 1
end

--- Puts a list into a random order.
local function shuffle(list)
  local seed = new_seed()
  for i = #list, 2, -1 do
    seed = seed * 48271 % 2147483647
    local j = seed % i + 1
    list[i], list[j] = list[j], list[i]
  end
end

--- Inserts an endpoint that has failed recently after those that failed before it.
local function insert_failed(list, endpoint)
  local at = #list + 1
  while at > 1 and list[at - 1].failed_at > endpoint.failed_at do at = at - 1 end
  table.insert(list, at, endpoint)
end

--- Returns the steps of a round.
local function plan(self, now)
  local fresh, failed, steps = {}, {}, {}
  for _, endpoint in ipairs(self.endpoints) do
    if endpoint.failed_at and now - endpoint.failed_at < AVOID then
      insert_failed(failed, endpoint)
    else
      fresh[#fresh + 1] = endpoint
    end
  end
  if self.prefer == "any" then shuffle(fresh) end
  for _, list in ipairs { fresh, failed, self.extra } do
    if self.prefer == "fastest" then
      steps[#steps + 1] = list
    else
      for _, endpoint in ipairs(list) do steps[#steps + 1] = { endpoint } end
    end
  end
  return steps
end

-- }======

-- {====== Trying endpoints ======

--- Notes why an endpoint has failed.
local function note(self, endpoint, text)
  self.trouble = ("%s: %s"):format(endpoint.url, text)
end

--- Continues an attempt. Returns what attempt:step returns.
local function step(self, attempt, now)
  local before = attempt.trouble
  local found = attempt:step(now)
  if attempt.trouble ~= before then note(self, attempt.endpoint, attempt.trouble) end
  return found
end

-- {====== Rounds ======

--- Continues all attempts. Returns a connection that takes calls, or nil. Endpoints that have failed are removed.
local function step_all(self, now)
  local attempts = self.attempts
  local i = 1
  while attempts[i] and self.attempts == attempts do
    local attempt = attempts[i]
    local found = step(self, attempt, now)
    if found then
      self:stop()
      self.trouble = nil
      return found
    elseif found == false then
      attempt.endpoint.failed_at = now
      table.remove(attempts, i)
    else
      i = i + 1
    end
  end
end

--- Returns the seconds until the first lookup has taken too long, or nil if no lookup is running.
local function until_lookup(self, now)
  local wait
  for _, attempt in ipairs(self.attempts) do wait = sooner(wait, attempt:until_lookup(now)) end
  return wait
end

--- Ends a round in which no endpoint has answered. A pause begins.
local function fail_round(self, now)
  self.steps, self.why = nil, self.trouble
  self.failures = self.failures + 1
  self.retry_at = now + self.backoff(self.failures)
end

--- Continues as far as possible without waiting. Returns a connection that takes calls; or nil, and the seconds until
-- poll must be called again (nil: when the sockets have news).
function dialer_methods:poll(now)
  while not self.is_closed do
    local found = step_all(self, now)
    if found then return found end
    if self.attempts[1] then return nil, until_lookup(self, now) end
    if not self.steps then
      if now < self.retry_at then return nil, self.retry_at - now end
      self.steps = plan(self, now)
    end
    local endpoints = table.remove(self.steps, 1)
    if not endpoints then
      fail_round(self, now)
    else
      for _, endpoint in ipairs(endpoints) do
        local attempt = attempts_of.new(endpoint, self.dial, now + self.options.handshake_timeout)
        if attempt.trouble then note(self, endpoint, attempt.trouble) end
        table.insert(self.attempts, attempt)
      end
    end
  end
end

--- True if a connection is being opened.
function dialer_methods:has_connection()
  for _, attempt in ipairs(self.attempts) do
    if attempt.connection then return true end
  end
  return false
end

--- Notes that a connection has ended. A short connection counts as a failure, and the other endpoints are tried first.
function dialer_methods:lost(lost, now, text)
  if text then
    note(self, lost.endpoint, text)
    self.why = self.trouble
  end
  if now - lost.since >= STABLE then
    self.failures, self.retry_at = 0, now
    return
  end
  self.failures = self.failures + 1
  self.retry_at = now + self.backoff(self.failures)
  lost.endpoint.failed_at = now
end

--- Notes that an endpoint is useless though it could be connected to: the others are tried first. `text`, if given, is
-- the reason.
function dialer_methods:turn_away(endpoint, now, text)
  endpoint.failed_at = now
  if not text then return end
  note(self, endpoint, text)
  self.why = self.trouble
end

--- Closes the connections that are being opened, and ends the round.
function dialer_methods:stop()
  local attempts = self.attempts
  self.attempts, self.steps = {}, nil
  for _, attempt in ipairs(attempts) do attempt:stop() end
end

--- Closes the connections that are being opened, and opens no more.
function dialer_methods:close()
  self.is_closed = true
  self:stop()
end

--- After a fork: forgets the parent's attempts.
function dialer_methods:restart()
  self.attempts, self.steps = {}, nil
end

-- }======

--- Returns the error of a call that found no server.
function dialer_methods:error()
  local err = core.new_error("unavailable")
  local attempt = self.attempts[1]
  local trouble = self.trouble or attempt and attempt.connection and attempt.endpoint.url .. ": it does not answer"
  if trouble then err.message = "keywatch: " .. trouble end
  return err
end

return { new = new, parse = parse }
