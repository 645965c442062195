--- Python's etcd client and gRPC, against a server: cases of spec/support/python, each run by its name.

local cases = require "spec.support.cases"

local PYTHON = "/usr/bin/python3" -- the one that Debian's packages are for

--- Over TLS, `identity` is { ca, cert, key }, files, the last two of which may be left out.
local function new(server, identity)
  identity = identity or {}
  return cases.new { PYTHON, "-B", "spec/support/python/peer.py", server.address,
    server.is_etcd and "etcd" or "keywatch", identity.ca, identity.cert, identity.key }
end

return { new = new }
