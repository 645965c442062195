-- SPDX-License-Identifier: MIT
--- call: one call of a method that is answered from Lua, as its handler sees it.
--
-- Fields: path, peer (who calls), deadline (a time of keywatch.now, or nil), metadata (values by name), server.
-- Once the client has lost interest, or its time is over, whatever the handler does with the call raises "cancelled".

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local call_methods = {}
local call_mt = { __name = "keywatch.call", __index = call_methods }

function call_mt:__tostring()
  return ("keywatch.call<%s>"):format(self.path)
end

--- Values of one name that came in several lines are joined, as HTTP has it. HTTP/2's own lines are left out.
local function read_metadata(lines)
  local metadata = {}
  for i = 1, #lines, 2 do
    local name, value = lines[i], lines[i + 1]
    if name:byte() ~= 58 then metadata[name] = metadata[name] and metadata[name] .. "," .. value or value end -- ":"
  end
  return metadata
end

--- The call of an id that the core has news of; nil if it is gone already.
local function open(server, id)
  local path, is_stream, is_intercepted, peer, seconds, lines = server.object:info(id)
  if not path then return nil end
  local d = driver.get()
  return setmetatable({
    server = server,
    id = id,
    path = path,
    peer = peer,
    deadline = seconds and d.now() + seconds,
    metadata = read_metadata(lines),
    is_stream = is_stream,
    is_intercepted = is_intercepted,
    method = server.methods[path],
    task = nil,           -- that answers it
    is_streaming = false, -- its handler has begun, and is that of a stream
    is_over = false,      -- nobody waits for the answer any more
    arrived = d.event(),
    has_room = d.event(),
  }, call_mt)
end

--- What a function of the user's makes of a message; raises the error that the function returns behind nil.
local function convert(how, message)
  local made, err = how(message)
  if made == nil and err ~= nil then error(err, 0) end
  return made
end

--- A message as the method has it: decoded by its name, by a function, or not at all.
local function decode(how, bytes)
  if how == nil then return bytes end
  if type(how) == "function" then return convert(how, bytes) end
  local message, err = core.decode(how, bytes)
  if not message then error(err, 0) end
  return message
end

local function encode(how, message)
  if how == nil then return message end
  if type(how) == "function" then return convert(how, message) end
  return check.call("send", core.encode, how, message)
end

local function check_interest(call)
  if call.is_over then error(core.new_error("cancelled"), 0) end
end

--- The next message of the client, as it came; nil when there will be none any more.
local function take(call)
  while true do
    check_interest(call)
    local bytes = call.server.object:receive(call.id)
    if bytes ~= nil then return bytes or nil end
    call.arrived:wait()
  end
end

--- A unary method has its message as an argument, and middleware has none.
local function check_streaming(call, name)
  if call.is_streaming then return end
  check.misuse("%s: only the handler of a stream receives and sends", name)
end

--- The next message of the client, which is waited for; nil when there will be none any more.
function call_methods:receive()
  check.self(self, "receive", call_mt)
  check_streaming(self, "receive")
  local bytes = take(self)
  return bytes and decode(self.method.request, bytes)
end

function call_methods:messages()
  check.self(self, "messages", call_mt)
  check_streaming(self, "messages")
  return self.receive, self
end

--- Sends a message, and waits while the client takes none: true; or nil and an error of code "timeout", if it has taken
-- none for so many seconds. What was sent is sent in either case.
function call_methods:send(message, timeout)
  check.self(self, "send", call_mt)
  check_streaming(self, "send")
  check.timeout(timeout, "send", 2)
  local bytes = encode(self.method.response, message)
  check.argument(type(bytes) == "string", 1, "send", "string", bytes)
  check_interest(self)
  if self.server.object:send(self.id, bytes) or self.has_room:wait(timeout) then return true end
  return nil, core.new_error("timeout")
end

-- {====== Answering ======

local OK, UNKNOWN, PERMISSION_DENIED, UNAVAILABLE, LAST_STATUS = 0, 2, 7, 14, 16 -- gRPC's

local REFUSED = { grpc_status = PERMISSION_DENIED, message = "keywatch: the call was refused" }

--- The text of anything that was raised or returned as an error.
local function text_of(err)
  local ok, text = pcall(tostring, err)
  return ok and type(text) == "string" and text or "an error that cannot be printed"
end

local function with_traceback(err)
  return { err = err, traceback = debug.traceback(text_of(err), 2) }
end

--- Whether an error says how the call ends.
local function has_status(err)
  local status = type(err) == "table" and err.grpc_status
  return type(status) == "number" and status > OK and status <= LAST_STATUS and status % 1 == 0
end

--- The status and the text that an error gives a call; nil if it has no status.
local function status_of(err)
  if type(err) == "table" and err.code == "cancelled" then return UNAVAILABLE, "etcdserver: server stopped" end
  if has_status(err) then return err.grpc_status, text_of(err.message or err) end
end

--- Ends the call with an error: one that knows its status says so, all others are nobody's intention, and logged.
local function fail(call, err, traceback)
  local ok, status, text = pcall(status_of, err)
  if not ok or not status then
    if traceback then require("keywatch.support.log").error("%s has failed: %s", call.path, traceback) end
    status, text = UNKNOWN, text_of(err)
  end
  call.server.object:finish(call.id, status, text)
end

--- Whether a hook lets a call go on: it returned true or nothing. Otherwise false and the error that it refuses with.
local function verdict(ok, err)
  if err ~= nil and err ~= false then return false, err end
  if ok == false or err == false then return false, REFUSED end
  if ok == nil or ok == true then return true end
  error(("before: returned a %s, which is neither true nor an error"):format(type(ok)), 0)
end

--- Asks all that stand before the methods, each of which may refuse: false and an error.
local function pass(call)
  for _, ware in ipairs(call.server.middleware) do
    if ware.before then
      local goes_on, err = verdict(ware.before(call))
      if not goes_on then return false, err end
    end
  end
  return true
end

local function answer_unary(call, method)
  local response, err = method.handler(decode(method.request, take(call)), call)
  if not response then
    if err == nil then error("the handler of " .. call.path .. " has returned neither an answer nor an error", 0) end
    return nil, err
  end
  local bytes = encode(method.response, response)
  if type(bytes) ~= "string" then
    error(("the answer of %s is a %s, and no string"):format(call.path, type(bytes)), 0)
  end
  call.server.object:send(call.id, bytes)
  return true
end

local function answer_stream(call, method)
  call.is_streaming = true
  local ok, err = method.handler(call)
  if err ~= nil then return nil, err end
  if ok == false then error("the handler of " .. call.path .. " has returned false, and no error", 0) end
  return true
end

local function answer(call)
  local ok, err = pass(call)
  if not ok then return nil, err end
  if call.is_intercepted then
    call.server.object:proceed(call.id)
    return nil
  end
  local method = call.method
  return (method.is_stream and answer_stream or answer_unary)(call, method)
end

--- What the call's task does.
local function serve(call)
  local ok, done, err = xpcall(answer, with_traceback, call)
  if not ok then
    fail(call, done.err, done.traceback)
  elseif done then
    call.server.object:finish(call.id, OK)
  elseif err ~= nil then
    fail(call, err)
  end
end

--- After the end, whoever answered it.
local function tell_after(call, status)
  for _, ware in ipairs(call.server.middleware) do
    if ware.after then
      local ok, trouble = xpcall(ware.after, with_traceback, call, status)
      if not ok then require("keywatch.support.log").error("after %s: %s", call.path, trouble.traceback) end
    end
  end
end

-- }======

return { open = open, serve = serve, tell_after = tell_after, methods = call_methods }
