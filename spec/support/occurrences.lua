--- Random rounds: as many as requested, and then more, until every required outcome has occurred. So a spec does not
-- fail because a rare outcome is missing with some seed, but it fails if an outcome does not occur any more.

local MOST = 50 -- times as many rounds, after which a missing outcome is a failure

--- Returns the first outcome that has not occurred; nil if all have.
local function missing(counts, outcomes)
  for _, what in ipairs(outcomes) do
    if (counts[what] or 0) == 0 then return what end
  end
end

--- Calls play(i) for i = 1, 2, 3, … A round returns the name of an outcome, counts by name, or nothing. Returns
-- all counts. `most` is the largest number of rounds.
local function await(outcomes, rounds, play, most)
  local counts, i = {}, 0
  most = most or MOST * rounds
  while i < rounds or missing(counts, outcomes) do
    if i >= rounds and i >= most then
      error(("this never happened in %d rounds: %s"):format(i, missing(counts, outcomes)), 0)
    end
    i = i + 1
    local seen = play(i)
    if type(seen) == "string" then seen = { [seen] = 1 } end
    for what, n in pairs(seen or {}) do counts[what] = (counts[what] or 0) + n end
  end
  return counts
end

return { await = await }
