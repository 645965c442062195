--- Returns a port that was free a moment ago, for a program that needs a fixed port.

local uv = require "spec.support.luv"

return function()
  local socket = uv.new_tcp()
  assert(socket:bind("127.0.0.1", 0))
  local port = socket:getsockname().port
  socket:close()
  uv.run("nowait")
  return port
end
