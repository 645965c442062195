--- luv, opened once. Each spec file has modules of its own, and opening luv anew would take the loop from under the
-- handles of the files before. A write to a connection that has ended returns an error, without SIGPIPE.

local NAME = "spec.support.luv"

local registry = debug.getregistry()
if not registry[NAME] then
  local luv = require "luv"
  local sigpipe = luv.new_signal()
  sigpipe:start("sigpipe", function() end)
  sigpipe:unref()
  registry[NAME] = luv
end
return registry[NAME]
