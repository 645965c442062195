--- curl, which shows headers and trailers as they are.

local process = require "spec.support.process"
local secure = require "spec.support.secure"

local curl = {}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

--- A header block's fields by their names.
local function parse(block)
  local fields = {}
  for name, value in block:gmatch("([%w-]+): ([^\r\n]*)\r\n") do fields[name] = value end
  return fields
end

local function append(list, ...)
  for _, item in ipairs { ... } do list[#list + 1] = item end
end

--- Posts a body to a path of a server, with gRPC's headers and others. Returns
-- { exit, status, headers, trailers, body }; there are trailers only where something came before them.
function curl.post(server, path, body, ...)
  local scratch = os.tmpname()
  local argv = { "curl", "-sS", "--max-time", "20", "-D", scratch, "-X", "POST", "-H", "content-type: application/grpc",
    "-H", "te: trailers", ... }
  if body then append(argv, "--data-binary", "@-") end
  if secure.is_on then
    append(argv, "--http2", "--cacert", secure.ca())
  else
    append(argv, "--http2-prior-knowledge")
  end
  argv[#argv + 1] = server.url .. path
  local done = process.run(argv, body)
  local status, headers, trailers = read(scratch):match("^HTTP/2 (%d+) \r\n(.-)\r\n\r\n(.*)$")
  os.remove(scratch)
  return {
    exit = done.status,
    status = status,
    headers = headers and parse(headers .. "\r\n"),
    trailers = trailers and parse(trailers),
    body = done:stdout(),
  }
end

return curl
