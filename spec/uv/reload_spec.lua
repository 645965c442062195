--- Modules that are loaded again: the loop's connections continue, with the functions of the old modules.

local program = require "spec.support.program"
local secure = require "spec.support.secure"

describe("a module that is loaded again", function()
  -- Overwrites freed memory: allocates strings of all sizes that the published functions may have.
  local TEXT = [[
    local keywatch = require "keywatch"
    local function load_again(name)
      package.loaded[name] = nil
      require(name)
      collectgarbage()
      collectgarbage()
      local list = {}
      for size = 64, 256 do
        for i = 1, 40 do list[#list + 1] = ("\255"):rep(size - #tostring(i)) .. i end
      end
      return list
    end
    local server = assert(keywatch.serve { store = keywatch.open(), listen = %q, tls = { cert = %q, key = %q } })
    local url = server:addresses()[1]
    local client = keywatch.connect(url, { tls = { ca = %q } })
    assert(client:put("a", "1"))
    local list = load_again(%q)
    assert(client:put("a", "2"))
    local other = keywatch.connect(url, { tls = { ca = %q } })
    assert(other:get("a").value == "2")
    other:close()
    client:close()
    server:close()
    io.write("done ", #list > 0 and "well" or "")
  ]]

  for _, name in ipairs { "keywatch.core", "keywatch.tls", "keywatch.uv" } do
    it("does not affect existing servers and clients: " .. name, function()
      local cert, key = secure.pair()
      local text = TEXT:format("https://127.0.0.1:0", cert, key, secure.ca(), name, secure.ca())
      assert.same({ 0, "done well" }, { program.run(text) })
    end)
  end
end)
