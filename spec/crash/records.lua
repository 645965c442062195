--- What clients have recorded, a line for each thing that they were told.
--
-- T is a time in seconds, of one clock for all; R a revision; KV is "key,value,create,mod,version,lease".
--
--   write T T OUTCOME R OP... [|KV or why]   ok, idle (nothing was deleted), unmet (the comparison), lost, refused
--                                            OP: i,key,mod  p,key,value,lease  d,key,end
--   grant T T OUTCOME R ID SECONDS           revoke T T OUTCOME R ID             compact T T OUTCOME R R
--   kept T T R ID SECONDS                    leases T T R ID...                  lease T T R ID LEFT SECONDS KEY...
--   range T T R AT KEY END|KV|KV...          hash T T R AT COMPACTED HASH        gone T T AT WHY
--   open NAME T FROM KEY END FLAGS           a watcher begins, or goes on; p: with what was before, u: no puts,
--                                            d: no deletes
--   events NAME T R|R EVENT...|R EVENT...    one response, by revision; EVENT: p,KV or d,key,mod and, after ;, the KV
--                                            that was before
--   progress NAME T R                        overtaken NAME T COMPACTED          ended NAME T WHY
--   close NAME                               caught NAME R                       spawn T
--
-- An END of "=" means one key. A value holds a tag, NUMBER.NUMBER, which is its write's alone.

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local readers = {}

local function words_of(text)
  local list = {}
  for word in text:gmatch("%S+") do list[#list + 1] = word end
  return list
end

--- The pieces of a line between bars.
local function pieces_of(line)
  local list = {}
  for piece in (line .. "|"):gmatch("(.-)|") do list[#list + 1] = piece end
  return list
end

local function add(list, item)
  list[#list + 1] = item
  return item
end

local function new_call(words, line)
  return { line = line, from = tonumber(words[2]), to = tonumber(words[3]) }
end

--- A call that changes something, and what came of it.
local function new_change(words, line)
  local call = new_call(words, line)
  call.outcome, call.revision = words[4], tonumber(words[5])
  return call
end

function readers.write(round, words, pieces, line)
  local write = add(round.writes, new_change(words, line))
  write.ops, write.found = {}, table.concat(pieces, "|", 2)
  for i = 6, #words do
    local op = add(write.ops, {})
    for part in words[i]:gmatch("[^,]+") do add(op, part) end
    if op[1] == "p" then write.tag = op[3]:match("%d+%.%d+") end
  end
end

function readers.grant(round, words, _, line)
  local grant = add(round.grants, new_change(words, line))
  grant.id, grant.ttl = words[6], tonumber(words[7])
end

function readers.revoke(round, words, _, line)
  add(round.revokes, new_change(words, line)).id = words[6]
end

function readers.compact(round, words, _, line)
  add(round.compactions, new_change(words, line)).compacted = tonumber(words[6])
end

--- A call that reads, and the revision of its answer.
local function new_read(list, words, line)
  local read = add(list, new_call(words, line))
  read.revision = tonumber(words[4])
  return read
end

function readers.kept(round, words, _, line)
  local kept = new_read(round.kept, words, line)
  kept.id, kept.left = words[5], tonumber(words[6])
end

function readers.leases(round, words, _, line)
  local list = new_read(round.lists, words, line)
  list.ids = { unpack(words, 5) }
end

function readers.lease(round, words, _, line)
  local look = new_read(round.looks, words, line)
  look.id, look.left, look.ttl = words[5], tonumber(words[6]), tonumber(words[7])
  look.keys = table.concat(words, " ", 8)
end

function readers.range(round, words, pieces, line)
  local range = new_read(round.ranges, words, line)
  range.at, range.key, range.to_key, range.found = tonumber(words[5]), words[6], words[7], table.concat(pieces, "|", 2)
end

function readers.hash(round, words, _, line)
  local hash = new_read(round.hashes, words, line)
  hash.at, hash.compacted, hash.value = tonumber(words[5]), tonumber(words[6]), words[7]
end

function readers.gone(round, words, _, line)
  add(round.gone, new_call(words, line)).at = tonumber(words[4])
end

--- Something that a watcher is told.
local function hear(round, words)
  local heard = add(round.heard, { kind = words[1], name = words[2] })
  heard.time, heard.revision = tonumber(words[3]), tonumber(words[4])
  return heard
end

function readers.open(round, words)
  local heard, flags = hear(round, words), words[7] or ""
  heard.watcher = {
    name = words[2],
    next = heard.revision,
    key = words[5],
    to = words[6],
    has_before = flags:find("p", 1, true),
    has_no_puts = flags:find("u", 1, true),
    has_no_deletes = flags:find("d", 1, true),
    is_whole = flags == "" and words[5] == "!" and words[6] == "~",
  }
end

--- Takes what was before out of the text of events; returns the text, and event -> what was before.
local function without_before(text)
  local before = {}
  if not text:find(";", 1, true) then return text, before end
  text = text:gsub("([^ ;]+);([^ ]+)", function(event, kv)
    before[event] = kv
    return event
  end)
  return text, before
end

function readers.events(round, words, pieces)
  local heard = hear(round, words)
  heard.groups = {}
  for i = 2, #pieces do
    local revision, text = pieces[i]:match("^(%d+) (.*)$")
    local group = add(heard.groups, { revision = tonumber(revision) })
    group.text, group.before = without_before(text)
  end
end

readers.progress, readers.overtaken, readers.ended, readers.close = hear, hear, hear, hear

function readers.caught(round, words)
  round.caught[words[2]] = tonumber(words[3])
end

function readers.spawn(round, words)
  round.spawned = tonumber(words[2])
end

--- The records of a round, from an iterator of lines.
local function read(lines)
  local round = { writes = {}, grants = {}, revokes = {}, compactions = {}, kept = {}, lists = {}, looks = {},
    ranges = {}, hashes = {}, gone = {}, heard = {}, caught = {}, spawned = nil }
  for line in lines do
    local pieces = pieces_of(line)
    local words = words_of(pieces[1])
    if not readers[words[1]] then error("no such record: " .. line) end
    readers[words[1]](round, words, pieces, line)
  end
  return round
end

return { read = read }
