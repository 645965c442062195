--- Comparisons of numbers, compiled by the compilers of the machine.

local shell = require "spec.support.shell"

describe("a comparison of numbers #once", function()
  for _, compiler in ipairs { "gcc", "clang" } do
    it("is right with " .. compiler .. " at every level", function()
      local program = os.tmpname()
      for level = 0, 3 do
        local command = ("%s -std=gnu11 -O%d -Icsrc -o %s spec/support/order.c\n%s"):format(compiler, level,
          program, program)
        assert.same({ level, "" }, { level, shell.must(command) })
      end
      os.remove(program)
    end)
  end

  it("is none of the differences that compilers get wrong", function()
    assert.equal("", shell.must([[grep -nE '\) - \([^()]* < [^()]*\);' csrc/*/*.[ch] || true]]))
  end)
end)
