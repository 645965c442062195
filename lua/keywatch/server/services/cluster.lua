-- SPDX-License-Identifier: MIT
--- cluster: etcd's Cluster service. The cluster has one member, and cannot get others.

local core = require "keywatch.core"
local header = require "keywatch.server.services.header"
local refusal = require "keywatch.server.services.refusal"
local url = require "keywatch.support.url"

--- Returns the list of the one member.
local function members(server)
  return {
    {
      ID = server.identity.member_id,
      name = server.name,
      peerURLs = server.peer_urls,
      clientURLs = server.client_urls,
    },
  }
end

--- Returns the answer with the members. Its header has no revision, as in etcd.
local function answer(server)
  return { header = header.of(server), members = members(server) }
end

--- True if a request names this member.
local function is_member(server, request)
  return core.decimal(request.ID or 0) == server.identity.member_id
end

local function not_found()
  return nil, refusal.new(refusal.NOT_FOUND, "etcdserver: member not found")
end

--- True if a list has URLs of peers, and nothing else.
local function are_urls(list)
  for _, text in ipairs(list) do
    if not url.is_peer(text) then return false end
  end
  return #list > 0
end

local function member_add(_, request)
  if not are_urls(request.peerURLs or {}) then
    return nil, refusal.new(refusal.INVALID_ARGUMENT, "etcdserver: given member URLs are invalid")
  end
  return nil, refusal.new(refusal.UNIMPLEMENTED, "keywatch: the cluster has one member, and takes no others")
end

local function member_remove(server, request)
  if not is_member(server, request) then return not_found() end
  return nil, refusal.new(refusal.UNKNOWN,
    "etcdserver: re-configuration failed due to not enough started members")
end

local function member_update(server, request)
  if not is_member(server, request) then return not_found() end
  server.peer_urls = request.peerURLs or {}
  return answer(server)
end

local function member_promote(server, request)
  if not is_member(server, request) then return not_found() end
  return nil, refusal.new(refusal.FAILED_PRECONDITION, "etcdserver: can only promote a learner member")
end

return {
  ["/etcdserverpb.Cluster/MemberList"] = { "MemberListRequest", "MemberListResponse", answer },
  ["/etcdserverpb.Cluster/MemberAdd"] = { "MemberAddRequest", "MemberAddResponse", member_add },
  ["/etcdserverpb.Cluster/MemberRemove"] = { "MemberRemoveRequest", "MemberRemoveResponse", member_remove },
  ["/etcdserverpb.Cluster/MemberUpdate"] = { "MemberUpdateRequest", "MemberUpdateResponse", member_update },
  ["/etcdserverpb.Cluster/MemberPromote"] = { "MemberPromoteRequest", "MemberPromoteResponse", member_promote },
}
