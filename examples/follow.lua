-- SPDX-License-Identifier: MIT
--- A watcher: a client watches configuration on a server, and keeps a table equal to it. When the server restarts, the
-- watch resumes where it was: no change is lost, and none comes twice.
--
-- Without an argument the program starts a server of its own and restarts it. With the URL of a keywatch server or of
-- an etcd as its argument, it watches `config/` there until it is ended.

local keywatch = require "keywatch"

--- Keeps the table `current` (values by name) equal to the keys under config/, and prints every change.
local function follow(client, current)
  for event in client:watch("config/", { prefix = true, initial = true }):events() do
    local name = event.key and event.key:match("^config/(.*)$")
    if name then current[name] = event.value end -- nil for a delete
    if event.type == "synced" then
      print(("synced  at revision %d"):format(event.revision))
    else
      print(("%-7s %s%s"):format(event.initial and "have" or event.type, name,
        event.value and " = " .. event.value or ""))
    end
  end
end

if arg and arg[1] then
  follow(keywatch.connect(arg[1]), {})
  return
end

local store = keywatch.open()
local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
local url = server:addresses()[1]
local client = keywatch.connect(url)

keywatch.run(function()
  local current = {}
  client:put("config/color", "blue")
  client:put("config/size", "9")
  local task = keywatch.spawn(follow, client, current)

  --- Waits until the task has seen a value.
  local function await(name, value)
    while current[name] ~= value do keywatch.sleep(0.01) end
  end
  await("size", "9")
  client:put("config/color", "green")
  await("color", "green")

  server:close()
  print("the server has gone")
  store:put("config/color", "red") -- a write while the client has no connection
  store:delete("config/size")
  server = assert(keywatch.serve { store = store, listen = url })
  print("the server is back")
  await("color", "red")
  await("size", nil)

  client:put("config/shape", "round")
  await("shape", "round")
  task:cancel()
end)
client:close()
server:close()
store:close()
