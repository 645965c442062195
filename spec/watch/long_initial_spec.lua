--- Watches with `initial`, of a store in which reading a page of existing keys takes more than one turn, because of
-- many later puts. In a task the page is read in turns, and the reader waits as for an event.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local many_keys = require "spec.support.many_keys"
local within = require "spec.support.within"

local MANY = core.probe and 100 or 12000 -- keys: more than one turn visits
local EXISTING = core.probe and 100 or 1010 -- keys that exist when the watch begins
local AT = core.probe and 1 or 1001 -- the first of them that is on a long page
local SECONDS = 30 -- for an event that must arrive

for kind, open in pairs(many_keys.kinds) do
  describe("a watch with a long initial page, of a store: " .. kind, function()
    local store

    before_each(function()
      store = open()
      many_keys.fill(store, EXISTING)
    end)

    after_each(function()
      store:close()
      directory.remove_all()
    end)

    --- Returns a watch whose next event is on a long page.
    local function watch()
      local w = assert(store:watch("k", { prefix = true, initial = true }))
      for i = 1, AT - 1 do assert.equal(many_keys.name(i), w:next(0).key) end
      many_keys.fill(store, MANY, nil, many_keys.name(AT - 1) .. "/") -- before the key that comes next
      return w
    end

    --- Checks the first event of a long page.
    local function check(event, err)
      assert(event, err)
      assert.equal(many_keys.name(AT), event.key)
      assert.is_true(event.initial)
    end

    --- Checks that a watch continues, to its mark and beyond.
    local function check_rest(w)
      for i = AT + 1, EXISTING do assert.equal(many_keys.name(i), w:next(SECONDS).key) end
      assert.equal("synced", w:next(SECONDS).type)
      assert.equal("put", w:next(SECONDS).type)
    end

    it("lets other tasks run", within.task(function()
      local w, turns, is_done = watch(), 0, false
      keywatch.spawn(function()
        while not is_done do
          turns = turns + 1
          keywatch.sleep(0)
        end
      end)
      check(w:next())
      is_done = true
      assert.is_true(turns > 0)
      check_rest(w)
    end))

    it("continues when the task that reads it is cancelled", within.task(function()
      local w = watch()
      local reader = keywatch.spawn(function() w:next() end)
      keywatch.sleep(0)
      reader:cancel()
      local ok, err = reader:join(SECONDS)
      assert.is_false(ok)
      assert.equal("cancelled", err.code)
      assert.is_nil(w:error())
      check(w:next(SECONDS))
      check_rest(w)
    end))

    it("gives each event to one of two readers", within.task(function()
      local w = watch()
      local list = {}
      local function read() table.insert(list, w:next(SECONDS).key) end
      local one, other = keywatch.spawn(read), keywatch.spawn(read)
      assert(one:join())
      assert(other:join())
      assert.same({ many_keys.name(AT), many_keys.name(AT + 1) }, list)
    end))

    local readers = {
      ["by those who do not wait"] = function(w) return w:next(0) end,
      ["by a selection that does not wait"] = function(w) return select(2, keywatch.select { w, timeout = 0 }) end,
      ["by a selection that waits"] = function(w)
        local which, event = keywatch.select { keywatch.channel(), w, timeout = SECONDS }
        assert.equal(w, which)
        return event
      end,
    }
    for how, read in pairs(readers) do
      it("is read completely " .. how, within.task(function()
        local w = watch()
        check(read(w))
        check_rest(w)
      end))
    end

    it("begins again if an error was raised in the middle of it", function()
      for _, place in ipairs { "turn", "end" } do
        local methods, has_raised = getmetatable(store).__index, false
        local read_more = methods.read_more
        local function raise_once(...) -- as a debug hook, or a lack of memory
          local result, err = read_more(...)
          if has_raised or (place == "end") == (result == false) then return result, err end
          has_raised = true
          error("raised", 0)
        end
        local ok, err = pcall(keywatch.run, function()
          local w = watch()
          methods.read_more = raise_once
          local failed = select(2, pcall(w.next, w, SECONDS))
          assert.matches("raised", failed)
          check(w:next(SECONDS))
          check_rest(w)
        end)
        methods.read_more = read_more
        assert(ok, err)
        assert(store:delete(many_keys.name(AT - 1) .. "/", { prefix = true }))
      end
    end)

    it("does not wait for an object on a later page", within.task(function()
      local last = many_keys.name(2500)
      many_keys.fill(store, 2500)
      local w = assert(store:object_watch("k", {
        prefix = true, initial = true, include = function(key) return key == last end,
      }))
      for page = 1, 2 do many_keys.fill(store, MANY, nil, many_keys.name(1000 * page) .. "/") end
      assert.equal(last, w:next(0).key)
    end))

    it("is complete at once in a table", function()
      many_keys.fill(store, MANY)
      keywatch.run(function()
        local n = 0
        for _ in pairs(store:cache("k"):table()) do n = n + 1 end
        assert.equal(MANY, n)
      end)
    end)

    it("is read at top level", function()
      local w = watch()
      check(w:next())
      check_rest(w)
    end)

    it("fails if a compaction overtakes its revision", within.task(function()
      local w = watch()
      assert(store:compact(store:status().revision))
      local event, err = w:next(SECONDS)
      assert.is_nil(event)
      assert.equal("compacted", err.code)
    end))

    it("ends when it is closed", within.task(function()
      local w = watch()
      local reader = keywatch.spawn(function() return "ended", w:next() end)
      keywatch.sleep(0)
      w:close()
      assert.same({ true, "ended" }, { reader:join(SECONDS) })
    end))
  end)
end
