--- Contenders: keys in the order in which they were created.

local contenders = require "keywatch.concurrency.contenders"

local random = require "spec.support.random"

describe("contenders", function()
  it("return those that were created at one revision", function()
    local keys = contenders.new()
    for i, created in ipairs { 1, 2, 2, 2, 3 } do keys:add("k" .. i, created) end
    local tied = {}
    for i = 1, 5 do
      tied[i] = keys:oldest().is_tied
      keys:remove("k" .. i)
    end
    assert.same({ false, true, true, true, false }, tied)
  end)

  it("ignore keys that they do not have", function()
    local keys = contenders.new()
    keys:remove("a")
    keys:add("a", 1)
    keys:remove("b")
    assert.equal(1, keys.count)
  end)

  it("sort a key that was created again behind the others", function()
    local keys = contenders.new()
    keys:add("a", 1)
    keys:add("b", 2)
    keys:add("a", 3)
    assert.same({ "b", 2 }, { keys:oldest().key, keys.count })
    keys:remove("b")
    assert.equal(3, keys:oldest().created)
  end)

  it("behave like a plain list, whatever is removed", function()
    local rnd = random.new(tonumber(os.getenv("KW_SEED")) or 1)
    local keys, model = contenders.new(), {}
    for revision = 1, 3000 do
      if rnd:between(1, 100) <= (revision % 1000 < 500 and 70 or 30) then
        keys:add("k" .. revision, revision)
        table.insert(model, revision)
      elseif #model > 0 then
        keys:remove("k" .. table.remove(model, rnd:between(1, #model)))
      end
      local oldest = keys:oldest()
      assert.same(model[1] and { "k" .. model[1], model[1] }, oldest and { oldest.key, oldest.created })
      assert.equal(#model, keys.count)
    end
  end)
end)
