--- What a server has had, revision by revision: a witness, a watch of all keys by a client of its own, is told so. The
-- events of a revision are as a watch tells them. A server that is restored, or replaced, has another truth.

local network = require "spec.support.network"

local PATIENCE = network.PATIENCE

local methods = {}
local meta = { __index = methods }

--- The truth of a server, of which `client` is a client. If the server is an older one, `older` is the truth that it
-- shares up to its revision.
local function new(client, older, revision)
  local self = setmetatable({
    client = client,
    witness = nil,
    revision = revision or 1, -- up to which everything is known
    events = {},              -- by revision
    gaps = {},                -- { after, ending }: revisions of which a cache may have been told the difference alone
  }, meta)
  for r, list in pairs(older and older.events or {}) do
    if r <= self.revision then self.events[r] = list end
  end
  self.witness = assert(client:watch("", { prefix = true, start_revision = self.revision + 1 }))
  return self
end

--- Waits until everything up to a revision is known; without one, up to the server's.
function methods:learn(revision)
  revision = revision or assert(self.client:range("\0", { limit = 1 })).revision
  while self.revision < revision do
    local batch, err = self.witness:batch(PATIENCE)
    if not batch then error("the witness has failed: " .. tostring(err), 0) end
    self.revision, self.events[batch.revision] = batch.revision, batch.events
  end
  return revision
end

--- The events of a revision that a watch is told. `contains` says which keys are watched.
function methods:events_of(revision, contains)
  local list = {}
  for _, event in ipairs(self.events[revision] or {}) do
    if contains(event.key) then list[#list + 1] = event end
  end
  return list
end

--- The kvs that there were at a revision, by key: each as the event of its put.
function methods:content(revision, contains)
  local kvs = {}
  for r = 1, revision do
    for _, event in ipairs(self.events[r] or {}) do
      if contains(event.key) then kvs[event.key] = event.type == "put" and event or nil end
    end
  end
  return kvs
end

-- {====== Gaps ======

--- The server has forgotten the revisions up to one. A cache that has not come so far may have to read anew.
function methods:compacted(revision, of_cache)
  if of_cache < revision then table.insert(self.gaps, { after = of_cache, ending = math.huge }) end
end

--- The cache has come to a revision, and all gaps are behind it.
function methods:end_gaps(revision)
  for _, gap in ipairs(self.gaps) do gap.ending = math.min(gap.ending, revision) end
end

--- Whether a revision may be in a gap.
function methods:is_in_gap(revision)
  for _, gap in ipairs(self.gaps) do
    if revision > gap.after and revision <= gap.ending then return true end
  end
  return false
end

-- }======

return { new = new }
