--- A program: the proxy of spec/support/proxy.lua, which describes its commands.
--
-- A connection has two sides, the client's and the server's, and two lanes between them. A lane holds the bytes of one
-- side, in pieces, until they may be delivered to the other; the end of a side is a piece, too. So faults of a lane
-- never change the order of the bytes.

local uv = require "spec.support.luv"

local remote = require "spec.support.remote"

local HELD = 2 ^ 20   -- bytes that a lane holds before its sender has to wait
local PER_SECOND = 50 -- writes of a throttled lane
local BACKLOG = 511

local rules = { to_server = {}, to_client = {} } -- { is_stalled, delay, split, rate, cut_after (of the next one), how }
local passed = { to_server = 0, to_client = 0 }  -- bytes in total
local connections = {}                           -- a set
local n_accepted = 0
local is_black = false
local target                                     -- { host, port } or { path }
local listener, port

-- {====== Sides ======

local function new_side(handle, is_ready) return { handle = handle, is_ready = is_ready, is_open = true } end

--- Ends a side: "close" with a FIN; "reset" with a RST, which unix sockets do not have.
local function end_side(side, how)
  if not side.is_open then return end
  side.is_open = false
  if how == "reset" and side.handle.close_reset and side.handle:close_reset() then return end
  if not side.handle:is_closing() then side.handle:close() end
end

local function close_timer(lane)
  if lane.timer and not lane.timer:is_closing() then lane.timer:close() end
end

local function end_connection(connection, how)
  end_side(connection.client, how)
  end_side(connection.server, how)
  close_timer(connection.to_server)
  close_timer(connection.to_client)
  connections[connection] = nil
end

-- }======

-- {====== Lanes ======

local function new_lane(direction, from, to)
  local rule = rules[direction]
  local left = rule.cut_after
  rule.cut_after = nil
  return {
    direction = direction,
    rule = rule,
    from = from,
    to = to,
    pieces = {},       -- { bytes, at, due } or { ending, due }
    held = 0,          -- bytes
    left = left,       -- bytes until the connection is cut
    how = rule.how,    -- how the connection is then cut
    next_ms = 0,       -- time of the next write, if writes are throttled
    is_busy = false,   -- a write is under way
    is_over = false,   -- nothing can be delivered any more
    is_paused = false, -- the lane is full, and reading is paused
    timer = nil,
  }
end

--- Cuts a connection after its last allowed byte.
local function cut_lane(lane)
  if lane.how ~= "swallow" then return end_connection(lane.connection, lane.how) end
  lane.connection.is_lost = true
  lane.pieces, lane.held = {}, 0
end

--- Returns the number of bytes of a piece for the next write.
local function size_of(lane, piece)
  local rule = lane.rule
  local n = #piece.bytes - piece.at + 1
  n = math.min(n, rule.split or n, lane.left or n)
  return math.min(n, rule.rate and math.max(1, math.floor(rule.rate / PER_SECOND)) or n)
end

local pump, push, start_reading

--- Takes the bytes for the next write out of the first piece.
local function take(lane, piece)
  local n = size_of(lane, piece)
  local bytes = piece.bytes:sub(piece.at, piece.at + n - 1)
  piece.at = piece.at + n
  if piece.at > #piece.bytes then table.remove(lane.pieces, 1) end
  lane.held = lane.held - n
  if lane.left then lane.left = lane.left - n end
  if lane.rule.rate then lane.next_ms = uv.now() + math.ceil(n * 1000 / lane.rule.rate) end
  if lane.is_paused and lane.held < HELD / 2 then start_reading(lane) end
  return bytes
end

local function opposite(lane)
  local connection = lane.connection
  return lane == connection.to_server and connection.to_client or connection.to_server
end

--- Handles the error of a side: the other side gets an error, too, after all earlier bytes.
local function fail(lane)
  end_side(lane.from, "close")
  push(lane, { ending = "reset" })
end

local function after_write(lane, err, n)
  lane.is_busy = false
  if err then return fail(opposite(lane)) end
  passed[lane.direction] = passed[lane.direction] + n
  if lane.left == 0 then return cut_lane(lane) end
  pump(lane)
end

local function pass_ending(lane, ending)
  table.remove(lane.pieces, 1)
  lane.is_over = true
  if ending == "reset" or opposite(lane).is_over then
    end_connection(lane.connection, ending == "reset" and "reset" or "close")
  else
    lane.to.handle:shutdown()
  end
end

local function pump_at(lane, ms)
  lane.timer = lane.timer or uv.new_timer()
  lane.timer:start(ms - uv.now(), 0, function() pump(lane) end)
end

--- Delivers the pieces that are due.
function pump(lane)
  local piece = lane.pieces[1]
  if not piece or lane.is_busy or lane.rule.is_stalled then return end
  if not (lane.to.is_open and lane.to.is_ready) then return end
  local due = math.max(piece.due, lane.next_ms)
  if due > uv.now() then return pump_at(lane, due) end
  if piece.ending then return pass_ending(lane, piece.ending) end
  lane.is_busy = true
  local bytes = take(lane, piece)
  lane.to.handle:write(bytes, function(err)
    if connections[lane.connection] then after_write(lane, err, #bytes) end
  end)
end

function push(lane, piece)
  if lane.is_over and piece.ending ~= "reset" then return end
  piece.due = uv.now() + (lane.rule.delay or 0)
  table.insert(lane.pieces, piece)
  lane.held = lane.held + #(piece.bytes or "")
  pump(lane)
end

-- }======

-- {====== Reading ======

--- Discards bytes, without a notice to either side. A connection that has lost bytes stays silent forever.
local function lose(lane, chunk)
  local connection = lane.connection
  connection.is_lost = true
  if not chunk then end_side(lane.from, "close") end
  local has_server = connection.server.is_open and connection.is_dialed
  if not (connection.client.is_open or has_server) then end_connection(connection) end
end

local function on_read(lane, err, chunk)
  if is_black or lane.connection.is_lost then return lose(lane, chunk) end
  if err then return fail(lane) end
  push(lane, chunk and { bytes = chunk, at = 1 } or { ending = "shutdown" })
  if lane.held >= HELD and lane.from.is_open then
    lane.is_paused = true
    lane.from.handle:read_stop()
  end
end

function start_reading(lane)
  lane.is_paused = false
  if not lane.from.is_open then return end
  lane.from.handle:read_start(function(err, chunk) on_read(lane, err, chunk) end)
end

local function on_dialed(connection, err)
  local server = connection.server
  if not server.is_open then return end
  if err then return end_connection(connection, "reset") end
  server.is_ready = true
  if server.handle.nodelay then server.handle:nodelay(true) end
  start_reading(connection.to_client)
  pump(connection.to_server)
end

local function dial(connection)
  connection.is_dialed = true
  local handle = connection.server.handle
  local function on_connect(err) on_dialed(connection, err) end
  if target.path then
    handle:connect(target.path, on_connect)
  else
    handle:connect(target.host, target.port, on_connect)
  end
end

local function accept()
  local handle = uv.new_tcp()
  assert(listener:accept(handle))
  handle:nodelay(true)
  local client = new_side(handle, true)
  local server = new_side(target.path and uv.new_pipe(false) or uv.new_tcp(), false)
  local connection = {
    client = client,
    server = server,
    to_server = new_lane("to_server", client, server),
    to_client = new_lane("to_client", server, client),
    is_dialed = false,
    is_lost = false, -- some of its bytes were discarded
  }
  connection.to_server.connection, connection.to_client.connection = connection, connection
  connections[connection] = true
  n_accepted = n_accepted + 1
  return connection
end

local function on_connection(err)
  assert(not err, err)
  local connection = accept()
  for direction in pairs(rules) do
    if connection[direction].left == 0 then cut_lane(connection[direction]) end
    if not connections[connection] then return end
  end
  start_reading(connection.to_server)
  if not is_black then dial(connection) end
end

-- }======

-- {====== The port ======

--- Returns a socket that is bound and does not listen: the port is reserved while connections are refused.
local function keep_port()
  local keeper = uv.new_tcp()
  assert(keeper:bind("127.0.0.1", port or 0))
  port = keeper:getsockname().port
end

local function listen()
  if listener then return end
  listener = uv.new_tcp()
  assert(listener:bind("127.0.0.1", port))
  assert(listener:listen(BACKLOG, on_connection))
end

local function address_of(url)
  local host, number = url:match("^https?://%[?([%x.:]-)%]?:(%d+)$")
  if host then return { host = host, port = tonumber(number) } end
  return { path = assert(url:match("^unix:/*(/.*)$"), "no such URL: " .. url) }
end

-- }======

-- {====== Commands ======

local handlers = {}

local function directions(direction)
  if direction == "both" or direction == nil then return { "to_server", "to_client" } end
  assert(rules[direction], "no such direction")
  return { direction }
end

local function each_lane(direction, fn)
  local list = {}
  for connection in pairs(connections) do
    for _, name in ipairs(directions(direction)) do list[#list + 1] = connection[name] end
  end
  for _, lane in ipairs(list) do
    if connections[lane.connection] then fn(lane) end
  end
end

local function set_rule(direction, name, value)
  for _, one in ipairs(directions(direction)) do rules[one][name] = value end
  each_lane(direction, pump)
  return true
end

function handlers.start(url)
  target = address_of(url)
  keep_port()
  listen()
  return port
end

function handlers.connections()
  local n = 0
  for connection in pairs(connections) do
    if connection.client.is_open then n = n + 1 end
  end
  return n
end

function handlers.accepted() return n_accepted end

local function sum(counts, direction)
  local n = 0
  for _, one in ipairs(directions(direction)) do n = n + counts[one] end
  return n
end

function handlers.bytes(direction) return sum(passed, direction) end

function handlers.held(direction)
  local n = 0
  each_lane(direction, function(lane) n = n + lane.held end)
  return n
end

function handlers.wait_connections(n) return handlers.connections() == n or nil end
function handlers.wait_accepted(n) return n_accepted >= n or nil end
function handlers.wait_bytes(n, direction) return handlers.bytes(direction) >= n or nil end
function handlers.wait_held(n, direction) return handlers.held(direction) >= n or nil end

local function cut_side(lane, how)
  if how == "shutdown" then return push(lane, { ending = how }) end
  lane.connection.is_lost = true
  end_side(lane.to, how)
end

function handlers.cut(direction, how)
  if direction == "both" and how ~= "shutdown" then
    each_lane("to_client", function(lane) end_connection(lane.connection, how) end)
  else
    each_lane(direction, function(lane) cut_side(lane, how) end)
  end
  return true
end

function handlers.cut_once(n, direction, how)
  for _, one in ipairs(directions(direction)) do rules[one].cut_after, rules[one].how = n or nil, how end
  return true
end

function handlers.refuse()
  if listener then listener:close() end
  listener = nil
  return true
end

function handlers.accept_again()
  listen()
  return true
end

function handlers.stall(direction) return set_rule(direction, "is_stalled", true) end
function handlers.resume(direction) return set_rule(direction, "is_stalled", nil) end
function handlers.delay(ms, direction) return set_rule(direction, "delay", ms or nil) end
function handlers.split(n, direction) return set_rule(direction, "split", n or nil) end
function handlers.throttle(rate, direction) return set_rule(direction, "rate", rate or nil) end

function handlers.blackhole()
  is_black = true
  return true
end

--- Connections that were accepted in a blackhole and have lost no bytes work like new ones.
function handlers.restore()
  is_black = false
  each_lane("both", function(lane) lane.left = nil end)
  for _, name in ipairs { "is_stalled", "delay", "split", "rate", "cut_after" } do set_rule("both", name, nil) end
  for connection in pairs(connections) do
    if not (connection.is_lost or connection.is_dialed) then dial(connection) end
  end
  return true
end

-- }======

remote.serve(handlers)
