-- SPDX-License-Identifier: MIT
--- filter: selects and decodes objects for a reader: the options `codec`, `include`, `labels`,
-- `labels_at`, `fields`, `where` and `transform` of object watches and informers. See transition.lua.
--
-- A codec is "json", or a table of two functions, `decode` and `encode`. JSON is that of the module cjson (lua-cjson),
-- which is loaded when it is first asked for. Its null is cjson.null.

local check = require "keywatch.support.check"
local selectors = require "keywatch.cache.selector"

local TITLES = { object_watch = "an object watch", informer = "an informer" }

local NO_JSON = "%s: the codec 'json' needs the module cjson: install Debian's package lua-cjson, or the rock lua-cjson"

--- Returns the codec "json". Raises if cjson is not installed, or was found and cannot be loaded.
local function json(name)
  local ok, cjson = pcall(require, "cjson")
  if not ok and tostring(cjson):find("module 'cjson' not found", 1, true) then check.misuse(NO_JSON, name) end
  if not ok then error(cjson, 0) end
  return { decode = cjson.decode, encode = cjson.encode }
end

--- Returns the codec that the option `codec` of a method names; nil if it is nil: values stay strings. Raises if there
-- is no such codec.
local function codec_of(given, name)
  if given == nil then return nil end
  if given == "json" then return json(name) end
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
