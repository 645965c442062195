--- The journal without a store, through the probe: all appended groups are recovered exactly, or the journal is refused
-- with a sentence. In spec/store/journal_fault_spec.lua its disk fails.

local core = require "keywatch.core"

local crc32c = require "spec.support.crc32c"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local new_random = require("spec.support.random").new
local probed = require "spec.support.probed"
local starve = require "spec.support.starve"
local uv = require "spec.support.luv"

if not probed.get("a journal") then return end

local probe = core.probe.journal

local STORE, EPOCH = 77, 5
local BLOCK = 4096
local FRAMES = BLOCK -- where the first frame begins
local HEADER = 36 -- bytes of the header of a segment
local FRAME_HEADER = 80
local DIRECT = uv.os_uname().machine:find("^a") and 0x10000 or 0x4000 -- O_DIRECT, which is another bit on ARM
local SMALL = 12288 -- bytes of the smallest segment: it has room for two small frames
local SEGMENTS = 4

local path

local function renew()
  directory.remove_all()
  path = directory.new()
end

before_each(renew)
after_each(directory.remove_all)

local function open(options)
  local all = { store_id = STORE, epoch = EPOCH, segment_bytes = SMALL }
  for name, value in pairs(options or {}) do all[name] = value end
  return assert(probe.open(path, all))
end

local function recover(options)
  local all = { store_id = STORE, epoch = EPOCH, applied = 0 }
  for name, value in pairs(options or {}) do all[name] = value end
  return probe.recover(path, all)
end

--- A change that names its group.
local function put(n, len) return { "put", n, 0, false, ("%d "):format(n) .. ("x"):rep(len or 0) } end

--- Appends groups with one record each.
local function append(journal, first, last, len)
  for n = first, last do assert(journal:append(n, { put(n, len) }, { revision = n, compact_revision = -1 })) end
end

--- The groups that a recovery has found, of those that `append` makes.
local function groups_of(found)
  local groups = {}
  for i, change in ipairs(found.changes) do groups[i] = change[2] end
  return groups
end

--- True if what is written to a file of the journal goes past the page cache.
local function is_direct(name)
  for fd in uv.fs_scandir_next, assert(uv.fs_scandir("/proc/self/fd")) do
    if uv.fs_readlink("/proc/self/fd/" .. fd) == path .. "/" .. name then
      local flags = tonumber(files.read("/proc/self/fdinfo/" .. fd):match("flags:%s*(%d+)"), 8)
      return math.floor(flags / DIRECT) % 2 == 1
    end
  end
end

local function sequence(first, last)
  local list = {}
  for n = first, last do list[#list + 1] = n end
  return list
end

--- The recovery finds these groups, and nothing else.
local function expect_groups(first, last, options)
  local found = assert(recover(options))
  assert.same(sequence(first, last), groups_of(found))
  if found.groups > 0 then assert.equal(last, found.sequence) end
  return found
end

--- The recovery refuses the journal, and says why.
local function expect_refusal(pattern, options)
  local found, err = recover(options)
  assert.is_nil(found)
  assert.equal("corrupt", err.code)
  assert.matches(pattern, err.message)
end

local function segment(slot) return path .. "/journal-" .. slot end

--- Replaces bytes of a string.
local function patch(bytes, at, new) return bytes:sub(1, at) .. new .. bytes:sub(at + #new + 1) end

--- The number of files, and the size that all of them have.
local function sizes()
  local names, size = directory.list(path), nil
  for _, name in ipairs(names) do
    size = size or directory.size(path .. "/" .. name)
    assert.equal(size, directory.size(path .. "/" .. name))
  end
  return #names, size
end

--- Inverts one bit of the byte at an offset.
local function flip(bytes, at, bit)
  local byte = bytes:byte(at + 1)
  local is_set = math.floor(byte / 2 ^ bit) % 2 == 1
  return patch(bytes, at, string.char(byte + (is_set and -1 or 1) * 2 ^ bit))
end

--- Four bytes, the highest first.
local function big_endian(number)
  local bytes = ""
  for _ = 1, 4 do
    bytes = string.char(number % 256) .. bytes
    number = math.floor(number / 256)
  end
  return bytes
end

--- Replaces bytes of a frame header, at an offset in it. The checksum of the header is right then.
local function forge(bytes, frame_at, at, new)
  bytes = patch(bytes, frame_at + at, new)
  local crc = crc32c.checksum { bytes:sub(frame_at + 5, frame_at + FRAME_HEADER) }
  return patch(bytes, frame_at, big_endian(crc))
end

local function damage(slot, at, n)
  local bytes = files.read(segment(slot))
  for i = 0, (n or 8) - 1 do bytes = flip(bytes, at + i, i % 8) end
  files.write(segment(slot), bytes)
end

describe("a journal", function()
  it("is empty if the directory has no segment", function()
    expect_groups(1, 0)
    assert.is_false(assert(recover()).has_files)
    open():close()
    expect_groups(1, 0)
    assert.is_true(assert(recover()).has_files)
    assert.same({ "journal-0" }, directory.list(path))
  end)

  it("returns every kind of change, and the numbers of the last group", function()
    local changes = {
      { "put", 2, 0, false, "record" }, { "put", 2, 1, true, "" }, { "put", 3, 4294967294, false, ("r"):rep(9000) },
      { "remove", 1, 7, true }, { "remove", 2, 0, false },
      { "put_lease", 12345678901234, 60 }, { "put_lease", -1, 0 }, { "remove_lease", 9 },
      { "put_row", "name", "bytes" }, { "put_row", "empty", "" }, { "remove_row", "other\0name" },
    }
    local journal = open { segment_bytes = 4 * SMALL }
    assert(journal:append(7, { changes[1] }, { revision = 2, compact_revision = -1, compacted_until = 0 }))
    local rest = {}
    for i = 2, #changes do rest[#rest + 1] = changes[i] end
    assert(journal:append(8, rest, { revision = 3, compact_revision = 1, compacted_until = 2, alarms = 3 }))
    journal:close()
    local found = assert(recover { applied = 6 })
    assert.same(changes, found.changes)
    found.changes = nil
    assert.same({ has_files = true, groups = 2, sequence = 8, revision = 3, compact_revision = 1,
      compacted_until = 2, alarms = 3 }, found)
  end)

  it("has a group without changes, for its numbers", function()
    local journal = open()
    assert(journal:append(1, {}, { revision = 9, compact_revision = 4 }))
    journal:close()
    local found = assert(recover())
    assert.same({ 1, 9, 4 }, { found.groups, found.revision, found.compact_revision })
  end)

  it("returns the groups that are not applied yet", function()
    local journal = open()
    append(journal, 1, 5)
    journal:close()
    for applied = 0, 5 do expect_groups(applied + 1, 5, { applied = applied }) end
    expect_groups(6, 5, { applied = 9 })
    expect_groups(6, 5, { applied = 5, is_closed = 1 })
    expect_refusal("newer than the database", { applied = 5, is_closed = 1, epoch = EPOCH - 1 })
  end)

  it("says how large a frame is", function()
    local journal = open()
    for _, len in ipairs { 0, 3900, 3996, 3997, 3998, 3999, 4000, 8000, 100000 } do
      local change = { "put", 1, 0, false, ("x"):rep(len) }
      local bytes = FRAME_HEADER + 1 + 1 + 8 + 4 + 4 + len
      assert.equal(math.ceil(bytes / BLOCK) * BLOCK, journal:frame_bytes { change })
    end
    journal:close()
  end)

  it("makes segments of one size when it needs them, up to four", function()
    local journal = open()
    for n = 1, 2 * SEGMENTS do
      append(journal, n, n)
      assert.same({ math.ceil(n / 2), SMALL }, { sizes() })
      assert.equal(n > 2, journal:is_filling()) -- half of all that may be
    end
    local _, err = journal:append(9, { put(9) })
    assert.equal("no_space", err.code)
    expect_groups(1, 8)
    journal:release(1)
    _, err = journal:append(9, { put(9) })
    assert.equal("no_space", err.code)
    journal:release(2)
    append(journal, 9, 10)
    _, err = journal:append(11, { put(11) })
    assert.equal("no_space", err.code)
    expect_groups(3, 10, { applied = 2 })
    journal:release(8)
    assert.is_false(journal:is_filling())
    append(journal, 11, 16)
    assert.same({ SEGMENTS, SMALL }, { sizes() })
    journal:close()
    expect_groups(9, 16, { applied = 8 })
  end)

  it("also uses files of another size, made with another option", function()
    open():close()
    local journal = open { epoch = EPOCH + 1, segment_bytes = 2 * SMALL }
    append(journal, 1, 2)
    append(journal, 3, 3, SMALL)
    journal:close()
    assert.equal(SMALL, directory.size(segment(0)))
    assert.equal(2 * SMALL, directory.size(segment(1)))
    expect_groups(1, 3, { epoch = EPOCH + 1 })
  end)

  it("reuses segments whose groups are released", function()
    local journal = open()
    for n = 1, 50 do
      append(journal, n, n)
      journal:release(n - 1)
      expect_groups(n, n, { applied = n - 1 })
    end
    assert.same({ 2, SMALL }, { sizes() })
    journal:release(50)
    append(journal, 51, 58)
    journal:close()
    expect_groups(51, 58, { applied = 50 })
  end)

  it("bypasses the page cache if the file system can, in every use of a segment", function()
    path = directory.new_elsewhere()
    local command = ("dd if=/dev/zero of='%s/tried' bs=%d count=1 oflag=direct 2>/dev/null"):format(path, BLOCK)
    local can = os.execute(command)
    local expected = can == true or can == 0
    local journal = open()
    append(journal, 1, 3, 10)
    assert.same({ expected, expected }, { is_direct("journal-0"), is_direct("journal-1") })
    journal:close()
    journal = open { epoch = EPOCH + 1 }
    append(journal, 4, 4, 10)
    assert.same({ expected, expected }, { is_direct("journal-0"), is_direct("journal-1") })
    journal:close()
    assert.same({ 4 }, groups_of(assert(recover { applied = 3, epoch = EPOCH + 1 })))
  end)

  it("refuses a group that fits in no segment, and continues", function()
    local journal = open()
    append(journal, 1, 1)
    local _, err = journal:append(2, { put(2, SMALL - FRAMES) })
    assert.equal("no_space", err.code)
    append(journal, 2, 2, SMALL - FRAMES - FRAME_HEADER - 20)
    journal:close()
    expect_groups(1, 2)
  end)

  it("is appended to while another thread releases", function()
    local journal = open()
    assert.equal(300, assert(journal:append_beside(1, 300, 6000)))
    journal:close()
    local found = assert(recover { applied = 299 })
    assert.equal(300, found.sequence)
    assert.equal(6000, #found.changes[1][5])
  end)

  it("reuses the segments of an earlier epoch, and ignores their groups", function()
    local journal = open()
    append(journal, 1, 6)
    journal:close()
    expect_groups(1, 6)
    journal = open { epoch = EPOCH + 1 }
    expect_groups(7, 6, { epoch = EPOCH + 1, applied = 6 })
    append(journal, 7, 8)
    assert.same({ 3, SMALL }, { sizes() })
    journal:close()
    expect_groups(7, 8, { epoch = EPOCH + 1, applied = 6 })
  end)

  it("continues after groups that went to LMDB directly", function()
    local journal = open()
    append(journal, 1, 3)
    append(journal, 6, 7)
    append(journal, 9, 9)
    journal:close()
    expect_groups(10, 9, { applied = 9 })
    expect_groups(9, 9, { applied = 8 })
    expect_refusal("^journal%-2 has group 9, but group 8 before it is lost$", { applied = 5 })
    expect_refusal("has group 6, but the groups 4 to 5 before it are lost$", { applied = 3 })
  end)

  it("leaves nothing behind when memory runs out, and has all or nothing of a group #starved", function()
    append(open(), 1, 2, 100)
    starve.try_each(function(n)
      core.probe.fail_core(n)
      local found, err = recover()
      local journal, trouble = probe.open(path, { store_id = STORE, epoch = EPOCH - 1, segment_bytes = SMALL })
      core.probe.fail_core(0)
      if journal then journal:close() end
      assert(found or err.code == "out_of_memory" and err.message:find("memory"))
      assert(journal or trouble.code == "out_of_memory")
      return not (found and journal)
    end)
  end)

  it("refuses a group when memory runs out, and takes it afterwards #starved", function()
    local journal = open()
    local n, failures = 0, 0
    for k = 1, 40 do
      n = n + 1
      local changes = { put(n, 100 * k) }
      core.probe.fail_core(k % 6 + 3) -- after those of the binding
      local done, err = journal:append(n, changes, { revision = n, compact_revision = -1 })
      core.probe.fail_core(0)
      if not done then
        assert.equal("out_of_memory", err.code)
        failures = failures + 1
        append(journal, n, n, 100 * k)
      end
      journal:release(math.max(n - 4, 0))
    end
    assert.is_true(failures > 0)
    journal:close()
    expect_groups(37, 40, { applied = 36 })
  end)
end)

describe("a damaged journal", function()
  --- Three groups in two segments.
  local function make()
    local journal = open()
    append(journal, 1, 3, 50)
    journal:close()
    return files.read(segment(0)), files.read(segment(1))
  end

  local PAYLOAD = 70 -- bytes, of each group

  it("is refused whichever bit of a header is wrong #slow", function()
    make()
    for slot = 0, 1 do
      local bytes = files.read(segment(slot))
      for at = 0, HEADER - 1 do
        files.write(segment(slot), flip(bytes, at, at % 8))
        expect_refusal(("^journal%%-%d has a damaged header$"):format(slot))
      end
      files.write(segment(slot), bytes)
    end
  end)

  it("is refused whichever bit of a frame is wrong, or ends there if the frame is the last one #slow", function()
    local first, second = make()
    for at = 0, FRAME_HEADER + PAYLOAD - 1 do
      for bit = 0, 7 do
        for n = 1, 2 do
          files.write(segment(0), flip(first, FRAMES + (n - 1) * BLOCK + at, bit))
          expect_refusal(n == 2 and "^journal%-1 has group 3, but group 2 before it is lost$"
            or "^journal%-0 has group 2, but group 1 before it is lost$")
        end
        files.write(segment(0), first)
        files.write(segment(1), flip(second, FRAMES + at, bit))
        expect_groups(1, 2)
        files.write(segment(1), second)
      end
    end
  end)

  it("has all groups if bits are wrong that no frame uses", function()
    local first, second = make()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    for _ = 1, 300 do
      local from = random:pick { HEADER, FRAMES + FRAME_HEADER + PAYLOAD, FRAMES + BLOCK + FRAME_HEADER + PAYLOAD }
      local at = random:between(from, math.ceil(from / BLOCK) * BLOCK - 1)
      files.write(segment(0), flip(first, at, random:between(0, 7)))
      files.write(segment(1), flip(second, random:between(FRAMES + BLOCK, SMALL - 1), random:between(0, 7)))
      expect_groups(1, 3)
    end
  end)

  it("is refused if a header is lost", function()
    make()
    damage(1, 0)
    expect_refusal("^journal%-1 has a damaged header$")
  end)

  it("ends before a last frame that is torn", function()
    for _, at in ipairs { FRAMES, FRAMES + FRAME_HEADER } do
      local _, second = make()
      damage(1, at)
      expect_groups(1, 2)
      files.write(segment(1), patch(second, at, ("\0"):rep(BLOCK - FRAME_HEADER)))
      expect_groups(1, 2)
      renew()
    end
  end)

  it("is refused if a frame before another one is damaged, unless its group is applied", function()
    for frame = 0, 1 do
      for _, at in ipairs { 0, FRAME_HEADER } do
        make()
        damage(0, FRAMES + frame * BLOCK + at)
        expect_refusal("lost")
        expect_groups(frame + 2, 3, { applied = frame + 1 })
        renew()
      end
    end
  end)

  it("is refused if the frame after a damaged one has a torn payload", function()
    make()
    damage(0, FRAMES + BLOCK)
    damage(1, FRAMES + FRAME_HEADER)
    expect_refusal("group 3, but group 2 before it is lost")
  end)

  it("is refused if a frame does not follow the one before", function()
    local first, second = make()
    files.write(segment(0), forge(first, FRAMES + BLOCK, 72, "else"))
    expect_refusal("a group does not follow the one before")
    files.write(segment(0), first)
    files.write(segment(1), forge(second, FRAMES, 72, "else"))
    expect_refusal("a group does not follow the one before")
    files.write(segment(1), forge(second, FRAMES, 24, ("\0"):rep(7) .. "\2"))
    expect_refusal("is damaged: ")
    files.write(segment(1), forge(second, FRAMES, 24, ("\0"):rep(7) .. "\4"))
    expect_refusal("has group 4, but group 3 before it is lost")
  end)

  it("is refused if a segment is missing", function()
    make()
    assert(os.remove(segment(0)))
    expect_refusal("^journal%-1 has group 3, but the groups 1 to 2 before it are lost$")
    expect_groups(3, 3, { applied = 2 })
  end)

  it("is refused if a segment was copied, or has the name of another one", function()
    local first, second = make()
    files.write(segment(3), first)
    expect_refusal("another segment has the same group")
    os.remove(segment(3))
    files.write(segment(0), second)
    files.write(segment(1), first)
    expect_groups(1, 3) -- names do not matter
  end)

  it("is recovered, or refused with a sentence, wherever a segment is cut off #slow", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    for slot = 0, 1 do
      local bytes = ({ make() })[slot + 1]
      local lengths = { 0, 1, 7, 8, HEADER - 1, HEADER, HEADER + 1, #bytes - 1 }
      for at = 512, #bytes - 1, 512 do
        for off = -1, 1 do lengths[#lengths + 1] = at + off end
      end
      for _ = 1, 20 do lengths[#lengths + 1] = random:between(0, #bytes - 1) end
      for _, len in ipairs(lengths) do
        files.write(segment(slot), bytes:sub(1, len))
        expect_refusal(("^journal%%-%d %%l+ "):format(slot)) -- has another size, is truncated, ...
      end
      files.write(segment(slot), bytes .. "more")
      expect_groups(1, 3)
      renew()
    end
  end)

  it("is refused if it belongs to another store", function()
    make()
    expect_refusal("^journal%-0 is part of the journal of another store$", { store_id = STORE + 1 })
  end)

  it("is refused if the database is older than the journal", function()
    make()
    expect_refusal("newer than the database", { epoch = EPOCH - 1 })
    renew()
    open({ epoch = EPOCH + 1 }):close()
    expect_groups(1, 0) -- no group of that epoch was acknowledged
  end)

  it("is refused if a newer version has written it", function()
    local first = make()
    local header = patch(first:sub(1, HEADER - 4), 7, "\2")
    files.write(segment(0), patch(first, 0, header .. big_endian(crc32c.checksum { header })))
    expect_refusal("^journal%-0 was written by a newer version of keywatch$")
  end)

  it("is refused if a file of another kind has the name of a segment", function()
    make()
    os.remove(segment(0))
    files.write(segment(0), ("not a journal\n"):rep(1000))
    expect_refusal("^journal%-0 has a damaged header$")
    os.remove(segment(0))
    os.execute("mkdir " .. segment(0))
    expect_refusal("^journal%-0 is not a regular file$")
    os.execute("rmdir " .. segment(0))
    os.execute("mkfifo " .. segment(0))
    expect_refusal("^journal%-0 is not a regular file$")
  end)

  it("ignores a segment that was not finished, and files of other names", function()
    make()
    files.write(path .. "/journal.new", "half")
    files.write(path .. "/journal", "mine")
    files.write(path .. "/journal-x", "mine, too")
    expect_groups(1, 3)
    assert.same({ "journal", "journal-0", "journal-1", "journal-x" }, directory.list(path))
    files.write(path .. "/journal.new", "half")
    local journal = open { epoch = EPOCH + 1 }
    append(journal, 4, 4)
    journal:close()
    expect_groups(4, 4, { epoch = EPOCH + 1, applied = 3 })
  end)

  it("does not mistake a frame of an earlier use, or the value of a user, for a frame", function()
    local journal = open { segment_bytes = 8 * SMALL }
    append(journal, 1, 3, 5000)
    local old = files.read(segment(0)):sub(FRAMES + 1, FRAMES + BLOCK)
    journal:close()
    journal = open { epoch = EPOCH + 1 }
    append(journal, 4, 6)
    local padding = ("y"):rep(BLOCK - FRAME_HEADER - 1 - 1 - 8 - 4 - 4)
    assert(journal:append(7, { { "put", 7, 0, false, padding .. old .. old } }, { revision = 7 }))
    journal:close()
    expect_groups(4, 7, { epoch = EPOCH + 1, applied = 3 })
    local bytes = files.read(segment(0))
    local at = assert(bytes:find(padding, 1, true)) - 1 - (BLOCK - #padding)
    files.write(segment(0), patch(bytes, at, "torn away"))
    expect_groups(4, 6, { epoch = EPOCH + 1, applied = 3 })
  end)
end)
