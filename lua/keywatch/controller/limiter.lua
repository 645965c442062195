-- SPDX-License-Identifier: MIT
--- limiter: how long a failed item waits before its retry. A limiter is an object with these methods; a program may use
-- its own objects:
--
--   when(item)      counts a failure of the item. Returns the seconds to wait
--   forget(item)    the item has succeeded: resets its failures
--   retries(item)   returns the failures of the item
--
-- exponential: each item waits by itself, twice as long after each failure. fast_slow: each item waits a short time
-- after its first failures, and then a long one. bucket: all items share a rate; items below the rate do not wait. max:
-- the longest of several. at_most: another limiter, up to a number of seconds.
--
-- exponential and fast_slow need memory for each item that has failed and was not forgotten.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"

local FIRST, LONGEST = 0.005, 1000       -- seconds
local FAST, SLOW, TRIES = 0.005, 10, 3   -- seconds; and failures
local RATE, BURST = 10, 100              -- items in a second; and at once
local MAX_DOUBLINGS = 60                 -- a higher exponent could overflow to infinity
local MANY = 1000                        -- items, after which an empty table is replaced by a small one

--- Raises unless a value is valid as an item.
local function check_item(item, name)
  if item ~= nil and item == item then return end
  check.misuse("%s: argument 1 must be an item (any value except nil and NaN), not %s", name,
    check.shown(item))
end

-- {====== Failures of each item ======

--- Returns a table of failures by item.
local function new_failures()
  return { by_item = {}, count = 0, most = 0 }
end

--- Counts a failure of an item. Returns the number of earlier failures.
local function count_failure(self, item)
  local n = self.by_item[item]
  self.by_item[item] = (n or 0) + 1
  if not n then
    self.count = self.count + 1
    if self.count > self.most then self.most = self.count end
  end
  return n or 0
end

--- Forgets the failures of an item. If many items were forgotten, the empty table is replaced, since it would stay
-- large.
local function forget_failures(self, item)
  if not self.by_item[item] then return end
  self.by_item[item], self.count = nil, self.count - 1
  if self.count > 0 or self.most < MANY then return end
  local empty = {}
  if self.count == 0 then self.by_item, self.most = empty, 0 end -- else a finalizer has counted a failure
end

-- }======

-- {====== Kinds ======

local limiter_methods, limiter_mt = check.class "keywatch.limiter"

-- Each kind has the three functions under the names of the methods.
for _, name in ipairs { "when", "forget", "retries" } do
  limiter_methods[name] = function(self, item)
    check_item(item, name)
    return self.kind[name](self, item)
  end
end

--- Returns a kind of limiters that count the failures of each item. when(limiter, n) returns the seconds to wait for an
-- item that has failed n times before.
local function counting(when)
  return {
    when = function(self, item) return when(self, count_failure(self.failures, item)) end,
    forget = function(self, item) forget_failures(self.failures, item) end,
    retries = function(self, item) return self.failures.by_item[item] or 0 end,
  }
end

local of_exponential = counting(function(self, n)
  return math.min(self.longest, self.first * 2 ^ math.min(n, MAX_DOUBLINGS))
end)

--- Returns a limiter by which each item waits `first` seconds after its first failure, twice as long after each further
-- one, and at most `longest`.
local function exponential(opts)
  opts = check.options(opts, "exponential", { first = "positive number", longest = "positive number" })
  local first = opts.first or math.min(FIRST, opts.longest or LONGEST)
  local longest = opts.longest or math.max(LONGEST, first)
  if first > longest then
    check.misuse("exponential: option 'first' is %s, which is more than 'longest', %s", first, longest)
  end
  return setmetatable({
    kind = of_exponential, first = first, longest = longest, failures = new_failures(),
  }, limiter_mt)
end

local of_fast_slow = counting(function(self, n) return n < self.tries and self.fast or self.slow end)

--- Returns a limiter by which each item waits `fast` seconds after each of its first `tries` failures, and `slow`
-- seconds after each later one.
local function fast_slow(opts)
  opts = check.options(opts, "fast_slow", {
    fast = "positive number", slow = "positive number", tries = "positive number",
  })
  return setmetatable({
    kind = of_fast_slow, fast = opts.fast or FAST, slow = opts.slow or SLOW, tries = opts.tries or TRIES,
    failures = new_failures(),
  }, limiter_mt)
end

local of_bucket = {
  when = function(self)
    local now = driver.get().now()
    -- atomic:
    local elapsed = now - self.at
    local refilled = elapsed > 0 and self.tokens + elapsed * self.rate or self.tokens
    local tokens = (refilled < self.burst and refilled or self.burst) - 1
    self.tokens, self.at = tokens, now
    return tokens >= 0 and 0 or -tokens / self.rate
  end,
  forget = function() end,
  retries = function() return 0 end,
}

--- Returns a limiter by which all items together are tried `rate` times a second; up to `burst` are tried without a
-- wait.
local function bucket(opts)
  opts = check.options(opts, "bucket", { rate = "positive number", burst = "positive number" })
  local burst = opts.burst or BURST
  return setmetatable({
    kind = of_bucket, rate = opts.rate or RATE, burst = burst, tokens = burst, at = driver.get().now(),
  }, limiter_mt)
end

-- }======

-- {====== Limiters of limiters ======

--- True if a value has the methods of a limiter.
local function is_limiter(value)
  if type(value) ~= "table" and type(value) ~= "userdata" then return false end
  local ok, has_all = pcall(function()
    return type(value.when) == "function" and type(value.forget) == "function" and type(value.retries) == "function"
  end)
  return ok and has_all
end

local of_max = {
  when = function(self, item)
    local longest, nonsense = 0, nil
    for _, one in ipairs(self.list) do
      local seconds = one:when(item)
      if type(seconds) ~= "number" or seconds ~= seconds then
        nonsense = { seconds }
      else
        longest = math.max(longest, seconds)
      end
    end
    if nonsense then return nonsense[1] end -- the queue logs the bad value, and lets the item wait
    return longest
  end,
  forget = function(self, item)
    for _, one in ipairs(self.list) do one:forget(item) end
  end,
  retries = function(self, item)
    local most = 0
    for _, one in ipairs(self.list) do most = math.max(most, one:retries(item)) end
    return most
  end,
}

--- Returns a limiter by which an item waits as long as the strictest limiter of a list wants.
local function max(list)
  local copy = {}
  for i = 1, check.list(list, "max") do
    if not is_limiter(list[i]) then check.misuse("max: item %d is not a limiter, but %s", i, check.shown(list[i])) end
    copy[i] = list[i]
  end
  if #copy == 0 then check.misuse("max: the list is empty: failed items would be tried again without a wait") end
  return setmetatable({ kind = of_max, list = copy }, limiter_mt)
end

local of_at_most = {
  when = function(self, item) return math.min(self.longest, (self.limiter:when(item))) end,
  forget = function(self, item) self.limiter:forget(item) end,
  retries = function(self, item) return (self.limiter:retries(item)) end,
}

--- Returns a limiter like another one, except that no item waits longer than `longest` seconds.
local function at_most(limiter, longest)
  if not is_limiter(limiter) then check.misuse("at_most: argument 1 is not a limiter, but %s", check.shown(limiter)) end
  check.argument(type(longest) == "number" and longest > 0 and longest < math.huge, 2, "at_most",
    "a positive number of seconds", longest)
  return setmetatable({ kind = of_at_most, limiter = limiter, longest = longest }, limiter_mt)
end

-- }======

--- Returns the default limiter of queues.
local function default()
  return max { exponential(), bucket() }
end

return {
  exponential = exponential, fast_slow = fast_slow, bucket = bucket, max = max, at_most = at_most, default = default,
  check_item = check_item, KIND = { "a limiter, with the methods 'when', 'forget' and 'retries'", is_limiter },
  mt = limiter_mt,
}
