--- Specs that inspect internals, which only builds with a probe allow.

local busted = require "busted"
local core = require "keywatch.core"

local probed = {}

--- Returns the probe. Without a probe, declares a test that says so, and returns nil: the spec then has no other tests.
function probed.get(what)
  if core.probe then return core.probe end
  busted.describe(what, function()
    busted.it("cannot be looked at without a probe", function() assert(core.probe == nil) end)
  end)
end

return probed
