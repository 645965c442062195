local shell = require "spec.support.shell"

-- The floors of the house, from the ground up. The loop stands apart, on base and face alone; and exec, on face.
local FLOORS = { "face", "base", "model", "codec", "store", "watch", "h2", "rpc", "bind" }
local ABOVE = { uv = { face = true, base = true, uv = true }, exec = { face = true } }
for i, floor in ipairs(FLOORS) do
  ABOVE[floor] = {}
  for j = 1, i do ABOVE[floor][FLOORS[j]] = true end
end

describe("the tree #once", function()
  it("passes luacheck and clang-format", function()
    shell.must("make lint")
  end)

  it("has no line of C that is longer than 120 columns", function()
    local files = "csrc/*/*.[ch] bench/*.[ch] fuzz/*.[ch]"
    assert.equal("", shell.must([[awk 'length > 120 { print FILENAME ":" FNR }' ]] .. files))
  end)

  it("has no include that points up a floor", function()
    local wrong = {}
    local lines = shell.must([[grep -rnE '^#include "' csrc]])
    for line in lines:gmatch("[^\n]+") do
      local from, to = line:match('^csrc/(%w+)/.*#include "(%w+)/')
      if not (ABOVE[from] and ABOVE[from][to]) then wrong[#wrong + 1] = line end
    end
    assert.same({}, wrong)
  end)

  it("builds objects that export nothing but what Lua opens", function()
    local symbols = shell.must("nm -D --defined-only build/lua5.4/lib/lua/5.4/keywatch/*.so "
      .. "build/luajit/lib/lua/5.1/keywatch/*.so | sed -n 's/.* T //p' | sort -u")
    assert.equal("luaopen_keywatch_core\nluaopen_keywatch_exec\nluaopen_keywatch_uv", symbols)
  end)
end)
