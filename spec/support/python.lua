--- Python's etcd client and gRPC, against a server: cases of spec/support/python, each run by its name.

local cases = require "spec.support.cases"

local PYTHON = "/usr/bin/python3" -- the one that Debian's packages are for

local function new(server)
  return cases.new { PYTHON, "-B", "spec/support/python/peer.py", server.address,
    server.is_etcd and "etcd" or "keywatch" }
end

return { new = new }
