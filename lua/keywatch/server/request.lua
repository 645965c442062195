-- SPDX-License-Identifier: MIT
--- request: one HTTP request, for its handler, see server:handle; and for middleware.
--
-- Fields, besides those of a call: method, scheme, host, path (encoded, without the query), params (the parameters of
-- the path), query (values by name; the first one of several), query_text (encoded), headers (values by name in lower
-- case).
-- After the client has disconnected, or the request was answered, every method of the request raises "cancelled".
--
-- A handler returns a status, a body and headers; or only a body, with status 200; or nil and an error. Or it calls
-- `answer` and `write`, and returns nothing.

local call = require "keywatch.server.call"
local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local notes = require "keywatch.server.notes"
local origin = require "keywatch.server.origin"
local routes = require "keywatch.server.routes"

local MAX_BODY = 1.5 * 1024 * 1024 -- bytes, default
local TEXT = "text/plain; charset=utf-8"
local LEAST_STATUS = 200 -- a lower one is of an interim answer
local HAS_NO_BODY = { [204] = true, [304] = true }

-- The HTTP status for each gRPC status; 500 for the others.
local STATUS = {
  [grpc_status.CANCELLED] = 408, [grpc_status.INVALID_ARGUMENT] = 400, [grpc_status.DEADLINE_EXCEEDED] = 504,
  [grpc_status.NOT_FOUND] = 404, [grpc_status.ALREADY_EXISTS] = 409, [grpc_status.PERMISSION_DENIED] = 403,
  [grpc_status.RESOURCE_EXHAUSTED] = 429, [grpc_status.FAILED_PRECONDITION] = 400, [grpc_status.ABORTED] = 409,
  [grpc_status.OUT_OF_RANGE] = 400, [grpc_status.UNIMPLEMENTED] = 501, [grpc_status.UNAVAILABLE] = 503,
  [grpc_status.UNAUTHENTICATED] = 401,
}

local request_methods, request_mt = check.class "keywatch.request"

function request_mt:__tostring()
  return ("keywatch.request<%s %s>"):format(self.method, self.path)
end

--- Returns the headers of a head.
local function read_headers(head)
  local headers = {}
  for name, value in head:gmatch "(%Z+)%z(%Z*)%z" do
    if name:byte() ~= 58 then call.add_field(headers, name, value) end -- ":"
  end
  return headers
end

-- Fields that are made when they are used first: most handlers use few of them.
local made = {}

function made.scheme(self) return self.head:match ":scheme%z(%Z*)" end
function made.host(self) return self.head:match ":authority%z(%Z*)" end
function made.query_text(self) return self.head:match ":path%z[^?%z]*%??(%Z*)" end
function made.headers(self) return read_headers(self.head) end
function made.metadata(self) return self.headers end
function made.query(self) return core.read_query(self.query_text) end
function made.params() return {} end

--- The header origin, or false.
function made.origin(self) return self.head:find("origin\0", 1, true) and self.headers.origin or false end

function request_mt:__index(name)
  local make = made[name]
  if not make then return request_methods[name] end
  self[name] = make(self)
  return self[name]
end

--- Returns the request for an id of the core; nil if the id is that of a gRPC call, or the request has ended already.
-- Fields that are tested for each request begin as false: reading a nil would call __index.
local function open(server, id)
  local method, path, head, peer, is_misdirected, identity = server.object:head(id)
  if not method then return nil end
  local common_name, organizations = call.read_identity(identity)
  return setmetatable({
    server = server,
    id = id,
    method = method,
    path = path,
    head = head, -- all fields: name, 0, value, 0, and so on, beginning with :method, :scheme, :authority and :path
    peer = peer,
    common_name = common_name,
    organizations = organizations,
    is_misdirected = is_misdirected, -- the host is not one of the server's
    task = false, -- this one, worker, arrived, has_room and has_ended: as those of a call
    worker = false,
    deferral = false, -- see `defer`
    arrived = false,
    has_room = false,
    has_ended = false, -- also true once the whole answer was sent
    status = false, -- of the answer
    is_streamed = false,
  }, request_mt)
end

-- {====== For handlers ======

--- Waits for the next part of the body, and returns it; nil after the last one.
function request_methods:read()
  return call.take(self)
end

local function gather(self) return call.take(self, true) end

--- Waits for the whole body, and returns it. Raises an error with HTTP status 413 if it has more than `max` bytes.
function request_methods:body(max)
  local parts, left = {}, max or MAX_BODY
  for part in gather, self do
    left = left - #part
    if left < 0 then error({ http_status = 413, message = "the body is too large" }, 0) end
    parts[#parts + 1] = part
  end
  return table.concat(parts)
end

--- Returns headers as a flat list: name, value, name, value. A header whose value is a list occurs once for each item.
local function list_of(headers)
  local list, n = {}, 0
  for name, value in pairs(headers) do
    if type(value) == "table" then
      for _, one in ipairs(value) do list[n + 1], list[n + 2], n = name, tostring(one), n + 2 end
    else
      list[n + 1], list[n + 2], n = name, tostring(value), n + 2
    end
  end
  return list
end

--- Sends the head of the answer, or, if `body` is a string, the whole answer; else `body` is its length, or nil.
-- Without headers the answer is a text.
local function send_answer(self, status, headers, body)
  local server = self.server
  local list = headers and list_of(headers) or { "content-type", TEXT }
  call.check_interest(self)
  origin.add_headers(server.origins, self, list)
  if status < LEAST_STATUS or not server.object:answer(self.id, status, list, body) then
    check.misuse("answer: the status or a header is not valid")
  end
  self.status, self.has_ended = status, type(body) == "string"
end

--- Sends the head of an answer that the handler will write. To HEAD that is the whole answer: raises "cancelled", since
-- a handler that writes to no client would never wait.
local function begin_answer(self, status, headers, length)
  send_answer(self, status, headers, length)
  if self.method ~= "HEAD" then return end
  self.server.object:finish(self.id, grpc_status.OK)
  self.has_ended = true
  call.check_interest(self)
end

--- Sends the head of the answer. `length` is that of the body, if it is known. Raises "cancelled" if the method is
-- HEAD.
function request_methods:answer(status, headers, length)
  check.argument(type(status) == "number", 1, "answer", "number", status)
  check.argument(length == nil or type(length) == "number", 3, "answer", "number", length)
  if self.status then check.misuse("answer: the request was answered already") end
  begin_answer(self, status, headers or {}, length)
end

--- Sends a part of the body, and waits while the client does not take it. Returns true; or nil and an error of code
-- "timeout" if the client takes nothing for `timeout` seconds.
function request_methods:write(bytes, timeout)
  check.timeout(timeout, "write", 2)
  check.argument(type(bytes) == "string", 1, "write", "string", bytes)
  if not self.status then begin_answer(self, 200) end
  if HAS_NO_BODY[self.status] then check.misuse("write: an answer with status %d has no body", self.status) end
  self.is_streamed = true
  return call.send(self, bytes, timeout)
end

-- }======

-- {====== Answering ======

--- Returns the HTTP status and the text of an error: { http_status =, message = }, or one with a gRPC status. Any other
-- error has status 500 and the text `default`.
local function read_error(err, default)
  if type(err) == "table" and rawget(err, "http_status") then
    return err.http_status, tostring(rawget(err, "message") or "")
  end
  local status, text = call.status_of(err)
  return STATUS[status] or 500, text or default
end

--- Answers with an error. Returns false if the error has no text, or an answer was sent already.
local function refuse(self, err, default)
  local status, text = read_error(err, default)
  if not text or self.status then return false end
  local headers = type(err) == "table" and rawget(err, "headers") or nil
  send_answer(self, status, headers, text == "" and "" or text .. "\n")
  return true
end

--- Answers with what the handler has returned.
local function conclude(self, status, body, headers)
  if self.status then return end
  if type(status) == "string" then
    send_answer(self, 200, body, status)
  elseif type(status) == "number" and (body == nil or type(body) == "string") then
    send_answer(self, status, headers, body or "")
  elseif status == nil and body ~= nil then
    refuse(self, body, call.text_of(body))
  else
    error(("the handler of %s %s has returned no answer"):format(self.method, self.path), 0)
  end
end

--- Answers a request for which there is no handler.
local function answer_missing(self, allow)
  if not allow then return send_answer(self, 404, nil, "404 page not found\n") end
  if self.method == "OPTIONS" then return send_answer(self, 204, { allow = allow }, "") end
  return send_answer(self, 405, { allow = allow, ["content-type"] = TEXT }, "Method Not Allowed\n")
end

local function answer(self)
  local server = self.server
  local status, text = origin.refusal(server.origins, self)
  if status then return send_answer(self, status, nil, text) end
  if #server.middleware > 0 then
    local ok, err = call.pass(self)
    if not ok then return refuse(self, err, call.text_of(err)) end
  end
  local handler, found = routes.find(server.routes, self.method, self.path)
  if not handler then return answer_missing(self, found) end
  if found then self.params = found end
  return conclude(self, handler(self))
end

--- Answers a request whose handler has raised an error. Returns false if the answer has begun, and must be cut off.
local function fail(self, err, traceback)
  if self.has_ended or self.status and driver.is_cancellation(err) then return false end
  local ok, is_refused = pcall(refuse, self, err)
  if ok and is_refused then return true end
  self.server.failures:line("%s %s has failed: %s", self.method, self.path, traceback)
  if self.status then return false end
  send_answer(self, 500, nil, "keywatch: internal error: see the server's log\n")
  return true
end

--- True if the handler of a request is one that never waits, and no middleware might: no task is needed.
local function is_quick(self)
  return #self.server.middleware == 0 and routes.is_quick(self.server.routes, self.method, self.path)
end

--- Ends a request. Takes the results of errors.attempt.
local function finish(self, ok, trouble)
  local server = self.server
  if not ok then ok = fail(self, trouble.err, trouble.traceback) end
  if not self.has_ended then server.object:finish(self.id, ok and grpc_status.OK or grpc_status.INTERNAL) end
  self.has_ended = true
  if #server.middleware == 0 then server.calls[self.id] = nil end -- else it still has news of its end
  if server.has_notes then notes.log_request(server, self, driver.get().now() - self.since) end
end

--- Answers a request: the function of its task, if there is one.
local function serve(self)
  if self.server.has_notes then self.since = driver.get().now() end
  local ok, trouble = errors.attempt(answer, self)
  if not ok or not self.deferral then finish(self, ok, trouble) end
end

--- Sends a text of the core (csrc/bind/lua_texts.h), or a string, as `write` does. For this library.
local function pass_on(self, part, timeout)
  self.is_streamed = true
  return call.send(self, part, timeout)
end

-- {====== Streams without a task ======

--- Defers the end of an answer that has begun: the handler returns, and the request has no task. The dispatcher calls
-- deferral:set() when there is room again to send, and deferral:give_up() when the client is gone; neither may wait.
local function defer(self, deferral)
  self.deferral, self.has_room, self.task, self.arrived = deferral, deferral, false, false
  self.headers, self.query, self.params = nil, nil, nil -- made again if they are used
end

--- Gives a deferred request a task, which calls fn(...). The request ends with the task, unless it is deferred again.
local function resume(self, fn, ...)
  self.deferral, self.has_room = false, false
  self.task = driver.get().spawn(function(...)
    local ok, trouble = errors.attempt(fn, ...)
    if not ok or not self.deferral then finish(self, ok, trouble) end
  end, ...)
end

--- Ends a deferred request.
local function complete(self)
  self.deferral, self.has_room = false, false
  finish(self, true)
end

-- }======

-- }======

return {
  open = open, is_quick = is_quick, serve = serve, defer = defer, resume = resume, complete = complete,
  pass_on = pass_on,
  methods = request_methods,
}
