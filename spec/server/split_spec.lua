--- The server's answers do not depend on how the bytes of a client are split.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local is_fast = require("spec.support.dose").is_small

-- Cuts are tried after every third or seventh byte, which is the first one by the seed.
local STRIDE = is_fast and 7 or 3
local FIRST_CUT = 1 + tonumber(os.getenv("KW_SEED") or 0) % STRIDE

local CONTINUED = 2 -- the part with header blocks that continue in other frames

-- The client's bytes -----------------------------------------------------------------------------------------

local script = {}
local script_mt = { __index = script }

--- Parts of a script are said one after the other, and all is answered between them: inside of one, no answer may
-- depend on how much time passes.
local function new_script(hello)
  return setmetatable({ parts = {}, bytes = { hello or h2.hello() }, last_id = -1, names = {}, watches = {},
    resets = {} }, script_mt)
end

function script:say(...)
  for _, bytes in ipairs { ... } do self.bytes[#self.bytes + 1] = bytes end
end

function script:part()
  self.parts[#self.parts + 1] = table.concat(self.bytes)
  self.bytes = {}
end

function script:id(name)
  self.last_id = self.last_id + 2
  self.names[name] = self.last_id
  return self.last_id
end

local function encoded(method, request)
  if not pair.paths[method] then return h2.message("") end
  return h2.message(core.encode(pair.request_name(method), request))
end

--- A unary call as clients make it.
function script:call(name, method, request, changes)
  local id = self:id(name)
  self:say(h2.request(id, pair.paths[method] or method, changes))
  self:say(h2.data(id, encoded(method, request), { ends = true }))
end

--- The beginning of a stream.
function script:open(name, method)
  local id = self:id(name)
  self.watches[id] = method == "Watch"
  self:say(h2.request(id, pair.paths[method]))
  return id
end

local function watch(request) return encoded("Watch", request) end
local function create(request) return watch { create_request = request } end

local nested = {
  compare = { { key = "a", target = "VERSION", result = "GREATER", version = 0 },
    { key = "b", target = "VALUE", value = "2" } },
  success = {
    { request_put = { key = "c", value = "3", prev_kv = true } },
    { request_range = { key = "a", range_end = "z" } },
    { request_txn = {
      compare = { { key = "none", target = "CREATE", create_revision = 1 } },
      failure = { { request_delete_range = { key = "b", prev_kv = true } }, { request_range = { key = "b" } } },
    } },
  },
}

local function say_unary(s)
  s:call("put a", "Put", { key = "a", value = "1" })
  s:call("put b", "Put", { key = "b", value = "2" })
  s:call("txn", "Txn", nested)
  s:call("range", "Range", { key = "\0", range_end = "\0", sort_order = "DESCEND" })
  s:call("delete", "DeleteRange", { key = "c", prev_kv = true })
  s:call("grant", "LeaseGrant", { ID = 7, TTL = 100 })
  s:call("grant again", "LeaseGrant", { ID = 7, TTL = 100 })
  s:call("put under a lease", "Put", { key = "l", value = "x", lease = 7 })
  s:call("time to live", "LeaseTimeToLive", { ID = 7, keys = true })
  s:call("leases", "LeaseLeases", {})
  s:call("empty key", "Put", {})
  s:call("unknown method", "/etcdserverpb.KV/Nope", {})
  s:call("unknown service", "/Nope/Nope", {})
  s:call("malformed method", "/Nope", {})
  s:call("compressed", "Range", { key = "a" }, { ["grpc-encoding"] = "gzip" })
  s:call("plus proto", "Range", { key = "a" }, { ["content-type"] = "application/grpc+proto", ["grpc-timeout"] = "9S" })
end

--- (nghttp2 takes at most 8 pieces of such frames.)
local function say_continued(s)
  local id = s:id("continuation")
  s:say(h2.request(id, pair.paths.Range, nil, { split = 31, priority = true, pad = 3 }))
  s:say(h2.data(id, encoded("Range", { key = "a" }), { ends = true, pad = 5 }))
  id = s:id("trailers in parts")
  s:say(h2.request(id, pair.paths.Range), h2.data(id, encoded("Range", { key = "b" })))
  s:say(h2.headers(id, { { "x-sum", "1" } }, { ends = true, split = 3 }))
end

local function say_oddly(s)
  local id = s:id("padded")
  s:say(h2.request(id, pair.paths.Range, nil, { priority = true, pad = 3 }))
  s:say(h2.data(id, encoded("Range", { key = "a" }), { ends = true, pad = 5 }))
  s:say(h2.ping("splitted"), h2.frame("priority", 0, id, h2.pack(0, 4) .. "\1"), h2.frame(0x77, 3, 0, "what"))

  id = s:id("trailers")
  s:say(h2.request(id, pair.paths.Range), h2.data(id, encoded("Range", { key = "b" })))
  s:say(h2.headers(id, { { "x-sum", "1" } }, { ends = true }))

  id = s:id("an empty end")
  s:say(h2.request(id, pair.paths.Range), h2.data(id, encoded("Range", { key = "l" })))
  s:say(h2.data(id, "", { ends = true }))

  id = s:id("many frames")
  s:say(h2.request(id, pair.paths.Put))
  s:say(h2.data_in_parts(id, encoded("Put", { key = "many", value = ("frames "):rep(20) }), 11, { ends = true }))

  local put = encoded("Put", { key = "k" })
  for name, bytes in pairs { ["no message"] = "", ["two messages"] = put .. put, torn = put:sub(1, -2),
    flag = h2.message("\10\1a", 1), ["too large"] = "\0\127\0\0\0\10\1a", malformed = h2.message("\10\9a") } do
    id = s:id(name)
    s:say(h2.request(id, pair.paths.Put), h2.data(id, bytes, { ends = true }))
  end
  id = s:id("reset")
  s:say(h2.request(id, pair.paths.Put), h2.data(id, put), h2.reset(id))
  s.resets[id] = true
end

local function say_leases(s)
  local id = s:open("keepalive", "LeaseKeepAlive")
  local ask = encoded("LeaseKeepAlive", { ID = 7 })
  local unknown = encoded("LeaseKeepAlive", { ID = 8 })
  s:say(h2.data(id, ask .. unknown .. ask))
  s:say(h2.data_in_parts(id, ask .. unknown, 3))
  s:say(h2.data(id, "", { ends = true }))
end

local function say_watches(s)
  local id = s:open("watch", "Watch")
  s:say(h2.data(id, create { key = "a" } .. create { key = "a", range_end = "z", prev_kv = true, fragment = true }))
  s:say(h2.data_in_parts(id, create { key = "b", watch_id = 5, filters = { "NOPUT" } } .. create { key = "b",
    watch_id = 5 } .. create { key = "b", watch_id = -3, filters = { "NODELETE" } }, 9))
  s:say(h2.data(id, create { key = "z", range_end = "a" } .. create { key = "a", start_revision = -1 }, { pad = 9 }))
  s:say(h2.data(id, create { key = "a", start_revision = 1000 } .. watch {}))
  s:say(h2.data(id, watch { cancel_request = { watch_id = 9 } }))

  id = s:open("progress", "Watch")
  s:say(h2.data(id, watch { progress_request = {} } .. create { key = "nothing", progress_notify = true }))
  s:say(h2.data(id, create { key = "b" } .. watch { cancel_request = { watch_id = 1 } }))
  s:say(h2.data(id, watch { cancel_request = { watch_id = 0 } } .. watch { progress_request = {} }))
  s:say(h2.data(id, create { key = "c" } .. watch { progress_request = {} }))
end

local function say_events(s)
  s:call("put 1", "Put", { key = "a", value = "new" })
  s:call("put 2", "Put", { key = "b", value = "again" })
  s:call("delete 1", "DeleteRange", { key = "b" })
  s:call("txn 1", "Txn", { success = { { request_put = { key = "b", value = "x" } },
    { request_put = { key = "c", value = "y" } }, { request_delete_range = { key = "a" } } } })
  s:call("revoke", "LeaseRevoke", { ID = 7 })
end

local function say_past(s)
  local id = s:open("past", "Watch")
  s:say(h2.data(id, create { key = "\0", range_end = "\0", start_revision = 1, prev_kv = true } ..
    create { key = "b", start_revision = 2, filters = { 0 } }))
  s:say(h2.data(id, create { key = "c", start_revision = 3, fragment = true }, { ends = true }))
end

local function say_end(s)
  s:say(h2.data(s.names.watch, watch { cancel_request = { watch_id = 0 } } .. watch { progress_request = {} }))
  s:say(h2.data(s.names.progress, "", { ends = true }))
  s:call("compact", "Compact", { revision = 5, physical = true })
  s:call("compact again", "Compact", { revision = 5 })
  s:call("compact the future", "Compact", { revision = 500 })
  s:call("range of the past", "Range", { key = "a", revision = 4 })
  local id = s:open("compacted", "Watch")
  s:say(h2.data(id, create { key = "a", start_revision = 2 }), h2.settings("ack"))
end

local function whole_script()
  local s = new_script()
  for _, say in ipairs { say_unary, say_continued, say_oddly, say_leases, say_watches, say_events, say_past,
    say_end } do
    say(s)
    s:part()
  end
  return s
end

--- Requests and answers that are larger than frames and windows.
local function large_script()
  local s = new_script(h2.hello { initial_window_size = 2 ^ 20, max_frame_size = 2 ^ 15 } .. h2.window(0, 2 ^ 24))
  s:part()
  s:say(h2.settings("ack")) -- the server's windows count from here on
  local value = ("0123456789abcdef"):rep(2048)
  local id = s:id("put")
  s:say(h2.request(id, pair.paths.Put))
  s:say(h2.data_in_parts(id, encoded("Put", { key = "large", value = value }), 9000, { ends = true, pad = 255 }))
  id = s:id("put more")
  s:say(h2.request(id, pair.paths.Put))
  s:say(h2.data_in_parts(id, encoded("Put", { key = "larger", value = value:rep(4) }), 16384, { ends = true }))
  s:call("range", "Range", { key = "l", range_end = "m" })
  s:part()
  id = s:open("watch", "Watch")
  s:say(h2.data(id, create { key = "l", range_end = "m", start_revision = 1 }))
  s:part()
  return s
end

-- The server's answers ---------------------------------------------------------------------------------------

--- Only the messages of one watcher have an order.
local function by_watcher(messages)
  local lists = {}
  for _, message in ipairs(messages) do
    local id = tostring(core.decode("WatchResponse", message).watch_id or 0)
    lists[id] = lists[id] or {}
    table.insert(lists[id], message)
  end
  return lists
end

local function answers_of(s, reader)
  local answers = { pongs = reader.pongs }
  for name, id in pairs(s.names) do
    local stream = reader:stream(id)
    local headers = stream.headers or {}
    local messages, is_whole = reader:messages(id)
    local status, text = reader:status(id)
    assert(is_whole, "a torn answer")
    if s.watches[id] then messages = by_watcher(messages) end
    if not s.resets[id] then
      answers[name] = { messages = messages, status = status, text = text, http = headers[":status"],
        type = headers["content-type"] }
    end
  end
  return answers
end

--- Sends a script. `cut` returns the pieces of a part, and gets its number.
local function run(s, cut)
  local host = pair.host()
  local raw = host:raw(false)
  for i, part in ipairs(s.parts) do
    for _, piece in ipairs(cut(part, i)) do raw:say(piece) end
    host:pump()
  end
  local answers = answers_of(s, raw.reader)
  assert.same({}, raw.reader.goaways)
  assert.is_false(raw:is_done())
  host:close()
  return answers
end

local function whole(part) return { part } end

local function in_pieces(part, size)
  local pieces = {}
  for at = 1, #part, size do pieces[#pieces + 1] = part:sub(at, at + size - 1) end
  return pieces
end

--- Long messages are compared whole, and shown by their beginnings.
local function brief(answer)
  if type(answer) ~= "table" then return answer end
  local short = {}
  for k, v in pairs(answer) do
    short[k] = type(v) == "table" and brief(v) or type(v) == "string" and #v > 200 and v:sub(1, 100) .. "..." .. #v or v
  end
  return short
end

local function is_same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for k, v in pairs(a) do if not is_same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end

local function same(expected, answers, where)
  for name, answer in pairs(expected) do
    if not is_same(answer, answers[name]) then
      assert.same(brief(answer), brief(answers[name]), ("%s, in %s"):format(where, name))
      error("the same in brief, but not whole: " .. name)
    end
  end
end

describe("a server that receives split bytes", function()
  local s, expected

  setup(function()
    s = whole_script()
    expected = run(s, whole)
  end)

  it("answers every call", function()
    local statuses = {}
    for name, answer in pairs(expected) do statuses[name] = answer.status end
    assert.same({ ["put a"] = 0, ["put b"] = 0, txn = 0, range = 0, delete = 0, grant = 0, ["grant again"] = 9,
      ["put under a lease"] = 0, ["time to live"] = 0, leases = 0, ["empty key"] = 3, ["unknown method"] = 12,
      ["unknown service"] = 12, ["malformed method"] = 12, compressed = 12,
      ["plus proto"] = 0, continuation = 0, ["trailers in parts"] = 0, padded = 0, trailers = 0,
      ["an empty end"] = 0, ["many frames"] = 0, ["no message"] = 13, ["two messages"] = 13, torn = 13, flag = 13,
      ["too large"] = 8, malformed = 13, keepalive = 0, ["put 1"] = 0, ["put 2"] = 0, ["delete 1"] = 0, ["txn 1"] = 0,
      revoke = 0, compact = 0, ["compact again"] = 11, ["compact the future"] = 11, ["range of the past"] = 11 },
      statuses)
    assert.equal(5, #expected.keepalive.messages)
    assert.same({ "splitted" }, expected.pongs)
  end)

  it("answers the same byte by byte", function()
    same(expected, run(s, function(part, n) return n == CONTINUED and { part } or in_pieces(part, 1) end), "one by one")
  end)

  it("answers the same for two parts, split anywhere #slow", function()
    for n, part in ipairs(s.parts) do
      for at = FIRST_CUT, #part - 1, STRIDE do
        same(expected, run(s, function(bytes, i)
          return i == n and { bytes:sub(1, at), bytes:sub(at + 1) } or { bytes }
        end), ("part %d after %d bytes"):format(n, at))
      end
    end
  end)

  it("answers the same if no answer is read for long", function()
    local host = pair.host()
    local raw = host:raw(false)
    raw.is_deaf = true
    for i = 1, 4 do raw:say(s.parts[i]) end
    raw.is_deaf = false
    host:pump()
    for i = 5, #s.parts do raw:say(s.parts[i]) end
    same(expected, answers_of(s, raw.reader), "late")
    host:close()
  end)

  it("answers the same if answers are read in small pieces", function()
    local host = pair.host()
    local raw = host:raw(false)
    raw.is_deaf = true
    for _, part in ipairs(s.parts) do
      raw:say(part)
      local bytes = raw.peer:pending(3)
      while bytes ~= "" do
        raw.reader:feed(bytes)
        host:step()
        bytes = raw.peer:pending(3)
      end
    end
    same(expected, answers_of(s, raw.reader), "in small pieces")
    host:close()
  end)
end)

describe("a server that receives split large messages", function()
  local s, expected

  setup(function()
    s = large_script()
    expected = run(s, whole)
  end)

  it("answers every call", function()
    assert.equal(0, expected.put.status)
    assert.equal(0, expected["put more"].status)
    local range = core.decode("RangeResponse", expected.range.messages[1])
    assert.equal(2, #range.kvs)
    assert.equal(32768 * 4, #range.kvs[2].value)
    local received = expected.watch.messages["0"]
    assert.equal(2, #received)
    assert.equal(2, #core.decode("WatchResponse", received[2]).events)
  end)

  it("answers the same in pieces of any size", function()
    for _, size in ipairs { is_fast and 7 or 1, 2, 3, 5, 9, 64, 1000, 4096, 16384, 65536 } do
      same(expected, run(s, function(part) return in_pieces(part, size) end), ("pieces of %d bytes"):format(size))
    end
  end)
end)
