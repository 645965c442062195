-- SPDX-License-Identifier: MIT
--- header: the header of every answer of a service.

--- Returns a header. `revision` is nil if etcd's header has none.
local function of(server, revision)
  return {
    cluster_id = server.identity.cluster_id,
    member_id = server.identity.member_id,
    raft_term = server.raft_term,
    revision = revision,
  }
end

return { of = of }
