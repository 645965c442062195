--- Predefined behaviours of an imposter. Each function returns one: for calls, for connections, or for both.
--
-- A message is a table of the path's response, or bytes.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local TRICKLE_MS = 20 -- between two bytes of an endless message
local AT_ONCE = 1000  -- frames of a flood in one write
local HEADER = { cluster_id = 1, member_id = 2, revision = 1, raft_term = 1 }

local parts = {}

local globals = _G -- for the Lua texts of behaviours

--- Returns a behaviour: `said` is Lua text that uses stream (nil in the behaviour of a connection), conn, parts, core
-- and h2; or a list of a part's name and arguments. `env`, if given, has the globals.
function parts.make(said, env)
  globals = env or globals
  if type(said) == "table" then
    return assert(parts[said[1]], "no such part")(unpack(said, 2))
  end
  local chunk = assert(load("local stream, conn, parts, core, h2 = ... " .. said, "=behaviour", "t", globals))
  return function(it)
    if it.conn then return chunk(it, it.conn, parts, core, h2) end
    return chunk(nil, it, parts, core, h2)
  end
end

-- {====== For connections and calls ======

--- Several behaviours in sequence.
function parts.sequence(...)
  local list = {}
  for i, said in ipairs { ... } do list[i] = parts.make(said) end
  return function(stream)
    for _, behave in ipairs(list) do behave(stream) end
  end
end

--- The first behaviour for the first call, the second for the second, and so on; the last for all later calls.
function parts.in_turn(...)
  local list, n = {}, 0
  for i, said in ipairs { ... } do list[i] = parts.make(said) end
  return function(stream)
    n = math.min(n + 1, #list)
    return list[n](stream)
  end
end

local function conn_of(stream) return stream.conn or stream end

--- Ends the connection; `how` as of conn:close.
function parts.close(how) return function(stream) conn_of(stream):close(how) end end

--- Sends GOAWAY. `last` is a stream's id, "this" for that of the call, or "below" for the previous one; without it the
-- GOAWAY is graceful.
function parts.goaway(code, last, text)
  return function(stream)
    local id = last
    if last == "below" then
      id = math.max(0, stream.id - 2)
    elseif last == "this" then
      id = stream.id
    end
    conn_of(stream):goaway(code, id or nil, text)
  end
end

-- }======

-- {====== For connections ======

--- Sends SETTINGS first.
function parts.settings(values) return function(conn) conn:settings(values) end end

--- Receives everything, and sends nothing.
function parts.mute()
  return function(conn)
    conn.answers_pings, conn.answers_calls, conn.acks_settings, conn.gives_windows = false, false, false, false
  end
end

--- Is correct, but does not answer PINGs.
function parts.no_pongs()
  return function(conn)
    conn.answers_pings = false
    conn:settings()
  end
end

--- Sends some bytes, and then nothing more.
function parts.says(bytes)
  return function(conn)
    parts.mute()(conn)
    conn:raw(bytes)
  end
end

--- An HTTP/1.1 server, which ends the connection after its answer.
function parts.http1(status)
  local body = "<html>no</html>"
  return function(conn)
    parts.mute()(conn)
    conn:wait(function() return conn.has_magic or conn.record.text end)
    conn:raw(("HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"):format(
      status or "400 Bad Request", #body, body))
    conn:close()
  end
end

-- }======

-- {====== For calls that end ======
-- All of these except reset wait for a request.

--- Sends any number of messages, and a status: by default 0.
function parts.messages(list, code, text)
  return function(stream)
    stream:receive()
    for _, message in ipairs(list) do stream:message(message) end
    if not stream.has_headers then stream:headers() end
    stream:status(code or 0, text)
  end
end

function parts.reply(message) return parts.messages { message } end

--- Sends only a status, in one block.
function parts.status(code, text)
  return function(stream)
    stream:receive()
    stream:status(code, text)
  end
end

--- Sends a message and these trailers.
function parts.trailers(message, lines)
  return function(stream)
    stream:receive()
    stream:message(message)
    stream:trailers(lines)
  end
end

--- Sends a message, and ends the stream without trailers.
function parts.no_trailers(message)
  return function(stream)
    stream:receive()
    stream:message(message)
    stream:data("", true)
  end
end

--- Sends a message without its last `n` bytes.
function parts.cut_short(message, n)
  return function(stream)
    stream:receive()
    stream:headers()
    stream:data(h2.message(stream:encode(message)):sub(1, -1 - n))
    stream:status(0)
  end
end

--- Sends a message with the compression flag, with or without grpc-encoding.
function parts.compressed(message, encoding)
  return function(stream)
    stream:receive()
    stream:headers { ["grpc-encoding"] = encoding }
    stream:message(message, 1)
    stream:status(0)
  end
end

--- Answers like a server without gRPC: with an HTTP status, and a page.
function parts.html(status)
  return function(stream)
    stream:receive()
    stream:headers { [":status"] = status, ["content-type"] = "text/html" }
    stream:data("<html><body>" .. status .. "</body></html>", true)
  end
end

--- Sends a correct answer with wrong headers: `changes` of the correct ones.
function parts.headers(changes, message)
  return function(stream)
    stream:receive()
    stream:headers(changes)
    if message then stream:message(message) end
    stream:status(0)
  end
end

--- Sends a correct answer with `size` more bytes of headers, in lines of 8 KiB, or in one line.
function parts.large_headers(size, is_one, message)
  local changes, line = {}, is_one and size or 8192
  for i = 1, math.ceil(size / line) do changes["x-" .. i] = ("x"):rep(line) end
  return parts.headers(changes, message)
end

--- Sends RST_STREAM, with a code or its name; after `message`, if given.
function parts.reset(code, message)
  return function(stream)
    if message then stream:message(message) end
    stream:reset(code)
  end
end

-- }======

-- {====== For calls that do not end ======

--- Receives everything, and never answers.
function parts.silent() return function() end end

--- Sends the beginning of a message of `size` bytes, by default 2 GiB - 1, and then one byte from time to time.
function parts.endless(size)
  return function(stream)
    stream:headers()
    stream:data("\0" .. h2.pack(size or 2 ^ 31 - 1, 4))
    while not stream.record.reset do
      stream:data("x")
      stream.conn:sleep(TRICKLE_MS)
    end
  end
end

local function push_promise(stream, i)
  return h2.frame("push", h2.flags.end_headers, stream.id, h2.pack(2 * i, 4) .. h2.block(h2.request_lines("/pushed")))
end

local floods = {
  ping = function() return h2.ping() end,
  pong = function() return h2.pong("unasked!") end,
  settings = function() return h2.settings {} end,
  window = function() return h2.window(0, 1) end,
  stream_window = function(stream) return h2.window(stream.id, 1) end,
  data = function(stream) return h2.data(stream.id, "") end,
  push = push_promise,
  informational = function(stream) return h2.headers(stream.id, { { ":status", "103" } }) end,
  continuation = function(stream) return h2.frame("continuation", 0, stream.id, h2.block { { "x", "y" } }) end,
  priority = function(stream) return h2.frame("priority", 0, stream.id, h2.pack(0, 4) .. "\1") end,
  unknown = function() return h2.frame(0xbb, 0, 0, "what is this?") end,
}

--- Frames that must be sent before a flood.
local openings = {
  data = function(stream) stream:headers() end,
  continuation = function(stream)
    stream.conn:raw(h2.frame("headers", 0, stream.id, h2.block { { ":status", "200" } }))
  end,
}

--- Returns `n` frames of a kind; `at` frames were sent before.
local function frames_of(kind, stream, at, n)
  local frame = floods[kind]
  if kind ~= "push" then return frame(stream):rep(n) end
  local list = {}
  for i = 1, n do list[i] = frame(stream, at + i) end
  return table.concat(list)
end

--- Sends `n` frames of a kind; without `n`, until the client resets the call. The client's frames are read only while
-- the queue is full.
function parts.flood(kind, n)
  assert(floods[kind], "no such flood")
  return function(stream)
    if openings[kind] then openings[kind](stream) end
    local at = 0
    while n and at < n or not n and not stream.record.reset do
      local count = math.min(AT_ONCE, (n or math.huge) - at)
      stream.conn:raw(frames_of(kind, stream, at, count))
      at = at + count
      stream.conn:drain()
    end
  end
end

-- }======

-- {====== Scripts ======

local steps = {}

function steps.receive(stream) stream:receive() end
function steps.wait(stream, name) stream:wait(name) end
function steps.bytes(stream, bytes) stream:message(bytes) end
function steps.reset(stream, code) stream:reset(code) end
function steps.status(stream, status) stream:status(status[1], status[2]) end
function steps.close(stream, how) stream.conn:close(how) end

local function with_header(message, header)
  local all, copy = {}, {}
  for k, v in pairs(message) do copy[k] = v end
  for k, v in pairs(header) do all[k] = v end
  for k, v in pairs(message.header or {}) do all[k] = v end
  if message.header == false then all = nil end
  copy.header = all
  return copy
end

--- After the first request, does the steps of a list. A step is a message, whose header gets the fields of
-- options.header (no header if that is false); { receive = true }, which waits for a request; { wait = name }, which
-- waits for a signal of the spec; { bytes = }, a message; { reset = code }; { status = { code, text } }; or
-- { close = how }. After the last step the call stays open. For example: { created = true, watch_id = 7 },
-- { watch_id = 7, events = … }, …
function parts.watch(list, options)
  local header = options and options.header or HEADER
  return function(stream)
    stream:receive()
    for _, step in ipairs(list) do
      local name, value = next(step)
      if steps[name] then
        steps[name](stream, value)
      else
        stream:message(with_header(step, header))
      end
    end
  end
end

-- }======

return parts
