-- SPDX-License-Identifier: MIT
--- A gRPC service in Lua: notes that any gRPC client can read and write, and middleware that refuses unknown users.
--
-- The client here is curl. A gRPC message is a zero byte, the length in four bytes, and the bytes of the message.

local keywatch = require "keywatch"

local store = keywatch.open()
local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })

server:mount("demo.Notes", {
  Read = function(name) -- one request, one response
    local note = store:get("notes/" .. name)
    if not note then return nil, { grpc_status = 5, message = "no such note" } end
    return note.value
  end,
  List = { stream = true, handler = function(call) -- one request, many responses
    for note in store:each("notes/" .. call:receive(), { prefix = true }) do call:send(note.key) end
  end },
  Write = { stream = true, handler = function(call) -- many requests, each answered when it is stored
    for message in call:messages() do
      local name, text = message:match("^(.-)=(.*)$")
      call:send(("%s is stored at revision %d"):format(name, store:put("notes/" .. name, text).revision))
    end
  end },
})

local ends = store:watch("ends/", { prefix = true })
server:use {
  before = function(call)
    if not call.metadata.user then return nil, { grpc_status = 16, message = "who are you?" } end
  end,
  after = function(call, status)
    print(("%s by %s has status %d"):format(call.path, call.metadata.user or "an unknown user", status))
    store:put("ends" .. call.path, tostring(status))
  end,
}

--- Calls a method by curl with some messages, and prints the responses. The call is served while `next` waits for its
-- end. Reading from curl before that would be a deadlock: curl waits for this program.
local function call(method, user, ...)
  local body = ""
  for _, message in ipairs { ... } do body = body .. ("\\0\\0\\0\\0\\%03o%s"):format(#message, message) end
  local curl = io.popen(("printf '%s' | curl -s --http2-prior-knowledge --data-binary @- -H 'user: %s' "
    .. "-H 'content-type: application/grpc' %s/demo.Notes/%s"):format(body, user, server:addresses()[1], method))
  assert(ends:next(10))
  for text in curl:read("*a"):gmatch("%z%z%z%z.(%Z*)") do print("  " .. text) end
  curl:close()
end

keywatch.run(function()
  call("Write", "ann", "red=first", "blue=second", "red=third")
  call("Read", "ann", "red")
  call("Read", "bob", "green")
  call("List", "bob", "")
  call("Read", "", "red")
end)
server:close()
