--- The option journal_segment_bytes of a durable store: how large the files of its journal are, and whether there are
-- any. spec/store/journal_spec.lua has the journal itself; spec/store/misuse_spec.lua has what is refused.

local directory = require "spec.support.directory"

local KIB, MIB = 1024, 1024 * 1024
local SEGMENT = 64 * KIB -- the smallest size
local FIRST = MIB -- of the first file, if larger ones are allowed

local store, path

local function open(options) store = directory.open(path, options) end

local function reopen(options)
  store:close()
  open(options)
end

before_each(function() path = directory.new() end)

after_each(function()
  store:close()
  directory.remove_all()
end)

--- The sizes of the files of the journal, the largest first.
local function segments()
  local sizes = {}
  for _, name in ipairs(directory.list(path)) do
    if name:find("^journal%-%d+$") then sizes[#sizes + 1] = directory.size(path .. "/" .. name) end
  end
  table.sort(sizes, function(a, b) return a > b end)
  return sizes
end

--- Puts one key so many times, each time with a commit group of its own.
local function put(n)
  for i = 1, n do assert(store:put("a", tostring(i))) end
end

describe("the size of the journal's files", function()
  it("is that of the first file, at first", function()
    open()
    assert.same({}, segments())
    put(1)
    assert.same({ FIRST }, segments())
  end)

  it("is never above the option, which may be another one the next time", function()
    open { journal_segment_bytes = SEGMENT }
    put(5 * SEGMENT / (4 * KIB)) -- a group takes at least 4 KiB: these need several files, or some of them twice
    store:close() -- no file is being made any more
    local sizes = segments()
    assert(#sizes > 0)
    for _, size in ipairs(sizes) do assert.equal(SEGMENT, size) end
    open { journal_segment_bytes = SEGMENT }
    assert.same({ "80", 81 }, { store:get("a").value, store:status().revision })
    for _, bytes in ipairs { 1024 * MIB, SEGMENT, 100001 } do
      reopen { journal_segment_bytes = bytes }
      put(1)
    end
    assert.equal(84, store:status().revision)
  end)
end)

describe("a size of 0", function()
  it("makes no journal", function()
    open { journal_segment_bytes = 0 }
    put(3)
    reopen { journal_segment_bytes = 0 }
    put(3)
    assert.same({}, segments())
    assert.equal(7, store:status().revision)
  end)
end)
