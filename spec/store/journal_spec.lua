--- The journal without a store, through the probe: what was appended is recovered, exactly, or it is refused with a
-- sentence. spec/store/journal_fault_spec.lua has its disk fail.

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
local FRAMES = 2 * BLOCK -- where the first frame begins
local HEADER = 52 -- bytes of a copy of the header of a segment
local FRAME_HEADER = 96
local DIRECT = uv.os_uname().machine:find("^a") and 0x10000 or 0x4000 -- O_DIRECT, which is another bit on ARM
local SMALL = 16384 -- bytes of the smallest segment: it has room for two small frames

local path

local function renew()
  directory.remove_all()
  path = directory.new()
end

before_each(renew)
after_each(directory.remove_all)

local function open(options)
  local all = { store_id = STORE, epoch = EPOCH }
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
  assert.equal(last < first, found.is_empty)
  if not found.is_empty then assert.equal(last, found.sequence) end
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

describe("the repair of a checksum", function()
  it("finds the wrong bit, be it of the bytes or of the checksum #slow", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    for _, len in ipairs { 0, 1, 2, 7, 8, 9, 100, 1000 } do
      local letters = {}
      for i = 1, len do letters[i] = string.char(random:between(0, 255)) end
      local bytes = table.concat(letters)
      local crc = crc32c.checksum { bytes }
      assert.is_nil((probe.repair(bytes, crc)))
      for bit = 0, 31 do
        local wrong = crc + (math.floor(crc / 2 ^ bit) % 2 == 1 and -1 or 1) * 2 ^ bit
        assert.same({ bytes, crc }, { probe.repair(bytes, math.floor(wrong)) })
      end
      for i = 0, len * 8 - 1, len > 99 and 7 or 1 do
        assert.same({ bytes, crc }, { probe.repair(flip(bytes, math.floor(i / 8), i % 8), crc) })
      end
    end
  end)

  it("finds none where two bits are wrong", function()
    local bytes = ("journal"):rep(20)
    local crc = crc32c.checksum { bytes }
    for i = 1, 100 do assert.is_nil((probe.repair(flip(flip(bytes, 0, 3), i, i % 8), crc))) end
  end)
end)

describe("a journal", function()
  it("is empty where there is none", function()
    expect_groups(1, 0)
    open():close()
    expect_groups(1, 0)
    assert.same({}, directory.list(path))
  end)

  it("has every kind of change again, and the numbers of the last group", function()
    local changes = {
      { "put", 2, 0, false, "record" }, { "put", 2, 1, true, "" }, { "put", 3, 4294967294, false, ("r"):rep(9000) },
      { "remove", 1, 7, true }, { "remove", 2, 0, false },
      { "put_lease", 12345678901234, 60 }, { "put_lease", -1, 0 }, { "remove_lease", 9 },
      { "put_row", "name", "bytes" }, { "put_row", "empty", "" }, { "remove_row", "other\0name" },
    }
    local journal = open()
    assert(journal:append(7, { changes[1] }, { revision = 2, compact_revision = -1, compacted_until = 0 }))
    local rest = {}
    for i = 2, #changes do rest[#rest + 1] = changes[i] end
    assert(journal:append(8, rest, { revision = 3, compact_revision = 1, compacted_until = 2, alarms = 3 }))
    journal:close()
    local found = assert(recover { applied = 6 })
    assert.same(changes, found.changes)
    found.changes = nil
    assert.same({ is_empty = false, groups = 2, repaired_bits = 0, last_segment_number = 1, sequence = 8,
      revision = 3, compact_revision = 1, compacted_until = 2, alarms = 3 }, found)
  end)

  it("has a group without changes, for its numbers", function()
    local journal = open()
    assert(journal:append(1, {}, { revision = 9, compact_revision = 4 }))
    journal:close()
    local found = assert(recover())
    assert.same({ false, 1, 9, 4 }, { found.is_empty, found.groups, found.revision, found.compact_revision })
  end)

  it("has what is not applied yet", function()
    local journal = open()
    append(journal, 1, 5)
    journal:close()
    for applied = 0, 5 do expect_groups(applied + 1, 5, { applied = applied }) end
    expect_groups(6, 5, { applied = 9 })
  end)

  it("says how large a frame is", function()
    local journal = open()
    for _, len in ipairs { 0, 3900, 3976, 3977, 3978, 3979, 3980, 3990, 8000, 100000 } do
      local change = { "put", 1, 0, false, ("x"):rep(len) }
      local bytes = FRAME_HEADER + 1 + 1 + 8 + 4 + 4 + len
      assert.equal(math.ceil(bytes / BLOCK) * BLOCK, journal:frame_bytes { change })
    end
    journal:close()
  end)

  it("begins its first segment small, and makes each new one twice as large", function()
    local journal = open { first_bytes = SMALL, most_bytes = 4 * SMALL }
    assert.equal(0, journal:size())
    append(journal, 1, 1)
    assert.equal(SMALL, journal:size())
    append(journal, 2, 3)
    assert.equal(3 * SMALL, journal:size())
    append(journal, 4, 9)
    assert.equal(7 * SMALL, journal:size())
    append(journal, 10, 30)
    assert.equal(11 * SMALL, journal:size())
    assert.equal(4 * SMALL, directory.size(segment(3)))
    journal:close()
    expect_groups(1, 30)
  end)

  it("makes a segment that is large enough for a large group", function()
    local journal = open { first_bytes = SMALL, most_bytes = 64 * SMALL }
    append(journal, 1, 1)
    append(journal, 2, 2, 10 * SMALL)
    append(journal, 3, 3)
    assert.equal(17 * SMALL, journal:size())
    journal:close()
    local found = expect_groups(1, 3)
    assert.equal(10 * SMALL + 2, #found.changes[2][5])
  end)

  it("makes a large segment in the place of a small one where there are as many files as can be", function()
    local journal = open { first_bytes = SMALL }
    append(journal, 1, 1)
    journal:close()
    for slot = 1, 15 do files.write(segment(slot), files.read(segment(0))) end
    journal = open { epoch = EPOCH + 1, first_bytes = SMALL }
    assert.equal(16 * SMALL, journal:size())
    append(journal, 2, 2, 3 * SMALL)
    append(journal, 3, 9)
    assert.equal(16, #directory.list(path))
    journal:close()
    expect_groups(2, 9, { epoch = EPOCH + 1, applied = 1 })
  end)

  it("uses segments again whose groups are released", function()
    local journal = open { first_bytes = SMALL, most_bytes = SMALL }
    for n = 1, 50 do
      append(journal, n, n)
      journal:release(n - 1)
      expect_groups(n, n, { applied = n - 1 })
    end
    assert.equal(2 * SMALL, journal:size())
    journal:close()
    assert.equal(25, expect_groups(50, 50, { applied = 49 }).last_segment_number)
  end)

  it("is written past the page cache where the file system can, in every use of a segment", function()
    path = directory.new_elsewhere()
    local command = ("dd if=/dev/zero of='%s/tried' bs=%d count=1 oflag=direct 2>/dev/null"):format(path, BLOCK)
    local can = os.execute(command)
    local expected = can == true or can == 0
    local journal = open { first_bytes = SMALL, most_bytes = 4 * SMALL }
    append(journal, 1, 2, 10)
    append(journal, 3, 3, 3 * BLOCK)
    assert.same({ expected, expected }, { is_direct("journal-0"), is_direct("journal-1") })
    journal:release(3)
    assert(journal:prepare())
    append(journal, 4, 5, 10)
    journal:close()
    journal = open { epoch = EPOCH + 1 }
    append(journal, 6, 6, 10)
    assert.same({ expected, expected }, { is_direct("journal-0"), is_direct("journal-1") })
    journal:close()
    assert.same({ 6 }, groups_of(assert(recover { applied = 5, epoch = EPOCH + 1 })))
  end)

  it("refuses a group as long as too many are not released, with nothing changed", function()
    local journal = open { first_bytes = SMALL, most_bytes = 2 * SMALL }
    local n = 0
    while true do
      local done, err = journal:append(n + 1, { put(n + 1) })
      if not done then
        assert.equal("no_space", err.code)
        break
      end
      n = n + 1
    end
    assert.equal(4 * 2 * SMALL, journal:unreleased())
    assert.equal(n * BLOCK, journal:unreleased())
    expect_groups(1, n)
    journal:release(1)
    assert.equal((n - 1) * BLOCK, journal:unreleased())
    append(journal, n + 1, n + 1)
    journal:release(n)
    assert.equal(BLOCK, journal:unreleased())
    append(journal, n + 2, 2 * n)
    journal:release(n)
    assert.equal(n * BLOCK, journal:unreleased())
    journal:close()
    expect_groups(n + 1, 2 * n, { applied = n })
  end)

  it("refuses a group that fits in no segment, and continues", function()
    local journal = open { first_bytes = SMALL, most_bytes = 4 * SMALL }
    append(journal, 1, 1)
    assert.equal(4 * SMALL - FRAMES, journal:max_frame())
    local _, err = journal:append(2, { put(2, 4 * SMALL - FRAMES) })
    assert.equal("no_space", err.code)
    append(journal, 2, 2, 4 * SMALL - FRAMES - FRAME_HEADER - 20)
    journal:close()
    expect_groups(1, 2)
  end)

  it("prepares the next segment, so that an append makes none", function()
    local journal = open { first_bytes = SMALL }
    assert(journal:prepare())
    assert.equal(SMALL, journal:size())
    append(journal, 1, 1)
    assert.equal(SMALL, journal:size())
    append(journal, 2, 2)
    assert(journal:prepare())
    assert(journal:prepare())
    assert.equal(3 * SMALL, journal:size())
    append(journal, 3, 4)
    assert.equal(3 * SMALL, journal:size())
    journal:release(2)
    assert(journal:prepare())
    assert.equal(3 * SMALL, journal:size())
    append(journal, 5, 9)
    assert.equal(3 * SMALL, journal:size())
    journal:close()
    expect_groups(3, 9, { applied = 2 })
  end)

  it("keeps the order of groups when a prepared segment was too small for one", function()
    local journal = open { first_bytes = SMALL, most_bytes = 64 * SMALL }
    append(journal, 1, 2)
    assert(journal:prepare())
    append(journal, 3, 3, 5 * SMALL)
    append(journal, 4, 4, 5 * SMALL)
    append(journal, 5, 100)
    journal:close()
    expect_groups(1, 100)
  end)

  it("removes large segments when they are no longer needed", function()
    local journal = open { first_bytes = SMALL, most_bytes = 8 * SMALL }
    append(journal, 1, 80)
    local n, most = 80, journal:size()
    assert.is_true(most > 20 * SMALL)
    local before = {}
    for _, name in ipairs(directory.list(path)) do before[name] = files.read(path .. "/" .. name) end
    for _ = 1, 40 do
      n = n + 1
      append(journal, n, n)
      expect_groups(n, n, { applied = n - 1 })
      journal:release(n)
      assert(journal:prepare())
      expect_groups(n + 1, n, { applied = n })
    end
    assert.is_true(journal:size() <= 3 * SMALL, journal:size())
    assert.equal(2, #directory.list(path))
    journal:close()
    for _, name in ipairs(directory.list(path)) do before[name] = nil end
    for name, bytes in pairs(before) do files.write(path .. "/" .. name, bytes) end -- a crash may bring them back
    expect_groups(n + 1, n, { applied = n })
    journal = open { epoch = EPOCH + 1, first_bytes = SMALL, most_bytes = 8 * SMALL }
    append(journal, n + 1, n + 40)
    journal:close()
    expect_groups(n + 1, n + 40, { epoch = EPOCH + 1, applied = n })
  end)

  it("keeps its segments while they are needed", function()
    local journal = open { first_bytes = SMALL, most_bytes = 8 * SMALL }
    append(journal, 1, 80)
    local sizes = {}
    for round = 1, 10 do
      journal:release(80 * round)
      assert(journal:prepare())
      append(journal, 80 * round + 1, 80 * round + 80)
      sizes[round] = journal:size()
    end
    for round = 3, 10 do assert.equal(sizes[2], sizes[round]) end
    journal:close()
  end)

  it("is appended to while another thread releases and prepares", function()
    local journal = open { first_bytes = SMALL, most_bytes = 4 * SMALL }
    assert.equal(300, assert(journal:append_beside(1, 300, 6000)))
    journal:close()
    local found = assert(recover { applied = 299 })
    assert.equal(300, found.sequence)
    assert.equal(6000, #found.changes[1][5])
  end)

  it("takes over the segments of an earlier epoch, whose groups are forgotten", function()
    local journal = open { first_bytes = SMALL, most_bytes = SMALL }
    append(journal, 1, 6)
    local size = journal:size()
    journal:close()
    expect_groups(1, 6)
    journal = open { epoch = EPOCH + 1, first_bytes = SMALL, most_bytes = SMALL }
    assert.equal(size, journal:size())
    expect_groups(7, 6, { epoch = EPOCH + 1, applied = 6 })
    append(journal, 7, 8)
    assert.equal(size, journal:size())
    journal:close()
    expect_groups(7, 8, { epoch = EPOCH + 1, applied = 6 })
  end)

  it("continues after groups that went to LMDB directly", function()
    local journal = open { first_bytes = SMALL }
    append(journal, 1, 3)
    append(journal, 6, 7)
    append(journal, 9, 9)
    journal:close()
    expect_groups(10, 9, { applied = 9 })
    expect_groups(9, 9, { applied = 8 })
    expect_refusal("^journal%-1 has group 9, but group 8 before it is lost$", { applied = 5 })
    expect_refusal("has group 6, but the groups 4 to 5 before it are lost$", { applied = 3 })
  end)

  it("leaves nothing behind when memory runs out, and has all or nothing of a group #starved", function()
    append(open { first_bytes = SMALL }, 1, 2, 100)
    starve.try_each(function(n)
      core.probe.fail_core(n)
      local found, err = recover()
      local journal, trouble = probe.open(path, { store_id = STORE, epoch = EPOCH - 1 })
      core.probe.fail_core(0)
      if journal then journal:close() end
      assert(found or err.code == "out_of_memory" and err.message:find("memory"))
      assert(journal or trouble.code == "out_of_memory")
      return not (found and journal)
    end)
  end)

  it("refuses a group when memory runs out, and takes it afterwards #starved", function()
    local journal = open { first_bytes = SMALL, most_bytes = 4 * SMALL }
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
  --- Three groups in two segments, and a segment that was prepared.
  local function make()
    local journal = open { first_bytes = SMALL, most_bytes = SMALL }
    append(journal, 1, 3, 50)
    assert(journal:prepare())
    journal:close()
    return files.read(segment(0)), files.read(segment(1))
  end

  --- Offsets of the bytes that count in a segment with so many frames.
  local function used_bytes(frames)
    local offsets = {}
    for copy = 0, 1 do
      for i = 0, HEADER - 1 do offsets[#offsets + 1] = copy * BLOCK + i end
    end
    for frame = 0, frames - 1 do
      for i = 0, FRAME_HEADER + 70 do offsets[#offsets + 1] = FRAMES + frame * BLOCK + i end
    end
    return offsets
  end

  for slot, frames in pairs { [0] = 2, [1] = 1 } do
    it(("has all groups whichever bit of segment %d is wrong #slow"):format(slot), function()
      local bytes = ({ make() })[slot + 1]
      local repaired = 0
      local function try(at, bit)
        files.write(segment(slot), flip(bytes, at, bit))
        repaired = repaired + expect_groups(1, 3).repaired_bits
      end
      for _, at in ipairs(used_bytes(frames)) do
        for bit = 0, 7 do try(at, bit) end
      end
      local random = new_random(tonumber(os.getenv("KW_SEED")))
      for _ = 1, 300 do try(random:between(0, #bytes - 1), random:between(0, 7)) end
      assert.is_true(repaired > 0)
    end)
  end

  it("has all groups with a wrong bit in each frame header, each payload, and a copy of each header", function()
    make()
    for slot, frames in pairs { [0] = 2, [1] = 1 } do
      local bytes = flip(files.read(segment(slot)), slot * BLOCK + 20, 3)
      for frame = 0, frames - 1 do
        bytes = flip(bytes, FRAMES + frame * BLOCK + 30, 7)
        bytes = flip(bytes, FRAMES + frame * BLOCK + FRAME_HEADER + 22, 0)
      end
      files.write(segment(slot), bytes)
    end
    assert.equal(6, expect_groups(1, 3).repaired_bits)
  end)

  it("has all groups where one copy of a header is lost, and is used again", function()
    for copy = 0, 1 do
      make()
      for slot = 0, 1 do damage(slot, copy * BLOCK, 40) end
      expect_groups(1, 3)
      local journal = open { epoch = EPOCH + 1, first_bytes = SMALL, most_bytes = SMALL }
      append(journal, 4, 6)
      journal:close()
      for again = 0, 1 do
        local first, second = files.read(segment(0)), files.read(segment(1))
        for slot = 0, 1 do damage(slot, again * BLOCK, 40) end
        expect_groups(4, 6, { epoch = EPOCH + 1, applied = 3 })
        files.write(segment(0), first)
        files.write(segment(1), second)
      end
      renew()
    end
  end)

  it("is refused where both copies of a header are lost", function()
    make()
    damage(1, 0)
    damage(1, BLOCK)
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

  it("is refused where a frame is damaged that has one behind it, but not if that is applied", function()
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

  it("is refused where a damaged frame is followed by one whose payload is torn", function()
    make()
    damage(0, FRAMES + BLOCK)
    damage(1, FRAMES + FRAME_HEADER)
    expect_refusal("group 3, but group 2 before it is lost")
  end)

  it("is refused where a frame does not follow the one before", function()
    local first, second = make()
    files.write(segment(0), forge(first, FRAMES + BLOCK, 84, "else"))
    expect_refusal("a group does not follow the one before")
    files.write(segment(0), first)
    files.write(segment(1), forge(second, FRAMES, 84, "else"))
    expect_refusal("a group does not follow the one before")
    files.write(segment(1), forge(second, FRAMES, 24, ("\0"):rep(7) .. "\2"))
    expect_refusal("out of order")
    files.write(segment(1), forge(second, FRAMES, 24, ("\0"):rep(7) .. "\4"))
    expect_refusal("has group 4, but group 3 before it is lost")
  end)

  it("ends before a payload that one bit makes right for the checksum alone", function()
    local unseen = "\241\118\236\5\1" -- the polynomial: who changes bytes by it does not change the checksum
    local function change(bytes, at)
      for i = 1, #unseen do
        for bit = 0, 7 do
          if math.floor(unseen:byte(i) / 2 ^ bit) % 2 == 1 then bytes = flip(bytes, at + i - 1, bit) end
        end
      end
      return bytes
    end
    assert.equal(crc32c.checksum { ("x"):rep(50) }, crc32c.checksum { change(("x"):rep(50), 20) })
    local _, second = make()
    local changed = change(second, FRAMES + FRAME_HEADER + 30)
    files.write(segment(1), changed)
    expect_groups(1, 2)
    files.write(segment(1), flip(changed, FRAMES + FRAME_HEADER + 50, 2))
    expect_groups(1, 2)
  end)

  it("is refused where a segment is missing", function()
    make()
    assert(os.remove(segment(0)))
    expect_refusal("^journal%-1 has group 3, but the groups 1 to 2 before it are lost$")
    expect_groups(3, 3, { applied = 2 })
  end)

  it("is refused where a segment was copied, or put into another's place", function()
    local first, second = make()
    files.write(segment(9), first)
    expect_refusal("is a copy of another segment")
    os.remove(segment(9))
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
        expect_refusal(("^journal%%-%d has "):format(slot))
      end
      files.write(segment(slot), bytes .. "more")
      expect_groups(1, 3)
      renew()
    end
  end)

  it("is refused where it is that of another store", function()
    make()
    expect_refusal("^journal%-0 is part of the journal of another store$", { store_id = STORE + 1 })
  end)

  it("is refused where the database is older than it", function()
    make()
    expect_refusal("newer than the database", { epoch = EPOCH - 1 })
    renew()
    local journal = open { epoch = EPOCH + 1 }
    assert(journal:prepare())
    journal:close()
    expect_groups(1, 0) -- no group of that epoch was acknowledged
  end)

  it("is refused where a newer version has written it, even if only one copy of the header says so", function()
    local first = make()
    for copy = 0, 1 do
      local header = patch(first:sub(1, HEADER - 4), 7, "\2")
      files.write(segment(0), patch(first, copy * BLOCK, header .. big_endian(crc32c.checksum { header })))
      expect_refusal("^journal%-0 was written by a newer version of keywatch$")
    end
  end)

  it("is refused where something else has the name of a segment", function()
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

  it("does not mind a segment that was not finished, nor files of other names", function()
    make()
    files.write(path .. "/journal.new", "half")
    files.write(path .. "/journal", "mine")
    files.write(path .. "/journal-x", "mine, too")
    expect_groups(1, 3)
    assert.same({ "journal", "journal-0", "journal-1", "journal-2", "journal-x" }, directory.list(path))
    files.write(path .. "/journal.new", "half")
    local journal = open { epoch = EPOCH + 1 }
    append(journal, 4, 4)
    journal:close()
    expect_groups(4, 4, { epoch = EPOCH + 1, applied = 3 })
  end)

  it("takes no frame of an earlier use, nor the value of a user, for a frame", function()
    local journal = open { first_bytes = SMALL, most_bytes = 64 * SMALL }
    append(journal, 1, 1, 30000)
    journal:release(1)
    append(journal, 2, 4, 30000)
    local frame = files.read(segment(0)):sub(FRAMES + 1)
    local padding = ("y"):rep(BLOCK - FRAME_HEADER - 1 - 1 - 8 - 4 - 4)
    assert(journal:append(5, { { "put", 5, 0, false, padding .. frame .. frame } }, { revision = 5 }))
    journal:close()
    expect_groups(2, 5, { applied = 1 })
    local slots = directory.list(path)
    for _, name in ipairs(slots) do
      local bytes = files.read(path .. "/" .. name)
      local at = bytes:find(padding, 1, true)
      if at then files.write(path .. "/" .. name, patch(bytes, at - 19, "torn away")) end
    end
    expect_groups(2, 4, { applied = 1 })
  end)
end)
