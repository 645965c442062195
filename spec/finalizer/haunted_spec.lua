--- Finalizers that close, cancel, put and compact in the middle of calls: in every binding, at every allocation; and in
-- tasks that use stores, watches, clients and servers.
--
-- Both are separate programs, since a failure may be a crash. They need a probe. They print how often each action
-- happened, and in how many bindings.

local probe = require("keywatch.core").probe

local directory = require "spec.support.directory"
local program = require "spec.support.program"

local SECONDS = 900 -- that a program may run

local function expect_well(name)
  local text = 'KW_HAUNTED = "%s" math.randomseed(%d) require "spec.support.%s"'
  local seed = tonumber(os.getenv("KW_SEED")) or 0
  local status, printed = program.run(text:format(directory.new(), seed % 2 ^ 31, name), SECONDS)
  if status ~= 0 or not printed:find("\nwell\n$") then
    error(("status %d: %s"):format(status, printed:sub(-4000)), 2)
  end
  print(name .. ": " .. printed:match("\t(actions, .*)well\n$"))
end

describe("a finalizer", function()
  after_each(directory.remove_all)

  it("damages no binding that it interrupts, at any allocation", function()
    if probe then expect_well "haunted_bindings" end
  end)

  it("damages no task, watch, client or server, and leaves no waiter behind", function()
    if probe then expect_well "haunted_flows" end
  end)
end)
