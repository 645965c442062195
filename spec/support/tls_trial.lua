--- One connection to a TLS server, in this process or another, without a client that would retry.

local keywatch = require "keywatch"
local tls = require "keywatch.tls"

local luv = require "spec.support.luv"
local raw = require "spec.support.raw"
local tls_handle = require "spec.support.tls_handle"

local SECONDS = 120 -- after which a wait fails

--- Turns luv's loop, and keywatch's, until is_so() is true. Returns false after a timeout.
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
  local handle = tls_handle.new(assert(tls.client(options)))
  local client = raw.connect(tonumber(url:match("%d+$")), { handle = handle })
  local function speaks() return client.counts[raw.SETTINGS] ~= nil end
  local is_in_time = turn_until(function() return speaks() or client.failure or client.has_ended end)
  client:close()
  luv.run("nowait")
  handle.channel:close()
  if not is_in_time then error("neither an answer nor an end of " .. url, 2) end
  return speaks() or client.failure or "the server has closed the connection"
end

return { try = try, turn_until = turn_until }
