--- Groups for a journal whose disk fails: the content of each group depends on its sequence number. Needs a probe.

local probe = require("keywatch.core").probe.journal

local STORE = 99
local SEGMENT = 32768 -- bytes

local groups = {}

--- Returns the changes of a group. Some groups are large, some take several blocks, most take one.
function groups.changes(n)
  local len = n % 11 == 0 and 20000 or n % 5 == 0 and 5000 or n % 3 * 100
  return { { "put", n, 0, false, n .. ("x"):rep(len) }, { "put_lease", n, 60 } }
end

--- Appends a group.
function groups.append(journal, n)
  return journal:append(n, groups.changes(n), { revision = n, compact_revision = -1 })
end

function groups.open(path, epoch)
  return probe.open(path, { store_id = STORE, epoch = epoch, segment_bytes = SEGMENT })
end

--- Recovers the groups after `applied`. Returns the last one; or nil and an error, which is a text if a group has
-- another content.
function groups.recover(path, epoch, applied)
  local found, err = probe.recover(path, { store_id = STORE, epoch = epoch, applied = applied })
  if not found then return nil, err end
  local last = applied + found.groups
  if found.groups > 0 and (found.sequence ~= last or found.revision ~= last) then return nil, "other numbers" end
  for n = applied + 1, last do
    local i = 2 * (n - applied)
    local expected = groups.changes(n)
    local one, lease = found.changes[i - 1], found.changes[i]
    if one[2] ~= n or one[5] ~= expected[1][5] or lease[2] ~= n then return nil, "another group at " .. n end
  end
  if #found.changes ~= 2 * found.groups then return nil, "more changes" end
  return last
end

return groups
