--- npm's etcd3, against a server: cases of spec/support/node, each run by its name. What they need is installed by
-- `make build/node/installed`.

local cases = require "spec.support.cases"

local function new(server)
  return cases.new({ "node", "spec/support/node/peer.js", server.url, server.is_etcd and "etcd" or "keywatch" }, {
    env = { NODE_PATH = "build/node/node_modules", NODE_OPTIONS = "" },
  })
end

return { new = new }
