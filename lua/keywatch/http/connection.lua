-- SPDX-License-Identifier: MIT
--- connection: one connection of an HTTP client.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local connection_methods = {}
local connection_mt = { __index = connection_methods }

--- Begins to connect to an address of an endpoint. `options` are for core.http_client. Returns the connection, which is
-- ready once `poll` returns true; or nil and the text of the error.
local function dial(endpoint, address, options, security)
  local d = driver.get()
  local object = core.http_client(options, d.now())
  if not object then return nil, "out of memory" end
  local ok, text = d.dial(object, address, security:of(endpoint, address))
  security:check_files()
  if not ok then
    object:close()
    return nil, text
  end
  return setmetatable({
    core = object,
    endpoint = endpoint,
    arrivals = {},      -- by the id of the exchange: a driver event, set when the core has something for the exchange
    count = 0,          -- of exchanges on the connection
    is_shared = false,  -- HTTP/2: carries many concurrent exchanges. Known once the connection is open
    was_used = false,   -- an exchange has ended
    is_retired = false, -- no more exchanges begin
    is_closed = false,
    idle_since = nil,   -- a time while the connection is idle
  }, connection_mt)
end

--- Wakes the exchanges for which the core has something. Returns whether the connection is open; whether it has ended;
-- and the reason.
function connection_methods:poll()
  local object = self.core
  for id in object.next_fetch, object do
    local arrival = self.arrivals[id]
    if arrival then arrival:set() end
  end
  return object:health()
end

--- Returns a number that changes when bytes have moved; with the id of an exchange over HTTP/2, bytes of that exchange.
function connection_methods:progress(id)
  local moved = id and self.core:moved(id)
  if moved then return moved end
  local _, _, _, _, received = self.core:health()
  return (received or 0) - self.core:unsent()
end

--- True if another exchange may take the connection.
function connection_methods:takes_more()
  if self.is_closed or self.is_retired then return false end
  local takes_more, most = self.core:is_idle()
  self.is_shared = most ~= nil
  return takes_more and self.count < (most or 1)
end

--- Closes the connection.
function connection_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  self.core:close()
end

return { dial = dial }
