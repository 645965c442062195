--- A cache answers as its server does: the specs of reading stores, and of watching them, hold for a cache; and random
-- reads and watches have the same answers and events at a cache and at its server.
--
-- The specs are run as they are, with reads and watches of a cache where they read and watch stores, but for what
-- spec/cache/differences.lua lists.

local getfenv = require("busted.compatibility").getfenv

local difference = require("spec.support.difference").difference
local differences = require "spec.cache.differences"
local face_specs = require "spec.support.face_specs"
local faces = require "spec.support.faces"
local history = require "spec.support.history"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local request = require "spec.support.request"

local PATIENCE = network.PATIENCE

local FILES = {
  "store/put", "store/exists", "store/range", "store/sort", "store/delete", "store/txn", "store/history",
  "store/compaction", "store/each", "store/misuse", "watch/watch", "watch/watch_reading", "watch/watch_life",
  "watch/watch_misuse", "watch/watch_progress",
}

local globals = getfenv(1)

for _, file in ipairs(FILES) do
  face_specs.declare(globals, faces.cache, file, differences.of("keywatch", file), "#slow")
end

describe("etcd #once", function()
  for _, file in ipairs(FILES) do
    face_specs.declare(globals, faces.cache_of_etcd, file, differences.of("etcd", file), "")
  end

  teardown(faces.etcd.stop)
end)

-- {====== At random ======

local CHANGES = network.IS_FAST and 60 or 150
local READS = network.IS_FAST and 60 or 300
local WATCHES = network.IS_FAST and 15 or 30

--- Moves a request into a prefix, where a range without end ends with the prefix.
local function inside(prefix, key, fields)
  if fields.from_key or fields.range_end == "\0" then
    fields.from_key, fields.range_end = nil, prefix:sub(1, -2) .. "0" -- "0" follows "/"
    if prefix == "" then fields.from_key, fields.range_end = true, nil end
  elseif fields.range_end and fields.range_end ~= "" then
    fields.range_end = prefix .. fields.range_end
  end
  return prefix .. key, fields
end

--- A server, a client, and a cache whose history begins where that of the server does.
local function new_world(kind, prefix, seed)
  local s = network.start(kind)
  local client = network.connect(s.url)
  local random = new_random(seed)
  local messages = history.new(random, {})
  local world = { kind = kind, client = client, random = random, messages = messages, prefix = prefix, revision = 1 }

  function world:change()
    local key = self.prefix .. self.messages:key()
    if key == "" then return end
    local ops = { { put = key, value = self.messages:value() } }
    if random:one_in(4) then ops = { { delete = key } } end
    if random:one_in(6) then ops[2] = { put = self.prefix .. "txn" .. random:between(1, 3), value = "t" } end
    if random:one_in(6) then ops = { { put = "other", value = "o" } } end
    self.revision = assert(client:txn { success = ops }).revision
  end

  for _ = 1, CHANGES / 4 do world:change() end
  world.cache = assert(client:cache(prefix))
  assert(world.cache:wait_ready(PATIENCE))
  world.compact_revision = world.cache:status().revision
  assert(client:compact(world.compact_revision))
  for _ = 1, CHANGES do world:change() end
  if prefix ~= "" then world.revision = assert(client:put(prefix .. "last", "")).revision end
  assert(world.cache:wait_for(world.revision, PATIENCE))
  return world
end

--- What a reader answers to a request, without what only a store tells.
local function outcome(one, reader)
  local answer, err = request.perform(one, reader)
  return answer, err and { code = err.code, message = err.message } or nil
end

local function compare_read(world, verb)
  local messages = world.messages
  local key, fields = messages[verb == "each" and "read_fields" or verb .. "_fields"](messages, world)
  key, fields = inside(world.prefix, key, fields)
  if world.kind == "etcd" then fields.sort_target = nil end -- it has equals in no order: see store/sort
  if key == "" and not (fields.prefix or fields.from_key) then return end
  local one = request.new(verb, key, fields)
  local got, got_err = outcome(one, world.cache)
  local expected, expected_err = outcome(one, world.client)
  local words = difference(got_err, expected_err, "the error") or difference(got, expected, "the answer")
  if words then error(request.show(one) .. ": " .. words, 0) end
  return expected_err and expected_err.code or "read"
end

--- The events of a watch up to a revision, in batches.
local function batches_of(reader, key, opts, last)
  local watch = assert(reader:watch(key, opts))
  local list = {}
  repeat
    local batch, err = watch:batch(PATIENCE)
    list[#list + 1] = batch or err.code
  until not batch or batch.revision >= last
  watch:close()
  return list
end

local function compare_watch(world)
  local random = world.random
  local key, opts = inside(world.prefix, world.messages:span {})
  opts.prev_kv = random:one_in(2)
  if random:one_in(3) then opts.filters = { random:pick { "no_put", "no_delete" } } end
  if random:one_in(3) then
    opts.initial = true
  else
    opts.start_revision = random:between(world.compact_revision + 1, world.revision)
    if random:one_in(8) then opts.start_revision = random:between(1, world.compact_revision - 1) end
  end
  -- What ends the comparison: a change of the last key of the range that is no put, and no delete, of a filter.
  local is_span = opts.prefix or opts.range_end or opts.from_key
  local mark = opts.prefix and key .. "mark" or key
  if opts.range_end and opts.range_end <= key or mark == "" or key == "" and not is_span then return end
  local lists = {}
  assert(world.client:put(mark, "mark"))
  world.revision = assert(world.client:delete(mark)).revision
  local last = opts.filters and opts.filters[1] == "no_delete" and world.revision - 1 or world.revision
  assert(world.cache:wait_for(world.revision, PATIENCE))
  if opts.initial then last = world.revision end
  for i, reader in ipairs { world.cache, world.client } do lists[i] = batches_of(reader, key, opts, last) end
  local words = difference(lists[1], lists[2], "the batches")
  if words then error(request.show(request.new("watch", key, opts)) .. ": " .. words, 0) end
  return type(lists[1][1]) == "string" and lists[1][1] or opts.initial and "initial" or "replayed"
end

network.of_each(function(kind, tag)
  describe(("a cache of %s, and the server itself %s"):format(kind, tag), function()
    before_each(network.begin)
    after_each(network.finish)

    for _, prefix in ipairs { "", "in/" } do
      it(("answer alike, with the prefix '%s'"):format(prefix), function()
        local world = new_world(kind, prefix, network.SEED)
        local ok, failure = pcall(function()
          occurrences.await({ "read", "compacted", "future_revision" }, READS, function()
            return compare_read(world, world.random:pick { "get", "range", "range", "each" })
          end)
          occurrences.await({ "initial", "replayed" }, WATCHES, function() return compare_watch(world) end)
        end)
        if not ok then error(("%s\nto repeat: KW_SEED=%d"):format(tostring(failure), network.SEED), 0) end
      end)
    end
  end)
end)

-- }======
