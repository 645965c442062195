--- The amount of random or repeated work of the specs: KW_DOSE times the usual amount. Below 1, as in CI, the least
-- that is still useful.

local DOSE = tonumber(os.getenv("KW_DOSE")) or 1

local dose = {
  is_small = DOSE < 1,
  factor = math.max(1, DOSE),
}

--- How often something is done: `small` is the number below 1, `usual` the one at 1.
function dose.of(small, usual) return dose.is_small and small or math.ceil(usual * dose.factor) end

--- The same for what grows as this becomes less: how far it is from one that is tried to the next.
function dose.stride(small, usual)
  return dose.is_small and small or math.max(1, math.floor(usual / dose.factor))
end

return dose
