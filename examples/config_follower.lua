-- SPDX-License-Identifier: MIT
--- Configuration that is always current: a plain table that is kept equal to the keys below a prefix, through
-- disconnections and restarts of the server.
--
-- With the URL of a keywatch server or of an etcd as its argument, the program follows `config/` there until it is
-- ended. Without an argument it starts a server of its own, and changes some keys.

local keywatch = require "keywatch"

local server = not arg[1] and assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
local client = keywatch.connect(arg[1] or server:addresses()[1])

keywatch.run(function()
  if server then client:put("config/color", "blue") end

  local config = client:cache("config/"):table {
    relative = true, -- "color" and not "config/color"
    on_change = function(name, value, old) print(name, old, "->", value) end,
  }
  if not server then keywatch.sleep(math.huge) end

  --- Waits until the table has a value.
  local function await(name, value)
    while config[name] ~= value do keywatch.sleep(0.01) end
  end
  await("color", "blue")
  client:put("config/color", "green")
  client:put("config/size", "9")
  await("size", "9")
  client:delete("config/color")
  await("color", nil)
  for name, value in pairs(config) do print("now there is", name, value) end
end)
client:close()
server:close()
