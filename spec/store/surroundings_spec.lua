--- A durable store in surroundings that change: its path comes to mean another directory, and descriptors run out, or
-- are closed.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local program = require "spec.support.program"
local uv = require "spec.support.luv"

local function run(text, ...)
  local status, printed = program.run(text:format(...))
  assert.equal(0, status, printed)
  return printed
end

describe("the directory of a durable store", function()
  local place, store

  before_each(function()
    place = directory.new()
    assert(uv.fs_mkdir(place .. "/one", 448))
    assert(uv.fs_mkdir(place .. "/two", 448))
    assert(uv.fs_mkdir(place .. "/two/data", 448))
    assert(uv.fs_symlink("one", place .. "/current"))
    store = assert(keywatch.open { path = place .. "/current/data" })
    assert(uv.fs_unlink(place .. "/current"))
    assert(uv.fs_symlink("two", place .. "/current"))
  end)

  after_each(function()
    store:close()
    uv.fs_unlink(place .. "/current")
    directory.remove_all()
  end)

  local function is_there(name) return uv.fs_stat(place .. name) ~= nil end

  it("stays the same if its path means another one: for the journal", function()
    assert(store:put("a", "1"))
    assert.is_true(is_there "/one/data/journal-0")
    assert.is_false(is_there "/two/data/journal-0")
  end)

  it("stays the same if its path means another one: for a defragmentation", function()
    assert(store:put("a", "1"))
    assert(store:defragment())
    assert.is_false(is_there "/two/data/data.mdb")
    store:close()
    store = assert(keywatch.open { path = place .. "/one/data" })
    assert.equal("1", store:get("a").value)
  end)

  it("stays the same if the program changes its directory", function()
    local printed = run([[
      local keywatch, uv = require "keywatch", require "luv"
      uv.chdir("%s/one")
      local store = assert(keywatch.open { path = "other" })
      uv.chdir("%s/two")
      assert(store:put("a", "1"))
      store:close()
      print(io.open("%s/one/other/journal-0") ~= nil, io.open("other/journal-0"))
    ]], place, place, place)
    assert.matches("^true\tnil", printed)
  end)
end)

describe("a durable store without descriptors", function()
  local path

  before_each(function() path = directory.new() end)

  after_each(function() directory.remove_all() end)

  for when, first in pairs { ["before the first write"] = "", ["after the first write"] = "store:put('a', '0')" } do
    it("goes on writing: they run out " .. when, function()
      local printed = run([[
        local keywatch = require "keywatch"
        local pid = require("keywatch.uv").pid()
        local store = assert(keywatch.open { path = "%s", journal_segment_bytes = 65536 })
        %s
        assert(os.execute("env -u LD_PRELOAD prlimit --nofile=64:64 --pid " .. pid))
        local files = {}
        repeat
          local file = io.open("/dev/null")
          files[#files + 1] = file
        until not file
        for i = 1, 100 do assert(store:put("a" .. i, ("v"):rep(1000))) end
        for _, file in ipairs(files) do file:close() end
        for i = 101, 200 do assert(store:put("a" .. i, ("v"):rep(1000))) end
        store:close()
        store = assert(keywatch.open { path = "%s" })
        print(store:range("a", { prefix = true, count_only = true }).count, #files > 0)
        store:close()
      ]], path, first, path)
      assert.equal(first == "" and "200\ttrue\n" or "201\ttrue\n", printed)
    end)
  end

  it("does not take those that a program prints to, if they are closed", function()
    local printed = run([[
      local uv = require "luv"
      local out = assert(io.open("%s/printed", "w"))
      for fd = 0, 2 do uv.fs_close(fd) end
      local store = assert(require("keywatch").open { path = "%s/data" })
      assert(store:put("a", "1"))
      for fd = 0, 2 do out:write(uv.fs_readlink("/proc/self/fd/" .. fd) or "?", "\n") end
      out:close()
      store:close()
    ]], path, path)
    assert.equal("", printed)
    local file = assert(io.open(path .. "/printed"))
    printed = file:read("*a")
    file:close()
    assert.equal(("/dev/null\n"):rep(3), printed)
  end)
end)
