-- SPDX-License-Identifier: MIT
--- pages: an iterator that reads a range page by page. All pages are of one revision.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local key_order = require "keywatch.support.key_order"

local DEFAULT_PAGE = 1000 -- kvs: a large range is read quickly, and no page takes long
local REST = {} -- option of `range` that only `each` gives: what a client keeps between two pages

--- Returns a copy of a table of options.
local function copy(opts)
  local t = {}
  for name, value in pairs(opts) do t[name] = value end
  return t
end

--- Returns the range_end that all pages use, since the first key changes from page to page and `prefix` would change
-- with it.
local function fixed_end(key, opts)
  if opts.from_key then return "\0" end
  if not opts.prefix then return opts.range_end end
  return key_order.prefix_end(key)
end

--- Raises if an option is not a whole number of at least `min`.
local function check_count(opts, name, min)
  local n = opts[name]
  if n == nil or type(n) == "number" and n >= min and n < 2 ^ 53 and n % 1 == 0 then return end
  check.misuse("each: option '%s' must be a whole number of at least %d, not %s%s", name, min, check.shown(n),
    type(n) == "number" and n >= 2 ^ 53 and ", which is not exact" or "")
end

--- Raises if an option is given that `range` has, and `each` cannot have.
local function refuse(opts, name)
  if opts[name] == nil then return end
  check.misuse("each: there is no option '%s': pages come in the order of keys", name)
end

--- Reads a page. Misuse is raised as misuse of `each`.
local function range(owner, key, opts)
  local ok, result, err = pcall(owner.range, owner, key, opts)
  if ok then return result, err end
  check.raise_again(result, "each", "range")
end

--- Returns the iterator. It raises the error of a page, and may be called again then: it asks for the same page anew.
-- before_page, if given, is called before every page except the first, and may raise. With is_late the first page is
-- read when the iterator is first called, and not before. `raise` raises errors; if nil, as they are. `rest`, if given,
-- is the option REST of all pages.
local function iterate(owner, key, opts, before_page, is_late, raise, rest)
  opts, raise = copy(opts), raise or error
  opts[REST] = rest
  local page = opts.page or DEFAULT_PAGE
  local left = opts.limit and opts.limit > 0 and opts.limit or math.huge
  opts.page = nil

  local kvs, n, at, more = {}, 0, 0, true

  --- Reads the next page. If that is too large for a client, reads a smaller one.
  local function read()
    while true do
      opts.limit = math.min(left, page)
      if opts[REST] then opts[REST].limit = left < math.huge and left or nil end
      local result, err = range(owner, key, opts)
      if result then return result end
      if err.code ~= "answer_too_large" or opts.limit <= 1 then raise(err, 0) end
      page = math.floor(opts.limit / 2)
    end
  end

  --- Makes the next page the present one. Raises if the server's answer would make the iteration endless.
  local function turn_page()
    local result = read()
    kvs, n, at = result.kvs, #result.kvs, 0
    left = left - n
    more = result.more and left > 0
    local is_endless = more and (n == 0 or key_order.is_before(kvs[1].key, key))
    if is_endless then raise(core.new_error("malformed"), 0) end
    if not opts.revision or opts.revision == 0 then opts.revision = result.revision end
  end

  local has_begun = false

  --- Reads the first page, with the options as they were given.
  local function begin()
    turn_page()
    opts.range_end = fixed_end(key, opts)
    opts.prefix, opts.from_key = nil, nil
    has_begun = true
  end

  if not is_late then begin() end -- now, so that misuse is raised now

  return function()
    if not has_begun then
      begin()
    elseif at == n and more then
      if before_page then before_page() end
      turn_page()
    end
    at = at + 1
    local kv = kvs[at]
    if at == n then key = kv.key .. "\0" end
    return kv
  end
end

--- Returns a new rest for the pages of an owner, if that stands on a client; else nil. See client/range_stream.lua.
local function new_rest(owner)
  local mt = getmetatable(owner)
  while mt.__base do
    owner = mt.__base(owner, "")
    mt = getmetatable(owner)
  end
  return mt.__new_rest and mt.__new_rest()
end

--- Returns an iterator over the kvs of a range, in the order of keys. All pages are of one revision: that of the
-- options, or that of the first page. `limit` bounds the whole, `page` each page; without `page` a server may stream
-- what follows the first page. The iterator raises the error of a page, so that a loop does not end early unnoticed.
local function each(owner, key, opts)
  check.self(owner, "each")
  check.argument(type(key) == "string", 1, "each", "string", key)
  opts = check.options(opts, "each")
  refuse(opts, "sort_order")
  refuse(opts, "sort_target")
  refuse(opts, "count_only")
  check_count(opts, "limit", 0)
  check_count(opts, "page", 1)
  return (iterate(owner, key, opts, nil, nil, errors.raise, not opts.page and new_rest(owner) or nil))
end

return { each = each, iterate = iterate, REST = REST }
