-- SPDX-License-Identifier: MIT
--- dialer: opens a connection to one of several endpoints. It tries the endpoints in turn, and all addresses of each.
--
-- It begins with the endpoint that answered last. A round has failed when no endpoint has answered. After each failed
-- round it waits, see backoff.lua. It never blocks: `poll` goes on as far as possible.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local connections = require "keywatch.client.connection"
local url = require "keywatch.support.url"

local STABLE = 5 -- seconds: a connection that lasted as long does not count as a failure when it ends

local dialer_methods = {}
local dialer_mt = { __index = dialer_methods }

--- True if a host is an IP address, and needs no lookup.
local function is_digits(host)
  return host:match("^[%d.]+$") ~= nil or host:find(":", 1, true) ~= nil
end

--- Returns the endpoint of a text, a URL or host:port; or nil and what is wrong with it, as the end of a sentence.
local function parse(text)
  local full, why = url.of_endpoint(text)
  if not full then return nil, why end
  local address, trouble = url.parse(full)
  if not address then return nil, trouble end
  local authority = full:match("^%a+://([^/]+)")
  if address.path or not authority then authority = "localhost" end
  return { url = full, address = address, authority = authority }
end

--- Returns a dialer for a list of endpoints. `options` are for core.client, `backoff` is a function of backoff.lua.
local function new(endpoints, options, backoff)
  return setmetatable({
    endpoints = endpoints,
    options = options,
    backoff = backoff,
    at = 1,            -- index of the endpoint that is tried, or that answered last
    tried = 0,         -- endpoints that have failed in this round
    lookup = nil,      -- of the name of the endpoint, while it is under way
    lookup_until = nil, -- the deadline of the lookup
    addresses = nil,   -- addresses of the endpoint that were not tried yet
    connection = nil,  -- the connection that is being opened
    failures = 0,      -- failed rounds in a row, and connections that did not last
    retry_at = 0,      -- the time before which no round begins
    trouble = nil,     -- the text of the last error, with its endpoint
    why = nil,         -- the same at the end of the last round, or of a connection; nil while a connection is in use
  }, dialer_mt)
end

--- Notes the text of an error of the present endpoint.
local function note(self, text)
  self.trouble = ("%s: %s"):format(self.endpoints[self.at].url, text)
end

--- Goes on to the next endpoint. After the last one of a round, a pause begins.
local function next_endpoint(self, now)
  self.addresses, self.lookup = nil, nil
  self.at = self.at % #self.endpoints + 1
  self.tried = self.tried + 1
  if self.tried < #self.endpoints then return end
  self.tried, self.why = 0, self.trouble
  self.failures = self.failures + 1
  self.retry_at = now + self.backoff(self.failures)
end

--- Finds the addresses of the present endpoint, or begins to look its name up.
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

--- Takes the result of the lookup. Returns false if it is still under way.
local function take_lookup(self, now)
  local hosts, text = self.lookup:result()
  if hosts then
    local addresses, port = {}, self.endpoints[self.at].address.port
    for i, host in ipairs(hosts) do addresses[i] = { host = host, port = port } end
    self.addresses, self.lookup = addresses, nil
  elseif hosts == false or now >= self.lookup_until then
    note(self, text or "the lookup of its name took too long")
    next_endpoint(self, now)
  else
    return false
  end
  return true
end

--- Looks how the present connection has fared. Returns false if it is still being opened; else true, and the
-- connection if that takes calls.
local function take_connection(self)
  local opened = self.connection
  local is_ready, is_over, why = opened:poll()
  if is_ready then
    self.connection, self.addresses, self.tried, self.trouble = nil, nil, 0, nil
    return true, opened
  elseif is_over then
    note(self, why or "the connection has ended")
    opened:close()
    self.connection = nil
    return true
  end
  return false
end

--- Begins to connect to the next address of the endpoint.
local function dial_next(self, now)
  local address = table.remove(self.addresses, 1)
  if not address then return next_endpoint(self, now) end
  local opened, text = connections.dial(self.endpoints[self.at], address, self.options)
  if not opened then return note(self, text) end
  self.connection = opened
end

--- Goes on as far as possible without waiting. Returns a connection that takes calls; or nil, and the seconds until
-- poll must be called again (nil: when the sockets have news).
function dialer_methods:poll(now)
  while true do
    local goes_on, ready = true, nil
    if self.connection then
      goes_on, ready = take_connection(self)
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

--- Notes that a connection has ended. One that did not last counts as a failure, and the other endpoints are tried
-- first.
function dialer_methods:lost(lost, now, text)
  if text then
    self.trouble = ("%s: %s"):format(lost.endpoint.url, text)
    self.why = self.trouble
  end
  if now - lost.since >= STABLE then
    self.failures, self.retry_at = 0, now
    return
  end
  self.failures = self.failures + 1
  self.retry_at = now + self.backoff(self.failures)
  if self.endpoints[self.at] == lost.endpoint then self:turn_away() end
end

--- Makes the next endpoint the first to be tried: the present one answers, but is of no use.
function dialer_methods:turn_away()
  self.at = self.at % #self.endpoints + 1
end

--- Gives up the connection that is being opened: no call needs one any more.
function dialer_methods:stop()
  if self.connection then self.connection:close() end
  self.connection, self.lookup, self.addresses, self.tried = nil, nil, nil, 0
end

--- Returns the error of a call that found no server.
function dialer_methods:error()
  local err = core.new_error("unavailable")
  local trouble = self.trouble or self.connection and self.connection.endpoint.url .. ": it does not answer"
  if trouble then err.message = "keywatch: " .. trouble end
  return err
end

return { new = new, parse = parse }
