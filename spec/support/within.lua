--- Bodies of tests that do not run at top level: it("…", within.task(function() … end)).

local keywatch = require "keywatch"

local within = {}

--- Runs the test as a task.
function within.task(fn) return function() return keywatch.run(fn) end end

--- Runs the test in virtual time: fn(world). `opts` are those of testing.run.
function within.world(fn, opts) return function() return require("keywatch.testing").run(fn, opts) end end

return within
