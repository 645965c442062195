--- Etcd's own client for Go, in a process that does what it is told: spec/support/go, which see for the verbs. It is
-- built by `make build/go/peer`.
--
-- Commands are done beside each other. While a spec waits for Go nothing else in it goes on, unless it is in a task and
-- waits by the methods that end in `_in_task`: these let other tasks go on.

local keywatch = require "keywatch"

local process = require "spec.support.process"
local uv = require "spec.support.luv"

local PROGRAM = "build/go/peer"
local PATIENCE = 60 -- seconds without an answer, after which Go is taken for one that hangs
local POLL = 0.002  -- seconds between two looks, in a task

local go_methods = {}
local go_mt = { __index = go_methods }

--- Starts it against one server or several, a list of URLs. Over TLS, `identity` is { ca, cert, key }, files, the last
-- two of which may be left out. It ends with process.end_all().
local function start(urls, identity)
  if type(urls) == "table" then urls = table.concat(urls, ",") end
  local argv = { PROGRAM }
  for _, name in ipairs { "ca", "cert", "key" } do
    if identity and identity[name] then argv[#argv + 1] = ("-%s=%s"):format(name, identity[name]) end
  end
  argv[#argv + 1] = urls
  return setmetatable({
    process = process.start(argv),
    n_asked = 0,
    commands = {}, -- by id: { said, answer }
  }, go_mt)
end

--- Takes the lines that were printed.
local function take_lines(self)
  local out = self.process.out
  local text, at = self.process:stdout(), 1
  for stop in text:gmatch("()\n") do
    local id, kind, rest = text:sub(at, stop - 1):match("^(%d+) (%l+) ?(.*)$")
    local command = self.commands[tonumber(id)]
    if kind == "said" then table.insert(command.said, rest) else command.answer = { kind = kind, text = rest } end
    at = stop + 1
  end
  if at > 1 then out.chunks = { text:sub(at) } end
end

local function is_gone(self)
  return self.process.out.is_over
end

--- Waits until a condition holds. `turn` is called between two looks.
local function wait(self, holds)
  local ok = process.turn_until(function()
    take_lines(self)
    return holds() or is_gone(self)
  end, PATIENCE)
  if not ok or not holds() then error("Go does not answer: " .. self.process:transcript(), 3) end
end

--- The same, in a task.
local function wait_in_task(self, holds)
  local deadline = keywatch.now() + PATIENCE
  while true do
    uv.run("nowait")
    take_lines(self)
    if holds() then return end
    if is_gone(self) or keywatch.now() > deadline then
      error("Go does not answer: " .. self.process:transcript(), 3)
    end
    keywatch.sleep(POLL)
  end
end

--- Begins a command, a verb and its arguments, which are words. Returns the id.
function go_methods:begin(...)
  self.n_asked = self.n_asked + 1
  self.commands[self.n_asked] = { said = {}, answer = nil }
  self.process:write(("%d %s\n"):format(self.n_asked, table.concat({ ... }, " ")))
  uv.run("nowait")
  return self.n_asked
end

local function result_of(self, id)
  local answer = self.commands[id].answer
  self.commands[id].answer = nil
  if answer.kind ~= "ok" then return nil, answer.text end
  local words = {}
  for word in answer.text:gmatch("%S+") do words[#words + 1] = word end
  return words
end

--- Waits for the answer of a command. Returns its words, or nil and what Go says of the failure.
function go_methods:finish(id)
  wait(self, function() return self.commands[id].answer end)
  return result_of(self, id)
end

function go_methods:finish_in_task(id)
  wait_in_task(self, function() return self.commands[id].answer end)
  return result_of(self, id)
end

--- Whether a command is answered.
function go_methods:is_finished(id)
  uv.run("nowait")
  take_lines(self)
  return self.commands[id].answer ~= nil
end

--- Has a command done, and returns the words of its answer.
function go_methods:must(...)
  return assert(self:finish(self:begin(...)))
end

function go_methods:must_in_task(...)
  return assert(self:finish_in_task(self:begin(...)))
end

--- Waits for the next thing that a command says before its answer.
function go_methods:expect(id)
  local said = self.commands[id].said
  wait(self, function() return said[1] end)
  return table.remove(said, 1)
end

function go_methods:expect_in_task(id)
  local said = self.commands[id].said
  wait_in_task(self, function() return said[1] end)
  return table.remove(said, 1)
end

return { start = start }
