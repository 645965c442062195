-- SPDX-License-Identifier: MIT
--- Workers of one nginx that follow an etcd: lua-resty-etcd's way, which is JSON over HTTP/1.1, beside keywatch's ways.
--
--   lua5.4 bench/openresty.lua [way ...]
--
-- bench/openresty_worker.lua has the ways. The processor time is that of the workers. A put is visible when the last
-- worker has it. The ways are measured in turns, and the best round of each counts.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"
local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"
local process = require "spec.support.process"
local server = require "spec.support.server"
local uv = require "spec.support.luv"

local WAYS = arg[1] and arg or { "json", "cache", "table" }
local TITLES = { json = "JSON", cache = "cache", table = "table" }
local PREFIX = "/routes/"
local KEYS = 1000
local VALUE = [[{"id":"%d","time":%.9f,"uri":"/shop/basket/*","methods":["GET","POST"],"host":"shop.example.test",]]
  .. [["upstream":{"type":"roundrobin","nodes":[{"host":"10.0.0.1","port":8080,"weight":1},]]
  .. [[{"host":"10.0.0.2","port":8080,"weight":2}]},"plugins":{"limit":{"rate":100,"burst":20}},"n":%s}]]
local ROUNDS = 3
local SINGLES, GAP = 1000, 0.002   -- puts one by one, and the seconds between them
local BURSTS, BURST = 100, 100     -- transactions at once, and the puts of each
local SEEN, SEEN_GAP = 1000, 0.003 -- puts whose way to the workers is timed
local LOAD_SECONDS = 3
local PREFIXES = 8                 -- that are followed for the number of connections

local function processor_seconds(stage)
  local sum = 0
  for _, pid in ipairs(stage:workers()) do sum = sum + proc.seconds(pid) end
  return sum
end

--- Starts a way in each worker, and waits until each has the content.
local function begin(stage, way, prefix, is_noting)
  stage:ask_each(("worker.start(%q, %q, %s)"):format(way, prefix, tostring(is_noting or false)))
  stage:await_each("return worker.is_ready()")
end

local n_ends = 0

--- Puts a last value, and waits until each worker has it.
local function finish(stage, client)
  n_ends = n_ends + 1
  assert(client:put(PREFIX .. "end", ("[%d]"):format(n_ends)))
  stage:await_each(("return (worker.get(%q) or {})[1] == %d"):format(PREFIX .. "end", n_ends))
end

local function stop(stage, client)
  stage:ask_each("worker.stop()")
  assert(client:put(PREFIX .. "end", "[]")) -- what waits for an event wakes up
end

--- One of the keys.
local function key(i) return PREFIX .. i % KEYS end

--- A route. If it is timed, it has the number and the time.
local function value(i, is_timed)
  return VALUE:format(i, uv.hrtime() / 1e9, is_timed and i or "null")
end

--- The processor microseconds of the workers for each event and worker, while fn makes n events.
local function cost(stage, client, way, n, fn)
  begin(stage, way, PREFIX)
  finish(stage, client)
  local before = processor_seconds(stage)
  keywatch.run(fn)
  finish(stage, client)
  local spent = processor_seconds(stage) - before
  stop(stage, client)
  return spent * 1e6 / n / stage.n_workers
end

local function put_singles(client)
  for i = 1, SINGLES do
    assert(client:put(key(i), value(i)))
    keywatch.sleep(GAP)
  end
end

local function put_bursts(client)
  local tasks = {}
  for b = 1, BURSTS do
    local ops = {}
    for i = 1, BURST do ops[i] = { put = key(b * BURST + i), value = value(i) } end
    tasks[b] = keywatch.spawn(function() assert(client:txn { success = ops }) end)
  end
  for _, task in ipairs(tasks) do task:join() end
end

--- The delays of puts until the last worker has seen them, in order, in ms.
local function seen(stage, client, way)
  begin(stage, way, PREFIX, true)
  finish(stage, client)
  stage:ask_each("worker.take_delays()")
  keywatch.run(function()
    for i = 1, SEEN do
      assert(client:put(key(i), value(i, true)))
      keywatch.sleep(SEEN_GAP)
    end
  end)
  finish(stage, client)
  local all = {}
  for _, delays in ipairs(stage:ask_each("return worker.take_delays()")) do
    for i, delay in pairs(delays) do all[i] = math.max(all[i] or 0, delay * 1000) end
  end
  stop(stage, client)
  assert(#all == SEEN, "events are missing")
  table.sort(all)
  return { median = all[SEEN / 2], p99 = all[math.ceil(SEEN * 0.99)] }
end

--- Requests a second that read a key, while keys change.
local function requests(stage, client, way)
  begin(stage, way, PREFIX)
  local load = stage:load("/route", 16)
  local start = keywatch.now()
  keywatch.run(function()
    local i = 0
    while keywatch.now() < start + LOAD_SECONDS do
      i = i + 1
      assert(client:put(key(i), value(i)))
      keywatch.sleep(GAP)
    end
  end)
  local found = load:finish()
  assert(found.bad == 0 and found.broken == 0, "requests have failed")
  stop(stage, client)
  return found.per_second
end

--- Connections of a worker to the etcd while several prefixes are followed.
local function connections(stage, client, way, etcd)
  for i = 1, PREFIXES do begin(stage, way, ("%s%d/"):format(PREFIX, i)) end
  local most = 0
  for _, pid in ipairs(stage:workers()) do most = math.max(most, proc.connections(pid, etcd.port)) end
  stage:ask_each("worker.stop()")
  for i = 1, PREFIXES do assert(client:put(("%s%d/end"):format(PREFIX, i), "[]")) end
  return most
end

--- Measures each way in turns, and returns the best of each.
local function best(fn, is_better)
  local found = {}
  for _ = 1, ROUNDS do
    for _, way in ipairs(WAYS) do
      local one = fn(way)
      if not found[way] or is_better(one, found[way]) then found[way] = one end
    end
  end
  return found
end

local function less(a, b) return a < b end
local function more(a, b) return a > b end

local function row(title, unit, found, field)
  measure.row(title, unit, WAYS, function(way) return field and found[way][field] or found[way] end)
  io.stdout:flush()
end

local function ratio_row(title, target, found)
  measure.row(title, ("times (target: %d)"):format(target), WAYS, function(way)
    return found.json and found.json / found[way]
  end)
end

local function run(stage, client, etcd)
  measure.headline(WAYS, function(way) return TITLES[way] end)
  local single = best(function(way)
    return cost(stage, client, way, SINGLES, function() put_singles(client) end)
  end, less)
  row("processor time of a worker for a single event", "us", single)
  ratio_row("  events a processor second, relative to JSON", 3, single)
  local burst = best(function(way)
    return cost(stage, client, way, BURSTS * BURST, function() put_bursts(client) end)
  end, less)
  row(("processor time of a worker for an event of %d"):format(BURSTS * BURST), "us", burst)
  ratio_row("  events a processor second, relative to JSON", 10, burst)
  local delays = best(function(way) return seen(stage, client, way) end, function(a, b) return a.p99 < b.p99 end)
  row("from put to visible in all workers: median", "ms", delays, "median")
  row("from put to visible in all workers: 99th percentile", "ms (target: below 10)", delays, "p99")
  row("requests a second that read a key", "", best(function(way) return requests(stage, client, way) end, more))
  row(("connections of a worker that follows %d prefixes"):format(PREFIXES), "",
    best(function(way) return connections(stage, client, way, etcd) end, less))
end

local etcd = server.start { kind = "etcd" }
local ok, err = pcall(function()
  local client = keywatch.connect(etcd.url)
  for i = 0, KEYS - 1 do assert(client:put(PREFIX .. i, value(i))) end
  local stage = nginx_stage.start {
    init_worker = ("worker = assert(loadfile '%s/bench/openresty_worker.lua')(%q)"):format(uv.cwd(), etcd.url),
    server = [[location = /route { content_by_lua_block { ngx.print(worker.get("/routes/7").uri) } }]],
  }
  print("nginx workers that follow an etcd")
  run(stage, client, etcd)
  local troubles = stage:troubles()
  if troubles ~= "" then print("error.log:\n" .. troubles) end
  client:close()
end)
nginx_stage.close_all()
process.end_all()
etcd:stop()
if not ok then error(err, 0) end
