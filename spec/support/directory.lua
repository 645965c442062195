--- Directories for the stores of a test, all removed at its end. They are in memory if the machine has a file system in
-- memory, since few tests are about the disk itself. KW_MEMORY is a directory in memory for this run.

local keywatch = require "keywatch"

local uv = require "spec.support.luv"

local MEMORY = os.getenv("KW_MEMORY") or "/dev/shm"
local ELSEWHERE = os.getenv("TMPDIR") or "/tmp"

local directory = {}

local made = {}

local function is_directory(path)
  local stat = uv.fs_stat(path)
  return stat ~= nil and stat.type == "directory"
end

--- Removes a directory and its content.
function directory.remove(path)
  for name, kind in uv.fs_scandir_next, assert(uv.fs_scandir(path)) do
    local inner = path .. "/" .. name
    if kind == "directory" then directory.remove(inner) else assert(uv.fs_unlink(inner)) end
  end
  assert(uv.fs_rmdir(path))
end

local function make_in(parent)
  local path = assert(uv.fs_mkdtemp(parent .. "/keywatch-spec-XXXXXX"))
  made[#made + 1] = path
  return path
end

--- Makes an empty directory. Returns its path.
function directory.new() return make_in(is_directory(MEMORY) and MEMORY or ELSEWHERE) end

--- The same, in the directory for temporary files, which is on disk on most machines.
function directory.new_elsewhere() return make_in(ELSEWHERE) end

--- Opens a store with a manual clock in a directory.
function directory.open(path, options)
  local all = { path = path, now = 0 }
  for name, value in pairs(options or {}) do all[name] = value end
  return assert(keywatch.open(all))
end

--- Removes all directories that were made.
function directory.remove_all()
  for _, path in ipairs(made) do
    if is_directory(path) then directory.remove(path) end
  end
  made = {}
end

--- Returns the sorted names of the files in a directory.
function directory.list(path)
  local names = {}
  for name in uv.fs_scandir_next, assert(uv.fs_scandir(path)) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Returns the size of a file, in bytes.
function directory.size(path) return assert(uv.fs_stat(path)).size end

return directory
