--- What all who work on a cluster under attack share: clients, tags, and the counts of what came of their calls.
--
-- Every write carries a tag, which no other write has: the first word of its value. The end of a call is noted as ok,
-- or by the code of its error, with "in doubt" if the error has maybe_done.

local keywatch = require "keywatch"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local world_methods = {}
local world_mt = { __index = world_methods }

--- A world of clients, which belong to the caller.
local function new(clients, random)
  return setmetatable({
    clients = clients,
    random = random,
    is_over = false,
    tasks = {},
    n_tags = 0,
    acknowledged = 0, -- the newest revision that any answer has told of
    counts = {},      -- what -> outcome -> how often
    objections = {},  -- sentences
  }, world_mt)
end

function world_methods:object(format, ...)
  table.insert(self.objections, format:format(...))
end

function world_methods:client()
  return self.random:pick(self.clients)
end

--- A new tag, that begins with a letter.
function world_methods:tag(letter)
  self.n_tags = self.n_tags + 1
  return letter .. self.n_tags
end

--- Seconds that a call gets: mostly enough, at times too few.
function world_methods:patience()
  return self.random:one_in(4) and self.random:between(2, 10) / 10 or self.random:between(10, 30) / 10
end

--- Adds one to a count, or n.
function world_methods:count(what, outcome, n)
  local row = self.counts[what] or {}
  self.counts[what] = row
  row[outcome] = (row[outcome] or 0) + (n or 1)
end

--- How often something was counted; without an outcome, all together. `pattern` is one of outcomes.
function world_methods:counted(what, pattern)
  local n = 0
  for outcome, times in pairs(self.counts[what] or {}) do
    if not pattern or outcome:find(pattern) then n = n + times end
  end
  return n
end

--- Notes what came of a call. Returns "ok", "doubt", or "refused".
function world_methods:note(what, result, err)
  if result then
    self:count(what, "ok")
    return "ok"
  end
  if type(err) ~= "table" or type(err.code) ~= "string" then
    self:object("%s gives no error, but %s", what, tostring(err))
    return "doubt"
  end
  self:count(what, err.code .. (err.maybe_done and " in doubt" or ""))
  return err.maybe_done and "doubt" or "refused"
end

--- An answer has told of a revision.
function world_methods:acknowledge(revision)
  self.acknowledged = math.max(self.acknowledged, revision)
end

--- Does something again and again until the world is over. What it raises ends the world, as an objection.
function world_methods:work(what, fn, ...)
  local arguments = { n = select("#", ...), ... }
  local task = keywatch.spawn(function()
    local ok, err = xpcall(function()
      while not self.is_over do fn(self, unpack(arguments, 1, arguments.n)) end
    end, function(err) return debug.traceback(tostring(err), 2) end)
    if not ok then
      self.is_over = true
      self:object("%s raises %s", what, err)
    end
  end)
  table.insert(self.tasks, task)
end

--- Collects garbage now and then: what is forgotten is given back.
function world_methods:collect()
  self:work("the collector", function()
    collectgarbage()
    keywatch.sleep(0.5)
  end)
end

--- Ends the world: waits until everybody has done what they were at.
function world_methods:finish()
  self.is_over = true
  for _, task in ipairs(self.tasks) do assert(task:join()) end
  self.tasks = {}
end

--- The counts, as text: a line for each thing that was done.
function world_methods:report()
  local lines = {}
  for what, row in pairs(self.counts) do
    local parts = {}
    for outcome, n in pairs(row) do parts[#parts + 1] = ("%d %s"):format(n, outcome) end
    table.sort(parts, function(a, b) return a:match("%a.*") < b:match("%a.*") end)
    lines[#lines + 1] = ("  %s: %s"):format(what, table.concat(parts, ", "))
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

return { new = new }
