--- Finalizers that act in the middle of calls: at a chosen allocation of one call, or throughout a program.
--
-- For separate programs, with the probe: each collection is a whole cycle, at the allocation that the probe was given;
-- there are no others. Each collection runs a finalizer. Its action is noted together with the binding in which it
-- ran: the function of the core, of keywatch.uv or of keywatch.tls that was allocating memory.

local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local tls = require "keywatch.tls"
local uv = require "keywatch.uv"

require "spec.support.inner"

local probe = core.probe

local haunt = {}

-- {====== Bindings ======

local OBJECTS = {
  ["keywatch.store"] = "store", ["keywatch.core.watch"] = "watch", ["keywatch.core.subscription"] = "subscription",
  ["keywatch.core.server"] = "server", ["keywatch.core.peer"] = "peer", ["keywatch.core.client"] = "client",
  ["keywatch.core.snapshot"] = "snapshot", ["keywatch.core.read"] = "read",
  ["keywatch.core.write"] = "write", ["keywatch.core.feed_state"] = "feed_state",
  ["keywatch.core.content_writer"] = "content_writer",
  ["keywatch.core.hashing"] = "hashing",
  ["keywatch.uv.loop"] = "loop", ["keywatch.uv.listener"] = "listener",
  ["keywatch.uv.lookup"] = "lookup", ["keywatch.uv.catcher"] = "catcher",
  ["keywatch.uv.thread"] = "thread", ["keywatch.uv.this_thread"] = "this_thread",
  ["keywatch.tls.context"] = "context", ["keywatch.tls.channel"] = "channel",
}

local names, functions = {}, {} -- of bindings: by function, and the functions by name

local function add_all(prefix, list)
  for name, value in pairs(list) do
    if type(value) == "function" and debug.getinfo(value, "S").what == "C" then
      names[value], functions[prefix .. name] = prefix .. name, value
    end
  end
end

add_all("core.", core)
add_all("requests.", core.requests)
add_all("answers.", core.answers)
add_all("durable:", core.durable_methods)
add_all("uv.", uv)
add_all("tls.", tls)
for class, name in pairs(OBJECTS) do
  local meta = debug.getregistry()[class]
  add_all(name .. ":", meta.__index)
  add_all(name .. ":", { tostring = meta.__tostring })
end

haunt.functions = functions

--- The name of the binding that the caller's caller has interrupted, if it is one.
local function interrupted()
  for level = 3, 12 do
    local info = debug.getinfo(level, "fS")
    if not info or info.what ~= "C" then return nil end
    if names[info.func] then return names[info.func] end
  end
end

-- }======

-- {====== Finalizers ======

local act            -- what the next finalizer does, given the name of the binding
local acting = false

local function leave_one()
  local function finalize()
    leave_one()
    if acting or not act then return end
    acting = true
    act(interrupted())
    acting = false
  end
  compat.sentinel(finalize)
end

--- From now on collections come when they are asked for. LuaJIT's compiled code stays out of this: some versions do not
-- come out of a compiled loop over pairs inside of a finalizer.
function haunt.begin()
  if jit then
    jit.off()
    collectgarbage("setpause", 1000)
    collectgarbage("setstepmul", 0)
  else
    collectgarbage("incremental", 1000, 400, 63)
  end
  collectgarbage()
  leave_one()
end

--- Calls a function, and has a finalizer do `what` at its n-th allocation, once. Returns whether the call has come so
-- far; the name of the binding where that was done; and what the call has raised, if it did.
function haunt.at(n, what, call, ...)
  local where
  act = function(binding)
    act, where = nil, binding
    what(binding)
  end
  probe.collect_at(n)
  local ok, err = pcall(call, ...)
  local is_missed = probe.collect_never()
  act = nil
  return not is_missed, where, not ok and err or nil
end

--- Calls a function, while finalizers do `what`, given the name of the binding, at every so many allocations. Returns
-- as pcall does.
function haunt.all_along(every, what, call, ...)
  act = function(binding)
    probe.collect_at(every, every) -- none for what is done here
    what(binding)
  end
  probe.collect_at(every, every)
  local ok, result, err = pcall(call, ...)
  probe.collect_never()
  act = nil
  return ok, result, err
end

-- }======

-- {====== What a program of actions counts ======

local tally_methods = {}

--- Counts how often actions happened, by their names: inside of bindings, and between. `never` and `unclean` are lists
-- of words about what has failed.
function haunt.tally()
  return setmetatable({ fired = {}, between = {}, never = {}, unclean = {} }, { __index = tally_methods })
end

function tally_methods:count(action, binding)
  if not binding then
    self.between[action] = (self.between[action] or 0) + 1
    return
  end
  self.fired[action] = self.fired[action] or {}
  self.fired[action][binding] = (self.fired[action][binding] or 0) + 1
end

--- Ends the program, after it has printed all that.
function tally_methods:finish(actions)
  print("", "actions, the bindings where they happened, and how often; and how often between")
  for _, action in ipairs(actions) do
    local bindings, times = 0, 0
    for _, n in pairs(self.fired[action.name] or {}) do bindings, times = bindings + 1, times + n end
    print(action.name, bindings, times, self.between[action.name] or 0)
  end
  for what, list in pairs { NEVER = self.never, UNCLEAN = self.unclean } do
    table.sort(list)
    for _, words in ipairs(list) do print(what, words) end
  end
  if #self.never + #self.unclean > 0 then os.exit(1) end
  print "well"
end

-- }======

-- {====== Errors ======

local CLEAN = { "closed", "a finalizer has to wait", "not enough memory", "was finalized", "not ready", "has ended" }

--- True if a finalizer may have caused the raised error.
function haunt.is_clean(err)
  if type(err) == "table" then return err.code ~= nil end
  for _, words in ipairs(CLEAN) do
    if tostring(err):find(words, 1, true) then return true end
  end
  return false
end

-- }======

return haunt
