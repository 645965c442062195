--- Bodies of tests that do not run at top level: it("…", within.task(function() … end)).

local keywatch = require "keywatch"

local within = {}

--- As a task of a run of its own.
function within.task(fn) return function() return keywatch.run(fn) end end

--- In virtual time, in a world of the testing kit: fn(world). `opts` are those of testing.run.
function within.world(fn, opts) return function() return require("keywatch.testing").run(fn, opts) end end

return within
