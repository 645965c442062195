--- luv, opened once. Each spec file has modules of its own, and opening luv anew would take the loop from under the
-- handles of the files before.

local NAME = "spec.support.luv"

local registry = debug.getregistry()
registry[NAME] = registry[NAME] or require "luv"
return registry[NAME]
