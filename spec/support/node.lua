--- npm's etcd3, against a server: cases of spec/support/node, each run by its name. `make build/node/installed`
-- installs their dependencies.

local cases = require "spec.support.cases"

--- For TLS, `identity` is { ca, cert, key }: names of files; cert and key are optional.
local function new(server, identity)
  identity = identity or {}
  return cases.new({ "node", "spec/support/node/peer.js", server.url, identity.ca, identity.cert, identity.key }, {
    env = { NODE_PATH = "build/node/node_modules", NODE_OPTIONS = "" },
  })
end

return { new = new }
