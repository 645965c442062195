-- SPDX-License-Identifier: MIT
--- keeper: who may start a controller or an elector. One that was added to a manager has the manager as its keeper, in
-- the field `keeper`, and nobody else may start it; without a keeper anybody may.

local check = require "keywatch.support.check"

local keeper = {}

--- Gives an object a keeper; or, with nil, takes that away.
function keeper.set(object, manager)
  object.keeper = manager
end

--- Returns the keeper of an object, or nil.
function keeper.of(object)
  return object.keeper
end

--- Raises if an object has another keeper than `caller`. `method` is what was called, and `word` names the kind of the
-- object.
function keeper.check(object, caller, method, word)
  if object.keeper == nil or object.keeper == caller then return end
  check.misuse("%s: the %s '%s' belongs to a manager, which starts and stops it", method, word, object.name)
end

return keeper
