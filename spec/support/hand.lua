--- A hand-made server for a client of the core, without sockets, in frozen time: reads the frames of the client, and
-- makes the answers frame by frame.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"

local hand = {}

local hand_methods = {}
local hand_mt = { __index = hand_methods }

hand.HEADERS = { { ":status", "200" }, { "content-type", "application/grpc" } }
hand.OK = { { "grpc-status", "0" } }

--- A client that has said hello and heard the settings, which are those of `settings`.
function hand.new(options, settings)
  local one = setmetatable({
    client = core.client("spec", options, 0),
    now = 0,
    parts = {},   -- by stream: what came of messages
    windows = {}, -- by stream, or 0: what it was granted
    resets = {},  -- by stream: a code
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

--- Reads what the client says.
function hand_methods:read()
  for _, frame in ipairs(h2.frames(self.client:pending())) do
    if on[frame.type] then on[frame.type](self, frame) end
  end
  return self
end

--- The messages of a stream that were said since.
function hand_methods:messages(stream)
  self:read()
  local bytes = self.parts[stream] or ""
  local list, at = h2.read_messages(bytes)
  self.parts[stream] = bytes:sub(at)
  return list
end

--- The requests of a Watch call that were made since.
function hand_methods:requests(stream)
  local list = self:messages(stream)
  for i, bytes in ipairs(list) do list[i] = core.decode("WatchRequest", bytes) end
  return list
end

function hand_methods:feed(...)
  for _, bytes in ipairs { ... } do self.client:feed(bytes, self.now) end
  return self
end

--- Begins a Watch call, which is answered: its number and its stream.
function hand_methods:watch(max_torn)
  local call = assert((self.client:watch(nil, max_torn or 2 ^ 20)), "no call, or not enough memory")
  self.last_stream = self.last_stream + 2
  self:read():feed(h2.headers(self.last_stream, hand.HEADERS))
  return call, self.last_stream
end

--- Answers of a Watch call.
function hand_methods:answer(stream, ...)
  for _, answer in ipairs { ... } do
    self:feed(h2.data_in_parts(stream, h2.message(core.encode("WatchResponse", answer)), 16384))
  end
  return self
end

--- The call has ended.
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

--- One event for each of the revisions, all of key "k" and of some value.
function hand.events(id, revisions, more)
  local answer = { watch_id = id, events = {} }
  for i, revision in ipairs(revisions) do
    answer.events[i] = { kv = { key = "k", value = more and more.value, mod_revision = revision } }
  end
  answer.header = hand.header(revisions[#revisions])
  answer.fragment = more and more.fragment
  return answer
end

--- Of one watch, or of all, for -1.
function hand.progress(id, revision) return { header = hand.header(revision), watch_id = id } end

function hand.canceled(id, more)
  local answer = { header = hand.header(1), watch_id = id, canceled = true }
  for name, value in pairs(more or {}) do answer[name] = value end
  return answer
end

-- }======

--- Everything that a watch has received: revisions of events, and lists of other news.
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
