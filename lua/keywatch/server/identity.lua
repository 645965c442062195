-- SPDX-License-Identifier: MIT
--- identity: the ids of a cluster and of its one member, as decimal strings.
--
-- The ids are made as in etcd, with one difference: unless a token is given, each new store is a separate cluster. So a
-- watching client notices when another store serves at its endpoint, for example after a restart.

local core = require "keywatch.core"

local TABLE = "identity" -- of the rows in the store
local DEFAULT_TOKEN = "etcd-cluster"
local ID_BYTES = 8
local LIMB = 1e7 -- seven decimal digits: a double holds the product of a limb and a byte exactly

--- Returns the decimal digits of a number of any size, given as big-endian bytes.
local function decimal(bytes)
  local limbs = { 0 } -- the least significant first
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

--- Returns new ids. The member's id is a hash of its peer URLs and the token. The cluster's id is a hash of the
-- member's id and of the salt, which etcd does not have.
local function new(peer_urls, token, salt)
  local sorted = {}
  for i, url in ipairs(peer_urls) do sorted[i] = url end
  table.sort(sorted)
  local member = core.sha1(table.concat(sorted) .. token):sub(1, ID_BYTES)
  local cluster = core.sha1(member .. (salt or "")):sub(1, ID_BYTES)
  return { member_id = decimal(member), cluster_id = decimal(cluster) }
end

local salts = setmetatable({}, { __mode = "k" }) -- by store: all servers of a store belong to one cluster

--- Returns the salt of a store, which is random.
local function salt_of(store)
  if not salts[store] then
    local file = io.open("/dev/urandom", "rb")
    salts[store] = file and file:read(ID_BYTES) or core.sha1(tostring(store) .. os.time() .. os.clock())
    if file then file:close() end
  end
  return salts[store]
end

--- Returns the ids under which a store is served; or nil and an error. A durable store keeps its first ids, regardless
-- of later URLs and tokens. Without a token the ids of a new store are unique.
local function of(store, peer_urls, token)
  local ids = new(peer_urls, token or DEFAULT_TOKEN, not token and salt_of(store) or nil)
  if not store:status().commits then return ids end
  local known = {}
  for _, name in ipairs { "member_id", "cluster_id" } do
    local id, err = store:rows(TABLE, name)
    if err then return nil, err end
    known[name] = id
  end
  if known.member_id and known.cluster_id then return known end
  local ok, err = store:change_rows {
    { TABLE, "member_id", ids.member_id },
    { TABLE, "cluster_id", ids.cluster_id },
  }
  if not ok then return nil, err end
  return ids
end

return { new = new, of = of }
