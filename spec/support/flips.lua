--- Flips single bits of the database of a store, one after the other, and checks the store's reaction. For a separate
-- program, since a store that trusts a wrong bit may crash.

local difference = require("spec.support.difference").difference
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local new_random = require("spec.support.random").new
local rows_of = require "spec.support.rows"
local store_files = require "spec.support.store_files"

local PAGE = 4096
local HEADER = 16 -- bytes of a page
local HEAD = 152 -- bytes of a meta page, of which there are two, at the beginning
local LARGE = ("large "):rep(2000) -- has pages of its own
local WRITTEN = 4 -- every fourth store that can be opened is also written

local flips = {}

--- Makes a store whose tables have branches, large values and free pages. Returns the bytes of its database.
local function make(path)
  local store = directory.open(path)
  for i = 1, 300 do assert(store:put("key " .. i % 150, ("v"):rep(i % 200))) end
  assert(store:put("large", LARGE))
  assert(store:delete("key 7"))
  for i = 1, 150 do assert(store:lease(60 + i, { id = i * 7919 })) end
  assert(store:put("leased", "x", { lease = 7919 }))
  local rows = { { "t", "large", LARGE } }
  for i = 2, 60 do rows[i] = { "t", "row " .. i, ("r"):rep(i * 3) } end
  assert(store:change_rows(rows))
  assert(store:compact(250, { physical = true }))
  store:close()
  return store_files.take(path)["data.mdb"]
end

--- Returns everything that a store has at a revision, or an error.
local function look_at(store, revision)
  local found, err = store:range("", { prefix = true, revision = revision })
  return found and found.kvs, err
end

--- Returns the visible state of a store, or nil and an error. The hash covers the whole history.
local function look(store)
  local status = store:status()
  local seen = { revision = status.revision, compact_revision = status.compact_revision, alarms = status.alarms,
    rows = rows_of(store, "t"), leases = {}, at = {} }
  for i, id in ipairs(store:leases()) do seen.leases[i] = { id, store:lease_by_id(id):remaining() } end
  local hash, err = store:hash_kv()
  if not hash then return nil, err end
  seen.hash = hash.hash
  for _, revision in ipairs { status.compact_revision, status.revision } do
    seen.at[revision], err = look_at(store, revision)
    if err then return nil, err end
  end
  return seen
end

local function expect_alike(found, truth, where)
  local words = difference(found, truth, "the store")
  if words then error(where .. ": " .. words, 0) end
end

--- Returns a position in the file, and a bit. Half of the positions are in headers of pages, and some in meta pages.
local function choose(random, size)
  local at = random:between(0, size - 1)
  if random:one_in(2) then at = at - at % PAGE + random:between(0, HEADER - 1) end
  if random:one_in(10) then at = PAGE * random:between(0, 1) + random:between(0, HEAD - 1) end
  return at, 2 ^ random:between(0, 7)
end

--- Writes a byte to a file.
local function write_byte(path, at, byte)
  local file = assert(io.open(path, "r+b"))
  assert(file:seek("set", at))
  assert(file:write(string.char(byte)))
  file:close()
end

--- Writes to a store, defragments it, and expects that it has lost nothing.
local function write_and_check(path, store, truth, where)
  local key, revision = "key 1", truth.revision
  assert(store:put(key, "written"))
  assert(store:defragment())
  store:close()
  store = directory.open(path)
  assert(store:get(key).value == "written", where)
  expect_alike({ look_at(store, revision), rows_of(store, "t"), #store:leases() },
    { truth.at[revision], truth.rows, #truth.leases }, where)
  store:close()
end

local function fails_as(err, where)
  if err.code ~= "corrupt" then error(("%s: %s: %s"):format(where, err.code, err.message), 0) end
  return "corrupt"
end

--- Flips n bits of a database, one at a time: try(where, flip, restore) calls flip(), and returns an error or nil.
-- Prints how often each outcome has occurred.
local function flip_each(path, seed, n, bytes, try)
  local random, data, counts = new_random(seed), path .. "/data.mdb", { corrupt = 0, right = 0 }
  for i = 1, n do
    local at, bit = choose(random, #bytes)
    local byte = bytes:byte(at + 1)
    local where = ("seed %d, flip %d: bit %d of byte %d"):format(seed, i, bit, at)
    print(where)
    local function flip() write_byte(data, at, byte + (math.floor(byte / bit) % 2 == 0 and bit or -bit)) end
    local err = try(where, flip, function() write_byte(data, at, byte) end)
    local outcome = err and fails_as(err, where) or "right"
    counts[outcome] = counts[outcome] + 1
  end
  print(("corrupt %d, right %d"):format(counts.corrupt, counts.right))
end

--- Flips bits of a closed store, which is then opened.
function flips.while_closed(path, seed, n)
  local bytes = make(path)
  local store = directory.open(path)
  local truth, right = assert(look(store)), 0
  store:close()
  flip_each(path, seed, n, bytes, function(where, flip)
    os.remove(path .. "/journal-0")
    files.write(path .. "/data.mdb", bytes)
    flip()
    local opened, err = require("keywatch").open { path = path, now = 0 }
    local seen
    if opened then seen, err = look(opened) end
    if seen then
      expect_alike(seen, truth, where)
      right = right + 1
      if right % WRITTEN == 0 then write_and_check(path, opened, truth, where) end
    end
    if opened then opened:close() end
    return err
  end)
end

--- Flips bits of a store that is open.
function flips.while_open(path, seed, n)
  local bytes = make(path)
  local store = directory.open(path)
  local truth = assert(look(store))
  flip_each(path, seed, n, bytes, function(where, flip, restore)
    flip()
    local seen, err = look(store)
    if seen then expect_alike(seen, truth, where) end
    restore()
    return err
  end)
  expect_alike(assert(look(store)), truth, "at the end")
  store:close()
end

return flips
