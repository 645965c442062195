--- Runs programs whose disk fails: spec/support/fault_program.lua with spec/support/fault.c preloaded.

local busted = require "busted"

local directory = require "spec.support.directory"
local fault_plan = require "spec.support.fault_plan"
local process = require "spec.support.process"
local shell = require "spec.support.shell"
local vm = require "spec.support.vm"

local LIBRARY = "build/fault.so"
local EVERY_SECONDS = 600 -- that the mode "every" may take

--- A command that makes a directory, if possible in memory: no spec here needs a real disk.
local fault = { MAKE_DIRECTORY = 'mktemp -d -p "${KW_MEMORY:-$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)}"' }

local methods = {}
local meta = { __index = methods }

--- Gives a disk an empty directory.
local function make(self)
  self.base = shell.must(fault.MAKE_DIRECTORY)
  self.directory = self.base .. "/disk"
  self.path = self.directory .. "/store"
  self.control = self.base .. "/control"
  self.slow_ms = nil -- milliseconds that a sync of a database takes
  shell.must("mkdir " .. self.directory)
end

--- Returns a disk.
local function new()
  local self = setmetatable({}, meta)
  make(self)
  return self
end

--- For the calling block of tests: a disk, which is new for each test. The directories of a test are removed after it.
local function for_each_test()
  local self = setmetatable({}, meta)
  busted.before_each(function() make(self) end)
  busted.after_each(function()
    self:remove()
    directory.remove_all()
  end)
  return self
end

--- Empties the disk, and drops its plan.
function methods:renew()
  self:remove()
  make(self)
end

--- Sets the plan, from the next call of the disk on.
function methods:plan(line) fault_plan.set(self.control, line) end

--- Returns the environment for a process with this disk.
function methods:environment()
  return vm.environment({
    KW_FAULT_DIR = self.directory,
    KW_FAULT_CONTROL = self.control,
    KW_FAULT_SLOW = self.slow_ms and tostring(self.slow_ms),
  }, shell.must("pwd") .. "/" .. LIBRARY)
end

--- Starts another program than fault_program.lua, with a mode, the directory, the control file and more arguments.
function methods:start_program(file, mode, ...)
  local argv = { vm.interpreter, file, mode, self.directory, self.control, ... }
  return process.start(argv, { env = self:environment() })
end

--- Starts fault_program.lua, with a mode, the directory, the control file and more arguments.
function methods:start(mode, ...) return self:start_program("spec/support/fault_program.lua", mode, ...) end

--- Starts another program than fault_program.lua on a file system of so many bytes, which ends with the program.
function methods:start_small_program(file, bytes, mode, ...)
  local argv = { "unshare", "--map-root-user", "--mount", "sh", "-c",
    ('mount -t tmpfs -o size=%d tmpfs %s && exec "$@"'):format(bytes, self.directory), "sh", vm.interpreter,
    file, mode, self.directory, self.control, ... }
  return process.start(argv, { env = vm.environment() })
end

--- Starts fault_program.lua on a file system of so many bytes, which ends with the program.
function methods:start_small(bytes, mode, ...)
  return self:start_small_program("spec/support/fault_program.lua", bytes, mode, ...)
end

--- Runs the mode "every" of a program: a plan strikes at each call in turn.
function methods:strike_every(file, plan)
  local program = self:start_program(file, "every", plan)
  assert(program:wait(EVERY_SECONDS) == 0, program:transcript())
  assert(program:stdout():find("done %d+\n"), program:transcript())
end

function methods:remove() shell.must("rm -rf " .. self.base) end

fault.new = new
fault.for_each_test = for_each_test

return fault
