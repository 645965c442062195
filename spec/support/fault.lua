--- Runs programs whose disk fails: spec/support/fault_program.lua with spec/support/fault.c preloaded.

local busted = require "busted"

local directory = require "spec.support.directory"
local fault_plan = require "spec.support.fault_plan"
local process = require "spec.support.process"
local shell = require "spec.support.shell"
local vm = require "spec.support.vm"

local LIBRARY = "build/fault.so"
local EVERY_SECONDS = 600 -- that a program has which strikes every call

--- A command that makes a directory, in memory if that can be: nothing here is about a real disk.
local fault = { MAKE_DIRECTORY = 'mktemp -d -p "${KW_MEMORY:-$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)}"' }

local methods = {}
local meta = { __index = methods }

--- Gives a disk a directory with nothing in it.
local function make(self)
  self.base = shell.must(fault.MAKE_DIRECTORY)
  self.directory = self.base .. "/disk"
  self.path = self.directory .. "/store"
  self.control = self.base .. "/control"
  self.slow_ms = nil -- that a sync of a database takes
  shell.must("mkdir " .. self.directory)
end

--- A disk of its own.
local function new()
  local self = setmetatable({}, meta)
  make(self)
  return self
end

--- For the block of tests that it is called in: a disk, which is new for each test. The directories of the test are
-- gone after it.
local function for_each_test()
  local self = setmetatable({}, meta)
  busted.before_each(function() make(self) end)
  busted.after_each(function()
    self:remove()
    directory.remove_all()
  end)
  return self
end

--- Makes the disk a new one.
function methods:renew()
  self:remove()
  make(self)
end

--- From its next call on.
function methods:plan(line) fault_plan.set(self.control, line) end

--- What a process needs to have this disk.
function methods:environment()
  return vm.environment({
    KW_FAULT_DIR = self.directory,
    KW_FAULT_CONTROL = self.control,
    KW_FAULT_SLOW = self.slow_ms and tostring(self.slow_ms),
  }, shell.must("pwd") .. "/" .. LIBRARY)
end

--- Starts a program in the place of fault_program.lua: a mode, and what comes after directory and control.
function methods:start_program(file, mode, ...)
  local argv = { vm.interpreter, file, mode, self.directory, self.control, ... }
  return process.start(argv, { env = self:environment() })
end

--- Starts the program: a mode, and what comes after directory and control.
function methods:start(mode, ...) return self:start_program("spec/support/fault_program.lua", mode, ...) end

--- Starts a program in the place of fault_program.lua on a file system of so many bytes, which ends with it.
function methods:start_small_program(file, bytes, mode, ...)
  local argv = { "unshare", "--map-root-user", "--mount", "sh", "-c",
    ('mount -t tmpfs -o size=%d tmpfs %s && exec "$@"'):format(bytes, self.directory), "sh", vm.interpreter,
    file, mode, self.directory, self.control, ... }
  return process.start(argv, { env = vm.environment() })
end

--- Starts the program on a file system of so many bytes, which ends with it.
function methods:start_small(bytes, mode, ...)
  return self:start_small_program("spec/support/fault_program.lua", bytes, mode, ...)
end

--- Runs a program whose mode "every" has a plan strike at every call in turn.
function methods:strike_every(file, plan)
  local program = self:start_program(file, "every", plan)
  assert(program:wait(EVERY_SECONDS) == 0, program:transcript())
  assert(program:stdout():find("done %d+\n"), program:transcript())
end

function methods:remove() shell.must("rm -rf " .. self.base) end

fault.new = new
fault.for_each_test = for_each_test

return fault
