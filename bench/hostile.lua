-- SPDX-License-Identifier: MIT
--- How long others wait while somebody attacks the server: a client that asks for one thing at a time, first alone and
--- then beside each of the attackers of spec/hostile; and a watch over TLS beside a burst of handshakes.
--
--   lua5.4 bench/hostile.lua [attack | "handshakes" | "requests" [keys ["memory" | "durable" [part]]]]
--
-- With "requests": the worst request of each kind, to a server with a million keys, see worst_requests.lua.
--
-- Attackers have the lowest priority, so that they take the processor from the server and not from the client.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local frame = require "spec.support.frame"
local process = require "spec.support.process"
local raw = require "spec.support.raw"
local server = require "spec.support.server"
local tls_handle = require "spec.support.tls_handle"
local uv = require "spec.support.luv"
local waited = require("measure").waited
local worst_requests = require "worst_requests"

local LOAD = "build/bench/load"
local KEYS = 10000
local REQUESTS, MS = 1000000, 1500 -- as many as there is time for
local POLL_MS = 10 -- between two looks at who has ended
local MIB = 1024 * 1024
local TXN = "/etcdserverpb.KV/Txn"
local WORST_KEYS = 1000000
local HANDSHAKES, ROUNDS = 1000, 5 -- a burst, and how many bursts there are
local TARGET_MS = 50 -- that a burst may delay a watch

-- {====== Attacks ======

local last_stream = 0 -- of a dose

local function many(n, of)
  local list = {}
  for i = 1, n do list[i] = of(2 * i - 1) end
  last_stream = 2 * n - 1
  return table.concat(list)
end

local function ranges(n, message)
  return many(n, function(id) return raw.request(id, raw.RANGE, message) end)
end

local function txns(n, message)
  return many(n, function(id) return raw.request(id, TXN) .. raw.data(id, message, true) end)
end

--- Fields of numbers, for requests that ask for much and get little.
local function number(field, n) return string.char(field * 8, n) end

local everything = frame.field(1, "/") .. frame.field(2, "0")

--- { name, connections, dose, then }: what each of so many connections sends, and what then: it sends the same again,
-- begins anew, or stays; with options of raw.connect.
local attacks = {
  { "resets", 1, function()
    return many(20000, function(id) return raw.request(id, raw.RANGE) .. raw.reset(id, raw.CANCEL) end)
  end, "heard" },
  { "requests and resets", 1, function()
    return many(20000, function(id)
      return raw.request(id, raw.RANGE, frame.range("a")) .. raw.reset(id, raw.CANCEL)
    end)
  end, "heard" },
  { "malformed requests", 1, function()
    local block = raw.block(raw.WATCH, raw.line("Upper", "case"))
    return many(20000, function(id) return raw.frame(raw.HEADERS, raw.END_HEADERS + raw.END_STREAM, id, block) end)
  end, "anew" },
  { "SETTINGS", 1, function() return raw.settings({}):rep(100000) end, "anew" },
  { "PING", 1, function() return raw.frame(raw.PING, 0, 0, "12345678"):rep(100000) end, "anew" },
  { "CONTINUATION", 1, function()
    return raw.frame(raw.HEADERS, 0, 1, raw.block(raw.RANGE))
      .. raw.frame(raw.CONTINUATION, 0, 1, raw.line("a", ("b"):rep(16000))):rep(1000)
  end, "anew" },
  { "PRIORITY", 1, function() return raw.frame(raw.PRIORITY, 0, 3, "\0\0\0\1\255"):rep(100000) end, "again" },
  { "frames of no kind", 1, function() return raw.frame(99, 255, 0, "?"):rep(100000) end, "again" },
  { "header bombs", 1, function()
    local block = raw.block(raw.RANGE, raw.line("bomb", ("b"):rep(4000), "\64"))
    local again = ("\190"):rep(16000)
    return raw.frame(raw.HEADERS, 0, 1, block) .. raw.frame(raw.CONTINUATION, 0, 1, again):rep(6)
      .. raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1, again)
  end, "anew" },
  { "15 KB of headers", 1, function()
    return many(5000, function(id)
      return raw.frame(raw.HEADERS, raw.END_HEADERS, id, raw.block(raw.RANGE, raw.line("x", ("y"):rep(15000))))
    end)
  end, "heard" },
  { "shut windows", 1, function() return ranges(30000, frame.range("/registry/")) end, "anew", { window = 0 } },
  { "windows of a byte", 10, function() return ranges(100, frame.range("hostile")) end, "bytes", { window = 1 } },
  { "watches that are not read", 10, function()
    return many(1000, function(id) return raw.request(id, raw.WATCH) .. raw.data(id, frame.new(frame.field(1,
      everything))) end)
  end, "stay", { is_stuck = true } },
  { "answers that are not read", 10, function() return ranges(1000, frame.new(everything)) end, "stay",
    { is_stuck = true } },
  { "torn requests", 10, function()
    return many(60, function(id)
      return raw.request(id, raw.PUT) .. raw.data(id, frame.put("a", ("x"):rep(1500000)):sub(1, 60000))
    end)
  end, "heard" },
  { "messages beyond the limit", 1, function()
    return many(1000, function(id) return raw.request(id, raw.PUT) .. raw.data(id, "\0\255\255\255\255x", true) end)
  end, "anew" },
  { "transactions of nothing", 1, function() return txns(20, frame.new(("\18\0"):rep(MIB - 100))) end, "anew" },
  { "transactions of 128 ranges", 1, function()
    local op = frame.field(2, frame.field(1, frame.field(1, "/") .. frame.field(2, "0") .. number(9, 1)))
    return txns(100, frame.new(op:rep(128)))
  end, "anew" },
  { "ranges of everything", 1, function() return ranges(1000, frame.new(everything)) end, "anew" },
  { "counts of everything", 1, function() return ranges(5000, frame.new(everything .. number(9, 1))) end, "anew" },
  { "everything sorted, for one", 1, function()
    return ranges(1000, frame.new(everything .. number(3, 1) .. number(5, 1) .. number(6, 4)))
  end, "anew" },
  { "puts, as many as can be", 1, function()
    return many(20000, function(id) return raw.request(id, raw.PUT, frame.put("hostile", ("v"):rep(300))) end)
  end, "anew" },
  { "gets, as many as can be", 10, function() return ranges(20000, frame.range("hostile")) end, "anew" },
  { "calls that Lua answers", 1, function()
    return many(5000, function(id) return raw.request(id, "/etcdserverpb.Maintenance/Status", frame.new("")) end)
  end, "anew" },
  { "connections that come and go", 200, function() return "" end, "anew" },
  { "half a preface, 5,000 times", 5000, function() return raw.PREFACE:sub(1, 10) end, "stay", { is_silent = true } },
  { "5,000 connections at once", 5000, function() return raw.request(1, raw.RANGE, frame.range("a")) end, "stay" },
}

local then_of = {}

local clients = {} -- that are open: what to call when one is over

--- What each of the connections does.
local function open(port, dose, what, options)
  local client = raw.connect(port, options)
  clients[client] = function()
    if not clients[client] then return end
    clients[client] = nil
    client:close()
    open(port, dose, what, options)
  end
  then_of[what](client, dose, clients[client])
end

--- Those that the server has ended begin anew.
local function replace_ended()
  local ended = {}
  for client, over in pairs(clients) do
    if client.has_ended or client.failure then ended[#ended + 1] = over end
  end
  for _, over in ipairs(ended) do over() end
end

function then_of.stay(client, dose) client:send(dose) end

function then_of.again(client, dose, over)
  local function again(err)
    if err then return over() end
    client.handle:write(dose, again)
  end
  again()
end

--- As soon as the last call has ended, or the server has heard everything.
function then_of.anew(client, dose, over)
  client:send(dose .. raw.frame(raw.PING, 0, 0, "the last"))
  client.on_frame = function(kind, flags, id)
    local has_heard = last_stream == 0 and kind == raw.PING and flags == raw.ACK
    if has_heard or (id > 0 and client:has_ended_stream(last_stream)) then over() end
    client.streams = { [last_stream] = client.streams[last_stream] }
  end
end

function then_of.heard(client, dose, over)
  last_stream = 0
  then_of.anew(client, dose, over)
end

--- A byte more of each window with every byte that comes.
function then_of.bytes(client, dose)
  client:send(dose)
  client.on_frame = function(kind, _, id)
    if kind == raw.DATA then client:send(raw.window_update(id, 1)) end
  end
end

local function find(name)
  for _, attack in ipairs(attacks) do
    if attack[1] == name then return attack end
  end
  error("no such attack: " .. name, 0)
end

--- Attacks until the input ends.
local function run_attack(name, port)
  local attack = find(name)
  local dose = attack[3]()
  for _ = 1, attack[2] do open(port, dose, attack[4], attack[5]) end
  local input, has_ended = uv.new_pipe(false), false
  input:open(0)
  input:read_start(function(_, chunk) has_ended = chunk == nil end)
  uv.new_timer():start(POLL_MS, POLL_MS, replace_ended)
  io.write("attacking\n")
  io.flush()
  while not has_ended do uv.run("once") end
end

-- }======

-- {====== The client ======

local function load_on(peer, what)
  local pipe = assert(io.popen(("%s %s --port %d --pid %d --keys %d --timeout 300"):format(LOAD, what, peer.port,
    peer.pid, KEYS)))
  local line = pipe:read("*a")
  if not pipe:close() then error("load failed", 0) end
  local found = {}
  for name, value in line:gmatch("(%S+)=(%S+)") do found[name] = tonumber(value) end
  return found
end

local function measure(peer, name)
  local row = ("  %-30s"):format(name)
  for _, mode in ipairs { "range", "put" } do
    local found = load_on(peer, ("%s --random --latency %d -n %d"):format(mode, MS, REQUESTS))
    row = row .. ("   %6d %7d %7d"):format(found.p50_us, found.p99_us, found.max_us)
  end
  print(row)
  io.stdout:flush()
end

local function measure_beside(name)
  local peer = server.start { open_files = "hard" }
  load_on(peer, "fill")
  load_on(peer, "put -k 1 -n 100")
  if not name then
    measure(peer, "nobody")
  else
    local attacker = process.start({ "sh", "-c", 'ulimit -n $(ulimit -H -n) && exec nice -n 19 "$@"', "sh", arg[-1],
      arg[0], "attack", name, tostring(peer.port) }, { env = { LUA_PATH = package.path, LUA_CPATH = package.cpath } })
    attacker:expect("attacking\n")
    measure(peer, name)
    attacker:finish_input()
    attacker:wait()
  end
  peer:stop()
end

-- }======

-- {====== Handshakes ======

local function number_at(found, share) return found[math.max(1, math.ceil(#found * share))] end

--- Puts a key and waits for its event, one after the other, until something is so. Returns the times, in ms, sorted:
-- all of it, and without the time that the processes have waited for a processor.
local function time_watch(writer, watcher, pids, is_over)
  local whole, own, n_events, to = {}, {}, 0, nil
  watcher.on_message = function()
    n_events, to = n_events + 1, uv.hrtime()
  end
  repeat
    local n = n_events
    local before, from = waited(pids), uv.hrtime()
    writer:start(raw.PUT, frame.put("hostile", "v"))
    watcher:await(function() return n_events > n end, "an event")
    whole[#whole + 1] = (to - from) / 1e6
    own[#own + 1] = math.max(0, to - from - (waited(pids) - before)) / 1e6
    writer.streams = {}
  until is_over()
  table.sort(whole)
  table.sort(own)
  return whole, own
end

local function print_watch(name, whole, own)
  local row = ("  %-25s"):format(name)
  for _, times in ipairs { whole, own } do
    row = row .. ("   %7.2f %7.2f %7.2f"):format(number_at(times, 0.5), number_at(times, 0.99), times[#times])
  end
  print(row)
  io.stdout:flush()
end

--- A watch over TLS, alone and beside bursts of handshakes. The attacker has made its first flights before.
local function measure_handshakes()
  local scratch = os.tmpname()
  os.remove(scratch)
  assert(require("keywatch.tls").self_sign { hosts = "localhost", directory = scratch })
  local cert, key = scratch .. "/cert.pem", scratch .. "/key.pem"
  local peer = server.start { open_files = "hard", is_in_memory = true, "--cert-file", cert, "--key-file", key,
    "--listen-client-urls=http://127.0.0.1:0,https://127.0.0.1:0" }
  local port = tonumber(peer:log():match("https://127%.0%.0%.1:(%d+)"))
  local context = assert(require("keywatch.tls").client { ca = cert })
  local writer = raw.connect(peer.port)
  local watcher = raw.connect(port, { handle = tls_handle.new(context) })
  local is_created = false
  watcher.on_message = function() is_created = true end
  watcher:send(raw.request(1, raw.WATCH) .. raw.data(1, frame.watch("hostile")))
  watcher:await(function() return is_created end, "the watch")

  print("\ndelay of a watch over TLS, in ms    p50     p99     max   without waiting for a processor")
  local n, pids = 0, { peer.pid, "self" }
  print_watch("nobody", time_watch(writer, watcher, pids, function()
    n = n + 1
    return n == 5000
  end))
  local worst = 0
  for _ = 1, ROUNDS do
    local burst = process.start({ "sh", "-c", 'ulimit -n $(ulimit -H -n) && exec "$@"', "sh", arg[-1],
      "spec/support/tls_burst.lua", tostring(port), tostring(HANDSHAKES), cert, "whole" },
      { env = { LUA_PATH = package.path, LUA_CPATH = package.cpath } })
    burst:expect("ready\n")
    burst:write("go\n")
    local whole, own = time_watch(writer, watcher, pids, function() return burst:stdout():find("done\n", 1, true) end)
    print_watch(("%d handshakes at once"):format(HANDSHAKES), whole, own)
    worst = math.max(worst, own[#own])
    burst:finish_input()
    burst:wait()
  end
  print(("  the worst delay is %.2f ms; the target is %d ms"):format(worst, TARGET_MS))
  writer:close()
  watcher:close()
  peer:stop()
  os.remove(cert)
  os.remove(key)
  os.remove(scratch)
end

-- }======

if arg[1] == "attack" then
  run_attack(arg[2], tonumber(arg[3]))
  os.exit(0)
end
if arg[1] == "probe" then worst_requests.probe(arg[2], arg[3]) end
if arg[1] == "requests" then
  for _, kind in ipairs { "memory", "durable" } do
    if not arg[3] or arg[3] == kind then worst_requests.measure(kind, tonumber(arg[2]) or WORST_KEYS, arg[4]) end
  end
  os.exit(0)
end
if arg[1] == "handshakes" then
  measure_handshakes()
  os.exit(0)
end
print("latency beside an attacker, in us" .. (" "):rep(14) .. "gets: p50, p99, max" .. (" "):rep(8) .. "puts")
measure_beside(nil)
for _, attack in ipairs(attacks) do
  if not arg[1] or arg[1] == attack[1] then measure_beside(attack[1]) end
end
if not arg[1] then measure_handshakes() end
