--- Looking at sockets without waiting, and looking names up.

local keywatch = require "keywatch"
local driver = require("keywatch.task.driver").get()

describe("keywatch.driver.look", function()
  it("is allowed anywhere, and resumes no task", function()
    driver.look()
    coroutine.wrap(driver.look)()
    local ran = {}
    keywatch.run(function()
      local lookup = assert(driver.lookup("localhost"))
      local other = keywatch.spawn(function() table.insert(ran, "other") end)
      while lookup:result() == nil do driver.look() end
      table.insert(ran, "main")
      assert.is_string(lookup:result()[1])
      other:join()
    end)
    assert.same({ "main", "other" }, ran)
  end)

  it("lets a poller notice the end of a lookup", function()
    local result = keywatch.run(function()
      local lookup, event = assert(driver.lookup("nonexistent.invalid")), driver.event()
      local source = {}
      function source.poll()
        if lookup:result() ~= nil then event:set() end
      end
      driver.attach(source)
      event:wait()
      driver.detach(source)
      return { lookup:result() }
    end)
    assert.is_false(result[1])
    assert.matches("^EAI_", result[3])
  end)

  it("has all pollers polled again before the loop blocks, if one of them, or a finalizer there, looks", function()
    local event, polls, has_looked = driver.event(), 0, false
    local early, late = {}, {}
    function early.poll()
      polls = polls + 1
      if has_looked then event:set() end -- as if the look had brought something
    end
    function late.poll()
      if has_looked then return end
      driver.look()
      has_looked = true
    end
    driver.attach(early)
    driver.attach(late)
    local came = event:wait(5)
    driver.detach(early)
    driver.detach(late)
    assert.same({ true, 2 }, { came, polls })
  end)

  it("makes a host query again when the loop must turn", function()
    local polls, source = 0, { is_steady = true }
    function source.poll()
      polls = polls + 1
      return 100
    end
    driver.attach(source)
    driver.timeout()
    driver.timeout()
    assert.equal(1, polls)
    driver.look()
    driver.timeout()
    assert.equal(2, polls)
    driver.timeout()
    driver.detach(source)
    assert.equal(2, polls)
  end)
end)
