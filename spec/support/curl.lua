--- HTTP/2 requests made by curl.

local process = require "spec.support.process"

local curl = {}

--- Makes a request without TLS, with a body. Fields are lines. More arguments are those of curl. Returns the answer:
-- { status, head, body }.
function curl.ask(port, method, target, fields, body, ...)
  local argv = { "curl", "-sSi", "--http2-prior-knowledge", "--path-as-is", "--max-time", "40", ... }
  for _, arg in ipairs { method == "HEAD" and "-I" or "-X" .. method, "http://127.0.0.1:" .. port .. target } do
    argv[#argv + 1] = arg
  end
  for line in (fields or ""):gmatch("([^\r\n]+)") do
    argv[#argv + 1] = "-H"
    argv[#argv + 1] = line
  end
  if body and body ~= "" then
    argv[#argv + 1] = "--data-binary"
    argv[#argv + 1] = "@-"
  end
  local one = process.run(argv, body)
  local text = one:stdout():gsub("^HTTP/2 100 \r\n\r\n", "")
  local status, head, rest = text:match("^HTTP/2 (%d+) (\r\n.-\r\n)\r\n(.*)$")
  assert(one.status == 0 and status, one:transcript())
  return { status = tonumber(status), head = head, body = rest }
end

return curl
