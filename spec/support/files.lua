--- Files, read and written whole.

local files = {}

--- Returns the bytes of a file.
function files.read(path)
  local one = assert(io.open(path, "rb"))
  local bytes = one:read("*a")
  one:close()
  return bytes
end

--- Makes a file that has these bytes. Returns its path.
function files.write(path, bytes)
  local one = assert(io.open(path, "wb"))
  one:write(bytes)
  one:close()
  return path
end

return files
