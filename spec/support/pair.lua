--- A server and its clients, without sockets: bytes are passed directly, in frozen time.

local busted = require "busted"
local core = require "keywatch.core"
local keywatch = require "keywatch"

local h2 = require "spec.support.h2"

local pair = {}

pair.paths = {}
for name, methods in pairs { KV = "Range RangeStream Put DeleteRange Txn Compact", Watch = "Watch",
  Lease = "LeaseGrant LeaseRevoke LeaseTimeToLive LeaseLeases LeaseKeepAlive" } do
  for method in methods:gmatch("%w+") do pair.paths[method] = "/etcdserverpb." .. name .. "/" .. method end
end

local requests = { Compact = "CompactionRequest", RangeStream = "RangeRequest" }
local responses = { Compact = "CompactionResponse" }

function pair.request_name(method) return requests[method] or method .. "Request" end
function pair.response_name(method) return responses[method] or method .. "Response" end

-- A server ---------------------------------------------------------------------------------------------------

local host = {}
local host_mt = { __index = host }

--- Opens a store with a manual clock, and a server of it.
function pair.host(store_options, server_options)
  local options = { now = 0 }
  for name, v in pairs(store_options or {}) do options[name] = v end
  return pair.host_of(keywatch.open(options), server_options)
end

--- Opens a server of an existing store.
function pair.host_of(store, server_options)
  return setmetatable({ store = store, server = assert(core.serve(store, server_options)), ends = {}, now = 1000 },
    host_mt)
end

--- Lets the server do all its due work.
function host:step()
  local due = self.server:step(self.now)
  while due and due <= self.now do due = self.server:step(self.now) end
end

--- Moves bytes between the server and all connections until none are left.
function host:pump()
  repeat
    local moved = false
    for _, one in ipairs(self.ends) do moved = one:push() or moved end
    self:step()
    for _, one in ipairs(self.ends) do moved = one:pull() or moved end
  until not moved
end

--- In a probe build, raises if a connection breaks an invariant.
function host:check()
  if not core.probe then return end
  core.probe.check_server(self.server)
  for _, one in ipairs(self.ends) do
    if one.client then core.probe.check_client(one.client) end
  end
end

function host:close()
  for _, one in ipairs(self.ends) do one:close() end
  self.server:close()
  self.store:close()
end

--- For the calling block of tests: calls set(host) before each test, with a new host. A probe build checks the store
-- after the test. Options: those of pair.host.
function pair.for_each_test(set, store_options, server_options)
  local one
  busted.before_each(function()
    one = pair.host(store_options, server_options)
    set(one)
  end)
  busted.after_each(function()
    if core.probe then core.probe.check(one.store) end
    one:close()
  end)
end

local PIECE = 2 ^ 18 -- bytes: larger strings are slow to build

--- Takes all pending bytes of a peer, in pieces. Returns true if there were any.
local function drain(peer, take)
  local moved = false
  for bytes in function() return peer:pending(PIECE) end do
    if bytes == "" then break end
    take(bytes)
    moved = true
  end
  return moved
end

-- By hand ----------------------------------------------------------------------------------------------------

local raw = {}
local raw_mt = { __index = raw }

--- Connects a client whose frames are made by hand. It sends `hello`: by default a correct preface, nothing if it is
-- false. The server reads at most `max_turn` messages of it in a turn; by default all.
function host:raw(hello, max_turn)
  local peer = assert((self.server:accept(self.now, max_turn)), "no connection, or not enough memory")
  local one = setmetatable({ host = self, peer = peer, reader = h2.reader(), unsent = {}, is_deaf = false }, raw_mt)
  self.ends[#self.ends + 1] = one
  if hello ~= false then one:send(hello or h2.hello()) end
  return one
end

function raw:send(...)
  for _, bytes in ipairs { ... } do self.unsent[#self.unsent + 1] = bytes end
  return self
end

function raw:push()
  local bytes = table.concat(self.unsent)
  self.unsent = {}
  if bytes ~= "" then self.peer:feed(bytes, self.host.now) end
  return bytes ~= ""
end

function raw:pull()
  if self.is_deaf then return false end
  return drain(self.peer, function(bytes) self.reader:feed(bytes) end)
end

--- Sends bytes, and reads all answers.
function raw:say(...)
  self:send(...)
  self.host:pump()
  return self.reader
end

function raw:is_done() return (select(2, self.peer:state())) end
function raw:close() self.peer:close() end

-- A client ---------------------------------------------------------------------------------------------------

local client = {}
local client_mt = { __index = client }

--- Connects a client of the core.
function host:client()
  local peer = assert((self.server:accept(self.now)), "no connection, or not enough memory")
  local one_client = assert(core.client("spec", nil, self.now), "not enough memory")
  local one = setmetatable({ host = self, peer = peer, client = one_client, returns = {},
    is_deaf = false }, client_mt)
  self.ends[#self.ends + 1] = one
  return one
end

function client:push()
  local bytes = self.client:pending()
  if bytes ~= "" then self.peer:feed(bytes, self.host.now) end
  return bytes ~= ""
end

function client:pull()
  local moved = not self.is_deaf and drain(self.peer, function(bytes) self.client:feed(bytes, self.host.now) end)
  self:take()
  return moved
end

--- Takes the answers that have arrived: returns[call] = { messages..., status =, text = }.
function client:take()
  for call in self.client.next, self.client do
    local list = self.returns[call] or {}
    self.returns[call] = list
    for message, status, text in function() return self.client:receive(call) end do
      if message then list[#list + 1] = message else list.status, list.text = status, text end
    end
  end
end

--- Begins a call, and sends the given messages.
function client:start(method, metadata, ...)
  local call = assert((self.client:call(pair.paths[method] or method, metadata)), "no call, or not enough memory")
  for _, message in ipairs { ... } do self.client:send(call, message) end
  self.returns[call] = {}
  return call
end

-- A unary call that is under way.
local unary = {}
local unary_mt = { __index = unary }

--- Sends a unary call, without a step of the server.
function client:begin(method, request, metadata)
  local number = self:start(method, metadata, core.encode(pair.request_name(method), request or {}))
  self.client:half_close(number)
  self:push()
  return setmetatable({ who = self, method = method, number = number }, unary_mt)
end

--- Returns the answer of a call, and its bytes; or the status and text of a failure; nothing if the call has not ended.
function unary:look()
  self.who:pull()
  local back = self.who.returns[self.number]
  if not back.status then return nil end
  if back.status ~= 0 then return back.status, back.text end
  return core.decode(pair.response_name(self.method), back[1]), back[1]
end

--- Makes a unary call. Returns the decoded answer, or nil, the status and its text; and the bytes of the answer.
function client:unary(method, request, metadata)
  local call = self:start(method, metadata, core.encode(pair.request_name(method), request or {}))
  self.client:half_close(call)
  self.host:pump()
  self:take()
  local back = self.returns[call]
  self.returns[call] = nil
  assert(back.status, "no end of a call")
  if back.status ~= 0 then return nil, back.status, back.text end
  assert(#back == 1, "not one answer")
  return core.decode(pair.response_name(method), back[1]), nil, nil, back[1]
end

-- A stream of messages both ways.
local stream = {}
local stream_mt = { __index = stream }

function client:stream(method, metadata)
  return setmetatable({ client = self, method = method, call = self:start(method, metadata), at = 0, raw = {} },
    stream_mt)
end

--- Queues a request, without moving bytes.
function stream:send(request)
  self.client.client:send(self.call, core.encode(pair.request_name(self.method), request))
  return self
end

--- Returns the answers of a range stream as one answer.
function pair.merge(messages)
  local whole = { kvs = {} }
  for i, message in ipairs(messages) do
    local part = core.decode("RangeStreamResponse", message).range_response
    for _, kv in ipairs(part.kvs or {}) do table.insert(whole.kvs, kv) end
    assert((part.header ~= nil) == (i == #messages), "a header in the middle, or none at the end")
    whole.header, whole.more, whole.count = part.header, part.more, part.count
  end
  return whole
end

--- Returns the decoded answers since the last call; their bytes are in `raw`.
function stream:take()
  self.client.host:pump()
  self.client:take()
  local back, list, bytes = self.client.returns[self.call], {}, {}
  for i = self.at + 1, #back do
    bytes[#bytes + 1] = back[i]
    list[#list + 1] = core.decode(pair.response_name(self.method), back[i])
  end
  self.at = #back
  self.raw = bytes
  return list
end

--- Sends a request, and returns the answers.
function stream:ask(request) return self:send(request):take() end

function stream:half_close() self.client.client:half_close(self.call) end
function stream:cancel() self.client.client:cancel(self.call) end

--- Returns the status and text of the stream, if it has ended.
function stream:status()
  self:take()
  local back = self.client.returns[self.call]
  return back.status, back.text
end

function client:close()
  self.client:close()
  self.peer:close()
end

return pair
