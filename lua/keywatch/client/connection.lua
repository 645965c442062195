-- SPDX-License-Identifier: MIT
--- line: one connection to a server, and who waits for what on it.
--
-- Whoever has a call under way is a table with the method on_ready(line, number), which is called when there is
-- something to receive of the call.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local line_methods = {}
local line_mt = { __index = line_methods }

--- A connection that is being opened; or nil and what is wrong, in words.
local function dial(endpoint, address, options)
  local object = core.client(endpoint.authority, options)
  local ok, text = driver.get().dial(object, address)
  if not ok then
    object:close()
    return nil, text
  end
  return setmetatable({
    core = object,
    endpoint = endpoint,
    calls = {}, -- by number: who waits
    count = 0,
    since = driver.get().now(),
    is_over = false,
    metadata = {}, -- that goes with every call
    trusts = nil,  -- whether the progress of this server can be trusted; nil: not known yet
  }, line_mt)
end

function line_methods:add(number, who)
  self.calls[number] = who
  self.count = self.count + 1
end

function line_methods:forget(number)
  if not self.calls[number] then return end
  self.calls[number] = nil
  self.count = self.count - 1
end

--- The server is told, and nothing comes of the call any more.
function line_methods:cancel(number)
  self:forget(number)
  if not self.is_over then self.core:cancel(number) end
end

--- Begins a call with one message. Its number, or nil if the connection takes no more.
function line_methods:begin(path, bytes, metadata, who)
  if self.is_over then return nil end
  local object = self.core
  local number = object:call(path, metadata, true)
  if not number then return nil end
  object:send(number, bytes)
  object:half_close(number)
  self:add(number, who)
  return number
end

--- What came of a call with one answer: its message or nil, the status and its text, and whether the server has not
-- looked at it.
function line_methods:finish(number)
  local message, status, text, is_refused = self.core:receive(number)
  if message then
    local _, s, t, r = self.core:receive(number)
    status, text, is_refused = s, t, r
  end
  self:forget(number)
  return message or nil, status, text, is_refused
end

--- The same for those who do not wait: `on_end` is called with that.
local ask_methods = {}
local ask_mt = { __index = ask_methods }

function ask_methods:on_ready(line, number)
  self.on_end(line:finish(number))
end

--- Asks, and has the answer told to a function. Metadata, if it is given, takes the place of the connection's.
function line_methods:ask(path, bytes, on_end, metadata)
  return self:begin(path, bytes, metadata or self.metadata, setmetatable({ on_end = on_end }, ask_mt))
end

--- Tells those for whom something came. Returns whether the connection takes calls, whether it has ended, and why; and
-- whether the server complains of pings.
function line_methods:poll()
  local object, calls = self.core, self.calls
  for number in object.next, object do
    local who = calls[number]
    if who then who:on_ready(self, number) end
  end
  return object:health()
end

--- Ends it in order.
function line_methods:close()
  if self.is_over then return end
  self.is_over = true
  self.core:close()
end

return { dial = dial }
