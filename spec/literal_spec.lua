--- Data written as Lua literals.

local literal = require "keywatch.support.literal"

describe("data written as a Lua literal", function()
  local function again(value) return literal.read(literal.write(value)) end

  it("is read as it was written", function()
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    for _, value in ipairs {
      "", "text", table.concat(all), 'a "quote" and a \\', "\r\n\0001", true, false,
      0, 1, -1, 1.5, 0.1, 2 ^ 53, -2 ^ 63, 1e300, math.huge, -math.huge,
      {}, { 1, "two", { 3 } }, { name = "x", [true] = false, [1.5] = { deep = { er = 1 } } },
    } do assert.same(value, again(value)) end
    local nan = again(0 / 0)
    assert.is_true(nan ~= nan)
  end)

  it("keeps the numbers of Lua 5.4: integers of all sizes, and floats", function()
    local kind = rawget(math, "type") or type
    local max = rawget(math, "maxinteger") or 2 ^ 53
    for _, value in ipairs { 2 ^ 53, 1.0, -0.0, 1e15, 1e300, 7, max, max - 1, -max, -max - 1, math.floor(-3) } do
      local found = again(value)
      assert.equal(kind(value), kind(found))
      assert.is_true(value == found and 1 / value == 1 / found)
    end
  end)

  it("has no values that belong to one state", function()
    for _, value in ipairs { print, io.stdout, coroutine.create(print), { { print } }, { [print] = 1 } } do
      assert.error_matches(function() literal.write(value) end, "cannot be written as text")
    end
  end)
end)
