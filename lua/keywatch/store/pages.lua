-- SPDX-License-Identifier: MIT
--- pages: an iterator that reads a range page by page. All pages are of one revision, and of one history.
--
-- After a reconnection the server may have been restored from a backup, and have the same revision in another history.
-- So when another connection has answered, all pages are read again, up to the last returned kv. If they are equal, the
-- iterator continues after that kv. A checksum represents the returned kvs.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local key_order = require "keywatch.support.key_order"

local DEFAULT_PAGE = 1000 -- kvs in a page: a large range is read quickly, and no page takes long
local MAX_MOVES = 3 -- re-reads after a change of the connection, without a new kv in between
local MOVED = "keywatch: the connection was lost too often while pages were read"
local REST = {} -- internal option of `range` for `each`: a client's state between two pages

--- Returns the range_end that all pages use, since the first key changes from page to page and `prefix` would change
-- with it.
local function fixed_end(key, opts)
  if opts.from_key then return "\0" end
  if not opts.prefix then return opts.range_end end
  return key_order.prefix_end(key)
end

--- Raises if an option of `range` is given that `each` does not have.
local function refuse(opts, name)
  if opts[name] == nil then return end
  check.misuse("each: there is no option '%s': pages come in the order of keys", name)
end

--- Reads a page. Errors of misuse name `each`.
local function range(owner, key, opts)
  local ok, result, err = pcall(owner.range, owner, key, opts)
  if ok then return result, err end
  check.raise_again(result, "each", "range")
end

--- Returns the iterator. It raises the error of a page, and may then be called again, for the same page.
-- before_page, if given, is called before every page except the first, and may raise. With is_late the first page is
-- read at the first call of the iterator. `raise(err, level)` raises errors; nil: `error`. `rest` is the value of the
-- option REST for all pages, see client/range_stream.lua; nil if the owner has no connection.
local function iterate(owner, key, opts, before_page, is_late, raise, rest)
  opts, raise = check.copy(opts), raise or error
  opts[REST] = rest
  local page = opts.page or DEFAULT_PAGE
  local most = opts.limit and opts.limit > 0 and opts.limit or math.huge
  local first_key, prefix, from_key, range_end = key, opts.prefix, opts.from_key, opts.range_end
  local left, has_begun = most, false
  opts.page = nil

  local kvs, n, at, more = {}, 0, 0, true
  local seen = { n = 0, crc = 0 } -- number and checksum of the kvs that were read
  local expected, moves = nil, 0 -- during a re-read: the expected `seen`; the number of re-reads

  --- Reads the next page. If the page is too large for a client, reads a smaller one.
  local function read()
    while true do
      opts.limit = math.min(left, page)
      if opts[REST] then opts[REST].limit = left < math.huge and left or nil end
      local result, err = range(owner, key, opts)
      if result then return result end
      if rest and rest.connection and err.code == "future_revision" and not opts.serializable then
        err = core.new_error("regressed")
      end
      if err.code ~= "answer_too_large" or opts.limit <= 1 then raise(err, 0) end
      page = math.floor(opts.limit / 2)
    end
  end

  --- Begins to read all pages again.
  local function read_again()
    expected = expected or seen
    seen = { n = 0, crc = 0 }
    key, left, kvs, n, at, more = first_key, most, {}, 0, 0, true
    opts.prefix, opts.from_key, opts.range_end = prefix, from_key, range_end
  end

  --- Adds kvs of the current page to `seen`.
  local function account(from, to)
    if from > to then return end
    seen.n, seen.crc = seen.n + to - from + 1, core.kvs_crc(rest.message, from, to, seen.crc)
  end

  --- Adds the kvs of the current page to `seen`, and skips those that were returned before.
  local function compare()
    local skipped = expected and math.min(n, expected.n - seen.n) or 0
    account(1, skipped)
    if expected and (seen.n == expected.n or not more) then
      if seen.n ~= expected.n or seen.crc ~= expected.crc then
        read_again()
        raise(core.new_error("regressed"), 0)
      end
      expected = nil
    end
    account(skipped + 1, n)
    rest.message, at = nil, skipped
    if at < n then moves = 0 end
  end

  --- If the current page has arrived over another connection, begins to read all pages again and returns true.
  local function has_moved()
    if rest.is_of_other_cluster then raise(core.new_error("cluster_changed"), 0) end
    if not rest:take_move() or seen.n == 0 then return false end
    read_again()
    moves = moves + 1
    if moves <= MAX_MOVES then return true end
    moves = 0
    raise(errors.new("unavailable", MOVED), 0)
  end

  --- Makes the next page the current one. Raises if the server's answer would make the iteration endless.
  local function turn_page()
    local result = read()
    if rest and has_moved() then return end
    kvs, n, at = result.kvs, #result.kvs, 0
    left = left - n
    more = result.more and left > 0
    local is_endless = more and (n == 0 or key_order.is_before(kvs[1].key, key))
    if is_endless then raise(core.new_error("malformed"), 0) end
    if not opts.revision or opts.revision == 0 then opts.revision = result.revision end
    if n > 0 then key = kvs[n].key .. "\0" end
    opts.range_end = fixed_end(first_key, opts) -- the first page has the given options
    opts.prefix, opts.from_key, has_begun = nil, nil, true
    if rest and rest.message then compare() end -- otherwise the owner is not a client
  end

  if not is_late then turn_page() end -- now, so that misuse is raised now

  return function()
    while at == n and more do
      if before_page and has_begun then before_page() end
      turn_page()
    end
    at = at + 1
    return kvs[at]
  end
end

--- Returns a new value of the option REST if the owner is a client, or is based on one; otherwise nil.
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
-- the rest after the first page. The iterator raises the error of a page, so that a loop does not end early unnoticed.
local function each(owner, key, opts)
  check.self(owner, "each")
  check.argument(type(key) == "string", 1, "each", "string", key)
  opts = check.options(opts, "each")
  refuse(opts, "sort_order")
  refuse(opts, "sort_target")
  refuse(opts, "count_only")
  check.some(opts, "each", { limit = "amount", page = "count" })
  local rest = new_rest(owner)
  if rest then rest.is_of_pages = opts.page ~= nil end
  return (iterate(owner, key, opts, nil, nil, errors.raise, rest))
end

return { each = each, iterate = iterate, REST = REST }
