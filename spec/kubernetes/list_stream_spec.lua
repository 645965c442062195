--- Lists over HTTP, in virtual time: short ones have a length, and long ones are the same as what was stored.

local kube = require "spec.support.kube"

--- Returns the names of the items of an answer, each with its resourceVersion.
local function names(answer)
  local list = {}
  for i, item in ipairs(answer.body.items) do
    list[i] = item.metadata.name .. " " .. item.metadata.resourceVersion
  end
  return list
end

--- Creates widgets, some of which were stored by another writer. Returns what `names` returns for a list of them.
local function fill(k, n, color)
  local expected = {}
  for i = 1, n do
    local name = ("w%04d"):format(i)
    if i % 97 == 0 then
      local text = '{"kind":"Widget", "metadata":{"namespace":"default","name":"%s"}, "apiVersion":"demo.example/v1"}'
      expected[i] = ("%s %d"):format(name,
        assert(k.store:put("/registry/demo.example/widgets/default/" .. name, text:format(name))).revision)
    else
      expected[i] = name .. " " .. k:create(name, { color = color })
    end
  end
  return expected
end

describe("a list over HTTP", function()
  it("has a length if it is short", kube.within(function(k)
    for _, name in ipairs { "a", "b" } do
      local answer = k:get(kube.ALL)
      assert.equal(200, answer.status)
      assert.equal(#answer.text, tonumber(answer.headers["content-length"]))
      k:create(name, { size = 1 })
    end
    assert.equal(2, #k:get(kube.ALL .. "?limit=5").body.items)
  end))

  it("has all objects, whoever has stored them, in parts and by pages", kube.within(function(k)
    local expected = fill(k, 300, ("x"):rep(1500))
    for _, query in ipairs { "", "?resourceVersion=0", "?limit=300" } do
      assert.same(expected, names(k:get(kube.ALL .. query)))
    end
    local found, token = {}, ""
    repeat
      local answer = k:get(("%s?limit=110&continue=%s"):format(kube.ALL, token))
      for _, name in ipairs(names(answer)) do found[#found + 1] = name end
      token = answer.body.metadata.continue
    until not token
    assert.same(expected, found)
  end))

  it("is in time for other requests, and ends with its client", kube.within(function(k)
    fill(k, 96, ("x"):rep(20000))
    local slow = assert(k.http:open(k.url .. kube.ALL, { headers = { accept = "application/json" } }))
    assert(slow:answer())
    assert.equal(200, k:get(kube.ONES .. "/w0001").status)
    slow:close()
    assert.equal(96, #k:get(kube.ALL).body.items)
  end))
end)
