--- A durable store in a changing environment: its path becomes that of another directory, its directory is moved or
-- removed, its quota is lowered, and descriptors run out, or are closed.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local process = require "spec.support.process"
local program = require "spec.support.program"
local uv = require "spec.support.luv"

local function run(text, ...)
  local printed = program.printed_by(text:format(...))
  return printed
end

--- Copies a directory as a killed process would leave it.
local function copy(from, to) process.run { "cp", "-r", from, to } end

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

  it("stays in use if its path leads to another one: by the journal and by a defragmentation", function()
    assert(store:put("a", "1"))
    assert.same({ true, false }, { is_there "/one/data/journal-0", is_there "/two/data/journal-0" })
    assert(store:defragment())
    assert.is_false(is_there "/two/data/data.mdb")
    store:close()
    store = assert(keywatch.open { path = place .. "/one/data" })
    assert.equal("1", store:get("a").value)
  end)

  it("stays in use if the program changes its directory", function()
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

  it("may have a very long name", function()
    local _, printed = program.run(([[
      local keywatch, uv = require "keywatch", require "luv"
      uv.chdir("%s")
      for i = 1, 25 do
        assert(uv.fs_mkdir(("d"):rep(200), 448))
        uv.chdir(("d"):rep(200))
      end
      for i = 1, 2 do
        local store = assert(keywatch.open { path = "data" })
        assert(store:put("a" .. i, "1"))
        print(store:status().keys)
        store:close()
      end
    ]]):format(place))
    process.run { "rm", "-r", place .. "/" .. ("d"):rep(200) }
    assert.equal("1\n2\n", printed)
  end)
end)

describe("a durable store whose directory", function()
  local place, store
  local value = ("v"):rep(2000)

  local function put_all()
    for i = 1, 1000 do assert(store:put("a" .. i, value)) end
  end

  before_each(function()
    place = directory.new()
    store = assert(keywatch.open { path = place .. "/data", journal_segment_bytes = 65536 })
    assert(store:put("a", "1"))
  end)

  after_each(function()
    store:close()
    directory.remove_all()
  end)

  local function remove_lock(path) assert(uv.fs_unlink(path .. "/lock")) end

  local function replace_lock(path)
    assert(uv.fs_rename(path .. "/lock", path .. "/lock.old"))
    files.write(path .. "/lock", "")
  end

  local acts = {
    ["was removed"] = directory.remove, ["lost its lock"] = remove_lock, ["has another lock"] = replace_lock,
  }
  for what, act in pairs(acts) do
    it(what .. " stops", function()
      assert(store:put("a", "2"))
      act(place .. "/data")
      assert.equal("storage", select(2, store:put("a", "3")).code)
      assert.equal("2", store:get("a").value)
    end)
  end

  it("was moved continues, and does not touch the new directory in its place", function()
    assert(uv.fs_rename(place .. "/data", place .. "/moved"))
    local other = assert(keywatch.open { path = place .. "/data", journal_segment_bytes = 65536 })
    assert(other:put("b", "1"))
    put_all()
    assert.equal("aborted", select(2, store:defragment()).code)
    local snapshot = assert(store:open_snapshot())
    snapshot:close()
    assert(store:put("a", "2"))
    assert(other:put("c", "1"))
    copy(place .. "/data", place .. "/copy of data")
    copy(place .. "/moved", place .. "/copy of moved")
    other:close()
    other = assert(keywatch.open { path = place .. "/copy of data" })
    assert.same({ "b", "c" }, { other:get("b").key, other:get("c").key })
    other:close()
    other = assert(keywatch.open { path = place .. "/copy of moved" })
    assert.same({ 1001, "2" }, { other:status().keys, other:get("a").value })
    other:close()
  end)

  it("was moved continues, if nothing was written before", function()
    store:close()
    store = assert(keywatch.open { path = place .. "/data", journal_segment_bytes = 65536 })
    assert(uv.fs_rename(place .. "/data", place .. "/moved"))
    put_all()
    assert.is_nil(uv.fs_stat(place .. "/data"))
    store:close()
    store = assert(keywatch.open { path = place .. "/moved" })
    assert.equal(1001, store:status().keys)
  end)

  it("has become invisible continues", function()
    local printed = run([[
      local keywatch, uv = require "keywatch", require "luv"
      assert(uv.fs_mkdir("%s/closed", 448))
      local store = assert(keywatch.open { path = "%s/closed/data", journal_segment_bytes = 65536 })
      uv.fs_chmod("%s/closed", 0)
      if uv.getuid() == 0 then uv.setuid(65534) end
      for i = 1, 1000 do assert(store:put("a" .. i, ("v"):rep(2000))) end
      store:close()
      print(uv.fs_stat("%s/closed/data"))
    ]], place, place, place, place)
    assert.matches("^nil\tEACCES", printed)
    assert(uv.fs_chmod(place .. "/closed", 448))
    local closed = assert(keywatch.open { path = place .. "/closed/data" })
    assert.equal(1000, closed:status().keys)
    closed:close()
  end)
end)

describe("a durable store whose user is not root", function()
  local place

  before_each(function()
    place = directory.new()
    assert(uv.fs_chmod(place, 493)) -- 0755
  end)

  after_each(directory.remove_all)

  --- Makes a directory that its owner may write and search, but not read. A user other than root then opens a store.
  -- The path is a relative one, since that user may not see what is above.
  local function open(made, path)
    return run([[
      local keywatch, uv = require "keywatch", require "luv"
      local is_root = uv.getuid() == 0
      uv.chdir("%s")
      assert(uv.fs_mkdir("%s", 192)) -- 0300
      if is_root then assert(uv.fs_chown("%s", 65534, 65534)) end
      if is_root then uv.setuid(65534) end
      local store, err = keywatch.open { path = "%s" }
      print(store and store:put("a", "1").revision or err.message)
      if store then store:close() end
    ]], place, made, made, path)
  end

  it("is refused if its directory cannot be read, since it could not be synced", function()
    assert.matches("keywatch: cannot open data: Permission denied", open("data", "data"))
  end)

  it("opens if the parent of its directory is unreadable", function()
    assert.equal("2\n", open("parent", "parent/data"))
  end)
end)

describe("a durable store whose quota was lowered", function()
  after_each(directory.remove_all)

  it("still opens with records that only its journal has #slow", function()
    local place = directory.new()
    local store = assert(keywatch.open { path = place .. "/data" })
    for i = 1, 800 do assert(store:put("a" .. i, ("v"):rep(100000))) end
    store:close()
    store = assert(keywatch.open { path = place .. "/data" })
    for i = 1, 20 do assert(store:put("b" .. i, ("v"):rep(60000))) end
    copy(place .. "/data", place .. "/killed")
    store:close()
    store = assert(keywatch.open { path = place .. "/killed", quota_backend_bytes = 1 })
    assert.equal(820, store:status().keys)
    store:close()
  end)
end)

describe("a durable store without descriptors", function()
  local path

  before_each(function() path = directory.new() end)

  after_each(function() directory.remove_all() end)

  for when, first in pairs { ["before the first write"] = "", ["after the first write"] = "store:put('a', '0')" } do
    it("continues to write: they run out " .. when, function()
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

  it("reports their lack at a defragmentation or a snapshot, and that nothing has failed", function()
    local printed = run([[
      local keywatch = require "keywatch"
      local store = assert(keywatch.open { path = "%s" })
      assert(store:put("a", "1"))
      assert(os.execute("env -u LD_PRELOAD prlimit --nofile=64:64 --pid " .. require("keywatch.uv").pid()))
      local files = {}
      repeat
        local file = io.open("/dev/null")
        files[#files + 1] = file
      until not file
      for _, method in ipairs { "defragment", "open_snapshot" } do
        local _, err = store[method](store)
        print(err.code, err.grpc_status, err.message)
      end
      assert(store:put("a", "2"))
      print(#store:status().errors)
      for _, file in ipairs(files) do file:close() end
      assert(store:defragment())
      store:close()
    ]], path)
    assert.equal("aborted\t10\tkeywatch: the database was not defragmented: a copy of it cannot be made: "
      .. "Too many open files (errno 24)\naborted\t10\tkeywatch: there is no snapshot: its file cannot be written or "
      .. "read: Too many open files (errno 24)\n0\n", printed)
  end)

  it("does not use the standard descriptors of a program, if they are closed", function()
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
    assert.equal(("/dev/null\n"):rep(3), files.read(path .. "/printed"))
  end)
end)
