-- SPDX-License-Identifier: MIT
--- attempt: tries to connect to one endpoint: looks its host name up, and tries its addresses, one after the other.

local driver = require "keywatch.task.driver"

local MAX_TEXTS = 3 -- of the failures of addresses, in `trouble`

local attempt_methods = {}
local attempt_mt = { __index = attempt_methods }

--- True if a host is an IP address, and needs no lookup.
local function is_digits(host)
  return host:match("^[%d.]+$") ~= nil or host:find(":", 1, true) ~= nil
end

--- Adds the reason why an address has failed: one address may have a bad certificate, and the next may refuse
-- connections.
local function note(self, text)
  for _, known in ipairs(self.texts) do
    if known == text then return end
  end
  if #self.texts < MAX_TEXTS then self.texts[#self.texts + 1] = text end
  self.trouble = table.concat(self.texts, "; ")
end

--- Begins to try an endpoint: finds its addresses, or begins to look its name up, until the deadline at the latest.
-- dial(endpoint, address) returns a connection with the methods poll, which returns is_ready, is_over and why, and
-- close; or nil and a text.
local function new(endpoint, dial, lookup_until)
  local self = setmetatable({
    endpoint = endpoint,
    dial = dial,
    addresses = {},     -- the addresses that were not tried yet
    lookup = nil,       -- the lookup of the endpoint's host name, while it is running
    lookup_until = lookup_until,
    connection = nil,   -- the connection that is being opened
    is_over = false,    -- the attempt was abandoned
    texts = {},         -- the errors of the addresses, each text once
    trouble = nil,      -- the same as one text; nil: nothing has failed
  }, attempt_mt)
  local address = endpoint.address
  if address.path or is_digits(address.host) then
    self.addresses[1] = address
    return self
  end
  local lookup, text = driver.get().lookup(address.host)
  if not lookup then note(self, text) end
  self.lookup = lookup
  return self
end

--- Takes the result of the lookup. Returns false if it is still running.
local function take_lookup(self, now)
  local hosts, text = self.lookup:result()
  if hosts == nil and now < self.lookup_until then return false end
  if not hosts then note(self, text or "the lookup of its name took too long") end
  for i, host in ipairs(hosts or {}) do self.addresses[i] = { host = host, port = self.endpoint.address.port } end
  self.lookup = nil
  return true
end

--- Begins to connect to the next address. Returns false if there is none left.
local function dial_next(self)
  local address = table.remove(self.addresses, 1)
  if not address then return false end
  local opened, text = self.dial(self.endpoint, address)
  if not opened then
    note(self, text)
  elseif self.is_over then
    opened:close() -- a finalizer has stopped the attempt
  else
    self.connection = opened
  end
  return true
end

--- Continues as far as possible. Returns the connection once it is ready, which then belongs to the caller; false if
-- the endpoint has failed; or nil if the attempt continues.
function attempt_methods:step(now)
  while not self.is_over do
    local opened = self.connection
    if opened then
      local is_ready, is_over, why = opened:poll()
      if is_ready or is_over then self.connection = nil end
      if is_ready then return opened end
      if not is_over then return nil end
      note(self, why or "the connection has ended")
      opened:close()
    elseif self.lookup then
      if not take_lookup(self, now) then return nil end
    elseif not dial_next(self) then
      return false
    end
  end
  return false
end

--- Returns the seconds until the lookup has taken too long; nil: none is running.
function attempt_methods:until_lookup(now)
  return self.lookup and math.max(0, self.lookup_until - now)
end

--- Abandons the attempt.
function attempt_methods:stop()
  self.is_over = true
  if self.connection then self.connection:close() end
end

return { new = new }
