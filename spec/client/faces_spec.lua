--- A client and a namespace have the face of a store: the specs of stores and of their watches hold for clients of
-- keywatch and of etcd, and for namespaces.
--
-- They are run as they are, with these where they open stores, but for what spec/client/differences.lua lists.

local getfenv = require("busted.compatibility").getfenv
local core = require "keywatch.core"
local keywatch = require "keywatch"

local differences = require "spec.client.differences"
local faces = require "spec.support.faces"
local process = require "spec.support.process"

local FILES = {
  "store/put", "store/exists", "store/range", "store/sort", "store/delete", "store/txn", "store/txn_rules",
  "store/txn_misuse", "store/compare", "store/history", "store/lease", "store/compaction", "store/each", "store/error",
  "store/misuse", "store/ids", "store/hash_kv", "watch/watch", "watch/watch_reading", "watch/watch_life",
  "watch/watch_misuse", "watch/watch_progress",
}

--- What closes the clients that were opened last, in tests or before them.
local function new_keeper(face, file)
  local keeper, of_test, of_setup = { is_in_test = false }, {}, {}

  function keeper.open(opts)
    local client, close = face.open(opts, file:find("misuse", 1, true) ~= nil)
    table.insert(keeper.is_in_test and of_test or of_setup, close)
    return client
  end

  local function close_all(list)
    while #list > 0 do table.remove(list)() end
  end

  function keeper.close_of_test() close_all(of_test) end
  function keeper.close_of_setup() close_all(of_setup) end

  return keeper
end

--- Keeps tests, and groups of them, out that are listed as different. `met` is told of those.
local function filtered(declare, list, met)
  return function(name, fn)
    if not list[name] then return declare(name, fn) end
    met[name] = true
  end
end

local function expect_all(list, met, path)
  for name in pairs(list) do
    if not met[name] then error(("%s has nothing that is called '%s'"):format(path, name), 0) end
  end
end

--- The globals of a file of specs.
local function environment(keeper, list, met)
  local stand_ins = {
    keywatch = setmetatable({ open = keeper.open }, { __index = keywatch }),
    ["keywatch.core"] = setmetatable({ probe = false }, { __index = core }), -- a client's store cannot be looked into
  }
  return setmetatable({
    require = function(name) return stand_ins[name] or require(name) end,
    it = filtered(it, list, met),
    describe = filtered(describe, list, met),
  }, { __index = getfenv(1) })
end

local function specs_of(face, file, tag)
  local keeper = new_keeper(face, file)
  local path = ("spec/%s_spec.lua"):format(file)
  local list, met = differences.of(face.name, file), {}

  describe(("through %s: %s %s"):format(face.title or "a client of " .. face.name, file, tag), function()
    before_each(function() keeper.is_in_test = true end)
    after_each(function()
      keeper.is_in_test = false
      keeper.close_of_test()
      pcall(keywatch.run, function() end) -- whatever a test has left
    end)
    teardown(function()
      keeper.close_of_setup()
      process.end_all()
    end)

    assert(loadfile(path, "t", environment(keeper, list, met)))()
    it("is what the list of differences is about", function() expect_all(list, met, path) end)
  end)
end

for _, file in ipairs(FILES) do
  specs_of(faces.keywatch, file, "#slow")
  specs_of(faces.namespace, file, "#slow")
end

describe("etcd #once", function()
  for _, file in ipairs(FILES) do specs_of(faces.etcd, file, "") end

  teardown(faces.etcd.stop)
end)
