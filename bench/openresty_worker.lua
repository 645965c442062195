-- SPDX-License-Identifier: MIT
--- What an nginx worker does for bench/openresty.lua: it follows prefixes of an etcd in one of three ways.
--
-- `json` makes the requests of lua-resty-etcd: a range and a watch as JSON over HTTP/1.1, through cosockets, with keys
-- and values in base64. As lua-resty-etcd does unless told otherwise, it decodes the values, which are JSON, too.
-- `table` is a table of keywatch, which has decoded values as well; `cache` is a cache of keywatch, which has bytes.

local cjson = require "cjson"
local ffi = require "ffi"
local keywatch = require "keywatch"

local url = ...
local HOST, PORT = url:match("^http://([^:]+):(%d+)$")

ffi.cdef [[
typedef struct { long sec; long nsec; } bench_timespec;
int clock_gettime(int clock, bench_timespec *spec);
]]

local MONOTONIC = 1
local spec = ffi.new("bench_timespec")

--- The seconds of the clock that all processes share.
local function now()
  ffi.C.clock_gettime(MONOTONIC, spec)
  return tonumber(spec.sec) + tonumber(spec.nsec) * 1e-9
end

local ways = {}
local delays = {} -- of values that begin with a number and the time at which they were put, by number

--- Notes how old a value is, if it says when it was put.
local function note(value)
  if value.n and value.n ~= cjson.null then delays[value.n] = now() - value.time end
end

-- {====== JSON over HTTP/1.1 ======

--- The end of the range of a prefix.
local function range_end(prefix)
  return prefix:sub(1, -2) .. string.char(prefix:byte(-1) + 1)
end

local REQUEST = "POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"

--- Sends a request, and returns the head of its answer.
local function post(socket, path, body)
  local text = cjson.encode(body)
  assert(socket:send(REQUEST:format(path, HOST, PORT, #text, text)))
  assert(assert(socket:receive("*l")):find("200", 1, true))
  local head = {}
  while true do
    local line = assert(socket:receive("*l"))
    if line == "" then return head end
    local name, value = line:match("^([^:]+):%s*(.*)$")
    head[name:lower()] = value
  end
end

--- The next chunk of a body; nil after the last one.
local function read_chunk(socket)
  local size = tonumber(assert(socket:receive("*l")), 16)
  local chunk = size > 0 and assert(socket:receive(size)) or nil
  assert(socket:receive(2))
  return chunk
end

local function read_body(socket, head)
  if head["content-length"] then return assert(socket:receive(tonumber(head["content-length"]))) end
  local parts = {}
  for chunk in read_chunk, socket do parts[#parts + 1] = chunk end
  return table.concat(parts)
end

--- Returns the key and the decoded value of a kv.
local function decode(kv)
  return ngx.decode_base64(kv.key), kv.value and cjson.decode(ngx.decode_base64(kv.value))
end

local function apply(self, answer)
  for _, event in ipairs(answer.result.events or {}) do
    local key, value = decode(event.kv)
    self.content[key] = value
    if self.is_noting and value then note(value) end
  end
end

--- Reads events until the way ends. An answer is a line, which may come in several chunks.
local function follow_json(self, socket)
  local parts = {}
  while not self.is_over do
    local chunk = assert(read_chunk(socket))
    local at, stop = 1, chunk:find("\n", 1, true)
    while stop do
      parts[#parts + 1] = chunk:sub(at, stop)
      apply(self, cjson.decode(table.concat(parts)))
      parts, at = {}, stop + 1
      stop = chunk:find("\n", at, true)
    end
    parts[#parts + 1] = chunk:sub(at)
  end
end

local function run_json(premature, self, prefix)
  if premature then return end
  local socket = ngx.socket.tcp()
  socket:settimeouts(5000, 5000, 3600000)
  assert(socket:connect(HOST, PORT))
  local range = { key = ngx.encode_base64(prefix), range_end = ngx.encode_base64(range_end(prefix)) }
  local list = cjson.decode(read_body(socket, post(socket, "/v3/kv/range", range)))
  for _, kv in ipairs(list.kvs or {}) do
    local key, value = decode(kv)
    self.content[key] = value
  end
  range.start_revision = tonumber(list.header.revision) + 1
  post(socket, "/v3/watch", { create_request = range })
  self.is_ready = true
  follow_json(self, socket)
  socket:close()
end

function ways.json(prefix, is_noting)
  local self = { content = {}, is_noting = is_noting, is_ready = false, is_over = false }
  assert(ngx.timer.at(0, run_json, self, prefix))
  function self.get(key) return self.content[key] end
  function self.close() self.is_over = true end -- the next event ends the connection
  return self
end

-- }======

-- {====== keywatch ======

local client = keywatch.connect(url)

function ways.cache(prefix, is_noting)
  local cache = client:cache(prefix)
  local self = { is_ready = false }
  assert(ngx.timer.at(0, function()
    assert(cache:wait_ready(60))
    self.is_ready = true
    if not is_noting then return end
    self.watch = cache:watch(prefix, { prefix = true })
    for event in self.watch:events() do note(cjson.decode(event.value)) end
  end))
  function self.get(key)
    local kv = cache:get(key)
    return kv and cjson.decode(kv.value)
  end
  function self.close()
    if self.watch then self.watch:close() end
    cache:close()
  end
  return self
end

function ways.table(prefix, is_noting)
  local cache = client:cache(prefix)
  local content = cache:table {
    decode = cjson.decode,
    on_change = is_noting and function(_, value) if value then note(value) end end or nil,
  }
  local self = { is_ready = false }
  assert(ngx.timer.at(0, function()
    assert(cache:wait_ready(60))
    self.is_ready = true
  end))
  function self.get(key) return content[key] end
  function self.close() cache:close() end
  return self
end

-- }======

local worker = { all = {} }

--- Begins to follow a prefix in a way. If `is_noting`, the delays of values are noted.
function worker.start(way, prefix, is_noting)
  table.insert(worker.all, ways[way](prefix, is_noting))
end

function worker.is_ready()
  for _, one in ipairs(worker.all) do
    if not one.is_ready then return false end
  end
  return true
end

--- What the worker has for a key.
function worker.get(key)
  for _, one in ipairs(worker.all) do
    local value = one.get(key)
    if value then return value end
  end
end

--- Ends all that was started.
function worker.stop()
  for _, one in ipairs(worker.all) do one.close() end
  worker.all = {}
end

--- The delays that were noted.
function worker.take_delays()
  local taken = delays
  delays = {}
  return taken
end

return worker
