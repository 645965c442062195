-- SPDX-License-Identifier: MIT
--- identity: the ids of a cluster and of its one member, as decimal strings.
--
-- They are made as etcd makes them, with one difference: unless a token is given, each new store is a cluster of its
-- own. So whoever watches one notices that another has come in its place, be it by a restart or at another endpoint.

local core = require "keywatch.core"

local TABLE = "identity" -- of what a store keeps
local DEFAULT_TOKEN = "etcd-cluster"
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

--- The member's id comes from where its peers would find it, the cluster's from its members', and from a salt that no
-- etcd has.
local function new(peer_urls, token, salt)
  local sorted = {}
  for i, url in ipairs(peer_urls) do sorted[i] = url end
  table.sort(sorted)
  local member = core.sha1(table.concat(sorted) .. token):sub(1, ID_BYTES)
  local cluster = core.sha1(member .. (salt or "")):sub(1, ID_BYTES)
  return { member_id = decimal(member), cluster_id = decimal(cluster) }
end

local salts = setmetatable({}, { __mode = "k" }) -- by store, so that all who serve it are of one cluster

local function salt_of(store)
  if not salts[store] then
    local file = io.open("/dev/urandom", "rb")
    salts[store] = file and file:read(ID_BYTES) or core.sha1(tostring(store) .. os.time() .. os.clock())
    if file then file:close() end
  end
  return salts[store]
end

--- Those that a store is served under: a durable one keeps the first that it had, whatever is asked for later. Or nil
-- and an error. Without a token they are new.
local function of(store, peer_urls, token)
  local ids = new(peer_urls, token or DEFAULT_TOKEN, not token and salt_of(store) or nil)
  if not store:status().commits then return ids end
  local rows = { member_id = store:rows(TABLE, "member_id"), cluster_id = store:rows(TABLE, "cluster_id") }
  if rows.member_id and rows.cluster_id then return rows end
  local ok, err = store:change_rows {
    { TABLE, "member_id", ids.member_id },
    { TABLE, "cluster_id", ids.cluster_id },
  }
  if not ok then return nil, err end
  return ids
end

return { new = new, of = of }
