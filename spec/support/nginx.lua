--- nginx with its Lua module, which runs on LuaJIT, and the rock of build/luajit.

local directory = require "spec.support.directory"
local process = require "spec.support.process"
local shell = require "spec.support.shell"

local nginx = {}

-- What the first phase begins with: `say` writes a line to stdout; `try` runs a file, and says its error.
local BEGIN = [[
  keywatch = require "keywatch"
  function say(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    io.stdout:write(table.concat(words, " "), "\n")
    io.stdout:flush()
  end
  function try(path)
    local ok, err = pcall(assert(loadfile(path)))
    if not ok then say(err) end
  end
]]

local CONFIGURATION = [[
  load_module $modules/ndk_http_module.so;
  load_module $modules/ngx_http_lua_module.so;
  daemon off;
  master_process off;
  pid $here/pid;
  events { worker_connections 16; }
  http {
    access_log off;
    client_body_temp_path $here/body;
    proxy_temp_path $here/proxy;
    fastcgi_temp_path $here/fastcgi;
    uwsgi_temp_path $here/uwsgi;
    scgi_temp_path $here/scgi;
    lua_package_path "$rock/share/lua/5.1/?.lua;$rock/share/lua/5.1/?/init.lua;;";
    lua_package_cpath "$rock/lib/lua/5.1/?.so;;";
    lua_socket_log_errors off;
    init_by_lua_file $here/begin.lua;
    init_worker_by_lua_block { try "$here/init_worker.lua" say "ready" }
    server {
      listen unix:$here/socket;
      location / { content_by_lua_block { try "$here/content.lua" ngx.print "answered" } }
    }
  }
]]

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

--- Runs nginx with a Lua text for each of the phases init, init_worker and content; makes one request; and ends nginx.
-- Returns what the texts have said, and what nginx has written to stderr.
function nginx.run(texts)
  local here = directory.new()
  local words = {
    here = here,
    modules = shell.must("nginx -V 2>&1"):match("%-%-modules%-path=(%S+)"),
    rock = shell.must("pwd") .. "/build/luajit",
  }
  write(here .. "/nginx.conf", (CONFIGURATION:gsub("%$(%l+)", words)))
  write(here .. "/begin.lua", BEGIN .. ("try %q"):format(here .. "/init.lua"))
  for _, phase in ipairs { "init", "init_worker", "content" } do
    write(("%s/%s.lua"):format(here, phase), texts[phase] or "")
  end
  local one = process.start { "nginx", "-p", here, "-c", here .. "/nginx.conf", "-e", "stderr" }
  one:expect("ready\n")
  local curl = process.run { "curl", "--silent", "--unix-socket", here .. "/socket", "http://nginx/" }
  assert(curl:stdout() == "answered", curl:transcript() .. one:transcript())
  one:signal("sigterm")
  one:wait()
  directory.remove(here)
  return (one:stdout():gsub("ready\n", "")), one:stderr()
end

return nginx
