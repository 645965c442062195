--- The files of a durable store, taken while nothing is written, and put into a directory again.

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local uv = require "spec.support.luv"

local PAGE = 4096
local LAST_PAGE = 136 -- offset of that number in a meta page, little-endian

local store_files = {}

local function is_taken(name)
  return name == "data.mdb" or name:find("^journal") ~= nil
end

--- Returns the number of the last page that a meta page of LMDB knows.
local function last_page(bytes, meta_page)
  local at, number = meta_page * PAGE + LAST_PAGE, 0
  for i = 8, 1, -1 do number = number * 256 + bytes:byte(at + i) end
  return number
end

--- Returns the bytes of a database without what was allocated for its growth.
local function trim(bytes)
  return bytes:sub(1, (math.max(last_page(bytes, 0), last_page(bytes, 1)) + 1) * PAGE)
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

--- Makes a directory have these files, and no other ones.
function store_files.put(path, taken)
  if not uv.fs_stat(path) then assert(uv.fs_mkdir(path, 448)) end
  for _, name in ipairs(directory.list(path)) do
    if not taken[name] then assert(os.remove(path .. "/" .. name)) end
  end
  for name, bytes in pairs(taken) do files.write(path .. "/" .. name, bytes) end
end

return store_files
