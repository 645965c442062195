--- Directories that are not a store, or are damaged: they are refused, with a sentence that says why, and not changed.
-- A separate process opens them, which must not crash.

local checksum = require("spec.support.crc32c").checksum
local dose = require "spec.support.dose"
local fault = require "spec.support.fault"
local files = require "spec.support.files"
local int64 = require "spec.support.int64"
local process = require "spec.support.process"
local program = require "spec.support.program"
local shell = require "spec.support.shell"
local vm = require "spec.support.vm"

local PAGE = tonumber(shell.must("getconf PAGESIZE")) -- LMDB's, too: a head has one of its own
local LOCKS = { lock = true, ["data.mdb-lock"] = true } -- of these nothing is kept

local directory

--- The files that count, with their bytes.
local function contents(path)
  local found = {}
  for name in shell.must("ls -A " .. path):gmatch("[^\n]+") do
    if not LOCKS[name] then found[name] = files.read(path .. "/" .. name) end
  end
  return found
end

local MAKE = [[
  local store = assert(require("keywatch").open { path = %q })
  for from = 0, 200, 100 do
    local puts = {}
    for i = 1, 100 do puts[i] = { put = "key " .. from + i, value = ("v"):rep(100) } end
    assert(store:txn { success = puts })
  end
  store:close()
]]

local function make(path) program.printed_by(MAKE:format(path)) end

local OPEN = [[
  local store, err = require("keywatch").open { path = %q }
  if store then
    print("opened at " .. store:status().revision)
  else
    print(err.code, err.message)
  end
]]

--- Opens it in a process of its own; what that has printed.
local function open(path)
  local printed = program.printed_by(OPEN:format(path))
  return (printed:gsub("\n$", ""))
end

local function expect_refusal(path, why, code)
  assert.equal((code or "storage") .. "\tkeywatch: cannot open " .. path .. ": " .. why, open(path))
end

local DAMAGED = "its database is damaged, or was not written by keywatch"

--- The damage that an entry has another key and value, as long as its own, and with the right checksum. Tables are
-- counted as in csrc/disk/lmdb_file.h.
local function forging(table_number, key, other_key, these, others)
  local head = string.char(#key, 0) .. key -- the end of a node's header, and the key
  return function(bytes)
    local from, n = 1, 0
    for at in function() return bytes:find(head, from, true) end do
      local first = at + #head
      local size = bytes:byte(at - 6) + 256 * bytes:byte(at - 5) - 4
      local value = bytes:sub(first, first + size - 1):gsub(these, others)
      local crc = checksum({ other_key, value }, table_number)
      bytes = bytes:sub(1, at + 1) .. other_key .. value .. int64.big_endian(crc):sub(5) .. bytes:sub(first + size + 4)
      from, n = first + size, n + 1
    end
    assert.is_true(n > 0)
    return bytes
  end
end

local function forging_number(name, these, others) return forging(0, name, name, these, others) end

before_each(function() directory = shell.must(fault.MAKE_DIRECTORY) .. "/store" end)
after_each(function() shell.must("rm -rf " .. directory:gsub("/store$", "")) end)

describe("a damaged store #slow", function()
  local data

  before_each(function()
    make(directory)
    data = directory .. "/data.mdb"
  end)

  --- Damages it by a function of the file's bytes, and expects it to be refused.
  local function expect_refused(damage, why, code)
    files.write(data, damage(files.read(data)))
    local before = contents(directory)
    expect_refusal(directory, why, code or "corrupt")
    assert.same(before, contents(directory))
  end

  --- The damage that other bytes stand where these did.
  local function replacing(these, others)
    return function(bytes)
      local parts, from = {}, 1
      for at in function() return bytes:find(these, from, true) end do
        parts[#parts + 1] = bytes:sub(from, at - 1) .. others
        from = at + #these
      end
      assert.is_true(#parts > 0)
      return table.concat(parts) .. bytes:sub(from)
    end
  end

  it("is refused when its file is truncated", function()
    for _, kept in ipairs { 4 * PAGE, 3 * PAGE, 2 * PAGE, PAGE, 1, 0 } do
      expect_refused(function(bytes) return bytes:sub(1, kept) end, "its database is truncated")
    end
  end)

  for what, damage in pairs {
    ["its head is zeros"] = function(bytes) return ("\0"):rep(2 * PAGE) .. bytes:sub(2 * PAGE + 1) end,
    ["one of its two heads is zeros"] = function(bytes)
      return bytes:sub(1, PAGE) .. ("\0"):rep(PAGE) .. bytes:sub(2 * PAGE + 1)
    end,
    ["it is something else"] = function() return ("no database "):rep(9000) end,
    ["its version is another one"] = function(bytes) return bytes:sub(1, 20) .. "\9" .. bytes:sub(22) end,
    ["its tables are others"] = replacing("records", "recipes"),
    ["a record is another one"] = replacing("key 77", "key 7x"),
  } do
    it("is refused when " .. what, function() expect_refused(damage, DAMAGED) end)
  end

  it("is refused when an older state looks like the newest one", function()
    local TXN = 144 -- offset of the number of the transaction in a head
    local bytes = files.read(data)
    local first = bytes:byte(TXN + 1) > bytes:byte(PAGE + TXN + 1)
    for at, by in pairs { [first and TXN or PAGE + TXN] = -2, [first and PAGE + TXN or TXN] = 2 } do
      expect_refused(function()
        return bytes:sub(1, at) .. string.char(bytes:byte(at + 1) + by) .. bytes:sub(at + 2)
      end, DAMAGED)
    end
  end)

  it("is refused when it has the format of another version", function()
    expect_refused(forging_number("format", "\1$", "\2"), "it has the format of another version of keywatch", "storage")
  end)

  --- Expects that a store is refused whose checksums are right.
  local function expect_refused_with_checksums(bytes, damage)
    files.write(data, damage(bytes))
    local before = contents(directory)
    assert.equal("corrupt\tkeywatch: " .. directory .. " is damaged", open(directory))
    assert.same(before, contents(directory))
  end

  it("is refused when a record is malformed", function()
    local key = ("\0"):rep(7) .. "\2\0\0\0\76\0"
    expect_refused_with_checksums(files.read(data), forging(1, key, key, "^\10\6", "\10\99"))
  end)

  it("is refused when its numbers are impossible", function()
    local bytes = files.read(data)
    local zeros, ones = ("\0"):rep(7), ("\255"):rep(7)
    for _, damage in ipairs {
      forging_number("revision", "^.*$", "\127" .. ones),
      forging_number("revision", "^.*$", "\128" .. zeros),
      forging_number("compact_revision", "^.*$", zeros .. "\9"),
      forging_number("compacted_until", "^.*$", zeros .. "\1"),
      forging(1, zeros .. "\4\0\0\0\99\0", zeros .. "\4\255\255\255\255\0", "", ""), -- the last record
    } do expect_refused_with_checksums(bytes, damage) end
  end)

  it("is refused when the TTL of a lease is impossible", function()
    program.printed_by(([[
      local store = assert(require("keywatch").open { path = %q })
      assert(store:lease(60, { id = 77 }))
      store:close()
    ]]):format(directory))
    local zeros = ("\0"):rep(7)
    local id = "\128" .. zeros:sub(2) .. "M"
    expect_refused_with_checksums(files.read(data), forging(2, id, id, "^.*$", "\127" .. zeros))
  end)

  it("has its newest state or is refused, without a crash, for any changed byte of its meta pages #slow", function()
    local FLIP = [[
      local keywatch, path, data = require "keywatch", %q, %q
      local files = require "spec.support.files"
      local bytes = files.read(data):sub(1, 50 * %d)
      for at = 0, %d + 159 do
        if at < 160 or at >= %d then
          for _, by in ipairs { 1, 128, 255 } do
            local other = string.char((bytes:byte(at + 1) + by) %% 256)
            files.write(data, bytes:sub(1, at) .. other .. bytes:sub(at + 2))
            local store, err = keywatch.open { path = path }
            if store then
              assert(store:status().revision == 4)
              store:close()
            else
              assert(err.code == "corrupt" and err.message:find(path, 1, true))
            end
          end
        end
      end
    ]]
    program.printed_by(FLIP:format(directory, data, PAGE, PAGE, PAGE), 300)
  end)
end)

describe("a wrong bit in the database #slow", function()
  --- Flips n bits. Every read must be correct, or refused as corrupt.
  local function flip(how, share)
    local seed, n = tonumber(os.getenv("KW_SEED")), dose.of(30, 150)
    local text = "require('spec.support.flips').%s(%q, %d, %d)"
    local status, printed = program.run(text:format(how, directory, seed, n * share), 60 + n)
    assert.equal(0, status, printed:sub(-1000))
    local corrupt, right = printed:match("corrupt (%d+), right (%d+)")
    assert.equal(n * share, corrupt + right)
    return tonumber(corrupt), tonumber(right)
  end

  it("is detected when the store is opened, and when it is written", function()
    local corrupt, right = flip("while_closed", 1)
    assert.is_true(corrupt > 0 and right > 0)
  end)

  it("is detected by an open store", function()
    local corrupt, right = flip("while_open", 3)
    assert.is_true(corrupt > 0 and right > 0)
  end)
end)

describe("a store with a record that is damaged while it is open #slow", function()
  --- Opens the store, damages the record of a key on the disk, and runs the code, which prints.
  local DAMAGE = [[
    local keywatch, path = require "keywatch", %q
    local store = assert(keywatch.open { path = path })
    require("spec.support.files").overwrite(path .. "/data.mdb", "\10\6key 77", "\0")
    local function code(...) return (...) == nil and (select(2, ...)).code or "fine" end
  ]]

  local function expect(words, code)
    make(directory)
    local status, printed = program.run(DAMAGE:format(directory) .. code)
    assert.same({ 0, words .. "\n" }, { status, (printed:gsub("\t", " ")) })
  end

  it("reports the damage for each read of it, and serves all others", function()
    expect("corrupt corrupt corrupt fine fine", [[
      print(code(store:get("key 77")), code(store:range("key", { prefix = true })), code(store:hash_kv()),
        code(store:get("key 78")), code(store:range("key 78")))
    ]])
  end)

  it("allows writes that do not read the record", function()
    expect("corrupt fine corrupt fine", [[
      print(code(store:put("key 77", "new", { prev_kv = true })), code(store:put("key 78", "new", { prev_kv = true })),
        code(store:txn { compare = { { key = "key 77", value = "x" } }, success = {} }),
        code(store:put("key 77", "new")))
    ]])
  end)

  it("is not defragmented, which would move the damaged record", function()
    expect("corrupt keywatch: the database was not defragmented: it is damaged corrupt fine fine", [[
      local _, err = store:defragment()
      print(err.code, err.message, code(store:get("key 77")), code(store:get("key 78")), code(store:put("a", "1")))
    ]])
  end)

  it("cannot be copied to an image", function()
    expect("corrupt", [[
      local snapshot = assert(store:open_snapshot())
      local is_ready, err
      repeat
        keywatch.sleep(0)
        is_ready, err = snapshot:is_ready()
      until is_ready ~= false
      print(err.code)
    ]])
  end)

  it("arms the alarm when a compaction reads it, and is not changed", function()
    expect("fine corrupt corrupt", [[
      for i = 1, 100 do assert(store:put("key " .. i, "new")) end
      print(code(store:compact(store:status().revision, { physical = true })), store:alarms()[1],
        code(store:put("a", "1")))
    ]])
  end)

  if require("keywatch.core").probe then
    it("keeps the alarm when it cannot be written, and writes it later", function()
      expect("corrupt corrupt corrupt", [[
        for i = 1, 100 do assert(store:put("key " .. i, "new")) end
        assert(code(store:defragment()) == "corrupt") -- makes a checkpoint first: the compaction need not wait for that
        assert(store:compact(store:status().revision))
        require("keywatch.core").probe.fail_disk(store, "no_memory")
        require("keywatch.core").inner.step(store)
        while not store:alarms()[1] and select(2, store:run_due()) do keywatch.sleep(0) end
        print(code(store:put("a", "1")), store:alarms()[1], code(store:compact(store:status().revision)))
      ]])
    end)
  end

  it("fails the watches that need the record, and no other", function()
    expect("corrupt fine corrupt fine corrupt", [[
      local function last(key, opts)
        local watch = store:watch(key, opts)
        local event, err
        repeat event, err = watch:next(0) until event == nil
        watch:close()
        return err.code == "timeout" and "fine" or err.code
      end
      local from = { prefix = true, start_revision = 2 }
      local before, now = last("key", from), store:watch("key 77", { prev_kv = true })
      local other = store:watch("key 77")
      assert(store:put("key 77", "new"))
      local event, err = now:next(0)
      print(before, other:next(0) and "fine", err and err.code, last("key 7", { start_revision = 5 }),
        last("key 77", { start_revision = 5, prev_kv = true }))
    ]])
  end)

  it("fails no watch that begins behind it, also if one that needs it catches up at the same time", function()
    expect("true corrupt 1", [[
      local host = require("spec.support.pair").host_of(store)
      local stream = host:client():stream("Watch")
      stream:send { create_request = { key = "key", range_end = "kez", start_revision = 2, watch_id = 7 } }
      local told = {}
      for _, one in ipairs(stream:ask { create_request = { key = "key 190", start_revision = 3, watch_id = 8 } }) do
        told[tonumber(one.watch_id)] = one
      end
      print(told[7].canceled, told[7].cancel_reason:match("corrupt"), #told[8].events)
    ]])
  end)

  it("fails no watch that catches up while a compaction reads it", function()
    expect("a b corrupt", [[
      local watch = store:watch("key 190", { max_bytes = 1 })
      assert(store:put("key 190", "a"))
      assert(store:put("key 190", "b")) -- has no room in the watch, which lags from here on
      assert(store:compact(2))
      local first = assert(watch:next(0))
      local second = assert(watch:next(0)) -- in the step in which the compaction comes to the record
      while not store:alarms()[1] do keywatch.sleep(0) end -- the alarm becomes durable
      print(first.value, second.value, store:alarms()[1])
    ]])
  end)
end)

describe("a directory of a store #slow", function()
  it("is refused without write permission", function()
    make(directory)
    local before = contents(directory)
    shell.must(("chmod 755 %s/.. %s; chmod 644 %s/*; chmod a-w %s"):format(directory, directory, directory, directory))
    local argv = shell.must("id -u") == "0" and { "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups" } or {}
    for _, word in ipairs { vm.interpreter, "-e", OPEN:format(directory) } do argv[#argv + 1] = word end
    local opened = process.run(argv, nil, { env = vm.environment() })
    assert.equal("storage\tkeywatch: cannot open " .. directory .. ": Permission denied\n", opened:stdout())
    assert.same(before, contents(directory))
  end)

  it("is refused while the same process has it open", function()
    local printed = program.printed_by(([[
      local keywatch = require "keywatch"
      local store = keywatch.open { path = %q }
      print(select(2, keywatch.open { path = %q }).message)
      store:close()
      print(keywatch.open { path = %q } ~= nil)
    ]]):format(directory, directory, directory))
    assert.matches("process %d+ has it open\ntrue\n", printed)
  end)

  it("may have been left by an interrupted creation", function()
    shell.must("mkdir " .. directory)
    files.write(directory .. "/copy.mdb", "half of it")
    assert.equal("opened at 1", open(directory))
  end)
end)
