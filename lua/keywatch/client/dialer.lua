-- SPDX-License-Identifier: MIT
--- dialer: finds a server that answers, among endpoints and all addresses of their names, each in its turn.
--
-- It begins with the endpoint that answered last. When all have failed it waits, longer each time, by chance somewhat
-- less than that: so many clients of a server that comes back do not come back at once.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local line = require "keywatch.client.connection"
local url = require "keywatch.support.url"

local FIRST_WAIT, LONGEST_WAIT = 0.05, 3 -- seconds
local STABLE = 5                         -- seconds, after which a connection that ends was a good one

local dialer_methods = {}
local dialer_mt = { __index = dialer_methods }

local function is_digits(host)
  return host:match("^[%d.]+$") ~= nil or host:find(":", 1, true) ~= nil
end

--- An endpoint of a URL; or nil and what is wrong with it.
local function parse(text)
  local address, why = url.parse(text)
  if not address then return nil, why end
  local authority = text:match("^%a+://([^/]+)")
  if address.path or not authority then authority = "localhost" end
  return { url = text, address = address, authority = authority }
end

local function new(endpoints, options)
  return setmetatable({
    endpoints = endpoints,
    options = options, -- of core.client
    at = 1,            -- the endpoint that is tried, or answered last
    tried = 0,         -- endpoints, in the present round
    addresses = nil,   -- of the endpoint that is tried: those that are left
    lookup = nil,
    line = nil,        -- that is being opened
    failures = 0,      -- rounds
    retry_at = 0,
    trouble = nil,     -- what went wrong last, in words
  }, dialer_mt)
end

--- How long to wait after so many failures.
local function backoff(failures)
  return math.random() * math.min(LONGEST_WAIT, FIRST_WAIT * 2 ^ math.min(failures, 20))
end

local function note(self, text)
  self.trouble = ("%s: %s"):format(self.endpoints[self.at].url, text)
end

--- The next endpoint; after the last one of a round, a pause.
local function next_endpoint(self, now)
  self.addresses, self.lookup = nil, nil
  self.at = self.at % #self.endpoints + 1
  self.tried = self.tried + 1
  if self.tried < #self.endpoints then return end
  self.tried = 0
  self.failures = self.failures + 1
  self.retry_at = now + backoff(self.failures)
end

local function begin_endpoint(self, now)
  local address = self.endpoints[self.at].address
  if address.path or is_digits(address.host) then
    self.addresses = { address }
    return
  end
  local lookup, text = driver.get().lookup(address.host)
  if not lookup then
    note(self, text)
    next_endpoint(self, now)
    return
  end
  self.lookup, self.lookup_until = lookup, now + self.options.handshake_timeout
end

--- True once there is nothing to wait for.
local function take_lookup(self, now)
  local hosts, text = self.lookup:result()
  if hosts then
    local addresses, port = {}, self.endpoints[self.at].address.port
    for i, host in ipairs(hosts) do addresses[i] = { host = host, port = port } end
    self.addresses, self.lookup = addresses, nil
  elseif hosts == false or now >= self.lookup_until then
    note(self, text or "its name is not found in time")
    next_endpoint(self, now)
  else
    return false
  end
  return true
end

--- The same. `ready` is set to a connection that has been opened.
local function take_line(self)
  local opened = self.line
  local is_ready, is_over, why = opened:poll()
  if is_ready then
    self.line, self.addresses, self.tried, self.trouble = nil, nil, 0, nil
    return true, opened
  elseif is_over then
    note(self, why or "the connection has ended")
    opened:close()
    self.line = nil
    return true
  end
  return false
end

local function dial_next(self, now)
  local address = table.remove(self.addresses, 1)
  if not address then return next_endpoint(self, now) end
  local opened, text = line.dial(self.endpoints[self.at], address, self.options)
  if not opened then return note(self, text) end
  self.line = opened
end

--- Goes on: a connection that takes calls; or nil, and the seconds until it wants to go on by itself.
function dialer_methods:poll(now)
  while true do
    local goes_on, ready = true, nil
    if self.line then
      goes_on, ready = take_line(self)
    elseif self.lookup then
      goes_on = take_lookup(self, now)
    elseif self.addresses then
      dial_next(self, now)
    elseif now < self.retry_at then
      return nil, self.retry_at - now
    else
      begin_endpoint(self, now)
    end
    if ready then return ready end
    if not goes_on then return nil, self.lookup and math.max(0, self.lookup_until - now) end
  end
end

--- A connection that was opened has ended: one that did not last counts as a failure, and others are tried first.
function dialer_methods:lost(lost, now, text)
  if text then self.trouble = ("%s: %s"):format(lost.endpoint.url, text) end
  if now - lost.since >= STABLE then
    self.failures, self.retry_at = 0, now
    return
  end
  self.failures = self.failures + 1
  self.retry_at = now + backoff(self.failures)
  if self.endpoints[self.at] == lost.endpoint then self:turn_away() end
end

--- The server answers, and is of no use: the next one is tried first.
function dialer_methods:turn_away()
  self.at = self.at % #self.endpoints + 1
end

--- Nobody wants a connection any more.
function dialer_methods:stop()
  if self.line then self.line:close() end
  self.line, self.lookup, self.addresses, self.tried = nil, nil, nil, 0
end

--- Why there is no connection, as an error.
function dialer_methods:error()
  local err = core.new_error("unavailable")
  local trouble = self.trouble or self.line and self.line.endpoint.url .. ": it does not answer"
  if trouble then err.message = "keywatch: " .. trouble end
  return err
end

return { new = new, parse = parse, backoff = backoff }
