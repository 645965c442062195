--- Programs whose disk fails: spec/support/fault_program.lua with spec/support/fault.c preloaded.

local process = require "spec.support.process"
local shell = require "spec.support.shell"
local vm = require "spec.support.vm"

local LIBRARY = "build/fault.so"

--- A command that makes a directory, in memory if that can be: nothing here is about a real disk.
local fault = { MAKE_DIRECTORY = 'mktemp -d -p "${KW_MEMORY:-$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)}"' }

local methods = {}
local meta = { __index = methods }

--- A disk of its own.
local function new()
  local base = shell.must(fault.MAKE_DIRECTORY)
  shell.must("mkdir " .. base .. "/disk")
  return setmetatable({
    base = base,
    directory = base .. "/disk",
    path = base .. "/disk/store",
    control = base .. "/control",
    slow_ms = nil, -- that a sync of a database takes
  }, meta)
end

--- From its next call on.
function methods:plan(line)
  local file = assert(io.open(self.control .. ".next", "w"))
  file:write(line, "\n")
  file:close()
  assert(os.rename(self.control .. ".next", self.control))
end

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
function methods:start(mode, ...)
  return self:start_program("spec/support/fault_program.lua", mode, ...)
end

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

function methods:remove()
  shell.must("rm -rf " .. self.base)
end

fault.new = new

return fault
