--- Processes that run beside the spec: other programs, and servers.
--
-- Specs wait for the output of a process instead of sleeping, and every wait has a limit: a process without output for
-- too long fails the test, with everything that it has printed. No process outlives the run, however the run ends.

local uv = require "spec.support.luv"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local SECONDS = 120 -- after which a wait fails: the process hangs

local process = {}
process.__index = process

local running = {} -- pid -> process

-- Variables of the run for the VM under test, and variables that would change a client's server.
local FOREIGN = { LD_PRELOAD = true, http_proxy = true, HTTP_PROXY = true, ALL_PROXY = true, all_proxy = true }

local function environment(extra)
  local all = uv.os_environ()
  for name in pairs(all) do
    if FOREIGN[name] or name:find("^ETCD") then all[name] = nil end
  end
  for name, value in pairs(extra or {}) do all[name] = value end
  local list = {}
  for name, value in pairs(all) do list[#list + 1] = name .. "=" .. value end
  return list
end

--- Turns the loop until a condition holds; returns false if it took too long. Conditions without events are checked
-- again after `poll_ms`.
function process.turn_until(holds, seconds, poll_ms)
  local is_late = false
  local timer, poll = uv.new_timer(), poll_ms and uv.new_timer()
  if poll then poll:start(poll_ms, poll_ms, function() end) end
  uv.update_time() -- the loop may not have turned for long
  timer:start((seconds or SECONDS) * 1000, 0, function() is_late = true end)
  while not holds() and not is_late do uv.run("once") end
  timer:close()
  if poll then poll:close() end
  uv.run("nowait")
  return holds()
end

local turn_until = process.turn_until

-- One of the two streams of output. `at` is where the next match may begin.
local function new_stream() return { pipe = uv.new_pipe(false), chunks = {}, at = 1, is_over = false } end

local function text_of(stream)
  local text = table.concat(stream.chunks)
  stream.chunks = { text }
  return text
end

local function close(handle)
  if not handle:is_closing() then handle:close() end
end

local function read_all(stream)
  stream.pipe:read_start(function(_, chunk)
    if chunk then
      stream.chunks[#stream.chunks + 1] = chunk
    else
      stream.is_over = true
      close(stream.pipe)
    end
  end)
end

--- Starts a program: a list of its name and arguments. Options: env, a table of additions to the environment; cwd, its
-- directory; is_lasting, if end_all must not end it.
function process.start(argv, options)
  options = options or {}
  local self = setmetatable({
    name = table.concat(argv, " "):sub(1, 200),
    is_lasting = options.is_lasting,
    input = uv.new_pipe(false),
    out = new_stream(),
    err = new_stream(),
    status = nil, -- once the process has ended: the exit status, as in a shell
  }, process)

  local args = { "--pdeathsig", "KILL" }
  for _, arg in ipairs(argv) do args[#args + 1] = arg end
  local handle, pid = uv.spawn("setpriv", {
    args = args,
    env = environment(options.env),
    cwd = options.cwd,
    stdio = { self.input, self.out.pipe, self.err.pipe },
  }, function(code, signal)
    self.status = signal ~= 0 and 128 + signal or code
    running[self.pid] = nil
    close(self.handle)
    close(self.input)
  end)
  assert(handle, pid)
  self.handle, self.pid = handle, pid
  running[pid] = self
  read_all(self.out)
  read_all(self.err)
  return self
end

--- Returns the whole output so far, for the text of a failure.
function process:transcript()
  return ("%s\nstatus: %s\nstdout: %s\nstderr: %s"):format(self.name, tostring(self.status),
    text_of(self.out):sub(-4000), text_of(self.err):sub(-4000))
end

function process:stdout() return text_of(self.out) end
function process:stderr() return text_of(self.err) end

local function is_over(self) return self.status and self.out.is_over and self.err.is_over end

local function await(self, stream, pattern)
  local found
  turn_until(function()
    found = found or { text_of(stream):find(pattern, stream.at) }
    if not found[1] then found = nil end
    return found or is_over(self)
  end)
  if not found then error(("no %q from %s"):format(pattern, self:transcript()), 3) end
  stream.at = found[2] + 1
  if found[3] then return select(3, unpack(found)) end
  return text_of(stream):sub(found[1], found[2])
end

--- Waits for a pattern in stdout after the last match. Returns the captures, or the match.
function process:expect(pattern) return await(self, self.out, pattern) end

--- The same for stderr.
function process:expect_error(pattern) return await(self, self.err, pattern) end

--- Writes a text to stdin.
function process:write(text) self.input:write(text) end

--- Closes stdin.
function process:finish_input() self.input:shutdown() end

function process:signal(name) self.handle:kill(name) end

--- Waits for the end of the process. Returns the exit status.
function process:wait(seconds)
  if not turn_until(function() return is_over(self) end, seconds) then
    self.handle:kill("sigkill")
    error("it does not end: " .. self:transcript(), 2)
  end
  return self.status
end

--- Runs a program to its end, with a text on stdin. Returns the process.
function process.run(argv, input, options)
  local self = process.start(argv, options)
  if input then self:write(input) end
  self:finish_input()
  self:wait()
  return self
end

--- Kills the processes that a test has left running.
function process.end_all()
  local left = {}
  for _, self in pairs(running) do
    if not self.is_lasting then left[#left + 1] = self end
  end
  for _, self in ipairs(left) do
    self.handle:kill("sigkill")
    self:wait()
  end
end

return process
