-- SPDX-License-Identifier: MIT
--- filter: selects and decodes objects for a reader: the options `codec`, `include`, `labels`,
-- `labels_at`, `fields`, `where` and `transform` of object watches and informers. See transition.lua.
--
-- A codec is "json", or a table of two functions, `decode` and `encode`. JSON is that of keywatch.json.

local check = require "keywatch.support.check"
local json = require "keywatch.json"
local selectors = require "keywatch.cache.selector"

local TITLES = { object_watch = "an object watch", informer = "an informer" }

--- Returns the codec that the option `codec` of a method names; nil if it is nil: values stay strings. Raises if there
-- is no such codec.
local function codec_of(given, name)
  if given == nil then return nil end
  if given == "json" then return json end
  if type(given) ~= "table" then
    check.misuse("%s: option 'codec' must be 'json' or a table of functions, not %s", name, check.shown(given))
  end
  check.known(given, name .. ": option 'codec'", { decode = "function", encode = "function" })
  if not given.decode then check.misuse("%s: option 'codec' has no function 'decode'", name) end
  return given
end

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
  local codec = codec_of(opts.codec, name)
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
    is_selective = labels ~= nil or fields ~= nil or opts.where ~= nil,
    counts = counts,
    title = TITLES[name], -- in log texts
  }
end

return { of = of }
