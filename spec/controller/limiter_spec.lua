--- Limiters: the delay of a failed item.

local limiters = require("keywatch.controller").limiter
local keywatch = require "keywatch"

local resident = require "spec.support.resident"
local within = require "spec.support.within"

--- Returns the delays of a limiter for n failures of an item.
local function series(limiter, item, n)
  local list = {}
  for i = 1, n do list[i] = limiter:when(item) end
  return list
end

describe("an exponential limiter", function()
  it("doubles the time after each failure of an item", function()
    local limiter = limiters.exponential { first = 0.001, longest = 1 }
    assert.same({ 0.001, 0.002, 0.004, 0.008, 0.016 }, series(limiter, "one", 5))
    assert.equal(5, limiter:retries("one"))
  end)

  it("counts each item by itself", function()
    local limiter = limiters.exponential { first = 0.001, longest = 1 }
    series(limiter, "one", 4)
    assert.same({ 0.001, 0.002 }, series(limiter, "two", 2))
    assert.same({ 2, 0.016 }, { limiter:retries("two"), limiter:when("one") })
  end)

  it("restarts for a forgotten item, and for no other", function()
    local limiter = limiters.exponential { first = 0.001, longest = 1 }
    series(limiter, "one", 4)
    series(limiter, "two", 1)
    limiter:forget("one")
    limiter:forget("never seen")
    assert.same({ 0, 1, 0.001 }, { limiter:retries("one"), limiter:retries("two"), limiter:when("one") })
    assert.equal(0.002, limiter:when("two"))
  end)

  it("goes from 5 ms to 1000 s by default, and stays there", function()
    local found = series(limiters.exponential(), "one", 1200)
    assert.same({ 0.005, true, 1000, 1000 }, { found[1], math.abs(found[18] - 655.36) < 1e-9, found[19], found[1200] })
  end)

  it("does not overflow, however small the first time and however many failures", function()
    local limiter = limiters.exponential { first = 1e-9, longest = 3600 }
    local found = series(limiter, "one", 1100)
    assert.equal(3600, found[1100])
    for i = 2, 1100 do assert.is_true(found[i] >= found[i - 1] and found[i] <= 3600) end
  end)

  it("takes a longest time below its usual first one, and the other way round", function()
    assert.equal(0.001, limiters.exponential({ longest = 0.001 }):when("one"))
    assert.equal(2000, limiters.exponential({ first = 2000 }):when("one"))
  end)

  it("is as small as before once a hundred thousand items are forgotten #slow", function()
    local limiter = limiters.exponential()
    local before = resident.heap()
    for i = 1, 100000 do limiter:when(i) end
    assert.is_true(resident.heap() - before > 500)
    for i = 1, 100000 do limiter:forget(i) end
    assert.is_true(resident.heap() - before < 100, resident.heap() - before)
    assert.equal(0.005, limiter:when(1))
  end)
end)

describe("a fast and slow limiter", function()
  it("is fast at first, and then slow", function()
    local limiter = limiters.fast_slow { fast = 0.005, slow = 10, tries = 3 }
    assert.same({ 0.005, 0.005, 0.005, 10, 10 }, series(limiter, "one", 5))
    assert.same({ 5, 0.005 }, { limiter:retries("one"), limiter:when("two") })
    limiter:forget("one")
    assert.equal(0, limiter:retries("one"))
    assert.same({ 0.005, 0.005, 0.005, 10 }, series(limiter, "one", 4))
  end)
end)

describe("a bucket", function()
  it("passes a burst, and then a fixed rate of all items together", within.world(function()
    local limiter = limiters.bucket { rate = 10, burst = 3 }
    assert.same({ 0, 0, 0 }, series(limiter, "one", 3))
    for i = 1, 5 do assert.is_true(math.abs(limiter:when(i) - i / 10) < 1e-9) end
    limiter:forget("one")
    assert.equal(0, limiter:retries("one"))
    keywatch.sleep(0.5) -- the promised time is over
    assert.is_true(math.abs(limiter:when("one") - 0.1) < 1e-9)
    keywatch.sleep(1000) -- it is full, and not fuller
    assert.same({ 0, 0, 0 }, series(limiter, "one", 3))
    assert.is_true(limiter:when("one") > 0)
  end))

  it("has 10 a second and a burst of 100 by default", within.world(function()
    local limiter = limiters.bucket()
    for _ = 1, 100 do assert.equal(0, limiter:when("one")) end
    assert.is_true(math.abs(limiter:when("one") - 0.1) < 1e-9)
  end))
end)

describe("a combined limiter", function()
  it("uses the longest pause of several, and calls all of them", within.world(function()
    local exponential = limiters.exponential { first = 0.001, longest = 1 }
    local limiter = limiters.max { limiters.fast_slow { fast = 0.005, slow = 3, tries = 3 }, exponential }
    assert.same({ 0.005, 0.005, 0.005, 3, 3 }, series(limiter, "one", 5))
    assert.same({ 5, 5, 0.005 }, { limiter:retries("one"), exponential:retries("one"), limiter:when("two") })
    limiter:forget("one")
    assert.same({ 0, 0.005 }, { limiter:retries("one"), limiter:when("one") })
  end))

  it("limits the pause of an item", function()
    local limiter = limiters.at_most(limiters.exponential { first = 1 }, 5)
    assert.same({ 1, 2, 4, 5, 5 }, series(limiter, "one", 5))
    assert.equal(5, limiter:retries("one"))
    limiter:forget("one")
    assert.same({ 0, 1 }, { limiter:retries("one"), limiter:when("one") })
  end)

  it("may have limiters of the program in it", function()
    local own = { failures = 0 }
    function own.when(self)
      self.failures = self.failures + 1
      return 7
    end
    function own.forget(self) self.failures = 0 end
    function own.retries(self) return self.failures end
    local limiter = limiters.at_most(limiters.max { own, limiters.exponential() }, 6)
    assert.same({ 6, 1 }, { limiter:when("one"), limiter:retries("one") })
    limiter:forget("one")
    assert.equal(0, own.failures)
  end)
end)
