-- SPDX-License-Identifier: MIT
--- histogram: counts values by buckets. Adding a value makes no garbage.
--
-- A histogram is { bounds =, counts = { [i] = values above bounds[i - 1], at most bounds[i] }, sum =, count = }.

-- The buckets of client-go's work queues and of controller-runtime, in seconds.
local QUEUE = { 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000 }
local RECONCILE = {
  0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 1.75, 2,
  2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
}

local function new(bounds)
  local counts = {}
  for i = 1, #bounds do counts[i] = 0 end
  return { bounds = bounds, counts = counts, sum = 0, count = 0 }
end

local function add(self, value)
  local bounds, i = self.bounds, 1
  local bound = bounds[1]
  while bound and value > bound do
    i = i + 1
    bound = bounds[i]
  end
  if bound then self.counts[i] = self.counts[i] + 1 end
  self.sum, self.count = self.sum + value, self.count + 1
end

return { new = new, add = add, QUEUE = QUEUE, RECONCILE = RECONCILE }
