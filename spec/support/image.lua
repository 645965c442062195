--- Images of stores, for specs: takes them, writes them to files, and restores them to stores.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local shell = require "spec.support.shell"

local PIECE = 1048576
local SUM = 32

--- Waits until a snapshot is complete, or has failed. Returns the result of is_ready.
local function await(snapshot)
  local is_ready, err = snapshot:is_ready()
  while is_ready == false do
    keywatch.sleep(0)
    is_ready, err = snapshot:is_ready()
  end
  return is_ready, err
end

--- Returns the bytes of an image, with its checksum.
local function read(snapshot)
  local pieces, at, all = {}, 0, snapshot:size() + SUM
  while at < all do
    local n = math.min(PIECE, all - at)
    pieces[#pieces + 1] = assert(snapshot:read(at, n))
    at = at + n
  end
  return table.concat(pieces)
end

--- Returns the image of a store.
local function take(store)
  local snapshot = assert(store:open_snapshot())
  assert(await(snapshot))
  local bytes = read(snapshot)
  snapshot:close()
  return bytes
end

local function write(path, bytes)
  local file = assert(io.open(path, "wb"))
  assert(file:write(bytes))
  file:close()
end

--- Makes a directory. Returns its path, and a function that removes it.
local function scratch()
  local directory = shell.must("mktemp -d")
  return directory, function() shell.must("rm -rf " .. directory) end
end

--- Restores an image to a new store in `directory`. Returns the store and the results of the restore; or nil and an
-- error.
local function restore(bytes, directory, skip_hash)
  write(directory .. "/image", bytes)
  local restored, err = core.restore(directory .. "/image", directory .. "/data", skip_hash)
  if not restored then return nil, err end
  return assert(keywatch.open { path = directory .. "/data" }), restored
end

return { await = await, read = read, take = take, write = write, scratch = scratch, restore = restore }
