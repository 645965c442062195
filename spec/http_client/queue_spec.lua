--- The queue of waiters of an HTTP client, beside a list of all waiters.

local queues = require "keywatch.http.queue"

local dose = require "spec.support.dose"
local new_random = require("spec.support.random").new

local SEED = tonumber(os.getenv("KW_SEED")) or os.time()

describe("the queue of an HTTP client", function()
  --- Adds, removes and serves waiters at random, and compares the queue with a list.
  local function try(random)
    local queue, list, arrived = queues.new(), {}, 0
    local room, all_room, calls = {}, 0, 0

    --- True if there is room, of the origin and in total, which is used then.
    local function use(key)
      if room[key] == 0 or all_room == 0 then return false end
      room[key], all_room = room[key] - 1, all_room - 1
      return true
    end

    local function serve(served, waiter)
      calls = calls + 1
      if not use(waiter.endpoint.key) then return false end
      served[#served + 1] = waiter.name
      return true
    end

    local function set_room(rooms, total)
      for key, n in pairs(rooms) do room[key] = n end
      all_room = total
    end

    for _ = 1, 100 do
      local act = random:between(1, 4)
      if act <= 2 then
        arrived = arrived + 1
        local waiter = { endpoint = { key = "origin" .. random:between(1, 5) }, name = arrived }
        queue:add(waiter)
        table.insert(list, waiter)
      elseif act == 3 and list[1] then
        local waiter = table.remove(list, random:between(1, #list))
        queue:remove(waiter)
        queue:remove(waiter)
      else
        local rooms, total = {}, random:between(0, 5)
        for i = 1, 5 do rooms["origin" .. i] = random:between(0, 2) end
        local expected, rest, served = {}, {}, {}
        set_room(rooms, total)
        for _, waiter in ipairs(list) do
          if use(waiter.endpoint.key) then table.insert(expected, waiter.name) else table.insert(rest, waiter) end
        end
        list, calls = rest, 0
        set_room(rooms, total)
        queue:serve(serve, served)
        assert.same(expected, served)
        assert.is_true(calls <= #served + 5) -- and not one for each waiter
      end
    end
    local left = {}
    for i, waiter in ipairs(queue:clear()) do left[i] = waiter.name end
    for i, waiter in ipairs(list) do list[i] = waiter.name end
    assert.same(list, left)
    assert.is_nil(next(queue.lines))
  end

  it("serves waiters in order of arrival, and looks only at the first one of each origin", function()
    for i = 1, dose.of(20, 200) do try(new_random(SEED + i)) end
  end)
end)
