--- The machines of a simulation: each is the disk of a durable server, whose process can be killed, or whose power can
-- fail, at any system call. spec/support/fault.c must be preloaded, with KW_FAULT_DIR; otherwise there are no
-- machines.

local core = require "keywatch.core"

local shell = require "spec.support.shell"

local LIBRARY = "build/fault.so"

local base = os.getenv("KW_FAULT_DIR")
local command = base and assert(package.loadlib(LIBRARY, "kw_fault_machine"))

local machine_methods = {}
local machine_mt = { __index = machine_methods }

local SECONDS = 60 -- of processor time, after which a simulation counts as hanging

--- Forgets all machines. The clock of the system stands still, and its random numbers depend on the seed. The process
-- has a limited time until finish().
local function begin(seed)
  if not command then return end
  command "forget"
  command "clock 0"
  command("random " .. seed)
  command("limit " .. SECONDS)
end

local function finish()
  if command then command "limit 0" end
end

--- Returns the bytes that C code of this process has allocated, and not freed; nil if the number is not known.
local function memory() return command and tonumber(command "memory") end

--- Returns a machine with an empty disk.
local function new(name)
  local path = ("%s/%d-%s"):format(base, core.pid(), name)
  shell.must(("rm -rf %s && mkdir -p %s"):format(path, path))
  return setmetatable({ path = path }, machine_mt)
end

--- Sets the plan of this machine, see fault.c; "" for none. It replaces the plan of any other machine.
function machine_methods:plan(line) command(("plan %s %s"):format(self.path, line)) end

function machine_methods:is_dead() return command("is_dead " .. self.path) == "yes" end
function machine_methods:kill() command("kill " .. self.path) end

--- Makes the disk work again. A seed means that the power has failed.
function machine_methods:revive(seed) command(("revive %s %s"):format(self.path, seed or "")) end

function machine_methods:remove() shell.must("rm -rf " .. self.path) end

return { new = new, begin = begin, finish = finish, memory = memory, are_there = command ~= nil }
