--- Every version of every key, from the events of one revision after the other; and what a write comes to.
--
-- Events are texts: "p,KV" or "d,key,mod", where KV is "key,value,create,mod,version,lease". An end of "=" means one
-- key.

local methods = {}
local meta = { __index = methods }

local function new()
  return setmetatable({
    revision = 1, -- the last one
    versions = {}, -- key -> list of { mod, text, value, create, version, lease }; text is nil for a deletion
    keys = {}, -- in order
  }, meta)
end

local function is_in(key, from, to)
  if to == "=" then return key == from end
  return key >= from and key < to
end

local function insert(list, key)
  local place = #list + 1
  while place > 1 and list[place - 1] > key do
    list[place] = list[place - 1]
    place = place - 1
  end
  list[place] = key
end

local function remember(self, key, version)
  local list = self.versions[key]
  if not list then
    list = {}
    self.versions[key] = list
    insert(self.keys, key)
  end
  list[#list + 1] = version
end

--- Takes the events of the next revision.
function methods:apply(text)
  self.revision = self.revision + 1
  for event in text:gmatch("%S+") do
    local kind, rest = event:match("^(%l),(.*)$")
    local version = { mod = self.revision }
    if kind == "p" then
      local value, create, number, lease = rest:match("^[^,]+,([^,]*),(%d+),%d+,(%d+),(%d+)$")
      version.text, version.value, version.create, version.version, version.lease = rest, value, create,
        tonumber(number), lease
    end
    remember(self, rest:match("^[^,]+"), version)
  end
end

--- What a key is at a revision, or nil.
function methods:at(key, revision)
  local list = self.versions[key]
  if not list then return nil end
  local low, high = 0, #list
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if list[middle].mod <= revision then low = middle else high = middle - 1 end
  end
  local found = list[low]
  return found and found.text and found or nil
end

--- The keys of a range, or of a lease, at a revision, and the texts of what they are.
function methods:range(revision, from, to, lease)
  local keys, texts = {}, {}
  for _, key in ipairs(self.keys) do
    local found = is_in(key, from, to) and self:at(key, revision)
    if found and (not lease or found.lease == lease) then
      keys[#keys + 1], texts[#texts + 1] = key, found.text
    end
  end
  return keys, table.concat(texts, "|")
end

local function add_deletions(keys, revision, list)
  for _, key in ipairs(keys) do list[#list + 1] = ("d,%s,%d"):format(key, revision) end
end

local function put_text(self, key, value, lease, revision)
  local before = self:at(key, revision - 1)
  return ("p,%s,%s,%s,%d,%d,%s"):format(key, value, before and before.create or revision, revision,
    before and before.version + 1 or 1, lease)
end

--- Whether a comparison holds at a revision.
function methods:holds(op, revision)
  local found = self:at(op[2], revision)
  return (found and found.mod or 0) == tonumber(op[3])
end

--- The events of a write that makes a revision; nil if its comparison does not hold.
function methods:outcome(ops, revision)
  local list = {}
  for _, op in ipairs(ops) do
    if op[1] == "i" and not self:holds(op, revision - 1) then return nil end
    if op[1] == "p" then list[#list + 1] = put_text(self, op[2], op[3], op[4], revision) end
    if op[1] == "d" then add_deletions(self:range(revision - 1, op[2], op[3]), revision, list) end
  end
  return table.concat(list, " ")
end

--- The events of a lease's end.
function methods:end_of_lease(id, revision)
  local list = {}
  add_deletions(self:range(revision - 1, "", "\255", id), revision, list)
  return table.concat(list, " ")
end

--- The part of a revision's events that a watcher is told: of a range, without what its filters leave out.
local function filtered(text, watcher)
  local list = {}
  for event in text:gmatch("%S+") do
    local kind, key = event:match("^(%l),([^,]+)")
    local is_left_out = kind == "p" and watcher.has_no_puts or kind == "d" and watcher.has_no_deletes
    if not is_left_out and is_in(key, watcher.key, watcher.to) then list[#list + 1] = event end
  end
  return table.concat(list, " ")
end

return { new = new, filtered = filtered }
