--- Several tasks that read one watch, by next, by select and by sync, and are cancelled at random: each event is
-- returned to one of them, and none keeps waiting for an event that has arrived.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new

local SECONDS = 30 -- for an event that must arrive
local N = dose.is_small and 1100 or 2300 -- keys that exist, on several pages
local PUTS = 300
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

--- Reads a watch in one of these ways until `stop` is closed. Calls note(event) for each event.
local READERS = {
  function(random, watch, _, note)
    while true do note(watch:next(random:one_in(2) and 0.002 or nil)) end
  end,
  function(random, watch, stop, note)
    while true do
      local which, event = keywatch.select { watch, stop, timeout = random:one_in(2) and 0.002 or nil }
      if which == stop then return end
      if which == watch then note(event) end
    end
  end,
  function(_, watch, stop, note)
    while true do
      local which, event = keywatch.select { stop, watch }
      if which == stop then return end
      note(event)
    end
  end,
  function(_, watch)
    while true do
      watch:sync(SECONDS)
      keywatch.sleep(0.001)
    end
  end,
}

local LAST = 3 -- the way of the reader that is left at the end: only an event wakes it

local function await(is_so, what)
  local deadline = keywatch.now() + SECONDS
  while not is_so() do
    assert(keywatch.now() < deadline, ("%s, with seed %d"):format(what, seed))
    keywatch.sleep(0.001)
  end
end

--- Cancels a task, and waits until it has ended.
local function stop_reader(task)
  task:cancel()
  local ok, err = task:join(SECONDS)
  assert(ok == false and err.code == "cancelled", tostring(err))
end

describe("the readers of one watch #plain", function() -- there is no TLS in virtual time
  local world

  network.in_virtual_time(function(one) world = one end)

  local function try(store, face)
    local random = new_random(seed)
    for i = 1, N do store:put(("k%05d"):format(i), "") end
    keywatch.run(function()
      local watch, stop = assert(face:watch("k", { prefix = true, initial = true })), keywatch.channel()
      local seen, n, synced, readers = {}, 0, 0, {}

      local function note(event)
        if not event then return end
        if event.type == "synced" then
          synced = synced + 1
          return
        end
        local name = event.key .. "@" .. event.mod_revision
        assert(not seen[name], name .. " was handed out twice")
        seen[name], n = true, n + 1
      end

      local function start(way)
        readers[way] = keywatch.spawn(READERS[way], random, watch, stop, note)
      end

      for way = 1, #READERS do start(way) end
      for _ = 1, PUTS do
        store:put(("k%05d"):format(random:between(1, N)), "")
        if random:one_in(3) then keywatch.sleep(random:one_in(3) and 0.001 or 0) end
        if random:one_in(10) then
          local way = random:between(1, #READERS)
          stop_reader(readers[way])
          start(way)
        end
      end
      for way = 1, #READERS do
        if way ~= LAST then stop_reader(readers[way]) end
      end
      await(function() return n == N + PUTS end, "not everything was handed out")
      assert.equal(1, synced)
      store:put("k", "last")
      await(function() return n == N + PUTS + 1 end, "the last event was not handed out")
      stop:close()
      assert.same({ true }, { readers[LAST]:join(SECONDS) })
      assert.is_nil(watch.arrival[1]) -- no task waits any more
      watch:close()
    end)
  end

  it("of a store get each event once", function() try(world.server.store, world.server.store) end)
  it("of a client get each event once", function() try(world.server.store, world:client()) end)
end)
