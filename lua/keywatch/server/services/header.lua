-- SPDX-License-Identifier: MIT
--- header: what every answer of a service begins with.

--- Without a revision where etcd has none.
local function of(server, revision)
  return {
    cluster_id = server.identity.cluster_id,
    member_id = server.identity.member_id,
    raft_term = server.raft_term,
    revision = revision,
  }
end

return { of = of }
