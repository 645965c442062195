--- Comparisons of numbers, compiled by the compilers of the machine.

local shell = require "spec.support.shell"

describe("a comparison of numbers #once", function()
  for compiler, tag in pairs { gcc = "", clang = "#peer" } do
    it(("is right with %s at every level %s"):format(compiler, tag), function()
      local program = os.tmpname()
      for level = 0, 3 do
        local command = ("%s -std=gnu11 -O%d -Icsrc -o %s spec/support/order.c\n%s"):format(compiler, level,
          program, program)
        assert.same({ level, "" }, { level, shell.must(command) })
      end
      os.remove(program)
    end)
  end

  it("is never a difference of numbers that compilers get wrong", function()
    local found = shell.must([[grep -nE '\) - \([^()]* [<>] [^()]*\)' csrc/*/*.[ch] bench/*.[ch] fuzz/*.[ch] || true]])
    for line in found:gmatch("[^\n]+") do assert.matches("^%S+ %* ", line) end -- comments
  end)
end)
