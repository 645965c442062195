local shell = require "spec.support.shell"

describe("the tree #once", function()
  it("passes luacheck and clang-format", function()
    shell.must("make lint")
  end)
end)
