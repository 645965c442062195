-- SPDX-License-Identifier: MIT
--- filter: selects and decodes objects for a reader: the options `codec`, `include`, `labels`,
-- `labels_at`, `fields`, `where` and `transform` of object watches and informers. See transition.lua.

local check = require "keywatch.support.check"
local codecs = require "keywatch.cache.codec"
local selectors = require "keywatch.cache.selector"

local TITLES = { object_watch = "an object watch", informer = "an informer" }

--- Returns the selector of an option; nil if every object matches. Raises if the option is malformed.
local function selector_of(opts, kind, labels_at, name)
  local given = opts[kind]
  if given == nil then return nil end
  local made, why = selectors.parse(given, kind, labels_at)
  if not made then check.misuse("%s: option '%s' %s", name, kind, why) end
  if not opts.codec then
    check.misuse("%s: option '%s' needs a codec: without one the objects are strings", name, kind)
  end
  return not selectors.is_empty(made) and made or nil
end

--- Returns the filter of the options of a method. `counts` is a table of numbers, for the counters `decoded` and
-- `failed_tests`.
local function of(opts, counts, name)
  local codec = codecs.of(opts.codec, name)
  local labels = selector_of(opts, "labels", opts.labels_at, name)
  local fields = selector_of(opts, "fields", nil, name)
  return {
    decode = codec and codec.decode,
    include = opts.include,
    labels = labels,
    fields = fields,
    where = opts.where,
    transform = opts.transform,
    keeps_old = opts.old,
    skips_bad = opts.on_bad_value == "skip",
    is_choosy = labels ~= nil or fields ~= nil or opts.where ~= nil,
    counts = counts,
    title = TITLES[name], -- in log texts
  }
end

return { of = of }
