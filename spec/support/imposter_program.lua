--- A program: the imposter of spec/support/imposter.lua, which see for its commands.

local uv = require "spec.support.luv"

local connection = require "spec.support.imposter_connection"
local parts = require "spec.support.imposter_parts"
local remote = require "spec.support.remote"
local tls_stream = require "spec.support.tls_stream"

local load_text = rawget(_G, "loadstring") or load

local BACKLOG = 511
local SEND_BUFFER = 65536 -- bytes: what was said long ago is not all that a client hears

local record = { connections = {}, calls = {} }
local conns = {}      -- as many as there are records of
local behaviours = {} -- by paths; "*" for others, "connection" for connections

local function say_first(conn) conn:settings() end
local function refuse(stream) stream:status(12, "unknown method " .. stream.path) end

local listener = uv.new_tcp()

local function behaviour_of(path)
  return behaviours[path] or behaviours["*"] or refuse
end

local function accept(err)
  assert(not err, err)
  local handle = uv.new_tcp()
  assert(listener:accept(handle))
  handle:nodelay(true)
  handle:send_buffer_size(SEND_BUFFER)
  local conn = connection.new(tls_stream.server(handle), {
    number = #conns + 1,
    behaviour = behaviours.connection or say_first,
    behaviour_of = behaviour_of,
    on_call = function(call) table.insert(record.calls, call) end,
  })
  table.insert(conns, conn)
  table.insert(record.connections, conn.record)
end

local handlers = {}

function handlers.start(said)
  tls_stream.prepare()
  handlers.behave(said)
  assert(listener:bind("127.0.0.1", 0))
  assert(listener:listen(BACKLOG, accept))
  return listener:getsockname().port
end

function handlers.behave(said)
  for path, one in pairs(said) do behaviours[path] = parts.make(one) end
  return true
end

function handlers.tell(name)
  connection.signals[name] = true
  return true
end

function handlers.record() return record end

local function function_of(expression)
  return assert(load_text("local connections, calls = ... return " .. expression))
end

--- The values are in a list, for they may be false.
function handlers.look(expression)
  return { function_of(expression)(record.connections, record.calls) }
end

--- An expression of what is not there yet may fail.
function handlers.await(expression)
  local ok, value = pcall(function_of(expression), record.connections, record.calls)
  return ok and value and { value } or nil
end

function handlers.run(text)
  assert(load_text("local conns = ... " .. text))(conns)
  return true
end

remote.serve(handlers, connection.turn)
