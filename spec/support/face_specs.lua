--- Runs spec files of stores with other objects that have the methods of a store, or some of them: see faces.lua. The
-- files run unchanged, except for a list of differences.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local process = require "spec.support.process"

--- Returns an object that opens clients, and closes them after the test, or after the group of tests.
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

--- Skips the tests and groups of tests on a list, and adds their names to `met`.
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

--- Returns the globals for a spec file; `globals` are those of the spec that runs the file.
local function environment(globals, keeper, list, met)
  local stand_ins = {
    keywatch = setmetatable({ open = keeper.open }, { __index = keywatch }),
    ["keywatch.core"] = setmetatable({ probe = false }, { __index = core }), -- a client has no probe of the store
  }
  return setmetatable({
    require = function(name) return stand_ins[name] or require(name) end,
    it = filtered(globals.it, list, met),
    describe = filtered(globals.describe, list, met),
  }, { __index = globals })
end

--- Declares the tests of spec/FILE_spec.lua through a face. `list` has the names of the tests and groups that are
-- skipped, each with the reason. `globals` are those of the calling spec, with busted's functions.
local function declare(globals, face, file, list, tag)
  local keeper = new_keeper(face, file)
  local path = ("spec/%s_spec.lua"):format(file)
  local met = {}

  globals.describe(("through %s: %s %s"):format(face.title or "a client of " .. face.name, file, tag), function()
    globals.before_each(function() keeper.is_in_test = true end)
    globals.after_each(function()
      keeper.is_in_test = false
      keeper.close_of_test()
      pcall(keywatch.run, function() end) -- ends the tasks that the test has left
    end)
    globals.teardown(function()
      keeper.close_of_setup()
      process.end_all()
    end)

    assert(loadfile(path, "t", environment(globals, keeper, list, met)))()
    globals.it("is what the list of differences is about", function() expect_all(list, met, path) end)
  end)
end

return { declare = declare }
