--- The program `keywatch`, as a process on the VM of this run. Each process runs in a new directory, since a server
-- stores its data in the current directory by default: call directory.remove_all() at the end of a test.

local busted = require "busted"

local directory = require "spec.support.directory"
local luv = require "spec.support.luv"
local process = require "spec.support.process"
local vm = require "spec.support.vm"

--- Starts the program with environment variables and arguments. Returns the process, and its directory.
local function start_in(variables, ...)
  local options = { env = vm.environment(variables), cwd = directory.new() }
  return process.start({ vm.interpreter, luv.cwd() .. "/bin/keywatch", ... }, options), options.cwd
end

local function start(...) return start_in({}, ...) end

--- Waits until a server serves. Returns its URLs.
local function wait_until_ready(server)
  local urls = {}
  local list = server:expect_error("ready to serve [^\n]- on ([^\n]*)\n")
  for url in list:gmatch("[^, ]+") do urls[#urls + 1] = url end
  return urls
end

--- Stops a process gracefully. Returns its whole stderr.
local function stop(one)
  one:signal("sigterm")
  busted.assert.equal(0, one:wait())
  return one:stderr()
end

--- Starts the program, which must exit with a status after a single line on stderr, and without other output.
local function expect_failure(status, variables, pattern, ...)
  local one = start_in(variables, ...)
  busted.assert.equal(status, one:wait())
  busted.assert.equal("", one:stdout())
  busted.assert.matches(pattern, one:stderr())
  busted.assert.matches("^[^\n]+\n$", one:stderr())
end

--- For the calling file: kills the processes of each test at its end.
local function with_tests()
  busted.after_each(function()
    process.end_all()
    directory.remove_all()
  end)
end

return {
  start = start, start_in = start_in, wait_until_ready = wait_until_ready, stop = stop,
  expect_failure = expect_failure, with_tests = with_tests,
}
