--- One connection to a server with TLS, of this process or another, without a client that would try again.

local keywatch = require "keywatch"
local tls = require "keywatch.tls"

local luv = require "spec.support.luv"
local pair = require "spec.support.tls_pair"

local SECONDS = 120 -- after which what is waited for is taken for something that never comes
local PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" -- with empty SETTINGS

--- Turns luv's loop, and keywatch's, until something is so. Returns false if that took too long.
local function turn_until(is_so)
  local deadline = keywatch.now() + SECONDS
  while not is_so() do
    luv.run("nowait")
    keywatch.sleep(0)
    if keywatch.now() > deadline then return false end
  end
  return true
end

--- Connects to a URL with a port of this machine, with the options of a client's context. Returns true if the server
-- speaks HTTP/2 in the connection; or the text of the failure.
local function try(url, options)
  local channel = assert(assert(tls.client(options)):connect("localhost"))
  local handle, got, is_greeted = luv.new_tcp(), {}, false

  local function work(bytes)
    if bytes then channel:feed(bytes) end
    pair.work(channel, got)
    if channel:state().is_open and not is_greeted then is_greeted = channel:write(PREFACE) > 0 end
    local answer = channel:pending()
    if answer ~= "" then handle:write(answer) end
  end

  handle:connect("127.0.0.1", tonumber(url:match("%d+$")), function(err)
    assert(not err, err)
    handle:read_start(function(_, bytes) work(bytes or "") end)
    work()
  end)
  local is_in_time = turn_until(function() return got[1] or channel:state().is_done end)
  local failure = channel:error()
  handle:close()
  luv.run("nowait")
  channel:close()
  if not is_in_time then error("neither an answer nor an end of " .. url, 2) end
  return failure or true
end

return { try = try, turn_until = turn_until }
