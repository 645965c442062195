--- Watchers of a cluster under attack, and what must be true of what they were told: the six guarantees.
--
-- Each watcher has read, in order, every revision of its keys from where it began, once and whole; after progress only
-- newer ones; and it could go on, by another client, where it had stopped. Watches that begin with what exists have
-- read what the history has at the revision at which they were synced. No watch ends.
--
-- What was before an event is right, or is not told: etcd notes that a new watch wants it after the watch has begun, so
-- the first events come without it if they come at once. How often this was is counted.

local keywatch = require "keywatch"

local PATIENCE = 60 -- seconds without an event, after which a watch has lost it
local END = "end"   -- the value that is put last, to a key of each watch

local MOST_WITHOUT_PREV = 0.01 -- of all events

--- An event, as it is compared.
local function text_of(event)
  return ("%s %s %s c%d m%d v%d"):format(event.type, event.key, event.value or "", event.create_revision or 0,
    event.mod_revision, event.version or 0)
end

--- What was before an event, as it is compared.
local function prev_of(event)
  local prev = event.prev
  return prev and ("%s m%d v%d"):format(prev.value, prev.mod_revision, prev.version) or "nothing"
end

local readers = {}

function readers.progress(reader, batch)
  reader.progress = batch.revision
  reader.n_progress = reader.n_progress + 1
end

function readers.synced(reader, batch)
  reader.synced = batch.revision
end

--- Takes what a watch has given.
local function take(world, reader, batch)
  local first = batch.events[1]
  if readers[first.type] then return readers[first.type](reader, batch) end
  if first.initial then
    reader.initial[first.key] = text_of(first)
    return
  end
  if batch.revision <= reader.progress then
    world:object("%s is told of %d after progress up to %d", reader.name, batch.revision, reader.progress)
  end
  local texts, prevs = {}, {}
  for i, event in ipairs(batch.events) do
    texts[i], prevs[i] = text_of(event), prev_of(event)
    if event.mod_revision ~= batch.revision then
      world:object("%s has %d in a batch of %d", reader.name, event.mod_revision, batch.revision)
    end
  end
  table.insert(reader.batches, { revision = batch.revision, texts = texts, prevs = prevs, progress = reader.progress })
end

local function open(world, reader)
  local client = world:client()
  local watch, err = client:watch(reader.prefix, {
    prefix = true, prev_kv = reader.has_prev, progress = reader.has_progress,
    initial = reader.is_initial and not reader.synced or nil, max_bytes = reader.max_bytes,
    require_leader = reader.require_leader,
    start_revision = (not reader.is_initial or reader.synced) and reader.next or nil, timeout = PATIENCE,
  })
  if not watch then world:object("%s cannot be opened: %s", reader.name, tostring(err)) end
  if reader.is_initial and not reader.synced then reader.initial = {} end
  return watch
end

--- Reads until the last revision, by one watch after the other if the reader is restless.
local function read(world, reader)
  local watch = open(world, reader)
  while watch do
    local batch, err = watch:batch(PATIENCE)
    if not batch then return world:object("%s ends after %d: %s", reader.name, watch.revision, tostring(err)) end
    take(world, reader, batch)
    reader.next = watch.revision + 1
    if batch.events[1].value == END then return watch:close() end
    if reader.is_slow and not world.is_over and world.random:one_in(20) then
      keywatch.sleep(world.random:between(1, 400) / 1000)
    end
    if reader.is_restless and world.random:one_in(40) then
      watch:close()
      reader.n_opened = reader.n_opened + 1
      watch = open(world, reader)
    end
  end
end

--- Starts watchers from a revision on. Returns them.
local function start(world, prefixes, from)
  local list = {}
  local kinds = {
    { name = "a watch" },
    { name = "a watch with prev_kv and progress", has_prev = true, has_progress = true },
    { name = "a restless watch", is_restless = true, has_prev = true },
    { name = "a watch that requires a leader", is_restless = true, require_leader = true },
    { name = "a slow watch", is_slow = true, max_bytes = 2000 },
    { name = "a watch of what exists", is_initial = true },
  }
  for _, prefix in ipairs(prefixes) do
    for _, kind in ipairs(kinds) do
      local reader = { prefix = prefix, batches = {}, initial = {}, next = from, last = nil, progress = 0,
        n_progress = 0, n_opened = 1, n_events = 0, n_without_prev = 0, synced = nil }
      for name, value in pairs(kind) do reader[name] = value end
      reader.name = ("%s of '%s'"):format(kind.name, prefix)
      reader.from = from
      reader.task = keywatch.spawn(read, world, reader)
      list[#list + 1] = reader
    end
  end
  return list
end

--- Waits until all have read up to the last revision, in which END was put to a key of each.
local function finish(list, last)
  for _, reader in ipairs(list) do reader.last = last end
  for _, reader in ipairs(list) do assert(reader.task:join()) end
end

local function judge_initial(world, history, reader)
  if not reader.synced then return world:object("%s is never synced", reader.name) end
  local n, expected = 0, 0
  for _ in pairs(reader.initial) do n = n + 1 end
  for key in pairs(history.keys) do
    local kv = key:sub(1, #reader.prefix) == reader.prefix and history:at(key, reader.synced)
    if kv then
      expected = expected + 1
      if reader.initial[key] ~= text_of(kv) then
        world:object("%s finds %s at %d, and there is %s", reader.name, tostring(reader.initial[key]), reader.synced,
          text_of(kv))
      end
    end
  end
  if n ~= expected then world:object("%s finds %d keys at %d, not %d", reader.name, n, reader.synced, expected) end
end

--- Judges what was told to have been before the events of a batch.
local function judge_prevs(world, reader, batch, events)
  for j, event in ipairs(events) do
    local expected, found = prev_of(event), batch.prevs[j]
    reader.n_events = reader.n_events + 1
    if found == "nothing" and expected ~= found then
      reader.n_without_prev = reader.n_without_prev + 1
    elseif found ~= expected then
      world:object("%s finds %s before %s, and there was %s", reader.name, tostring(found), text_of(event), expected)
    end
  end
end

local function judge_one(world, history, reader)
  local from = reader.from
  if reader.is_initial then
    judge_initial(world, history, reader)
    from = (reader.synced or 0) + 1
  end
  local i, progress = 0, 0
  history:each(reader.prefix, from, reader.last, function(revision, events)
    i = i + 1
    local batch = reader.batches[i]
    local texts = {}
    for j, event in ipairs(events) do texts[j] = text_of(event) end
    local expected, found = table.concat(texts, "; "), batch and table.concat(batch.texts, "; ")
    if expected ~= found and not reader.is_wrong then
      reader.is_wrong = true -- what follows is wrong, too
      world:object("%s, batch %d: expected %s, found %s", reader.name, i, expected, tostring(found))
    end
    if reader.has_prev and not reader.is_wrong then judge_prevs(world, reader, batch, events) end
    if batch and batch.progress > progress then progress = batch.progress end
    if progress >= revision then
      world:object("%s was told of progress up to %d before %d", reader.name, progress, revision)
    end
  end)
  if #reader.batches > i and not reader.is_wrong then
    world:object("%s is told of %d revisions, and %d happened", reader.name, #reader.batches, i)
  end
  if reader.n_without_prev > reader.n_events * MOST_WITHOUT_PREV then
    world:object("%s has %d of %d events without what was before", reader.name, reader.n_without_prev, reader.n_events)
  end
  world:count("watched", "events without prev", reader.n_without_prev)
  world:count("watched", "revisions", i)
  world:count("watched", "watches", reader.n_opened)
  world:count("watched", "reports of progress", reader.n_progress)
end

local function judge(world, history, list)
  for _, reader in ipairs(list) do judge_one(world, history, reader) end
end

return { END = END, start = start, finish = finish, judge = judge }
