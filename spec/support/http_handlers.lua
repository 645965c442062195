--- Handlers for specs and benches of HTTP. Required by the program of a server, before it serves: then each server that
-- it makes has them.
--
--   GET /text           10 bytes
--   GET /zeros/{n}      n bytes, sent at once
--   GET /stream/{n}     n lines, each written by itself
--   GET /blocks/{n}     n blocks of 64 KiB, each written by itself
--   POST, PUT /length   the length of the body, which is read as a whole
--   POST, PUT /parts    the same, but read in parts
--   POST /unread        reads nothing
--   GET /wait           waits until the client is gone, or for a minute
--   GET /held           a line, and a second one after POST /release
--   GET /echo/{x...}    the parameter, and the number of parameters of the query
--   POST /json          "true" if the body is JSON, or 400 and the reason

local keywatch = require "keywatch"

local json = require "keywatch.json"

local handlers = {}

function handlers.add(server)
  server:handle("GET", "/text", function() return "0123456789" end)
  server:handle("GET", "/zeros/{n}", function(request) return ("0"):rep(tonumber(request.params.n)) end)
  server:handle("GET", "/stream/{n}", function(request)
    request:answer(200, { ["content-type"] = "text/plain" })
    for i = 1, tonumber(request.params.n) do request:write(("line %d\n"):format(i)) end
  end)
  server:handle("GET", "/blocks/{n}", function(request)
    local block = ("0"):rep(65536)
    for _ = 1, tonumber(request.params.n) do request:write(block) end
  end)
  for _, method in ipairs { "POST", "PUT" } do
    server:handle(method, "/length", function(request) return tostring(#request:body(2 ^ 24)) end)
    server:handle(method, "/parts", function(request)
      local n = 0
      for part in request.read, request do n = n + #part end
      return tostring(n)
    end)
  end
  server:handle("POST", "/unread", function() return "unread" end)
  server:handle("GET", "/wait", function()
    keywatch.sleep(60)
    return "waited"
  end)
  local released = keywatch.channel(100)
  server:handle("GET", "/held", function(request)
    request:write("first\n")
    released:receive()
    request:write("second\n")
  end)
  server:handle("POST", "/release", function()
    released:send(true)
    return 204
  end)
  server:handle("GET", "/echo/{x...}", function(request)
    local n = 0
    for _ in pairs(request.query) do n = n + 1 end
    return ("%s %d"):format(request.params.x, n)
  end)
  server:handle("POST", "/json", function(request)
    local value, err = json.decode(request:body())
    if value == nil then return 400, tostring(err) end
    return "true"
  end)
end

local serve = keywatch.serve
function keywatch.serve(options)
  local server, err = serve(options)
  if server then handlers.add(server) end
  return server, err
end

return handlers
