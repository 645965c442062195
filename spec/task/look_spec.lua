--- Looking at sockets without waiting, and looking names up.

local keywatch = require "keywatch"
local driver = require("keywatch.task.driver").get()

describe("looking", function()
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

  it("lets a source hear of the end of a lookup", function()
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
end)
