--- Python's etcd client and gRPC, against a server: cases of spec/support/python, each run by its name.

local process = require "spec.support.process"

local PYTHON = "/usr/bin/python3" -- the one that Debian's packages are for

local python = {}
python.__index = python

function python.new(server)
  return setmetatable({
    argv = { PYTHON, "-B", "spec/support/python/peer.py", server.address, server.is_etcd and "etcd" or "keywatch" },
    process = nil, -- while it runs
  }, python)
end

local function running(self)
  if not self.process or self.process.status then self.process = process.start(self.argv, { is_lasting = true }) end
  return self.process
end

--- Begins a case, and waits until it says a word.
function python:begin(name, word)
  local peer = running(self)
  peer:write(name .. "\n")
  peer:expect("^" .. word .. "\n")
end

--- Waits for the end of the case that was begun; raises what it says if it fails.
function python:finish(name)
  local peer = running(self)
  local ok, text, word = pcall(peer.expect, peer, "^(.-)%-%- (%l+) " .. name .. "\n")
  if not ok then
    self:stop()
    error(text, 3)
  end
  if word ~= "ok" then error(text, 3) end
end

--- Runs a case; raises what it says if it fails.
function python:case(name)
  running(self):write(name .. "\n")
  self:finish(name)
end

--- The names of all cases.
function python:cases()
  local peer = running(self)
  peer:write("list\n")
  local names = {}
  for name in peer:expect("cases: ([^\n]*)\n"):gmatch("%S+") do names[#names + 1] = name end
  return names
end

function python:stop()
  if not self.process then return end
  self.process:signal("sigkill")
  self.process:wait()
  self.process = nil
end

return python
