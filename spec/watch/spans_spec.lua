--- A put, and the watches of random ranges: which of them receive it. KW_SEED=… repeats it.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local dose = require "spec.support.dose"
local new_random = require("spec.support.random").new
local span = require "spec.support.model.span"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local pieces = { "\0", "a", "a", "b", "\255", "\255\255", "abcdefgh", "\255\255\255\255\255\255\255\255" }

local function random_key(random, least)
  local key = ""
  for _ = 1, random:between(least, 4) do key = key .. random:pick(pieces) end
  return key
end

local function random_span(random)
  local kind = random:weighted { { 3, "point" }, { 4, "range_end" }, { 3, "prefix" }, { 1, "from_key" } }
  if kind == "range_end" then return random_key(random, 0), { range_end = random_key(random, 1) } end
  return random_key(random, kind == "point" and 1 or 0), { [kind] = kind ~= "point" or nil }
end

local function is_empty(within)
  return within.last ~= "" and within.last ~= "\0" and within.last <= within.key
end

--- Opens a watch of a random span, or of one that is watched already, unless that is empty.
local function open_random(random, store, open)
  local key, options = random_span(random)
  if #open > 0 and random:one_in(4) then
    local other = random:pick(open)
    key, options = other.key, other.options
  end
  local within = span.new(key, options)
  if within.key == "" then within.key = "\0" end
  local handle, tag = store:open_watch(key, options)
  if is_empty(within) then
    assert(not handle and tag.code == "empty_range")
    return
  end
  handle:arm()
  open[#open + 1] = { handle = handle, tag = tag, within = within, key = key, options = options }
end

local function close_random(random, open)
  if #open > 0 then table.remove(open, random:between(1, #open)).handle:close() end
end

--- All of those, and no others, whose span has the key.
local function expect_received(store, open, key)
  store:put(key, "")
  local received = {}
  for tag in store.next_ready, store do
    assert(not received[tag], "a watch is named twice")
    received[tag] = true
  end
  for _, each in ipairs(open) do
    local has_it = received[each.tag] == true
    if span.contains(each.within, key) ~= has_it then
      error(("%q is %sdelivered to a watch of %q to %q, with seed %d"):format(key, has_it and "" or "not ",
        each.within.key, each.within.last, seed), 0)
    end
    if has_it then
      assert(each.handle:take() == "events")
      each.handle:arm()
    end
  end
end

describe("a put", function()
  it("is delivered to the watches whose ranges contain its key, and to no others", function()
    local random = new_random(seed)
    local store = keywatch.open { now = 0 }
    local open = {}
    for step = 1, dose.of(400, 4000) do
      local is_growing = step % 1000 < 400
      if random:one_in(is_growing and 5 or 2) then close_random(random, open) else open_random(random, store, open) end
      expect_received(store, open, random_key(random, 1))
      if step % 100 == 0 then store:compact(store:status().revision) end
      if probe and step % 10 == 0 then probe.check(store) end
    end
    store:close()
  end)
end)
