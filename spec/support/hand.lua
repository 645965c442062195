--- A hand-made server for a client of the core, without sockets, in frozen time: reads the frames of the client, and
-- makes the answers frame by frame.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"

local hand = {}

local hand_methods = {}
local hand_mt = { __index = hand_methods }

hand.HEADERS = { { ":status", "200" }, { "content-type", "application/grpc" } }
hand.OK = { { "grpc-status", "0" } }

--- Returns a server whose client has exchanged SETTINGS with it; `settings` are those of the server.
function hand.new(options, settings)
  local one = setmetatable({
    client = core.client("spec", options, 0),
    now = 0,
    parts = {},   -- by stream: received bytes of messages
    windows = {}, -- by stream, or 0: bytes that the client has granted
    resets = {},  -- by stream: the code of a reset
    pings = 0,
    last_stream = -1,
  }, hand_mt)
  one.client:pending()
  one.client:feed(h2.settings(settings or {}) .. h2.settings("ack"), 0)
  return one
end

local on = {}

function on.data(self, frame) self.parts[frame.id] = (self.parts[frame.id] or "") .. frame.payload end

function on.window(self, frame)
  self.windows[frame.id] = (self.windows[frame.id] or 0) + h2.unpack_at(frame.payload, 1, 4)
end

function on.reset(self, frame) self.resets[frame.id] = h2.unpack_at(frame.payload, 1, 4) end

function on.ping(self, frame)
  if frame.flags % 2 == 0 then self.pings = self.pings + 1 end
end

--- Reads the frames of the client.
function hand_methods:read()
  for _, frame in ipairs(h2.frames(self.client:pending())) do
    if on[frame.type] then on[frame.type](self, frame) end
  end
  return self
end

--- Returns the messages of a stream since the last call.
function hand_methods:messages(stream)
  self:read()
  local bytes = self.parts[stream] or ""
  local list, at = h2.read_messages(bytes)
  self.parts[stream] = bytes:sub(at)
  return list
end

--- Returns the requests of a Watch call since the last call.
function hand_methods:requests(stream)
  local list = self:messages(stream)
  for i, bytes in ipairs(list) do list[i] = core.decode("WatchRequest", bytes) end
  return list
end

function hand_methods:feed(...)
  for _, bytes in ipairs { ... } do self.client:feed(bytes, self.now) end
  return self
end

--- Begins a Watch call, and answers with headers. Returns the numbers of the call and of its stream.
function hand_methods:watch(max_torn)
  local call = assert((self.client:watch(nil, max_torn or 2 ^ 20)), "no call, or not enough memory")
  self.last_stream = self.last_stream + 2
  self:read():feed(h2.headers(self.last_stream, hand.HEADERS))
  return call, self.last_stream
end

--- Sends answers of a Watch call.
function hand_methods:answer(stream, ...)
  for _, answer in ipairs { ... } do
    self:feed(h2.data_in_parts(stream, h2.message(core.encode("WatchResponse", answer)), 16384))
  end
  return self
end

--- Ends a call with a status.
function hand_methods:finish(stream, status, text)
  local lines = { { "grpc-status", tostring(status or 0) }, text and { "grpc-message", text } }
  return self:feed(h2.headers(stream, lines, { ends = true })):read()
end

function hand_methods:close() self.client:close() end

-- {====== Answers ======

local CLUSTER = 77

function hand.header(revision) return { cluster_id = CLUSTER, revision = revision } end

function hand.created(id, revision)
  return { header = hand.header(revision), watch_id = id, created = true }
end

--- Returns an answer with an event of the key "k" for each revision.
function hand.events(id, revisions, more)
  local answer = { watch_id = id, events = {} }
  for i, revision in ipairs(revisions) do
    answer.events[i] = { kv = { key = "k", value = more and more.value, mod_revision = revision } }
  end
  answer.header = hand.header(revisions[#revisions])
  answer.fragment = more and more.fragment
  return answer
end

--- Returns the progress of a watch, or of all for the id -1.
function hand.progress(id, revision) return { header = hand.header(revision), watch_id = id } end

function hand.canceled(id, more)
  local answer = { header = hand.header(1), watch_id = id, canceled = true }
  for name, value in pairs(more or {}) do answer[name] = value end
  return answer
end

-- }======

--- Returns everything that a watch has received: the revisions of events, and { kind, what, text } for the rest.
function hand.take(sub)
  local list = {}
  while true do
    local kind, what, text = sub:take()
    if not kind then return list end
    if kind == "events" then
      for _, event in ipairs(what) do list[#list + 1] = event.mod_revision end
    else
      list[#list + 1] = { kind, what, text }
      if kind ~= "progress" then return list end
    end
  end
end

return hand
