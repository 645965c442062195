--- The option journal_segment_bytes of a durable store: how large the files of its journal are. journal_spec.lua has
-- the journal itself; misuse_spec.lua has what is refused.

local directory = require "spec.support.directory"

local KIB, MIB = 1024, 1024 * 1024
local SEGMENT = 64 * KIB -- the smallest size
local DEFAULT = 16 * MIB

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
  it("is 16 MiB unless the option is given, and there is none before the first write", function()
    open()
    assert.same({}, segments())
    put(1)
    assert.same({ DEFAULT }, segments())
  end)

  it("is that of the option, which may be another one the next time", function()
    open { journal_segment_bytes = SEGMENT }
    put(5 * SEGMENT / (4 * KIB)) -- a group takes at least 4 KiB: these need several files, or some of them twice
    store:close()
    local sizes = segments()
    assert(#sizes > 0 and #sizes <= 4)
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
