--- Copies the files of an idle durable store, and restores them to a directory.

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local uv = require "spec.support.luv"

local PAGE = 4096
local LAST_PAGE, TRANSACTION = 136, 144 -- offsets of these numbers in a meta page, little-endian

local store_files = {}

local function is_taken(name) return name == "data.mdb" or name:find("^journal") ~= nil end

--- Returns the larger one of the numbers at an offset in both meta pages of LMDB.
local function newest(bytes, offset)
  local numbers = { 0, 0 }
  for page = 1, 2 do
    for i = 8, 1, -1 do numbers[page] = numbers[page] * 256 + bytes:byte((page - 1) * PAGE + offset + i) end
  end
  return math.max(numbers[1], numbers[2])
end

--- Returns the bytes of a database without the pages that are allocated ahead.
local function trim(bytes) return bytes:sub(1, (newest(bytes, LAST_PAGE) + 1) * PAGE) end

--- Returns the number of the newest transaction of the database.
function store_files.transaction(path)
  local file = assert(io.open(path .. "/data.mdb", "rb"))
  local bytes = file:read(2 * PAGE)
  file:close()
  return newest(bytes, TRANSACTION)
end

--- Returns the bytes of the database and of the journal, by name.
function store_files.take(path)
  local taken = {}
  for _, name in ipairs(directory.list(path)) do
    if is_taken(name) then taken[name] = files.read(path .. "/" .. name) end
  end
  taken["data.mdb"] = trim(taken["data.mdb"])
  return taken
end

--- Replaces the content of a directory by these files.
function store_files.put(path, taken)
  if not uv.fs_stat(path) then assert(uv.fs_mkdir(path, 448)) end
  for _, name in ipairs(directory.list(path)) do
    if not taken[name] then assert(os.remove(path .. "/" .. name)) end
  end
  for name, bytes in pairs(taken) do files.write(path .. "/" .. name, bytes) end
end

return store_files
