--- Separate programs: Lua text that runs on the VM of this run, with its modules, in another process.
--
-- The interpreter runs under the same sanitizers, but without the check for leaks: a program need not clean up at its
-- end.

local busted = require "busted"

local files = require "spec.support.files"
local vm = require "spec.support.vm"

local SECONDS = 120 -- that a program may run

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Returns the command of the interpreter with its environment. Only the interpreter gets the preloaded libraries.
local function command(path)
  local words = { "env" }
  for name, value in pairs(vm.environment()) do words[#words + 1] = name .. "=" .. quote(value) end
  words[#words + 1] = vm.interpreter
  words[#words + 1] = path
  return table.concat(words, " ")
end

--- Runs a program. Returns its exit status, and its output.
local function run(text, seconds)
  local path = files.write(os.tmpname(), text)
  local script = ("timeout --kill-after=5 %d %s 2>&1; echo status $?"):format(seconds or SECONDS, command(path))
  local pipe = assert(io.popen("exec env -u LD_PRELOAD sh -c " .. quote(script)))
  local output = pipe:read("*a")
  pipe:close()
  os.remove(path)
  local printed, status = output:match("^(.*)status (%d+)\n$")
  return tonumber(status), printed
end

--- Runs a program that must succeed. Returns its output.
local function printed_by(text, seconds)
  local status, printed = run(text, seconds)
  if status ~= 0 then error(("the program ends with status %s: %s"):format(tostring(status), printed), 2) end
  return printed
end

--- Returns a function (printed, text) for tests: it runs the program `begin` .. text, and expects it to end by itself
-- with the output `printed`, in which spaces stand for tabs.
local function expecting(begin, runner)
  return function(expected, text)
    local status, printed = (runner or run)(begin .. text, 30)
    busted.assert.same({ 0, expected }, { status, (printed:gsub("\t", " ")) })
  end
end

--- The beginning of a program that forks.
local FORKING = [[
  local fork = assert(package.loadlib("build/fault.so", "kw_fault_fork"))
  local wait = assert(package.loadlib("build/fault.so", "kw_fault_wait"))
  local core = require "keywatch.core"
  local keywatch = require "keywatch"
  io.stdout:setvbuf("line") -- lines of two processes do not mix
  local function child(fn)
    local parent = core.pid()
    fork()
    if core.pid() == parent then return wait() end
    fn()
    os.exit(0, true)
  end
]]

--- Runs a program that forks by fork(), and waits for the child by wait(); child(fn) calls fn in a child, and waits for
-- its end.
local function run_forking(text, seconds) return run(FORKING .. text, seconds) end

return { run = run, printed_by = printed_by, expecting = expecting, run_forking = run_forking }
