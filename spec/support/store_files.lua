--- The files of a durable store, taken while nothing is written, and put into a directory again.

local directory = require "spec.support.directory"
local files = require "spec.support.files"
local uv = require "spec.support.luv"

local PAGE = 4096
local ZEROS = ("\0"):rep(PAGE)

local store_files = {}

local function is_taken(name)
  return name == "data.mdb" or name:find("^journal") ~= nil
end

--- Returns the bytes without the pages of zeros at their end: a database has many, for its growth.
local function trim(bytes)
  local n = #bytes
  while n >= PAGE and bytes:sub(n - PAGE + 1, n) == ZEROS do n = n - PAGE end
  return bytes:sub(1, n)
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
