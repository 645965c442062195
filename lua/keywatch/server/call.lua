-- SPDX-License-Identifier: MIT
--- call: one call of a method that Lua answers, for its handler; or one call of any method, for middleware.
--
-- Fields: path, peer (the client's address), common_name and organizations (of the certificate that the client has
-- shown, if it was verified; or nil), deadline (a time of keywatch.now, or nil), metadata (values by name), server; and
-- in the function `before` of middleware `request`, the first message of the client. After the client has cancelled the
-- call, or the deadline has passed, every method of the call raises "cancelled".

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local worker = require "keywatch.task.worker"

local OK = grpc_status.OK

local call_methods, call_mt = check.class "keywatch.call"
local read_request

function call_mt:__tostring()
  return ("keywatch.call<%s>"):format(self.path)
end

--- Adds a header field to a table of values by name. Values of fields with the same name are joined by commas, as in
-- HTTP; those of `cookie`, which HTTP/2 may send in parts, by semicolons.
local function add_field(values, name, value)
  local before = values[name]
  if before then value = before .. (name == "cookie" and "; " or ",") .. value end
  values[name] = value
end

--- Returns the metadata from a flat list of header fields: name, value, name, value. HTTP/2's pseudo-header fields are
-- omitted.
local function read_metadata(fields)
  local metadata = {}
  for i = 1, #fields, 2 do
    if fields[i]:byte() ~= 58 then add_field(metadata, fields[i], fields[i + 1]) end -- ":"
  end
  return metadata
end

--- Returns the common name, which may be nil, and the list of the organizations of a client's certificate; nothing
-- without a certificate. `identity` is as the core returns it.
local function read_identity(identity)
  if not identity then return end
  local name = table.remove(identity, 1)
  return name ~= "" and name or nil, identity
end

--- Returns the call for an id of the core; nil if the call has ended already.
local function open(server, id)
  local now = driver.get().now()
  local path, is_stream, is_intercepted, peer, seconds, fields, identity = server.object:info(id, now)
  if not path then return nil end
  local common_name, organizations = read_identity(identity)
  return setmetatable({
    server = server,
    id = id,
    path = path,
    peer = peer,
    common_name = common_name,
    organizations = organizations,
    deadline = seconds and now + seconds,
    metadata = read_metadata(fields),
    is_stream = is_stream,
    is_intercepted = is_intercepted,
    method = server.methods[path],
    task = nil,           -- the task that answers the call; nil after the answer was deferred
    worker = nil,         -- answers a call whose answer was deferred, or continues a stream, by
    get_answer = nil,     -- the function given to `resume` or `continue`
    deferral = nil,       -- see `defer`
    first = nil,          -- the first message of a call that Lua answers, if only middleware has read it
    may_read = false,     -- `before` of middleware may read the field request
    is_streaming = false, -- the handler of a stream has begun
    has_ended = false,    -- the client has received the answer, or has cancelled the call
    arrived = nil,        -- made when the task waits for messages: set when some have arrived
    has_room = nil,       -- made when the client takes no messages: set when the client takes some again
  }, call_mt)
end

--- Returns the text of an error for the client. For a plain table that is its message: the other fields are not for
-- clients.
local function text_of(err)
  return errors.text_of(errors.is_plain(err) and (rawget(err, "message") or "an error without a message") or err)
end

--- True if an error has the field grpc_status, the status with which the call ends.
local function has_status(err)
  local status = type(err) == "table" and err.grpc_status
  return type(status) == "number" and status > OK and status <= grpc_status.UNAUTHENTICATED and status % 1 == 0
end

--- Returns the result of a user's function for a message. An error that the function returns after nil ends the call,
-- as if the handler had returned the error.
local function convert(how, message)
  local made, err = how(message)
  if made ~= nil or err == nil then return made end
  error(has_status(err) and err or { grpc_status = grpc_status.UNKNOWN, message = text_of(err) }, 0)
end

--- Returns a request, decoded by the name of a message, by a function, or, if the method has neither, not at all.
local function decode(method, bytes)
  local how = method.request
  if how == nil then return bytes end
  if type(how) == "function" then return convert(how, bytes) end
  local message, err = core.decode(how, bytes, method.max_fields)
  if not message then error(err, 0) end
  return message
end

--- Returns a message for the client, encoded by the name of a message, by a function, or, if `how` is nil, not at
-- all.
local function encode(how, message)
  if how == nil then return message end
  if type(how) == "function" then return convert(how, message) end
  return check.call("send", core.encode, how, message)
end

--- Raises "cancelled" if the call has ended: no client waits for its answer.
local function check_interest(call)
  if call.has_ended then error(core.new_error("cancelled"), 0) end
end

--- Waits for the result of a method of the server's object that receives: `receive` or `request`.
local function await(call, name, gathers)
  local object = call.server.object
  while true do
    check_interest(call)
    local bytes, message, max_fields = object[name](object, call.id, gathers)
    if bytes ~= nil then return bytes, message, max_fields end
    call.arrived = call.arrived or driver.get().event()
    call.arrived:wait()
  end
end

--- Waits for the next message of the client. Returns its bytes; nil after the last message. With `gathers` the bytes
-- count as memory of the connection until the call ends.
local function take(call, gathers)
  local bytes = rawget(call, "first") or await(call, "receive", gathers)
  call.first = nil
  return bytes or nil
end

--- Sends bytes, and waits while the client does not take them. Returns true; or nil and an error of code "timeout".
local function send(call, bytes, timeout)
  check_interest(call)
  local object = call.server.object
  if type(bytes) == "string" and object:send(call.id, bytes) then return true end
  if type(bytes) ~= "string" and object:send_text(call.id, bytes) then return true end
  call.has_room = call.has_room or driver.get().event()
  if call.has_room:wait(timeout) then return true end
  return nil, core.new_error("timeout")
end

--- Raises unless the handler of a stream runs: a unary handler gets its message as an argument, and middleware gets
-- none.
local function check_streaming(call, name)
  if call.is_streaming then return end
  check.misuse("%s: only the handler of a stream receives and sends", name)
end

local inspect

--- Waits for the next message of the client, and returns it decoded; nil after the last message.
function call_methods:receive()
  check_streaming(self, "receive")
  local bytes = take(self)
  if bytes and self.server.is_inspecting then inspect(self, bytes) end
  return bytes and decode(self.method, bytes)
end

--- Returns an iterator over the messages of the client.
function call_methods:messages()
  check_streaming(self, "messages")
  return self.receive, self
end

--- Sends a message, and waits while the client's flow-control window is closed. Returns true; or nil and an error of
-- code "timeout" if the client takes nothing for `timeout` seconds. The message is queued in either case.
function call_methods:send(message, timeout)
  check_streaming(self, "send")
  check.timeout(timeout, "send", 2)
  local bytes = encode(self.method.response, message)
  check.argument(type(bytes) == "string", 1, "send", "string", bytes)
  return send(self, bytes, timeout)
end

-- {====== Answering ======

local REFUSED = { grpc_status = grpc_status.PERMISSION_DENIED, message = "keywatch: the call was refused" }

--- Returns the status and the text with which an error ends a call; nil if the error has no status.
local function status_of(err)
  if type(err) == "table" and err.code == "cancelled" then
    return grpc_status.UNAVAILABLE, "etcdserver: server stopped"
  end
  if has_status(err) then return err.grpc_status, text_of(err.message or err) end
end

--- Ends the call with an error. Without a traceback the error was returned; if it has no status, the status is UNKNOWN.
-- With a traceback the error was raised; if it has no status, it is a bug of the program: it is logged, and its text,
-- which is about the program's internals, is not sent to the client.
local function fail(call, err, traceback)
  local ok, status, text = pcall(status_of, err)
  if not ok or not status then
    status, text = grpc_status.UNKNOWN, not traceback and text_of(err)
  end
  if not text then
    call.server.failures:line("%s has failed: %s", call.path, traceback)
    status, text = grpc_status.INTERNAL, "keywatch: internal error: see the server's log"
  end
  call.server.object:finish(call.id, status, text)
end

--- Evaluates the results of a middleware's `before`. If they are true or nothing, the call proceeds: returns true.
-- Otherwise returns false and the error with which the call is refused.
local function verdict(ok, err)
  if err ~= nil and err ~= false then return false, err end
  if ok == false or err == false then return false, REFUSED end
  if ok == nil or ok == true then return true end
  error(("before: returned a %s, which is neither true nor an error"):format(type(ok)), 0)
end

--- Calls `before` of all middleware. Returns true; or false and an error, if one refuses the call.
local function pass(call)
  for _, ware in ipairs(call.server.middleware) do
    if ware.before then
      local proceeds, err = verdict(ware.before(call))
      if not proceeds then return false, err end
    end
  end
  return true
end

-- {------ Messages in middleware ------

--- Waits for the next message of an intercepted call, and returns it decoded; nil after the last message. The core
-- gets the message at the next `proceed`.
local function read_held(call)
  local bytes, name, max_fields = await(call, "request")
  if not bytes then return nil end
  local message, err = core.decode(name, bytes, max_fields)
  return message or error(err, 0)
end

--- Waits for the first message of a call, and returns it decoded. The handler or the core gets the same bytes.
local function read_first(call)
  if call.is_intercepted then return read_held(call) end
  local bytes = take(call)
  call.first = bytes
  return bytes and decode(call.method, bytes)
end

--- Returns the value of the field `request`.
function read_request(call)
  if not rawget(call, "may_read") then return nil end
  local message = read_first(call)
  call.request = message
  return message
end

function call_mt.__index(call, name)
  if name == "request" then return read_request(call) end
  return call_methods[name]
end

--- Calls the function `message` of all middleware. Returns what `pass` returns.
local function pass_message(call, message)
  for _, ware in ipairs(call.server.middleware) do
    if ware.message then
      local proceeds, err = verdict(ware.message(call, message))
      if not proceeds then return false, err end
    end
  end
  return true
end

--- Shows a message of a stream that Lua answers to middleware. If that refuses the message, the call ends, and this
-- raises "cancelled".
function inspect(call, bytes)
  local ok, err = pass_message(call, decode(call.method, bytes))
  if ok then return end
  fail(call, err)
  error(core.new_error("cancelled"), 0)
end

--- Shows each message of an intercepted stream to middleware before the core gets it. Returns nil; and an error if a
-- message is refused.
local function inspect_all(call)
  for message in read_held, call do
    local ok, err = pass_message(call, message)
    if not ok then return nil, err end
    call.server.object:proceed(call.id)
  end
  call.server.object:proceed(call.id) -- a client may half-close a stream without a message
end

-- }------

local DEFERRED = {} -- the result of a handler that has deferred its answer

--- Sends the result of the handler of a unary method. Returns true; nil and an error; or only nil if the answer is
-- deferred.
local function respond(call, response, err)
  if response == DEFERRED then return nil end
  if not response then
    if err == nil then error("the handler of " .. call.path .. " has returned neither an answer nor an error", 0) end
    return nil, err
  end
  local bytes = encode(call.method.response, response)
  if type(bytes) ~= "string" then
    error(("the answer of %s is a %s, not a string"):format(call.path, type(bytes)), 0)
  end
  call.server.object:send(call.id, bytes)
  return true
end

--- Calls the handler of a unary method. Returns what `respond` returns.
local function answer_unary(call, method)
  return respond(call, method.handler(decode(method, take(call)), call))
end

--- Calls the handler of a stream. Returns true; or nil and an error.
local function answer_stream(call, method)
  call.is_streaming = true
  local ok, err = method.handler(call)
  if ok == DEFERRED then return nil end
  if err ~= nil then return nil, err end
  if ok == false then error("the handler of " .. call.path .. " has returned false, and no error", 0) end
  return true
end

local continue

--- Returns true if the call was answered; nil and an error if it fails; only nil if the core answers it, or the answer
-- is deferred.
local function answer(call)
  call.may_read = true
  local ok, err = pass(call)
  call.may_read = false
  if not ok then return nil, err end
  if call.is_intercepted then
    if call.is_stream and call.server.is_inspecting then
      continue(call, function() return inspect_all(call) end)
      return nil
    end
    call.server.object:proceed(call.id)
    return nil
  end
  local method = call.method
  return (method.is_stream and answer_stream or answer_unary)(call, method)
end

--- Ends the call, unless it was answered elsewhere. Takes the results of errors.attempt.
local function conclude(call, ok, done, err)
  if not ok then
    fail(call, done.err, done.traceback)
  elseif done then
    call.server.object:finish(call.id, OK)
  elseif err ~= nil then
    fail(call, err)
  end
end

--- The function of the call's task: answers the call.
local function serve(call)
  conclude(call, errors.attempt(answer, call))
end

-- {====== Deferring ======

--- Defers the answer of a unary call: the handler returns the result of this function, and the call has no task until
-- `resume`. If the call ends before the worker of `resume` runs, the dispatcher calls deferral:give_up(), which must
-- not wait.
local function defer(call, deferral)
  call.deferral, call.task, call.arrived, call.has_room = deferral, nil, nil, nil
  return DEFERRED
end

--- Sends the result of the function given to `resume`.
local function answer_late(call)
  return respond(call, call.get_answer())
end

--- The function of the worker of a deferred call.
local function serve_late(call)
  call.deferral = nil
  conclude(call, errors.attempt(answer_late, call))
end

--- Makes a worker answer a deferred call: get_answer() returns the same as a unary handler.
local function resume(call, get_answer)
  if call.has_ended then return end
  call.get_answer = get_answer
  call.worker = worker.start(serve_late, call)
end

--- The function of the worker of a continued stream. If the end of keywatch.run cancels the worker, it is restarted.
local function serve_continued(call)
  local ok, done, err = errors.attempt(call.get_answer)
  if not ok and driver.is_cancellation(done.err) and not call.has_ended then error(done.err, 0) end
  conclude(call, ok, done, err)
end

--- Makes a worker continue a stream, even after the end of keywatch.run: the handler returns the result of this
-- function. follow() returns the same as the handler of a stream, and is called again after its wait was cancelled.
function continue(call, follow)
  call.get_answer = follow
  call.worker = worker.start(serve_continued, call)
  return DEFERRED
end

-- }======

--- Calls `after` of all middleware once the call has ended, even if the core has answered it.
local function run_after(call, status)
  call.may_read = false
  for _, ware in ipairs(call.server.middleware) do
    if ware.after then
      local ok, raised = errors.attempt(ware.after, call, status)
      if not ok and not driver.is_cancellation(raised.err) then
        call.server.failures:line("after %s: %s", call.path, raised.traceback)
      end
    end
  end
end

-- }======

return {
  open = open, serve = serve, defer = defer, resume = resume, continue = continue, run_after = run_after,
  add_field = add_field, read_identity = read_identity, take = take, send = send, pass = pass,
  check_interest = check_interest, status_of = status_of, text_of = text_of,
  methods = call_methods,
}
