-- SPDX-License-Identifier: MIT
--- network: a network inside of the process, for the driver in virtual time. Servers listen on addresses, and clients
-- connect to them, as on sockets. A link is one connection: the core's client on one side, the core's peer of a server
-- on the other, and the bytes on the way between them. So client and server are the real ones, and only the network is
-- simulated.
--
--   DIALED ----------> OPEN ----------> ENDING: one side is gone, the other still gets the sent bytes ----> GONE
--      |    latency      |                                                                                  ^
--      +-----------------+---- cut: bytes in flight are lost, and both sides learn that at once ------------+
--
-- Each server has a machine of its own. A machine has a latency, and can be isolated: then no bytes in flight arrive,
-- in either direction, and no client connects. When the isolation ends, everything resumes, as with TCP. A single
-- client can be isolated in the same way, by its origin (see network.origin).
--
-- The order of all steps depends only on the program. Any call of the core can run a finalizer that closes an object;
-- therefore `pump` checks the objects again after each call.

local sooner = require("keywatch.task.timers").sooner
local url = require "keywatch.support.url"

local WINDOW = 256 * 1024 -- maximum number of bytes in flight in one direction; then the sender waits
local FIRST_PORT = 30000  -- of the ports for port 0, and of clients
local INEXACT = 1e-6      -- rounding error of a time in milliseconds, in seconds
local CUT = "connection reset by peer"
local REFUSED, REFUSED_NAME = "connection refused", "ECONNREFUSED"

local network_methods = {}
local network_mt = { __index = network_methods }
local listener_methods = {}
local listener_mt = { __index = listener_methods }

--- Returns a network. now() returns the time.
local function new(now)
  return setmetatable({
    now = now,
    listeners = {}, -- by the text of the address
    machines = {},  -- by server object
    order = {},     -- the machines, in the order of their creation
    links = {},     -- in the order in which they were dialed
    isolated = {},  -- as keys: origins that are isolated
    origin = nil,   -- of the dialing client: set by the testing kit while a client works; nil: unknown
    last_port = FIRST_PORT,
    is_pumping = false,
    due = nil,      -- the earliest deadline of a link, found by the last `pump`
  }, network_mt)
end

-- {====== Bytes in flight ======

--- Returns an empty queue of bytes in flight.
local function new_queue()
  return {
    first = 1, last = 0,   -- { at =, bytes = } at these indices
    size = 0,              -- of all bytes
    is_ended = false,      -- the sender has closed its side: an end follows the bytes
    has_delivered_end = false,  -- the receiver has got that end
  }
end

--- Adds bytes, which arrive `latency` seconds from now, and not before earlier bytes.
local function push(queue, bytes, now, latency)
  local before = queue[queue.last]
  local at = now + latency
  if before and before.at > at then at = before.at end
  queue.last = queue.last + 1
  queue[queue.last] = { at = at, bytes = bytes }
  queue.size = queue.size + #bytes
end

--- Takes bytes that have arrived, or returns nil.
local function shift(queue, now)
  local head = queue[queue.first]
  if not head or head.at > now + INEXACT then return nil end
  queue[queue.first] = nil
  queue.first = queue.first + 1
  queue.size = queue.size - #head.bytes
  return head.bytes
end

-- }======

-- {====== Machines and listeners ======

--- Returns the machine of a server object. The first call makes it.
function network_methods:machine(object)
  local machine = self.machines[object]
  if not machine then
    machine = { object = object, listeners = {}, latency = 0, is_isolated = false, is_dead = false, deadline = nil }
    self.machines[object] = machine
    self.order[#self.order + 1] = machine
  end
  return machine
end

--- Forgets the machine of a server that is gone.
local function forget_machine(self, machine)
  self.machines[machine.object] = nil
  for i, one in ipairs(self.order) do
    if one == machine then return table.remove(self.order, i) end
  end
end

--- Returns the text of an address, by which listeners are found.
local function text_of(address)
  return address.path and "unix:" .. address.path or url.format { host = address.host, port = address.port }
end

local ANY = { "0.0.0.0", "::" } -- each means all hosts

--- Returns the listener for an address, or nil.
local function find_listener(self, address)
  local found = self.listeners[text_of(address)]
  if found or address.path then return found end
  for _, host in ipairs(ANY) do
    found = found or self.listeners[text_of { host = host, port = address.port }]
  end
  return found
end

--- Listens on an address for a server object of the core. Returns a listener; or nil, the text and the name of the
-- error.
function network_methods:listen(object, address)
  local at = { host = address.host, port = address.port, path = address.path }
  if at.port == 0 then
    repeat
      self.last_port = self.last_port + 1
      at.port = self.last_port
    until not self.listeners[text_of(at)]
  end
  local text = text_of(at)
  if self.listeners[text] then return nil, "address already in use", "EADDRINUSE" end
  local machine = self:machine(object)
  local listener = setmetatable({
    network = self, at = at, text = text, machine = machine, is_closed = false,
  }, listener_mt)
  self.listeners[text], machine.listeners[#machine.listeners + 1] = listener, listener
  return listener
end

--- Returns the address that the listener listens on, as a new table.
function listener_methods:address()
  return { host = self.at.host, port = self.at.port, path = self.at.path }
end

--- Stops listening. Connections stay.
function listener_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  self.network.listeners[self.text] = nil
  for i, one in ipairs(self.machine.listeners) do
    if one == self then return table.remove(self.machine.listeners, i) end
  end
end

-- }======

-- {====== Links ======

--- True if no bytes arrive on a link.
local function is_isolated(self, link)
  return link.machine.is_isolated or link.origin ~= nil and self.isolated[link.origin] == true
end

--- Returns the latency of a link in seconds.
local function latency_of(link)
  local latency = link.machine.latency
  return type(latency) == "function" and latency() or latency
end

--- Begins to connect a client of the core. Returns true; or nil, the text and the name of the error.
function network_methods:dial(object, address)
  local listener = find_listener(self, address)
  if not listener then return nil, REFUSED, REFUSED_NAME end
  local now = self.now()
  self.last_port = self.last_port + 1
  local link = {
    machine = listener.machine,
    listener = listener,
    origin = self.origin,
    remote = (address.path and "@%d" or "127.0.0.1:%d"):format(self.last_port),
    client = object, -- nil: its side is closed
    peer = nil,      -- the core's peer; nil: not open yet, or its side is closed
    opens_at = now + latency_of { machine = listener.machine }, -- nil once it was opened
    up = new_queue(),   -- bytes for the server
    down = new_queue(), -- bytes for the client
    is_mute = false, -- bytes from the server are lost
    is_gone = false,
  }
  object:dial(now)
  self.links[#self.links + 1] = link
  return true
end

--- Ends the client's side of a link. `why` is the reason; nil if the connection is closed in order.
local function close_client(link, why)
  local client = link.client
  link.client, link.down = nil, new_queue()
  link.up.is_ended = true
  if client then client:closed(why) end
end

--- Ends the server's side of a link.
local function close_peer(link)
  local peer = link.peer
  link.peer, link.up = nil, new_queue()
  link.down.is_ended = true
  if peer then peer:close() end
end

--- Cuts a link: bytes in flight are lost.
local function cut(link, why)
  link.is_gone = true
  close_client(link, why or CUT)
  close_peer(link)
end

--- Cuts all links for which matches(link) is true. Returns their number.
function network_methods:cut(matches, why)
  local n = 0
  local links = {}
  for i, link in ipairs(self.links) do links[i] = link end
  for _, link in ipairs(links) do
    if not link.is_gone and matches(link) then
      cut(link, why)
      n = n + 1
    end
  end
  return n
end

--- Returns the link whose client has an address, as the server sees it; or nil.
function network_methods:find(remote)
  for _, link in ipairs(self.links) do
    if link.remote == remote and not link.is_gone then return link end
  end
end

--- Opens a link once its latency has passed, unless it is isolated. Cuts the link if the server refuses it, or has
-- closed its listener. Returns true if something has happened.
local function open(self, link, now)
  if now + INEXACT < link.opens_at or is_isolated(self, link) then return false end
  link.opens_at = nil
  local ok, peer = pcall(link.machine.object.accept, link.machine.object, now, nil, link.remote)
  if link.is_gone or not link.client then
    if ok and peer then peer:close() end
    return true
  end
  if not ok or not peer or link.listener.is_closed then
    if ok and peer then peer:close() end
    cut(link, REFUSED)
    return true
  end
  link.peer = peer
  link.client:opened(now)
  return true
end

--- Does the due work of one side. Returns true if there was any.
local function step(self, side, now)
  local deadline = side:deadline()
  if not deadline then return false end
  if deadline > now + INEXACT then
    self.due = sooner(self.due, deadline)
    return false
  end
  side:step(now)
  return true
end

--- Sends the pending bytes of a side. Returns true if there were any.
local function send(side, queue, now, link)
  local has_sent = false
  while queue.size < WINDOW do
    local bytes = side:pending(WINDOW - queue.size)
    if bytes == "" then break end
    has_sent = true
    if not (link.is_mute and queue == link.down) then push(queue, bytes, now, latency_of(link)) end
  end
  return has_sent
end

--- Delivers arrived bytes to a side. Returns true if there were any.
local function deliver(self, side, queue, now)
  local has_arrived, head = false, queue[queue.first]
  if head and head.at > now + INEXACT then
    if side:state() then self.due = sooner(self.due, head.at) end
    return false
  end
  if not head and not queue.is_ended then return false end
  while side:state() do -- the side accepts bytes
    local bytes = shift(queue, now)
    if not bytes then break end
    has_arrived = true
    side:feed(bytes, now)
  end
  if queue.is_ended and queue.size == 0 and not queue.has_delivered_end then
    queue.has_delivered_end, has_arrived = true, true
    side:feed("", now)
  end
  return has_arrived
end

--- True if a side has ended. Then it has nothing more to write, unless its queue is full.
local function has_ended(side)
  local _, is_done = side:state()
  return is_done
end

--- Continues to open a link. Returns true if something has happened.
local function pump_dialed(self, link, now)
  step(self, link.client, now)
  if link.is_gone then return true end
  if not has_ended(link.client) then
    if not is_isolated(self, link) then self.due = sooner(self.due, link.opens_at) end
    return open(self, link, now)
  end
  cut(link)
  return true
end

--- Moves bytes from the client's side to the server's. Returns true if any have moved.
local function pump_up(self, link, now)
  if link.is_gone then return false end
  if link.opens_at then return pump_dialed(self, link, now) end
  local has_moved = false
  if link.client then
    has_moved = step(self, link.client, now)
    has_moved = link.client and send(link.client, link.up, now, link) or has_moved
    if link.client and link.up.size < WINDOW and has_ended(link.client) then
      close_client(link)
      has_moved = true
    end
  end
  if link.peer and not is_isolated(self, link) then
    has_moved = deliver(self, link.peer, link.up, now) or has_moved
  end
  return has_moved
end

--- Moves bytes from the server's side to the client's. Returns true if any have moved.
local function pump_down(self, link, now)
  if link.is_gone or link.opens_at then return false end
  local has_moved = false
  if link.peer then
    has_moved = step(self, link.peer, now)
    has_moved = link.peer and send(link.peer, link.down, now, link) or has_moved
    local is_useless = not link.client and link.down.size > 0 -- without a reader a write to the socket would fail
    if link.peer and (link.down.size < WINDOW and has_ended(link.peer) or is_useless) then
      close_peer(link)
      has_moved = true
    end
  end
  if link.client and not is_isolated(self, link) then
    has_moved = deliver(self, link.client, link.down, now) or has_moved
  end
  return has_moved
end

-- }======

-- {====== Pumping ======

--- Does the due work of all servers. Returns false if that is impossible now: a finalizer has called this function in
-- the middle of a call of a store.
local function step_servers(self, now)
  local is_idle = true
  for i = #self.order, 1, -1 do
    local machine = self.order[i]
    local ok, deadline
    if machine then ok, deadline = pcall(machine.object.step, machine.object, now) end
    if machine and ok then
      machine.deadline = deadline
    elseif machine then
      local text = tostring(deadline)
      machine.deadline = nil
      machine.is_dead = text:find("is closed", 1, true) ~= nil
      if not machine.is_dead and not text:find("in the middle of a call", 1, true) then error(deadline, 0) end
      is_idle = is_idle and machine.is_dead
    end
  end
  return is_idle
end

--- Removes links that are gone, and machines that have nothing left.
local function sweep(self)
  local links, n = self.links, 0
  for i = 1, #links do
    local link = links[i]
    links[i] = nil
    if not (link.is_gone or not link.client and not link.peer and not link.opens_at) then
      n = n + 1
      links[n] = link
    end
  end
  for i = #self.order, 1, -1 do
    local machine = self.order[i]
    local is_unused = machine.is_dead and not machine.listeners[1] and not self:hosts(machine.object)
    if is_unused then forget_machine(self, machine) end
  end
end

--- Pumps a link in one direction. Returns true if something has moved. A finalizer may cut the link in between: then
-- its objects are closed.
local function pump_link(pump, self, link, now)
  local ok, has_moved = pcall(pump, self, link, now)
  if ok then return has_moved end
  if not link.is_gone then error(has_moved, 0) end
  return true
end

--- Pumps all links in one direction. Returns true if something has moved.
local function pump_links(pump, self, now)
  local has_moved = false
  for i = 1, #self.links do has_moved = pump_link(pump, self, self.links[i], now) or has_moved end
  return has_moved
end

--- Moves all bytes that can move at this time. Returns true if any have.
local function pump_all(self, now)
  local has_moved, any = true, false
  while has_moved and step_servers(self, now) do
    self.due = nil -- the last round, in which nothing moves, finds the next deadline
    has_moved = pump_links(pump_up, self, now)
    step_servers(self, now)
    has_moved = pump_links(pump_down, self, now) or has_moved
    if not has_moved then -- a server may have work since its bytes were taken, and then has bytes to send
      step_servers(self, now)
      has_moved = pump_links(pump_down, self, now)
    end
    any = any or has_moved
  end
  sweep(self)
  return any
end

--- Moves all bytes that can move now. Returns true if any have. Does nothing in a recursive call by a finalizer.
function network_methods:pump()
  if self.is_pumping then return false end
  self.due = nil
  if not self.order[1] and not self.links[1] then return false end
  self.is_pumping = true
  local ok, has_moved = pcall(pump_all, self, self.now())
  self.is_pumping = false
  if not ok then error(has_moved, 0) end
  return has_moved
end

--- Returns the next deadline, or nil. Must be called only when `pump` has moved nothing.
function network_methods:deadline()
  local when = self.due
  for _, machine in ipairs(self.order) do when = sooner(when, machine.deadline) end
  return when
end

--- True if a server has listeners or links, or a client its link.
function network_methods:hosts(object)
  local machine = self.machines[object]
  if machine and machine.listeners[1] then return true end
  for _, link in ipairs(self.links) do
    if not link.is_gone and (link.client == object or link.machine == machine and link.peer) then return true end
  end
  return false
end

--- Closes the listeners and links of a server, or the link of a client, at once.
function network_methods:release(object)
  local machine = self.machines[object]
  self:cut(function(link) return link.client == object or machine ~= nil and link.machine == machine end)
  if not machine then return end
  while machine.listeners[1] do machine.listeners[1]:close() end
  forget_machine(self, machine)
end

-- }======

return { new = new }
