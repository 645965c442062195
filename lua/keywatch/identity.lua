-- SPDX-License-Identifier: MIT
--- identity: the ids of a cluster and of its one member, made as etcd makes them, as decimal strings.

local core = require "keywatch.core"

local TABLE = "identity" -- of what a store keeps
local ID_BYTES = 8
local LIMB = 1e7 -- decimal digits are counted in sevens: a limb and a byte multiply without loss

--- A number of any size, in big-endian bytes, in decimal.
local function decimal(bytes)
  local limbs = { 0 } -- the least first
  for i = 1, #bytes do
    local carry = bytes:byte(i)
    for j = 1, #limbs do
      local value = limbs[j] * 256 + carry
      limbs[j] = value % LIMB
      carry = math.floor(value / LIMB)
    end
    if carry > 0 then limbs[#limbs + 1] = carry end
  end
  local words = { ("%d"):format(limbs[#limbs]) }
  for j = #limbs - 1, 1, -1 do words[#words + 1] = ("%07d"):format(limbs[j]) end
  return table.concat(words)
end

--- The member's id comes from where its peers would find it, the cluster's from its members'.
local function new(peer_urls, token)
  local sorted = {}
  for i, url in ipairs(peer_urls) do sorted[i] = url end
  table.sort(sorted)
  local member = core.sha1(table.concat(sorted) .. token):sub(1, ID_BYTES)
  local cluster = core.sha1(member):sub(1, ID_BYTES)
  return { member_id = decimal(member), cluster_id = decimal(cluster) }
end

--- Those that a store is served under: a durable one keeps the first that it had, whatever is asked for later. Or nil
-- and an error.
local function of(store, peer_urls, token)
  local ids = new(peer_urls, token)
  if not store:status().commits then return ids end
  local kept = { member_id = store:kept(TABLE, "member_id"), cluster_id = store:kept(TABLE, "cluster_id") }
  if kept.member_id and kept.cluster_id then return kept end
  local ok, err = store:keep {
    { TABLE, "member_id", ids.member_id },
    { TABLE, "cluster_id", ids.cluster_id },
  }
  if not ok then return nil, err end
  return ids
end

return { new = new, of = of }
