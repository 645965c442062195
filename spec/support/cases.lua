--- A client in another language: a process that reads names of cases, and reports the result of each.
--
-- The process reads one name per line, and prints "-- ok NAME" or "-- failed NAME" after the output of the case. For
-- "list" it prints "cases: " and all names, in order.

local process = require "spec.support.process"

local cases = {}
cases.__index = cases

--- Takes the command line, and options of process.start. The process starts when it is first needed.
function cases.new(argv, options)
  options = options or {}
  return setmetatable({
    argv = argv,
    options = { env = options.env, is_lasting = true },
    process = nil, -- while the process runs
  }, cases)
end

local function running(self)
  if not self.process or self.process.status then self.process = process.start(self.argv, self.options) end
  return self.process
end

--- Begins a case, and waits until it prints a word.
function cases:begin(name, word)
  local peer = running(self)
  peer:write(name .. "\n")
  peer:expect("^" .. word .. "\n")
end

--- Waits for the end of the case that was begun. Returns its output, or raises it if the case fails.
function cases:finish(name)
  local peer = running(self)
  local ok, text, word = pcall(peer.expect, peer, "^(.-)%-%- (%l+) " .. name .. "\n")
  if not ok then
    self:stop()
    error(text, 3)
  end
  if word ~= "ok" then error(text, 3) end
  return text
end

--- Runs a case. Returns its output, or raises it if the case fails.
function cases:case(name)
  running(self):write(name .. "\n")
  return self:finish(name)
end

--- Returns the names of all cases.
function cases:cases()
  local peer = running(self)
  peer:write("list\n")
  local names = {}
  for name in peer:expect("cases: ([^\n]*)\n"):gmatch("%S+") do names[#names + 1] = name end
  return names
end

function cases:stop()
  if not self.process then return end
  self.process:signal("sigkill")
  self.process:wait()
  self.process = nil
end

return cases
