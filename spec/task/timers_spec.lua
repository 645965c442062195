--- The heap of timers.

local timers = require "keywatch.task.timers"

local random = require "spec.support.random"
local scheduler = require "spec.support.scheduler"

--- Returns all due timers, in order.
local function due(heap, now)
  local names = {}
  for owner in function() return heap:due(now) end do table.insert(names, owner.name) end
  return names
end

describe("timers", function()
  it("return no entry before its time", function()
    local heap = timers.new()
    assert.same({ nil, nil, nil }, { heap:next(), heap:due(math.huge), (heap:first()) })
    heap:add(5, { name = "a" })
    assert.same({ 5, "a" }, { heap:next(), heap:first().name })
    assert.same({}, due(heap, 4.99))
    assert.same({ "a" }, due(heap, 5))
    assert.is_nil(heap:next())
  end)

  it("return due entries in the order of time, and of addition for equal times", function()
    local heap = timers.new()
    for i, deadline in ipairs { 3, 1, 2, 1, 3, 1 } do heap:add(deadline, { name = i }) end
    assert.same({ 2, 4, 6, 3 }, due(heap, 2))
    assert.same({ 1, 5 }, due(heap, 3))
  end)

  it("forget removed entries, and only those", function()
    local heap = timers.new()
    local added = {}
    for i = 1, 5 do added[i] = heap:add(i, { name = i }) end
    heap:remove(added[1])
    heap:remove(added[3])
    heap:remove(added[3])
    assert.equal(2, heap:next())
    assert.same({ 2 }, due(heap, 2))
    heap:remove(added[2])
    assert.same({ 4, 5 }, due(heap, 9))
  end)

  it("keep the order, and a consistent heap, whatever is removed", function()
    local rnd, heap, kept = random.new(tonumber(os.getenv("KW_SEED")) or 1), timers.new(), {}
    for i = 1, 2000 do
      if rnd:one_in(3) and #kept > 0 then
        heap:remove(table.remove(kept, rnd:between(1, #kept)))
      else
        local deadline = rnd:between(1, 50)
        kept[#kept + 1] = heap:add(deadline, { deadline = deadline, number = i })
      end
      assert.is_nil(scheduler.check_timers(heap))
      assert.equal(#kept, #heap.heap)
    end
    local before = { deadline = 0, number = 0 }
    for owner in function() return heap:due(math.huge) end do
      assert.is_true(owner.deadline > before.deadline
        or owner.deadline == before.deadline and owner.number > before.number)
      before = owner
    end
    assert.is_nil(heap:next())
  end)

  it("are consistent after a repair, wherever an interrupt has raised", function()
    local is_luajit = rawget(_G, "jit")
    if is_luajit then jit.off() end -- hooks are not called by what is compiled
    local raised = 0
    for what = 1, 3 do
      local at = 0
      local has_raised
      repeat
        at = at + 1
        local heap, added = timers.new(), {}
        for i, deadline in ipairs { 5, 1, 9, 4, 4, 8, 2, 7, 3 } do added[i] = heap:add(deadline, { name = i }) end
        local count = 0
        local function interrupt()
          count = count + 1
          if count < at then return end
          debug.sethook()
          error("interrupted!", 0)
        end
        local function act()
          debug.sethook(interrupt, "", 1)
          if what == 1 then heap:add(0, { name = 10 }) elseif what == 2 then heap:remove(added[4]) else heap:due(1) end
          debug.sethook()
        end
        has_raised = not pcall(act)
        debug.sethook()
        if has_raised then
          raised = raised + 1
          heap:repair()
        end
        for place, timer in ipairs(heap.heap) do assert.equal(place, timer.at) end
        local names = table.concat(due(heap, 10), " ")
        local least = ({ "2 7 9 4 5 1 8 6 3", "2 7 9 5 1 8 6 3", "7 9 4 5 1 8 6 3" })[what]
        local most = ({ "10 2 7 9 4 5 1 8 6 3", "2 7 9 4 5 1 8 6 3", "2 7 9 4 5 1 8 6 3" })[what]
        assert.is_true(names == least or names == most, names)
      until not has_raised
    end
    if is_luajit then jit.on() end
    assert.is_true(raised > 100)
  end)
end)
