--- The amount of random or repeated work of the specs: KW_DOSE times the usual amount. Below 1, as in CI, the
-- smallest useful amount.

local DOSE = tonumber(os.getenv("KW_DOSE")) or 1

local dose = {
  is_small = DOSE < 1,
  factor = math.max(1, DOSE),
}

--- Returns the number of repetitions: `small` if the dose is below 1, else `usual` times the dose.
function dose.of(small, usual) return dose.is_small and small or math.ceil(usual * dose.factor) end

--- Returns the step between two tried cases: a larger step means less work.
function dose.stride(small, usual)
  return dose.is_small and small or math.max(1, math.floor(usual / dose.factor))
end

return dose
