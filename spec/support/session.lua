--- Simulates the terminal of a reader: runs commands, and programs with a transcript, in an empty directory. The
-- programs `keywatch` and `etcdctl` are in PATH, and the port 2379 is replaced by a free port.

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local free_port = require "spec.support.free_port"
local keywatch_command = require "spec.support.command"
local luv = require "spec.support.luv"
local process = require "spec.support.process"
local vm = require "spec.support.vm"

local PORT = "2379" -- in the pages
local ANY = "http://127.0.0.1:0"

local session = {}
session.__index = session

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Writes a script that starts the keywatch of this run.
local function write_keywatch(path)
  local words = { "#!/bin/sh\nexec env" }
  for name, value in pairs(vm.environment()) do table.insert(words, name .. "=" .. quote(value)) end
  table.insert(words, vm.interpreter)
  table.insert(words, quote(luv.cwd() .. "/bin/keywatch"))
  files.write(path, table.concat(words, " ") .. ' "$@"\n')
  assert(luv.fs_chmod(path, 493)) -- 0755
end

function session.new()
  local self = setmetatable({
    cwd = directory.new(),
    bin = directory.new(),
    server = nil, -- the running `keywatch serve`
    port = nil,   -- of that server
  }, session)
  write_keywatch(self.bin .. "/keywatch")
  return self
end

--- Stops the server, which must exit with status 0.
function session:stop()
  local server = self.server
  self.server = nil
  if not server then return end
  server:signal("sigterm")
  if server:wait() ~= 0 then error("the server has failed: " .. server:transcript(), 0) end
end

--- Starts `keywatch serve` with arguments, and stops the previous server.
function session:serve(arguments)
  self:stop()
  local argv, has_url = { self.bin .. "/keywatch", "serve" }, false
  for _, word in ipairs(arguments) do
    has_url = has_url or word:find("listen-client-urls", 1, true) or word:find("config-file", 1, true)
    table.insert(argv, (word:gsub(":" .. PORT, ":0")))
  end
  if not has_url then table.insert(argv, "--listen-client-urls=" .. ANY) end
  self.server = process.start(argv, { cwd = self.cwd })
  self.port = keywatch_command.wait_until_ready(self.server)[1]:match("%d+$")
end

--- Runs a command, which must succeed.
function session:run(command, variables)
  if command:find("etcdctl", 1, true) and not self.port then self:serve {} end
  local env = { PATH = self.bin .. ":" .. os.getenv("PATH"), ETCDCTL_API = "3" }
  if not command:find("--endpoints", 1, true) then -- etcdctl refuses the flag twice
    env.ETCDCTL_ENDPOINTS = "http://127.0.0.1:" .. (self.port or PORT)
  end
  command = command:gsub(":" .. PORT, ":" .. (self.port or PORT))
  for name, value in pairs(variables or {}) do env[name] = value end
  local done = process.run({ "sh", "-c", command }, nil, { cwd = self.cwd, env = env })
  if done.status ~= 0 then error("a command has failed: " .. done:transcript(), 0) end
end

--- Runs a command of a page. A server runs until the next one is started, or the session ends.
function session:type(command)
  local flags = command:match("^keywatch serve(.*)$")
  if not flags or flags:find("--help", 1, true) then return self:run(command) end
  local arguments = {}
  for word in flags:gmatch("%S+") do table.insert(arguments, word) end
  self:serve(arguments)
end

local function escape(text) return (text:gsub("%p", "%%%0")) end

local KILL = "kill $PID"

--- Starts `keywatch run`, and waits until it runs.
function session:start_controllers(command)
  local argv = { self.bin .. "/keywatch" }
  for word in command:gsub("^keywatch", ""):gmatch("%S+") do table.insert(argv, word) end
  local program = process.start(argv, {
    cwd = self.cwd, env = { KEYWATCH_ENDPOINTS = "http://127.0.0.1:" .. self.port, PATH = os.getenv("PATH") },
  })
  program:expect_error("is running")
  return program
end

--- Writes a controller file, and follows the transcript of the processes that run it: `$ keywatch run` starts one, the
-- oldest prints, and `$ kill $PID` ends the oldest, which must exit with status 0.
function session:follow_controllers(name, source, transcript)
  self:serve { "--memory" }
  files.write(self.cwd .. "/" .. name, source)
  local programs, printed, expected = {}, {}, {}
  for _, line in ipairs(transcript) do
    local command = line:match("^%$ (.*)$")
    if not command then
      programs[1]:expect(escape(line) .. "\n")
      table.insert(expected, line .. "\n")
    elseif command:find("^keywatch run") then
      table.insert(programs, self:start_controllers(command))
    else
      self:run(command, { PID = tostring(programs[1].pid) })
      if command == KILL then
        local program = table.remove(programs, 1)
        if program:wait(10) ~= 0 then error("a controller has failed: " .. program:transcript(), 0) end
        table.insert(printed, program:stdout())
      end
    end
  end
  for _, program in ipairs(programs) do table.insert(printed, program:stdout()) end
  return table.concat(printed), table.concat(expected)
end

--- Runs a program, and follows its transcript: lines that begin with `$` are commands, other lines are output of the
-- program. The program must exit with status 0, unless the last command kills it. A source that begins with the name of
-- a file, such as `-- colors.lua`, is a controller file.
function session:follow(source, transcript)
  local name = source:match("^%-%- (%l+%.lua)")
  if name then return self:follow_controllers(name, source, transcript) end
  if source:find("keywatch.connect", 1, true) then self:serve { "--memory" } else self.port = free_port() end
  files.write(self.cwd .. "/program.lua", (source:gsub(PORT, self.port)))
  local program = process.start({ vm.interpreter, "program.lua" }, { cwd = self.cwd, env = vm.environment() })
  local expected, last = {}, nil
  for _, line in ipairs(transcript) do
    last = line:match("^%$ (.*)$")
    if last then
      self:run(last, { PID = tostring(program.pid) })
    else
      program:expect(escape(line) .. "\n")
      table.insert(expected, line .. "\n")
    end
  end
  local status = program:wait(10)
  if last ~= KILL and status ~= 0 then error("the program has failed: " .. program:transcript(), 0) end
  return program:stdout(), table.concat(expected)
end

--- Ends all processes. directory.remove_all removes the directories.
function session:close()
  local ok, err = pcall(self.stop, self)
  process.end_all()
  if not ok then error(err, 0) end
end

return session
