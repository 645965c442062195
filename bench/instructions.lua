-- SPDX-License-Identifier: MIT
--- Instructions of the paths that must stay short, counted by callgrind: the same in every run, on a busy machine too.
--
--   lua5.4 bench/instructions.lua            every path, in instructions for each operation
--   lua5.4 bench/instructions.lua PATH N     does what is counted: N operations of one path
--
-- A path is counted twice, with few operations and with many: the difference is free of what starting costs. Addresses
-- and the time, by which Lua seeds the hashes of strings, are the same in every run, and no garbage is collected. Paths
-- over the wire are those of server and client together, without sockets.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local FEW, MANY = 500, 2500
local KVS, WATCHERS = 100, 100 -- of a range; of one key, on one stream

local value = ("v"):rep(256)

local keys = {}
for i = 0, 9999 do keys[i] = ("/registry/pods/default/%09d"):format(i) end

local function key_of(i) return keys[i % 10000] end

local function filled(n)
  local store = keywatch.open { now = 0 }
  for i = 1, n do store:put(key_of(i), value) end
  return store
end

-- {====== Over the wire ======

--- A server and a client of it, whose bytes go from hand to hand.
local function connected(store)
  local server = assert(core.serve(store))
  local client, peer = core.client("bench", nil, 0), assert(server:accept(0))
  local function pump()
    repeat
      local to_server = client:pending()
      if to_server ~= "" then peer:feed(to_server, 0) end
      server:step(0)
      local to_client = peer:pending()
      if to_client ~= "" then client:feed(to_client, 0) end
    until to_server == "" and to_client == ""
  end
  return client, pump
end

local function take(client)
  local n = 0
  for call in client.next, client do
    for message, status in function() return client:receive(call) end do
      if message then n = n + 1 elseif status then break end
    end
  end
  return n
end

local function unary(path, request_name, make)
  return function(n)
    local client, pump = connected(filled(1000))
    for i = 1, n do
      local call = client:call("/etcdserverpb.KV/" .. path)
      client:send(call, core.encode(request_name, make(i)))
      client:half_close(call)
      pump()
      assert(take(client) == 1)
    end
  end
end

local function fan_out(n)
  local store = filled(1)
  local client, pump = connected(store)
  local call = client:call("/etcdserverpb.Watch/Watch")
  for _ = 1, WATCHERS do
    client:send(call, core.encode("WatchRequest", { create_request = { key = key_of(1) } }))
  end
  pump()
  assert(take(client) == WATCHERS)
  for _ = 1, n do
    store:put(key_of(1), value)
    pump()
    assert(take(client) == WATCHERS)
  end
end

-- }======

local paths = {}

function paths.put(n)
  local store = filled(0)
  for i = 1, n do store:put(key_of(i), value) end
end

function paths.get(n)
  local store = filled(1000)
  for i = 1, n do store:get(key_of(i % 1000)) end
end

function paths.range(n)
  local store = filled(1000)
  for _ = 1, n do store:range("/registry/", { prefix = true, limit = KVS }) end
end

function paths.event(n)
  local store = filled(0)
  local watch = store:watch("/registry/", { prefix = true })
  for i = 1, n do
    store:put(key_of(i), value)
    watch:next(0)
  end
end

function paths.task_switch(n)
  keywatch.run(function()
    for _ = 1, n do keywatch.spawn(function() end):join() end
  end)
end

--- Calls fn with the path of a directory in memory, which is then removed.
local function with_directory(fn)
  local f = assert(io.popen("mktemp -d -p /dev/shm"))
  local path = f:read("l")
  f:close()
  fn(path)
  os.execute(("rm -r '%s'"):format(path))
end

--- What a server of Kubernetes does: replaces a value of 10 KB if nobody else has. With all threads.
local function replace(path, n)
  local store, large = assert(keywatch.open { path = path }), ("v"):rep(10240)
  local revisions = {}
  for i = 0, 9 do revisions[i] = assert(store:put(key_of(i), large)).revision end
  for i = 1, n do
    local key = key_of(i % 10)
    local result = assert(store:txn {
      compare = { { key = key, mod_revision = revisions[i % 10] } },
      success = { { put = key, value = large } },
      failure = { { get = key } },
    })
    assert(result.succeeded)
    revisions[i % 10] = result.revision
  end
  store:close()
end

paths["replace 10 KB on a disk"] = function(n)
  with_directory(function(path) replace(path, n) end)
end

--- Returns a path that reads a store whose records are in the database alone.
local function from_disk(read)
  return function(n)
    with_directory(function(path)
      local store = assert(keywatch.open { path = path, now = 0 })
      for i = 1, 1000 do store:put(key_of(i), value) end
      store:close()
      store = assert(keywatch.open { path = path, now = 0 })
      for i = 1, n do assert(read(store, i)) end
      store:close()
    end)
  end
end

paths["get from a disk"] = from_disk(function(store, i) return store:get(key_of(1 + i % 1000)) end)
paths["range from a disk"] = from_disk(function(store)
  return store:range("/registry/", { prefix = true, limit = KVS })
end)

paths["put over the wire"] = unary("Put", "PutRequest", function(i) return { key = key_of(i), value = value } end)
paths["get over the wire"] = unary("Range", "RangeRequest", function(i) return { key = key_of(i % 1000) } end)
paths["range over the wire"] = unary("Range", "RangeRequest", function()
  return { key = "/registry/", range_end = "/registry0", limit = KVS }
end)
paths["fan-out over the wire"] = fan_out

-- {====== Counting ======

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Builds a library whose time stands still. Returns the file's path.
local function build_clock()
  local path = os.tmpname()
  local compiler = assert(io.popen("cc -shared -fPIC -x c -o " .. path .. " -", "w"))
  compiler:write("long time(long *to) { return to ? *to = 1 : 1; }\n")
  assert(compiler:close())
  return path
end

local function count(path, n, clock)
  local command = "LD_PRELOAD=%s setarch -R valgrind --tool=callgrind --callgrind-out-file=/dev/null %s %s %s %d 2>&1"
  command = command:format(clock, arg[-1], quoted(arg[0]), quoted(path), n)
  local pipe = io.popen(command)
  local text = pipe:read("a")
  pipe:close()
  return tonumber(text:match("Collected : (%d+)")) or error(text)
end

local ORDER = { "put", "get", "range", "event", "task_switch", "replace 10 KB on a disk", "put over the wire",
  "get over the wire", "range over the wire", "fan-out over the wire", "get from a disk", "range from a disk" }

if arg[1] then
  collectgarbage("stop")
  paths[arg[1]](tonumber(arg[2]))
else
  local clock = build_clock()
  for _, path in ipairs(ORDER) do
    local few, many = count(path, FEW, clock), count(path, MANY, clock)
    print(("%-24s %10.0f instructions"):format(path, (many - few) / (MANY - FEW)))
  end
  os.remove(clock)
end

-- }======
