--- Reads and writes whole files.

local shell = require "spec.support.shell"

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

--- Replaces all occurrences of bytes, of which there must be one, in a file that may be in use.
function files.overwrite(path, these, others)
  local bytes, file, from, n = files.read(path), assert(io.open(path, "r+b")), 1, 0
  for at in function() return bytes:find(these, from, true) end do
    file:seek("set", at - 1)
    file:write(others)
    from, n = at + #these, n + 1
  end
  file:close()
  assert(n > 0, "the file does not have these bytes")
end

--- Compiles C text to a shared object in a directory. Returns its path.
function files.compile(directory, name, text)
  local source, object = files.write(("%s/%s.c"):format(directory, name), text), ("%s/%s.so"):format(directory, name)
  shell.must(("cc -shared -fPIC -o %s %s"):format(object, source))
  return object
end

return files
