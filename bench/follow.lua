-- SPDX-License-Identifier: MIT
--- What an event costs the process of a client that follows a prefix: with a cache, a cache:table and a watch; each
--- event alone, and many at once.
--
--   luajit bench/follow.lua [kind [single|burst [N]]]      kind: cache, table, watch
--
-- Server and writer are a process of their own, so the processor time of this process is that of the client alone. The
-- writer puts the events into the store of the server, after the client has put a key that asks for them.

local keywatch = require "keywatch"

local COUNTS = { single = 1500, burst = 100000 }
local SIZES = { single = 1, burst = 100 } -- events without a pause
local PAUSE = 0.002                       -- seconds
local KEYS = 1000
local VALUE = ("v"):rep(256)

local function key_of(i) return ("/registry/pods/default/%09d"):format(i % KEYS) end

-- {====== The server ======

--- Puts `n` events, with pauses.
local function put_all(store, mode, n)
  for i = 1, n do
    store:put(key_of(i), VALUE)
    if i % SIZES[mode] == 0 then keywatch.sleep(PAUSE) end
  end
  store:put("/done", mode)
end

local function serve()
  local store = keywatch.open()
  local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  for i = 0, KEYS - 1 do store:put(key_of(i), VALUE) end
  local watch = store:watch("/ask")
  io.stdout:write(server:addresses()[1], "\n")
  io.stdout:flush()
  keywatch.run(function()
    for event in watch:events() do
      local mode, n = event.value:match("^(%a+) (%d+)$")
      if not mode then os.exit(0, true) end
      put_all(store, mode, tonumber(n))
    end
  end)
end

-- }======

-- {====== The client ======

local kinds = {}

function kinds.cache(client)
  local cache = assert(client:cache("/registry/"))
  assert(cache:wait_ready())
  return cache
end

function kinds.table(client)
  local cache = kinds.cache(client)
  return { cache, assert(cache:table()) }
end

function kinds.watch(client)
  local watch = assert(client:watch("/registry/", { prefix = true }))
  return keywatch.spawn(function()
    while watch:next() do end -- luacheck: ignore
  end)
end

--- Returns the processor time of this process for one event.
local function measure(client, mode, n)
  local done = assert(client:watch("/done"))
  collectgarbage()
  local start = os.clock()
  assert(client:put("/ask", ("%s %d"):format(mode, n)))
  assert(done:next())
  local used = os.clock() - start
  done:close()
  return used * 1e6 / n
end

local function follow(kind, mode, n)
  local server = assert(io.popen(("exec %s %s serve"):format(arg[-1], arg[0])))
  local url = server:read("*l")
  keywatch.run(function()
    local client = keywatch.connect(url)
    local held = kinds[kind](client)
    measure(client, mode, math.ceil(n / 10)) -- warms up
    print(("%-8s %-8s %8.2f us an event"):format(kind, mode, measure(client, mode, n)))
    client:put("/ask", "end")
    client:close()
    return held
  end)
  server:close()
end

-- }======

if arg[1] == "serve" then
  serve()
else
  for _, kind in ipairs { "cache", "table", "watch" } do
    for _, mode in ipairs { "single", "burst" } do
      local is_wanted = (arg[1] or kind) == kind and (arg[2] or mode) == mode
      if is_wanted then follow(kind, mode, tonumber(arg[3]) or COUNTS[mode]) end
    end
  end
end
