-- SPDX-License-Identifier: MIT
--- limiter: how long an item that has failed waits before it is tried again. A limiter is an object with these methods,
-- and a program may have its own:
--
--   when(item)      counts a failure of the item. Returns the seconds to wait
--   forget(item)    the item has done well: its failures do not count any more
--   retries(item)   returns the failures of the item
--
-- exponential: each item waits by itself, twice as long after each failure. fast_slow: each item waits a short time
-- after its first failures, and then a long one. bucket: all items share a rate; what is below it does not wait. max:
-- the longest of several. at_most: another limiter, up to a number of seconds.
--
-- exponential and fast_slow hold a number for each item that has failed and was not forgotten: as many as there are
-- such items.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"

local FIRST, LONGEST = 0.005, 1000       -- seconds
local FAST, SLOW, TRIES = 0.005, 10, 3   -- seconds; and failures
local RATE, BURST = 10, 100              -- items in a second; and at once
local MAX_DOUBLINGS = 60                 -- more would make an infinity of a small number
local MANY = 1000                        -- items, after which an empty table is replaced by a small one

--- Raises unless a field of the options of a limiter is a positive number.
local function check_positive(opts, name, field)
  local value = opts[field]
  if value ~= nil and not (type(value) == "number" and value > 0 and value < math.huge) then
    check.misuse("%s: option '%s' must be a positive number, not %s", name, field, check.shown(value))
  end
end

--- Returns the options of a limiter. Raises if one is not known, or no positive number.
local function check_options(opts, name, known)
  opts = check.options(opts, name)
  check.known(opts, name, known)
  for field in pairs(known) do check_positive(opts, name, field) end
  return opts
end

--- Raises unless a value can be an item.
local function check_item(item, name)
  if item ~= nil and item == item then return end
  check.misuse("%s: argument 1 must be an item, which may be any value but nil and NaN, and is %s", name,
    check.shown(item))
end

-- {====== Failures of each item ======

--- Returns a table of failures by item.
local function new_failures()
  return { by_item = {}, count = 0, most = 0 }
end

--- Counts a failure of an item. Returns how many there were before.
local function count_failure(self, item)
  local n = self.by_item[item]
  self.by_item[item] = (n or 0) + 1
  if not n then
    self.count = self.count + 1
    if self.count > self.most then self.most = self.count end
  end
  return n or 0
end

--- Forgets the failures of an item. The table of many items that are all forgotten is replaced: it would stay as large.
local function forget_failures(self, item)
  if not self.by_item[item] then return end
  self.by_item[item], self.count = nil, self.count - 1
  if self.count > 0 or self.most < MANY then return end
  local empty = {}
  if self.count == 0 then self.by_item, self.most = empty, 0 end -- else a finalizer has counted a failure
end

-- }======

-- {====== Exponential ======

local exponential_methods = {}
local exponential_mt = { __name = "keywatch.limiter", __index = exponential_methods }

function exponential_methods:when(item)
  check.self(self, "when", exponential_mt)
  check_item(item, "when")
  local n = count_failure(self.failures, item)
  return math.min(self.longest, self.first * 2 ^ math.min(n, MAX_DOUBLINGS))
end

function exponential_methods:forget(item)
  check.self(self, "forget", exponential_mt)
  check_item(item, "forget")
  forget_failures(self.failures, item)
end

function exponential_methods:retries(item)
  check.self(self, "retries", exponential_mt)
  check_item(item, "retries")
  return self.failures.by_item[item] or 0
end

--- Returns a limiter by which each item waits `first` seconds after its first failure, twice as long after each other
-- one, and at most `longest`.
local function exponential(opts)
  opts = check_options(opts, "exponential", { first = "number", longest = "number" })
  local first = opts.first or math.min(FIRST, opts.longest or LONGEST)
  local longest = opts.longest or math.max(LONGEST, first)
  if first > longest then
    check.misuse("exponential: option 'first' is %s, which is more than 'longest', %s", first, longest)
  end
  return setmetatable({ first = first, longest = longest, failures = new_failures() }, exponential_mt)
end

-- }======

-- {====== Fast and slow ======

local fast_slow_methods = {}
local fast_slow_mt = { __name = "keywatch.limiter", __index = fast_slow_methods }

function fast_slow_methods:when(item)
  check.self(self, "when", fast_slow_mt)
  check_item(item, "when")
  return count_failure(self.failures, item) < self.tries and self.fast or self.slow
end

function fast_slow_methods:forget(item)
  check.self(self, "forget", fast_slow_mt)
  check_item(item, "forget")
  forget_failures(self.failures, item)
end

function fast_slow_methods:retries(item)
  check.self(self, "retries", fast_slow_mt)
  check_item(item, "retries")
  return self.failures.by_item[item] or 0
end

--- Returns a limiter by which each item waits `fast` seconds after each of its first `tries` failures, and `slow`
-- seconds after each later one.
local function fast_slow(opts)
  opts = check_options(opts, "fast_slow", { fast = "number", slow = "number", tries = "number" })
  return setmetatable({
    fast = opts.fast or FAST, slow = opts.slow or SLOW, tries = opts.tries or TRIES, failures = new_failures(),
  }, fast_slow_mt)
end

-- }======

-- {====== Bucket ======

local bucket_methods = {}
local bucket_mt = { __name = "keywatch.limiter", __index = bucket_methods }

function bucket_methods:when(item)
  check.self(self, "when", bucket_mt)
  check_item(item, "when")
  local now = driver.get().now()
  -- at once:
  local elapsed = now - self.at
  local refilled = elapsed > 0 and self.tokens + elapsed * self.rate or self.tokens
  local tokens = (refilled < self.burst and refilled or self.burst) - 1
  self.tokens, self.at = tokens, now
  return tokens >= 0 and 0 or -tokens / self.rate
end

function bucket_methods:forget(item)
  check.self(self, "forget", bucket_mt)
  check_item(item, "forget")
end

function bucket_methods:retries(item)
  check.self(self, "retries", bucket_mt)
  check_item(item, "retries")
  return 0
end

--- Returns a limiter by which all items together are tried `rate` times a second; up to `burst` are tried at once.
local function bucket(opts)
  opts = check_options(opts, "bucket", { rate = "number", burst = "number" })
  local burst = opts.burst or BURST
  return setmetatable({ rate = opts.rate or RATE, burst = burst, tokens = burst, at = driver.get().now() }, bucket_mt)
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

local max_methods = {}
local max_mt = { __name = "keywatch.limiter", __index = max_methods }

function max_methods:when(item)
  check.self(self, "when", max_mt)
  check_item(item, "when")
  local longest, nonsense = 0, nil
  for _, one in ipairs(self.list) do
    local seconds = one:when(item)
    if type(seconds) ~= "number" or seconds ~= seconds then nonsense = { seconds } else
      longest = math.max(longest, seconds)
    end
  end
  if nonsense then return nonsense[1] end -- the queue complains, and lets the item wait
  return longest
end

function max_methods:forget(item)
  check.self(self, "forget", max_mt)
  check_item(item, "forget")
  for _, one in ipairs(self.list) do one:forget(item) end
end

function max_methods:retries(item)
  check.self(self, "retries", max_mt)
  check_item(item, "retries")
  local most = 0
  for _, one in ipairs(self.list) do most = math.max(most, one:retries(item)) end
  return most
end

--- Returns a limiter by which an item waits as long as the strictest limiter of a list wants.
local function max(list)
  local copy = {}
  for i = 1, check.list(list, "max") do
    if not is_limiter(list[i]) then check.misuse("max: number %d is no limiter, but %s", i, check.shown(list[i])) end
    copy[i] = list[i]
  end
  if #copy == 0 then check.misuse("max: the list is empty, and what fails would be tried again without a wait") end
  return setmetatable({ list = copy }, max_mt)
end

local at_most_methods = {}
local at_most_mt = { __name = "keywatch.limiter", __index = at_most_methods }

function at_most_methods:when(item)
  check.self(self, "when", at_most_mt)
  check_item(item, "when")
  return math.min(self.longest, (self.limiter:when(item)))
end

function at_most_methods:forget(item)
  check.self(self, "forget", at_most_mt)
  check_item(item, "forget")
  self.limiter:forget(item)
end

function at_most_methods:retries(item)
  check.self(self, "retries", at_most_mt)
  check_item(item, "retries")
  return (self.limiter:retries(item))
end

--- Returns a limiter that is another one, but lets no item wait longer than `longest` seconds.
local function at_most(limiter, longest)
  if not is_limiter(limiter) then check.misuse("at_most: argument 1 is no limiter, but %s", check.shown(limiter)) end
  check.argument(type(longest) == "number" and longest > 0 and longest < math.huge, 2, "at_most",
    "a positive number of seconds", longest)
  return setmetatable({ limiter = limiter, longest = longest }, at_most_mt)
end

-- }======

--- Returns the limiter that queues have unless they are given one.
local function default()
  return max { exponential(), bucket() }
end

return {
  exponential = exponential, fast_slow = fast_slow, bucket = bucket, max = max, at_most = at_most, default = default,
  is_limiter = is_limiter,
  mts = { exponential = exponential_mt, fast_slow = fast_slow_mt, bucket = bucket_mt, max = max_mt,
    at_most = at_most_mt },
}
