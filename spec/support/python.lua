--- Python's etcd client and gRPC, against a server: cases of spec/support/python, each run by its name.

local cases = require "spec.support.cases"

local PYTHON = "/usr/bin/python3" -- with Debian's packages

--- For TLS, `identity` is { ca, cert, key }: names of files; cert and key are optional.
local function new(server, identity)
  identity = identity or {}
  return cases.new { PYTHON, "-B", "spec/support/python/peer.py", server.address,
    server.is_etcd and "etcd" or "keywatch", identity.ca, identity.cert, identity.key }
end

return { new = new }
