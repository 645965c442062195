--- Remote-controlled programs: a separate process that executes commands, and reports when each is done.
--
-- A command is a line, a list of its name and arguments as Lua literals; its answer is a line, too. While a spec waits
-- for an answer it does nothing else, unless it passes a function that turns its loops.

local literal = require "keywatch.support.literal"

local uv = require "spec.support.luv"

local process = require "spec.support.process"
local vm = require "spec.support.vm"

local SECONDS = 60   -- after which a command that waits for something gives up
local PATIENCE = 90  -- seconds without an answer, after which the program counts as hanging
local POLL_MS = 1    -- between two calls of `turn`

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local remote = {}

--- Returns a value as a literal of one line.
local function write(value) return (literal.write(value):gsub("\\\n", "\\n")) end

-- {====== The spec's side ======

local remote_methods = {}
local remote_mt = { __index = remote_methods }

--- Starts a program of spec/support by its file's name; it has the modules of this run, and runs under its sanitizers.
-- With the option is_lasting only close ends the program, and not the end of the test.
function remote.start(name, options)
  return setmetatable({
    process = process.start({ vm.interpreter, "spec/support/" .. name .. ".lua" }, {
      env = vm.environment(),
      is_lasting = options and options.is_lasting,
    }),
    n_asked = 0,
    n_answered = 0,
    answers = {}, -- by the number of the command, until taken
  }, remote_mt)
end

--- Takes the answers of the program. Several tasks may wait for answers, so each answer has the number of its command.
local function take_answers(self)
  local out = self.process.out
  local text, at = self.process:stdout(), 1
  for stop in text:gmatch("()\n") do
    self.n_answered = self.n_answered + 1
    self.answers[self.n_answered] = literal.read(text:sub(at, stop - 1))
    at = stop + 1
  end
  if at > 1 then out.chunks = { text:sub(at) } end
end

--- Waits for an answer.
local function await(self, number, turn)
  process.turn_until(function()
    if turn then turn() end
    take_answers(self)
    return self.answers[number] or self.process.out.is_over and self.process.err.is_over
  end, PATIENCE, turn and POLL_MS)
  local answer = self.answers[number]
  self.answers[number] = nil
  return answer or error("no answer from " .. self.process:transcript(), 0)
end

--- Sends a command: a list of its name and arguments. Returns the answer, or raises the error of the program. `turn`,
-- if given, is called repeatedly during the wait.
function remote_methods:ask(command, turn)
  self.n_asked = self.n_asked + 1
  self.process:write(write(command) .. "\n")
  local answer = await(self, self.n_asked, turn)
  if not answer.ok then error(answer.text, 3) end
  return answer.value
end

--- Ends the program.
function remote_methods:close()
  if self.process.status then return end
  self.process:signal("sigkill")
  self.process:wait()
end

-- }======

-- {====== The program's side ======

local function say(answer)
  io.write(write(answer), "\n")
  io.flush()
end

--- Reads commands from stdin into a list; ends the program when there are no more.
local function read_commands(list)
  local input, parts = uv.new_pipe(false), {}
  input:open(0)
  input:read_start(function(_, chunk)
    if not chunk then os.exit(0) end
    local at = 1
    for stop in chunk:gmatch("()\n") do
      list[#list + 1] = literal.read(table.concat(parts) .. chunk:sub(at, stop - 1))
      parts, at = {}, stop + 1
    end
    parts[#parts + 1] = chunk:sub(at)
  end)
end

--- Does a command, if that is possible now. Returns true if it was answered.
local function try(handlers, command)
  local ok, value = pcall(handlers[command[1]], unpack(command, 2))
  if ok and value == nil then return false end
  say { ok = ok, value = ok and value or nil, text = not ok and tostring(value) or nil }
  return true
end

local function give_up(command)
  say { ok = false, text = "timeout: the awaited condition is not true: " .. write(command) }
end

--- Does commands as they arrive, each by the handler with its name. A command is done after a turn of the loop, so
-- bytes that were sent to the program before the command have arrived. A handler that returns nil is called again after
-- the next turn; any other result is the answer. `each_turn` is called after every turn.
function remote.serve(handlers, each_turn)
  local commands, stop = {}, nil
  local timer = uv.new_timer()
  read_commands(commands)
  while true do
    uv.run("once")
    if each_turn then each_turn() end
    while commands[1] and try(handlers, commands[1]) do
      table.remove(commands, 1)
      stop = nil
      timer:stop()
      if each_turn then each_turn() end
    end
    if commands[1] and not stop then
      stop = uv.hrtime() + SECONDS * 1e9
      timer:start(SECONDS * 1000 + 1, 0, function() end)
    elseif commands[1] and uv.hrtime() > stop then
      give_up(table.remove(commands, 1))
      stop = nil
    end
  end
end

-- }======

return remote
