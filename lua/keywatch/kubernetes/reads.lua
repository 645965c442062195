-- SPDX-License-Identifier: MIT
--- reads: gets and lists the objects of one kind, by Kubernetes' rules of resourceVersion.
--
--   resourceVersion  get                    list
--   none             the newest, of the     the newest: from the cache, once it has what the store had at the call, or
--                    store                  from the store if the cache is late
--   "0"              any, of the cache      any, of the cache; limit is ignored
--   N                N or newer             N or newer; with limit, or with resourceVersionMatch=Exact: exactly N
--
-- A list is one state: all of its pages have the same revision. The revision of a list can be watched, so a list is
-- answered only while the kind's history (history.lua) is that of the cache, and begins again if that changes on the
-- way.
--
-- If a revision is no longer in the cache's history, it is read from the store, whose history may be longer.

local caches = require "keywatch.cache.cache"
local check = require "keywatch.support.check"
local continue_token = require "keywatch.kubernetes.continue_token"
local driver = require "keywatch.task.driver"
local entries = require "keywatch.kubernetes.entry"
local errors = require "keywatch.support.errors"
local key_order = require "keywatch.support.key_order"
local slices = require "keywatch.task.slice"
local status_error = require "keywatch.kubernetes.status_error"

local PATIENCE = 3               -- seconds that a read waits for the cache, as in apiserver
local FIRST_PAGE, LARGEST_PAGE = 100, 500 -- entries
local PAGE_BYTES = 512 * 1024    -- of the texts of a page, about
local TEXT_BYTES = 96 * 1024     -- of a text of the core, about
local MAX_ENTRIES = 10000        -- of a list with a limit; a larger limit counts as this one
local MAX_BYTES = 16 * 1024 * 1024 -- of such a list
local MAX_PIECES = 100           -- entries that are tested before other tasks run
local MAX_BEGINNINGS = 3         -- of a list whose history is replaced while it is read
local GONE = "too old resource version: %d"
local TOO_OLD = "The provided continue token is too old: start a new list, or use the continue token of this status "
  .. "for the remaining objects as they are now"
local LIST_OPTIONS = { group = "meta.k8s.io", kind = "ListOptions", plural = "listoptions" }

local reads_methods = {}
local reads_mt = { __name = "keywatch.kubernetes.reads", __index = reads_methods }

-- {====== Revisions of requests ======

--- Returns the number of a resourceVersion: nil if it is none; or false and an error.
local function revision_of(text)
  if text == nil or text == "" then return nil end
  local digits = type(text) == "number" and ("%d"):format(text) or tostring(text)
  if not digits:find("^%d+$") or #digits > 15 then
    return false, status_error.bad_request(("Invalid value: %q: resource version must be a number"):format(
      digits:sub(1, 100)))
  end
  return math.floor(tonumber(digits))
end

--- Returns the error of an invalid combination of options.
local function invalid(field, reason, message)
  local cause = { reason = "FieldValue" .. reason, message = message, field = field }
  return status_error.invalid(LIST_OPTIONS, nil, { cause })
end

local MATCHES = { Exact = true, NotOlderThan = true }

--- Returns the error of the options of a list; nil if they are valid.
local function option_error(opts, revision)
  local match, field = opts.resource_version_match, "resourceVersionMatch"
  local has_token = opts.continue ~= nil and opts.continue ~= ""
  if has_token and revision and revision ~= 0 then
    return status_error.bad_request("specifying resource version is not allowed when using continue")
  end
  if match == nil or match == "" then return nil end
  if not revision then
    return invalid(field, "Forbidden",
      "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
  elseif has_token then
    return invalid(field, "Forbidden", "Forbidden: resourceVersionMatch is forbidden when continue is provided")
  elseif not MATCHES[match] then
    return invalid(field, "NotSupported", ('Unsupported value: %q: supported values: "Exact", "NotOlderThan"'):format(
      tostring(match):sub(1, 100)))
  elseif match == "Exact" and revision == 0 then
    return invalid(field, "Forbidden", 'Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
  end
end

--- Returns what a list asks for: { is_consistent, least, exact, start }: the newest state, one of a least revision, or
-- one of an exact revision; and the first key of a continued list. Returns nil and an error if the options are invalid.
local function plan_of(opts)
  local revision, err = revision_of(opts.resource_version)
  if revision == false then return nil, err end
  err = option_error(opts, revision)
  if err then return nil, err end
  if opts.continue and opts.continue ~= "" then
    local at, start = continue_token.decode(opts.continue)
    if not at then return nil, start end
    if at == continue_token.NEWEST then return { is_consistent = true, start = start } end
    return { exact = at, start = start }
  end
  if not revision then return { is_consistent = true } end
  local is_exact = opts.resource_version_match == "Exact"
    or revision > 0 and (opts.limit or 0) > 0 and opts.resource_version_match ~= "NotOlderThan"
  if is_exact then return { exact = revision } end
  return { least = revision }
end

-- }======

-- {====== Errors ======

local IS_LATE = { timeout = true, deadline_exceeded = true }

--- Returns Kubernetes' error of a failed read of a revision.
local function read_error(self, err, revision)
  local code = errors.code_of(err)
  if revision and (code == "future_revision" or IS_LATE[code]) then
    return status_error.too_large_revision(revision, self.cache:status().revision)
  elseif code == "compacted" then
    return status_error.expired(GONE:format(revision or 0))
  end
  return status_error.from(err)
end

-- }======

-- {====== Pages ======

--- Reads a range for a plan, from a key on: `own` are other options. Returns the result of the store; or nil and an
-- error.
local function read_first(self, plan, start, own, deadline)
  local opts = check.copy(own)
  if plan.exact then
    opts.min_revision, opts.revision, opts.deadline = plan.exact, plan.exact, deadline
  elseif plan.is_consistent then
    opts.consistent, opts.deadline = true, deadline
  elseif plan.least > 0 then
    opts.min_revision, opts.deadline = plan.least, deadline
  end
  local result, err = self.cache:range(start, opts)
  if result then return result end
  local code = errors.code_of(err)
  local is_known_to_owner = plan.is_consistent and IS_LATE[code] or plan.exact and code == "compacted"
  if not is_known_to_owner then return nil, err end
  opts = check.copy(own)
  opts.revision, opts.timeout = plan.exact, PATIENCE
  return self.owner:range(start, opts)
end

--- True if a list is still one of the cache's history.
local function is_same_history(self, list)
  return self.history.epoch == list.epoch and self.history:is_ready()
end

--- Returns a later page, at the revision of the list; or nil and an error. If the cache has begun again in between, its
-- revisions may be those of another history.
local function read_more(self, list)
  if not is_same_history(self, list) then
    return nil, status_error.expired(GONE:format(list.revision))
  end
  local opts = { range_end = list.range_end, limit = list.page, revision = list.revision }
  local result, err = self.cache:range(list.next_key, opts)
  if result then return result end
  local code = errors.code_of(err)
  if code ~= "compacted" and code ~= "future_revision" then return nil, err end
  return self.owner:range(list.next_key, opts)
end

--- Chooses the size of the next page, which is to have as many bytes as wanted.
local function size_next_page(list, n, bytes, wanted)
  if n == 0 then return end
  local fitting = math.ceil(n * wanted / math.max(1, bytes))
  list.page = math.max(1, math.min(LARGEST_PAGE, fitting))
end

--- Returns the error of a continued list whose revision is compacted: it has a token for the rest as it is now.
local function with_token(err, plan)
  if errors.code_of(err) ~= "compacted" or not plan.start then return err end
  return status_error.expired(TOO_OLD, continue_token.encode(continue_token.NEWEST, plan.start))
end

--- Returns the entries of a page which match the filter, and their bytes; or nil and an error.
local function take_page(list, result)
  local n, filter, prefix, found, bytes = #result.kvs, list.filter, #list.kind_prefix, {}, 0
  for _, kv in ipairs(result.kvs) do
    local entry = entries.of(kv.key:sub(prefix + 1), kv.value, kv.mod_revision)
    local object, err
    bytes = bytes + #kv.value
    if filter then object, err = entries.object(entry) end
    if err then return nil, err end
    if not filter or filter.matches(object) then found[#found + 1] = entry end
    if filter then slices.pass(list.slice) end
  end
  if n > 0 then list.next_key = result.kvs[n].key .. "\0" end
  list.has_more = result.more
  size_next_page(list, n, bytes, PAGE_BYTES)
  return found, bytes
end

--- Reads the next page. Returns what take_page returns.
local function next_entries(list)
  slices.pass(list.slice)
  local result, err = read_more(list.reads, list)
  if not result then return nil, with_token(read_error(list.reads, err, list.revision), list.plan) end
  return take_page(list, result)
end

local list_methods = {}
local list_mt = { __index = list_methods }

--- Returns the next entries, a list; nil after the last ones; or nil and an error. Lets other tasks run.
function list_methods:next_page()
  local first = self.first
  self.first = nil
  if first or not self.has_more then return first end
  local page, err = next_entries(self)
  if not page then return nil, err end
  return page
end

--- Returns the next objects as one text of the core (csrc/bind/lua_texts.h), with `lead` before them and commas between
-- them; their number; and the bytes of the text. Returns only nil if next_page must be called instead: at the end, with
-- a filter, or for objects whose texts were not written by this library.
function list_methods:next_text(lead)
  if self.filter or not self.has_more or not is_same_history(self.reads, self) then return nil end
  slices.pass(self.slice)
  local result = caches.texts_of(self.reads.cache, self.next_key, {
    range_end = self.range_end, limit = self.page, revision = self.revision,
  }, lead, TEXT_BYTES)
  if not result or result.n == 0 then return nil end
  self.next_key, self.has_more = result.last .. "\0", result.more
  size_next_page(self, result.n, result.bytes, TEXT_BYTES)
  return result.text, result.n, result.bytes
end

--- Returns all remaining entries; or nil and an error.
function list_methods:entries()
  local all = {}
  while true do
    local page, err = self:next_page()
    if err then return nil, err end
    if not page then return all end
    for _, entry in ipairs(page) do all[#all + 1] = entry end
  end
end

-- }======

-- {====== Lists ======

--- Returns the first key and the end of the range of a list.
local function range_of(self, opts, filter)
  local kind = self.kind
  local namespace, name = opts.namespace or filter and filter.namespace, opts.name or filter and filter.name
  local prefix = kind.prefix
  if namespace and kind.is_namespaced then prefix = prefix .. namespace .. "/" end
  if name and (namespace or not kind.is_namespaced) then return prefix .. name, prefix .. name .. "\0", prefix end
  return prefix, key_order.prefix_end(prefix), prefix
end

--- Sets the token of a list that ends before a key.
local function cut(list, next_key, prefix)
  list.continue = continue_token.encode(list.revision, next_key:sub(#prefix + 1))
end

--- Begins a list without a filter: `result` has the keys up to the limit, or without a limit only their number.
local function begin_plain(list, result, limit, prefix)
  local keys = result.kvs
  list.has_more = (limit and #keys or result.count) > 0
  if not limit or not result.more then return end
  list.range_end = keys[#keys].key .. "\0"
  list.remaining = result.count - #keys
  cut(list, list.range_end, prefix)
end

--- Adds entries of a page to a list of at most `limit`. Returns how many.
local function add_up_to(all, page, limit)
  local n = math.min(#page, limit - #all)
  for i = 1, n do all[#all + 1] = page[i] end
  return n
end

--- Reads pages until as many entries match as the limit says, or enough bytes were read. Returns nil, or an error.
local function gather(list, page, bytes, limit, prefix)
  local all, size = {}, bytes
  while true do
    if add_up_to(all, page, limit) < #page then
      list.next_key, list.has_more = list.kind_prefix .. all[limit].key .. "\0", true
    end
    if not list.has_more or #all == limit or size >= MAX_BYTES then break end
    page, bytes = next_entries(list)
    if not page then return bytes end
    size = size + bytes
  end
  if list.has_more then cut(list, list.next_key, prefix) end
  list.first, list.has_more = all, false
end

--- Begins a list with a filter, whose first page is `result`. Returns nil, or an error.
local function begin_filtered(list, result, limit, prefix)
  local page, bytes = take_page(list, result)
  if not page then return bytes end
  if limit then return gather(list, page, bytes, limit, prefix) end
  list.first = page
end

--- Begins a list. Returns it; nil and an error; or nil if the cache has begun again on the way.
local function begin(self, opts, plan, deadline)
  local history, filter = self.history, opts.filter
  local first_key, range_end, prefix = range_of(self, opts, filter)
  local start = plan.start and prefix .. plan.start or first_key
  local limit = opts.limit and opts.limit > 0 and plan.least ~= 0 and math.min(opts.limit, MAX_ENTRIES) or nil
  local epoch = history.epoch
  local own = { range_end = range_end, limit = filter and FIRST_PAGE or limit }
  own.keys_only, own.count_only = not filter and limit ~= nil, not filter and not limit
  local result, err = read_first(self, plan, start, own, deadline)
  if history.epoch ~= epoch or not history:is_ready() then return nil end
  if not result then return nil, read_error(self, err, plan.exact or plan.least) end
  local list = setmetatable({
    reads = self, plan = plan, filter = filter, kind_prefix = self.kind.prefix, epoch = epoch,
    revision = plan.exact or result.revision,
    next_key = start, range_end = range_end, -- of the next page
    page = FIRST_PAGE,        -- the entries of the next page, at most
    has_more = false,         -- there may be a next page
    first = nil,              -- entries that were read already
    continue = nil, remaining = nil,
    slice = slices.new(MAX_PIECES),
  }, list_mt)
  if filter then err = begin_filtered(list, result, limit, prefix) else begin_plain(list, result, limit, prefix) end
  if err then return nil, read_error(self, err, list.revision) end
  return list
end

--- Lists objects. Options: namespace; name, of a single object; filter (see selector.lua); limit; continue;
-- resource_version; resource_version_match. Returns a list { revision, continue, remaining } with the methods
-- next_page, next_text and entries; or nil and an error.
function reads_methods:list(opts)
  local plan, err = plan_of(opts)
  if not plan then return nil, err end
  local deadline = driver.get().now() + PATIENCE
  for _ = 1, MAX_BEGINNINGS do
    local ok, why = self.history:wait_ready(driver.time_left(deadline))
    if not ok then return nil, why end
    local list, failed = begin(self, opts, plan, deadline)
    if failed then return nil, with_token(failed, plan) end
    if list then return list end
  end
  return nil, status_error.too_many_requests("storage is (re)initializing", 1)
end

-- }======

--- Returns the entry of a key; nil if there is no such object; or nil and an error.
function reads_methods:get(key, resource_version)
  local revision, err = revision_of(resource_version)
  if revision == false then return nil, err end
  local outer = self.kind.prefix .. key
  local deadline = driver.get().now() + PATIENCE
  local kv
  if not revision or not self.cache:is_ready() and revision == 0 then
    kv, err = self.owner:get(outer)
  else
    kv, err = self.cache:get(outer, revision > 0 and { min_revision = revision, deadline = deadline } or nil)
  end
  if err then return nil, read_error(self, err, revision) end
  return kv and entries.of(key, kv.value, kv.mod_revision)
end

--- Returns the reads of a kind. `owner` is the store, the client or the object over one, and `cache` and `history` are
-- the kind's.
local function new(kind, owner, cache, history)
  return setmetatable({ kind = kind, owner = owner, cache = cache, history = history }, reads_mt)
end

return { new = new, revision_of = revision_of, PATIENCE = PATIENCE, LIST_OPTIONS = LIST_OPTIONS }
