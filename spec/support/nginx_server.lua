--- A server of keywatch beside a stage of nginx.

local directory = require "spec.support.directory"
local process = require "spec.support.process"
local shell = require "spec.support.shell"

local nginx_server = {}

--- Starts a server that listens on URLs. Returns the process, and the URLs that it says.
function nginx_server.start(...)
  local one = process.start { shell.must("pwd") .. "/build/lua5.4/bin/keywatch", "serve", "--memory",
    "--listen-client-urls", table.concat({ ... }, ",") }
  local line = one:expect_error("ready to serve client requests on ([^\n]*)\n")
  local urls = {}
  for url in line:gmatch("[^%s,]+:[^%s,]+") do urls[#urls + 1] = url end
  return one, urls
end

--- Starts a server that listens on a port, and on a socket file. Returns the process, and both URLs.
function nginx_server.start_both()
  local path = directory.new() .. "/socket"
  local one, urls = nginx_server.start("http://127.0.0.1:0", "unix:" .. path)
  return one, urls[1], "unix:" .. path
end

return nginx_server
