--- A server in this process, with a new store, and a client of it.

local keywatch = require "keywatch"

--- Takes options of the client. Returns the client, the store, a function that closes everything, and the server.
return function(options)
  local store = keywatch.open()
  local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  local client = keywatch.connect(server:addresses()[1], options)
  return client, store, function()
    client:close()
    server:close()
    store:close()
  end, server
end
