--- Paging: a range of any size, kv by kv, as it was at one revision.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"

local keys, keys_of_each = answer.keys, answer.keys_of_each

local function store_of(...) return answer.fill(keywatch.open { now = 0 }, ...) end

--- Returns the error of a loop, which must raise.
local function failure_of(loop)
  local ok, err = pcall(loop)
  assert.is_false(ok)
  return err
end

describe("each", function()
  it("gives the kvs of a range in the order of keys", function()
    local store = store_of("b", "c", "a")
    local kvs = {}
    for kv in store:each("", { prefix = true }) do kvs[#kvs + 1] = kv end
    assert.same(store:range("", { prefix = true }).kvs, kvs)
  end)

  it("returns the same kvs for any size of a page", function()
    local store = store_of("a", "a\0", "a\0\0", "aa", "b", "b\255", "c")
    local ranges = {
      { "a" }, { "a", prefix = true }, { "", prefix = true }, { "", from_key = true }, { "aa", from_key = true },
      { "a", range_end = "b" }, { "a", range_end = "a\0" }, { "a", range_end = "\0" }, { "b", range_end = "a" },
      { "none", prefix = true },
    }
    for _, range in ipairs(ranges) do
      local key = range[1]
      local opts = { prefix = range.prefix, from_key = range.from_key, range_end = range.range_end }
      local expected = keys(store:range(key, opts))
      for page = 1, 8 do
        opts.page = page
        assert.equal(expected, keys_of_each(store:each(key, opts)))
      end
    end
  end)

  it("continues beyond its page with the default size", function()
    local store = keywatch.open { now = 0 }
    for i = 1, 2500 do store:put(("%04d"):format(i), "") end
    local n = 0
    for kv in store:each("", { prefix = true }) do
      n = n + 1
      assert.equal(("%04d"):format(n), kv.key)
    end
    assert.equal(2500, n)
  end)

  it("shows the revision of its first page, while keys are changed, created and deleted", function()
    local store = store_of("a", "b", "c", "d", "e")
    local seen = {}
    for kv in store:each("", { prefix = true, page = 1 }) do
      seen[#seen + 1] = ("%s=%s@%d"):format(kv.key, kv.value, kv.mod_revision)
      store:put("b", "changed")
      store:put("cc", "new")
      store:delete("d")
      store:delete("e")
    end
    assert.equal("a=a@2 b=b@3 c=c@4 d=d@5 e=e@6", table.concat(seen, " "))
  end)

  it("leaves the table of options as it is", function()
    local opts = { prefix = true, page = 1, limit = 2 }
    keys_of_each(store_of("a", "b", "c"):each("", opts))
    assert.same({ prefix = true, page = 1, limit = 2 }, opts)
  end)

  it("returns nothing after its end", function()
    local store = store_of("a")
    local next_kv = store:each("", { prefix = true })
    assert.equal("a", next_kv().key)
    assert.is_nil(next_kv())
    store:put("b", "")
    assert.is_nil(next_kv())
  end)

  it("raises its failures, as errors of the store", function()
    local store = store_of("a")
    assert.equal("empty_key", failure_of(function() keys_of_each(store:each("")) end).code)
    assert.equal("future_revision", failure_of(function() keys_of_each(store:each("a", { revision = 9 })) end).code)
  end)

  it("raises, rather than end early, when its revision is compacted in between", function()
    local store = store_of("a", "b", "c")
    local seen = {}
    local err = failure_of(function()
      for kv in store:each("", { prefix = true, page = 2 }) do
        seen[#seen + 1] = kv
        store:compact(store:put("x", "").revision)
      end
    end)
    assert.equal("a b", keys(seen))
    assert.equal("compacted", err.code)
  end)

  it("has no other order than that of keys, and no count", function()
    local store = store_of("a")
    for _, opts in ipairs { { sort_order = "descend" }, { sort_target = "mod" }, { count_only = true } } do
      assert.has_error(function() keys_of_each(store:each("a", opts)) end)
    end
  end)
end)
