--- Shortens a failing program by delta debugging: atoms of its plan are removed as long as the program still fails for
-- the same reason.

local simulation = require "spec.simulation.simulation"

local shrink = {}

--- Returns an objection without its numbers and names.
local function shape_of(objection)
  return (objection:gsub("^%S+ ", ""):gsub('"[^"]*"', "Q"):gsub("/%S+", "K"):gsub("%-?%d[%d.]*", "N"):sub(1, 60))
end

--- Returns the set of a list's atoms, for `run`.
function shrink.set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

--- True if a run with the atoms of a list has an objection of the same shape.
local function fails_so(plan, list, shape)
  for _, objection in ipairs(simulation.run(plan, shrink.set_of(list)).objections) do
    if shape_of(objection) == shape then return true end
  end
  return false
end

local function without(list, from, to)
  local rest = {}
  for i, item in ipairs(list) do
    if i < from or i > to then rest[#rest + 1] = item end
  end
  return rest
end

--- Returns the first and the last index of each actor's atoms, and of the faults.
local function groups_of(list)
  local groups = {}
  for i, name in ipairs(list) do
    local actor, last = name:match("^(.*)%.%d+$"), groups[#groups]
    if last and last.actor == actor then last[2] = i else groups[#groups + 1] = { i, i, actor = actor } end
  end
  return groups
end

--- Returns a short list of atoms with which a plan fails with the same kind of objection; and the number of runs.
function shrink.shrink(plan, objection, seconds)
  local shape, list, runs = shape_of(objection), simulation.atoms_of(plan), 0
  local deadline = os.clock() + (seconds or 60)
  local function try(from, to)
    local rest = without(list, from, to)
    runs = runs + 1
    if not fails_so(plan, rest, shape) then return false end
    list = rest
    return true
  end
  local groups = groups_of(list)
  for i = #groups, 1, -1 do
    if os.clock() < deadline then try(groups[i][1], groups[i][2]) end
  end
  local size = math.ceil(#list / 2)
  while size >= 1 and os.clock() < deadline do
    local at, has_shrunk = #list - size + 1, false
    while at > 1 - size and os.clock() < deadline do
      has_shrunk = try(math.max(1, at), at + size - 1) or has_shrunk
      at = at - size
    end
    if not (has_shrunk and size == 1) then size = size > 1 and math.ceil(size / 2) or 0 end
  end
  return list, runs
end

return shrink
