--- luv, opened once. Each spec file has its own modules, and opening luv again would close the loop that the handles of
-- earlier files use. A write to a connection that has ended returns an error, without SIGPIPE.

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
