--- Specs of stores, clients and servers on sockets pass in a world, too: they run there unchanged, each test in a world
-- of its own. Disks and servers in other processes are excluded, since they need real time.
--
-- Passes with sanitizers run only a part of them, and valgrind none: the core does the same in a world as on sockets.

local busted = require "busted"
local getfenv = require("busted.compatibility").getfenv
local testing = require "keywatch.testing"

local pass = require("spec.support.vm").how
local is_whole = pass == "rock"

local FILES = is_whole and {
  "concurrency/session", "concurrency/lock", "concurrency/observer",
  "concurrency/stm", "namespace/namespace", "middleware", "identity",
} or pass == "check" and { "identity" } or {}

-- Tests, and groups of them, that are left out, with the reasons.
local OUT = {
  { "durable", "a disk" },
  { "without a token belongs to a separate cluster", "a disk" },
  { "etcd", "another process" },
  { "ends with its client, or the client's deadline", "the client of the spec has the system's clock" },
  { "gets calls that were cancelled, that were late", "the client of the spec has the system's clock" },
}

--- Wraps a function that declares tests: skips the excluded ones.
local function filtered(declare)
  return function(name, fn)
    for _, row in ipairs(OUT) do
      if name:find(row[1]) then
        row.is_met = true
        return
      end
    end
    return declare(name, fn)
  end
end

local load_filtered

--- Loads a file with the functions of busted that keep things out; and in the same way what the file uses to declare.
function load_filtered(path)
  local environment = { it = filtered(it), describe = filtered(describe) }
  function environment.require(name)
    if name == "spec.support.owners" then return load_filtered("spec/support/owners.lua") end
    if name == "busted" then return setmetatable({ describe = environment.describe }, { __index = busted }) end
    return require(name)
  end
  return assert(loadfile(path, "t", setmetatable(environment, { __index = getfenv(1) })))()
end

for _, file in ipairs(FILES) do
  describe("in a world: " .. file .. " #slow", function()
    local world

    before_each(function() world = testing.world() end)
    after_each(function()
      world:close()
      world = nil
    end)

    load_filtered(("spec/%s_spec.lua"):format(file))
  end)
end

describe("a function that is missing in a world #slow", function()
  it("exists in real time", function()
    for _, row in ipairs(is_whole and OUT or {}) do assert(row.is_met, "no test is called '" .. row[1] .. "'") end
  end)
end)
