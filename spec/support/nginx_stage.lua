--- Runs nginx: a master and its workers, with the rock of build/luajit, in a separate directory.
--
-- A Lua text can be run in each worker. The module reloads, quits and kills workers, makes requests, and reads
-- error.log. No process outlives the run, however the run ends.

local literal = require "keywatch.support.literal"

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local free_port = require "spec.support.free_port"
local http = require "spec.support.http"
local proc = require "spec.support.proc"
local process = require "spec.support.process"
local shell = require "spec.support.shell"
local uv = require "spec.support.luv"

local PATIENCE = 60  -- seconds, after which a wait fails
local POLL_MS = 2
local ATTEMPTS = 20  -- to find a free port
local WORKER = "nginx: worker process" -- the title of a worker that is not exiting

local nginx_stage = {}
nginx_stage.__index = nginx_stage

local stages = {} -- that run

-- {====== The files of nginx ======

-- Precedes the other text of init_worker: a worker ends with its master, even if the master is killed.
local TIE = [[
local ffi = require "ffi"
ffi.cdef "int prctl(int option, unsigned long arg)"
ffi.C.prctl(1, 9)
]]

-- Runs the Lua text that was posted. The answer is a list of its results, or its error.
local RUN = [[
local literal = require "keywatch.support.literal"
ngx.req.read_body()
local chunk, err = load(ngx.req.get_body_data(), "=asked")
if not chunk then
  ngx.status = 500
  return ngx.print(err)
end
local function finish(ok, ...)
  if ok then return ngx.print(literal.write { n = select("#", ...), ... }) end
  ngx.status = 500
  ngx.print(tostring((...)))
end
finish(pcall(chunk))
]]

-- Directories for nginx's temporary files: the default ones belong to root.
local TEMPORARY = [[
  client_body_temp_path $here/body;
  proxy_temp_path $here/proxy;
  fastcgi_temp_path $here/fastcgi;
  uwsgi_temp_path $here/uwsgi;
  scgi_temp_path $here/scgi;
]]

local CONFIGURATION = [[
$main
events { worker_connections 512; }
http {
  access_log off;
  client_body_buffer_size 1m;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  lua_package_path "$rock/share/lua/5.1/?.lua;$rock/share/lua/5.1/?/init.lua;;";
  lua_package_cpath "$rock/lib/lua/5.1/?.so;;";
  lua_socket_log_errors off;
  init_by_lua_file $here/init.lua;
  init_worker_by_lua_file $here/init_worker.lua;
  $http
  server {
    listen 127.0.0.1:$port reuseport;
    location = /stage/pid { content_by_lua_block { ngx.print(ngx.worker.pid()) } }
    location = /stage/run { content_by_lua_file $here/run.lua; }
    $server
  }
}
]]

-- Directives for -g, except those that the configuration has.
local GLOBALS = {
  { "daemon", "daemon off;" },
  { "worker_processes", "worker_processes $workers;" },
  { "pid", "pid $here/pid;" },
  { "error_log", "error_log $here/error.log notice;" },
  { "user", "$user" },
}

--- Replaces each $word of a text that has a value.
local function fill(text, words) return (text:gsub("%$(%l+)", words)) end

--- Returns the directives that load nginx's Lua module, if it is a dynamic module.
local function load_modules()
  local modules = shell.must("nginx -V 2>&1"):match("%-%-modules%-path=(%S+)")
  if not modules or not uv.fs_stat(modules .. "/ngx_http_lua_module.so") then return "" end
  return ("load_module %s/ndk_http_module.so; load_module %s/ngx_http_lua_module.so; "):format(modules, modules)
end

local function write_files(self)
  local options, words = self.options, self.words
  words.main, words.http, words.server = "", "", "" -- the words in these directives are replaced first
  for _, name in ipairs { "main", "http", "server" } do words[name] = fill(options[name] or "", words) end
  local text = (options.configuration or CONFIGURATION):gsub("\nhttp {\n", "%0" .. TEMPORARY, 1)
  files.write(self.here .. "/nginx.conf", fill(text, words))
  files.write(self.here .. "/init.lua", fill(options.init or "", words))
  files.write(self.here .. "/init_worker.lua", TIE .. fill(options.init_worker or "", words))
  files.write(self.here .. "/run.lua", RUN)
end

--- Writes the files of a stage, and starts nothing. Options: init and init_worker, Lua texts of these phases; main,
-- http and server, directives for these blocks of nginx.conf; workers, their number (2); configuration, the text of a
-- whole nginx.conf that listens on port $port, instead of all these; env, additions to the environment. In each text
-- $here is the directory of the stage, $rock that of keywatch, and $port the port; `words` has more such words.
function nginx_stage.new(options)
  options = options or {}
  local here = directory.new()
  local words = { here = here, rock = shell.must("pwd") .. "/build/luajit", workers = tostring(options.workers or 2) }
  words.user = shell.must("id -u") == "0" and "user root;" or ""
  for name, value in pairs(options.words or {}) do words[name] = tostring(value) end
  words.port = tostring(free_port())
  local self = setmetatable({
    options = options,
    here = here,
    words = words,
    port = tonumber(words.port),
    n_workers = options.workers or 2,
    master = nil,     -- the process
    connections = {}, -- by the pids of the workers
    n_read = 0,       -- bytes of error.log that an expectation has taken
  }, nginx_stage)
  write_files(self)
  return self
end

--- Returns the directives for -g: those that the configuration does not have.
local function globals(self)
  local text = "\n" .. (self.options.configuration or "")
  local list = { load_modules() }
  for _, one in ipairs(GLOBALS) do
    if not text:find("\n" .. one[1] .. " ") then list[#list + 1] = fill(one[2], self.words) end
  end
  return table.concat(list, " ")
end

local function command(self, ...)
  return { "nginx", "-p", self.here, "-c", self.here .. "/nginx.conf", "-e", self.here .. "/error.log",
    "-g", globals(self), ... }
end

--- Returns additions to nginx's environment: the path of keywatch, for a configuration that does not set it.
local function environment(self)
  local env = {}
  for name, value in pairs(self.options.env or {}) do env[name] = value end
  if not self.options.configuration then return env end
  local rock = self.words.rock
  env.LUA_PATH = ("%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;"):format(rock, rock)
  env.LUA_CPATH = rock .. "/lib/lua/5.1/?.so;;"
  return env
end

--- Runs `nginx -t` with these files. Returns the process, which has ended.
function nginx_stage:test() return process.run(command(self, "-t"), nil, { env = environment(self) }) end

-- }======

-- {====== Processes ======

--- Calls a function repeatedly, until it returns a true value or nginx has ended. Returns the value.
local function poll(self, holds)
  local found
  process.turn_until(function()
    found = found or holds()
    return found or self.master.status
  end, PATIENCE, POLL_MS)
  return found
end

--- Waits until a function returns a value that is true, and returns the value. `what` names it in the error.
local function await(self, what, holds)
  local found = poll(self, holds)
  if found then return found end
  error(("nginx: no %s\n%s\nerror.log:\n%s"):format(what, self.master:transcript(), self:log():sub(-4000)), 3)
end

--- Waits until a function returns a value that is true, and returns the value. `what` names it in the error.
function nginx_stage:await(what, holds) return await(self, what, holds) end

--- Returns the sorted pids of the workers that are not exiting.
function nginx_stage:workers()
  local list = {}
  for _, pid in ipairs(proc.children(self.master.pid)) do
    if proc.title(pid) == WORKER then list[#list + 1] = pid end
  end
  return list
end

--- Returns a connection to a worker. A new connection reaches a random worker, so several attempts may be needed.
local function connection_to(self, pid)
  local open = self.connections[pid]
  if open and not open.is_over then return open end
  await(self, "connection to worker " .. pid, function()
    local one = http.connect(self.port)
    local answer = one:ask("/stage/pid")
    local found = answer and tonumber(answer.body)
    local before = found and self.connections[found]
    if before then before:close() end
    if found then self.connections[found] = one else one:close() end
    return found == pid
  end)
  return self.connections[pid]
end

--- Waits until the configured number of workers runs and serves, without those in `old`. Returns their pids.
local function await_workers(self, old)
  return await(self, "workers", function()
    local pids = self:workers()
    if #pids ~= self.n_workers then return false end
    for _, pid in ipairs(pids) do
      if old[pid] then return false end
    end
    if self.options.configuration then return pids end
    for _, pid in ipairs(pids) do connection_to(self, pid) end
    return pids
  end)
end

local function is_port_taken(self)
  return self.master.status and self:log():find("bind() to 127.0.0.1:" .. self.port, 1, true)
end

--- True if a server listens on the port of the stage.
local function is_listening(self)
  local one = http.connect(self.port)
  process.turn_until(function() return one.is_over or one.socket:is_readable() end)
  local is_open = not one.is_over
  one:close()
  return is_open
end

--- Starts nginx, and waits until each worker serves.
function nginx_stage:run()
  for _ = 1, ATTEMPTS do
    self.master = process.start(command(self), { env = environment(self) })
    stages[self] = true
    poll(self, function() return is_listening(self) end)
    if not is_port_taken(self) then break end
    os.remove(self.here .. "/error.log")
    self.port = free_port()
    self.words.port = tostring(self.port)
    write_files(self)
  end
  await_workers(self, {})
  return self
end

--- Writes the files of a stage, and starts it.
function nginx_stage.start(options) return nginx_stage.new(options):run() end

-- Precedes the texts of `said`: `say` records a line.
local SAY = [[
  keywatch, said = require "keywatch", {}
  function say(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    said[#said + 1] = table.concat(words, " ") .. "\n"
  end
]]

--- Runs Lua texts for some of the phases init, init_worker and content in a stage with one worker. Returns the recorded
-- lines, and error.log.
function nginx_stage.said(texts)
  local self = nginx_stage.start { workers = 1, init = SAY .. (texts.init or ""), init_worker = texts.init_worker }
  local pid = self:workers()[1]
  if texts.content then self:ask(pid, texts.content) end
  local said, log = self:ask(pid, "return table.concat(said)"), self:log()
  self:quit()
  return said, log
end

--- Starts a server in memory that listens on URLs. Returns the process, and the URLs that it prints.
function nginx_stage.serve(...)
  local one = process.start { shell.must("pwd") .. "/build/lua5.4/bin/keywatch", "serve", "--memory",
    "--listen-client-urls", table.concat({ ... }, ",") }
  local line, urls = one:expect_error("ready to serve client requests on ([^\n]*)\n"), {}
  for url in line:gmatch("[^%s,]+:[^%s,]+") do urls[#urls + 1] = url end
  return one, urls
end

--- Starts a server. Returns options for a stage in whose texts `keywatch` is defined, and $url and $unix are URLs of
-- the server, with a port and with a socket file; and the server's process.
function nginx_stage.with_server(options)
  local unix = "unix:" .. directory.new() .. "/socket"
  local one, urls = nginx_stage.serve("http://127.0.0.1:0", unix)
  options.words = options.words or {}
  options.words.url, options.words.unix = urls[1], unix
  options.init = "keywatch = require 'keywatch'\n" .. (options.init or "")
  return options, one
end

--- Starts a server and a stage of these options. Returns the stage, the URL, and the server's process.
function nginx_stage.start_with_server(options)
  local all, one = nginx_stage.with_server(options)
  return nginx_stage.start(all), all.words.url, one
end

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

local function forget(self, pids)
  for _, pid in ipairs(pids) do
    if self.connections[pid] then self.connections[pid]:close() end
    self.connections[pid] = nil
  end
end

--- Waits until all these processes have ended.
local function await_end(self, pids)
  await(self, "end of " .. table.concat(pids, ", "), function()
    for _, pid in ipairs(pids) do
      if proc.is_running(pid) then return false end
    end
    return true
  end)
end

--- Reloads nginx. Returns when the old workers have ended and the new ones serve.
function nginx_stage:reload()
  local old = self:workers()
  self.master:signal("sighup")
  local pids = await_workers(self, set_of(old))
  await_end(self, old)
  forget(self, old)
  return pids
end

--- Kills a worker, and waits until its replacement serves.
function nginx_stage:kill(pid)
  uv.kill(pid, "sigkill")
  await_end(self, { pid })
  forget(self, { pid })
  return await_workers(self, { [pid] = true })
end

--- Stops nginx gracefully, and waits for its end. Returns the exit status.
function nginx_stage:quit()
  local old = self:workers()
  self.master:signal("sigquit")
  local status = self.master:wait(PATIENCE)
  forget(self, old)
  stages[self] = nil
  return status
end

--- Kills the processes, and removes the directory.
function nginx_stage:close()
  stages[self] = nil
  if self.master and not self.master.status then
    local pids = proc.children(self.master.pid)
    self.master:signal("sigkill")
    for _, pid in ipairs(pids) do uv.kill(pid, "sigkill") end
    self.master:wait()
    forget(self, pids)
  end
  if uv.fs_stat(self.here) then directory.remove(self.here) end
end

--- Closes every running stage.
function nginx_stage.close_all()
  local left = {}
  for self in pairs(stages) do left[#left + 1] = self end
  for _, self in ipairs(left) do self:close() end
end

--- For the calling block of tests: closes the stages and processes of each test at its end.
function nginx_stage.with_tests()
  local busted = require "busted" -- a bench has none
  busted.after_each(function()
    nginx_stage.close_all()
    process.end_all()
  end)
  busted.teardown(directory.remove_all)
end

-- }======

-- {====== Requests ======

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- Runs a Lua text in the content phase of a worker. Returns its results, and raises its error.
function nginx_stage:ask(pid, text)
  local answer = connection_to(self, pid):ask("/stage/run", text)
  if not answer then error(("worker %d has not answered\n%s"):format(pid, self:log():sub(-4000)), 2) end
  if answer.status ~= 200 then error(("worker %d: %s"):format(pid, answer.body), 2) end
  local results = literal.read(answer.body)
  return unpack(results, 1, results.n)
end

--- Runs a Lua text in each worker. Returns the first result of each, in the order of their pids.
function nginx_stage:ask_each(text)
  local list = {}
  for i, pid in ipairs(self:workers()) do list[i] = self:ask(pid, text) end
  return list
end

--- Waits until a Lua text returns true in each worker.
function nginx_stage:await_each(text)
  for _, pid in ipairs(self:workers()) do
    await(self, text .. " in worker " .. pid, function() return self:ask(pid, text) end)
  end
end

--- Makes a request to any worker. Returns { status, head, body }.
function nginx_stage:get(path)
  local one = http.connect(self.port)
  local answer = one:ask(path)
  one:close()
  return answer or error("no answer to " .. path .. "\n" .. self:log():sub(-4000), 2)
end

-- }======

-- {====== Load ======

local load_methods = {}
local load_mt = { __index = load_methods }

--- Starts wrk, which makes requests over so many connections.
function nginx_stage:load(path, connections)
  local url = ("http://127.0.0.1:%d%s"):format(self.port, path)
  return setmetatable({
    wrk = process.start { "wrk", "-t", "1", "-c", tostring(connections or 16), "-d", "1h", url },
  }, load_mt)
end

--- Stops wrk. Returns { requests, per_second, bad (answers with other statuses than 2xx and 3xx), broken (failed
-- connections and requests) }.
function load_methods:finish()
  self.wrk:signal("sigint")
  assert(self.wrk:wait() == 0, self.wrk:transcript())
  local text = self.wrk:stdout()
  local connect, read, wrote = text:match("Socket errors: connect (%d+), read (%d+), write (%d+)")
  return {
    requests = tonumber(text:match("(%d+) requests in")),
    per_second = tonumber(text:match("Requests/sec:%s+([%d.]+)")),
    bad = tonumber(text:match("Non%-2xx or 3xx responses: (%d+)") or 0),
    broken = tonumber(connect or 0) + tonumber(read or 0) + tonumber(wrote or 0),
  }
end

-- }======

-- {====== error.log ======

--- Returns the whole of error.log.
function nginx_stage:log()
  local file = io.open(self.here .. "/error.log")
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

local GRAVE = { warn = true, error = true, crit = true, alert = true, emerg = true }

--- Returns the lines of error.log with the level warn or higher that match none of the patterns, as one text.
function nginx_stage:troubles(...)
  local expected, list = { ... }, {}
  for line in self:log():gmatch("[^\n]+") do
    local is_grave = GRAVE[line:match("^%S+ %S+ %[(%l+)%]")]
    for _, pattern in ipairs(expected) do
      if is_grave and line:find(pattern) then is_grave = false end
    end
    if is_grave then list[#list + 1] = line end
  end
  return table.concat(list, "\n")
end

--- Waits for a line of error.log after the last one that was waited for. Returns the line.
function nginx_stage:expect_log(pattern)
  return await(self, "line " .. pattern, function()
    local text = self:log()
    for at, line, stop in text:gmatch("()([^\n]*)\n()") do
      if at > self.n_read and line:find(pattern) then
        self.n_read = stop - 1
        return line
      end
    end
  end)
end

-- }======

return nginx_stage
