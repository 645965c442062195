--- The errors of misuse have the position of the call, and name the function.
--
-- Every public function is called with invalid arguments, and on closed objects. The calls are in a chunk of their own,
-- whose name is the position with which every error must begin.

local controller = require "keywatch.controller"
local http = require "keywatch.http"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local annotations = require "spec.support.annotations"
local directory = require "spec.support.directory"
local within = require "spec.support.within"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local load_text = rawget(_G, "loadstring") or load

local LOCAL = "http://127.0.0.1:0"
local nan = 0 / 0

-- {====== What may be given, and what may not ======

local none = {} -- stands for nil

--- A kind of argument: one that is taken, and those that are refused.
local function kind(good, ...) return { good = good, bad = { ... } } end

local key = kind("a", none, 5, true, {})
local optional_count = kind(nil, -1, 1.5, nan, "x", {})
local count = kind(2, none, -1, 1.5, nan, "x", {})
local ttl = kind(10, none, 1.5, nan, "x", {})
local id = kind(7, none, 1.5, nan, "x", {})
local alarm = kind("no_space", none, "fire", 5)
local seconds = kind(nil, "x", nan, {}, true)
local needed_seconds = kind(0, none, "x", nan, {}, true)
local fn = kind(function() end, none, 5, "x", {})
local path = kind("/a.B/C", none, 5, "x", {})
local txn = kind({}, none, 5, { colour = 1 }, { success = 5 }, { success = { 5 } }, { success = { { colour = 1 } } },
  { success = { { put = "a" } } }, { compare = { {} } }, { timeout = nan })
local times = kind(nil, 5, "x", { colour = 1 }, { timeout = "x" }, { timeout = nan }, { deadline = nan }, { 1 })

local function options(...)
  return kind(nil, 5, "x", { colour = 1 }, { timeout = "x" }, { timeout = nan }, { deadline = nan }, { 1 }, ...)
end

-- Calls that stores and clients have in common.
local FACE = {
  get = { key, options({ revision = -1 }) },
  exists = { key, options({ revision = -1 }, { keys_only = true }, { prefix = true }) },
  range = { key, options({ limit = "x" }, { prefix = true, range_end = "b" }, { sort_order = "up" }) },
  each = { key, options({ limit = "x" }, { page = 0 }, { prefix = true, range_end = "b" }, { sort_order = "ascend" },
    { prefix = 1 }, { revision = -1 }) },
  put = { key, kind("v", none, 5, {}), options({ lease = "x" }, { prev_kv = 1 }) },
  delete = { key, options({ prefix = true, range_end = "b" }) },
  txn = { txn, times },
  watch = { key, kind(nil, 5, "x", { colour = 1 }, { 1 }, { prefix = true, range_end = "b" }, { start_revision = -1 },
    { filters = { "x" } }, { filters = 5 }, { no_put = true }, { initial = true, start_revision = 1 }, { prefix = 1 },
    { max_bytes = 0.5 }, { require_leader = 1 }) },
  object_watch = { key, options({ prefix = true, range_end = "b" }, { start_revision = -1 }, { start_revision = 1.5 },
    { start_revision = nan }, { initial = true, start_revision = 1 }, { initial = 1 }, { max_bytes = 0.5 },
    { codec = "xml" }, { codec = 5 }, { codec = {} }, { codec = { decode = 5 } },
    { codec = { decode = print, colour = print } }, { labels = "a=b" }, { fields = "a=b" },
    { codec = "json", labels = "a=" .. "(" }, { codec = "json", fields = "a" }, { codec = "json", fields = { "a" } },
    { codec = "json", labels = 5 }, { codec = "json", fields = keywatch.selector("a") }, { labels_at = 5 },
    { include = 5 }, { where = 5 }, { transform = 5 }, { old = 1 }, { on_bad_value = "cry" }, { on_error = print },
    { on_bad_value = "fail", on_error = print }, { on_bad_value = "skip", on_error = 5 }, { bookmarks = "x" },
    { bookmarks = 0 }, { bookmarks = nan }, { lifetime = 0 }, { lifetime = nan }, { lifetime = "x" },
    { require_leader = 1 }, { filters = {} }, { prev_kv = true }, { progress = true }) },
  informer = { key, kind(nil, 5, "x", { colour = 1 }, { 1 }, { codec = "xml" }, { codec = { decode = 5 } },
    { labels = "a=b" }, { codec = "json", fields = "a" }, { labels_at = 5 }, { include = 5 }, { where = 5 },
    { transform = 5 }, { shared = 1 }, { require_leader = 1 }, { indexes = 5 }, { indexes = { 5 } },
    { indexes = { a = 5 } }, { prefix = true }, { initial = true }) },
  compact = { count, options({ physical = 1 }) },
  lease = { ttl, options({ id = "x" }, { id = 1.5 }) },
  lease_by_id = { id },
  leases = { times },
  status = { times },
  hash_kv = { optional_count, times },
  stm = { kind(function(tx) tx:get("a") end, none, 5, "x", {}), options({ isolation = "none" }, { isolation = 5 },
    { prefetch = "a" }, { prefetch = { 5 } }, { prefetch = { a = "b" } }, { prefetch = { "a", nil, "b" } }) },
  namespace = { kind("/app", none, 5, {}) },
  cache = { kind("/app", none, 5, {}), kind(nil, 5, "x", { colour = 1 }, { 1 }, { history_bytes = -1 },
    { history_bytes = 0.5 }, { history_bytes = "x" }, { history_revisions = nan }, { history_age = -1 },
    { history_age = nan }, { slow_after = 0 }, { slow_after = nan }, { slow_after = true }, { file = "" },
    { file = "a\0b" }, { file = 5 }, { file_delay = 1 }, { file = "f", file_delay = -1 },
    { file = "f", file_delay = "x" }, { timeout = -1 }, { timeout = nan }, { timeout = "x" },
    { timeout = math.huge }) },
  session = {
    options({ ttl = 0 }, { ttl = 1.5 }, { ttl = "x" }, { lease = "x" }, { lease = {} }, { ttl = 1, lease = 1 }),
  },
  lock = { key, options({ ttl = 0 }, { session = 5 }, { session = {} }) },
  try_lock = { key, options({ ttl = 0 }, { session = 5 }, { session = {} }) },
  election = { key, kind(nil, 5, "x", { colour = 1 }, { timeout = 1 }, { ttl = 0 }, { session = {} }, { 1 }) },
  close = {},
}

local SESSION = {
  lock = { key, times }, try_lock = { key, times }, election = { key }, wait_lost = { seconds }, error = {},
  orphan = {},
  close = { times },
}

local LOCK = { unlock = { times }, wait_lost = { seconds }, error = {}, is_held = {}, fence = {} }
local LEADERSHIP = {
  proclaim = { key, times }, resign = { times }, wait_lost = { seconds }, error = {}, is_held = {}, fence = {},
}
local ELECTION = { campaign = { key, times }, leader = { times }, observe = { times } }
local OBSERVER = { next = { seconds }, leaders = {}, close = {} }

local STORE = {
  alarms = {},
  disarm = { alarm },
  defragment = { times },
}

local CLIENT = {
  state = {},
  members = { options({ serializable = 1 }) },
  health = { times },
  sync_endpoints = { times },
  call = { path, kind("", none, 5), options({ raw = 1 }, { metadata = 5 }, { metadata = { [5] = "x" } },
    { metadata = { a = 5 } }, { metadata = { A = "x" } }, { is_read = 1 }) },
  stream = { path, options({ raw = 1 }, { metadata = { ["grpc-x"] = "x" } }) },
}

-- What a namespace names the cure for.
local NOT_OF_NAMESPACES = {
  alarms = {}, disarm = {}, defragment = {}, call = {}, stream = {}, state = {}, members = {}, health = {},
  sync_endpoints = {},
}

local TX = {
  get = { key }, revision = { key }, delete = { key },
  put = { key, kind("v", none, 5, {}), kind(nil, 5, "x", { colour = 1 }, { lease = "x" }, { lease = {} }, { 1 }) },
}

local LEASE = { keepalive = { times }, remaining = { times }, keys = { times }, revoke = { times } }
local KEPT = { keep = {}, wait_lost = { seconds }, error = {}, orphan = {} } -- of a lease that is kept

local OF_READS = { { consistent = 1 }, { min_revision = -1 }, { min_revision = 0.5 }, { min_revision = "x" } }
local CACHE = {
  is_ready = {}, wait_ready = { seconds }, has_synced = {}, wait_synced = { seconds },
  wait_for = { kind(1, none, -1, 1.5, nan, "x", {}), seconds },
  sync = { seconds }, status = {}, close = {}, object_watch = FACE.object_watch, informer = FACE.informer,
  get = { key, options({ revision = -1 }, unpack(OF_READS)) },
  range = { key, options({ limit = "x" }, { prefix = true, range_end = "b" }, { sort_order = "up" },
    unpack(OF_READS)) },
  each = { key, options({ limit = "x" }, { page = 0 }, { sort_order = "ascend" }, { prefix = 1 }, unpack(OF_READS)) },
  watch = { key, kind(nil, 5, "x", { colour = 1 }, { 1 }, { start_revision = -1 }, { filters = { "x" } },
    { no_put = true }, { initial = true, start_revision = 1 }, { slow_after = 0 }, { slow_after = "x" },
    { slow_after = true }) },
  table = { kind(nil, 5, "x", { colour = 1 }, { 1 }, { decode = 5 }, { on_change = "x" }, { on_error = {} },
    { relative = 1 }) },
}

local WATCH = { next = { seconds }, batch = { seconds }, sync = { seconds }, events = {}, error = {}, close = {} }

local OBJECT_WATCH = { next = { seconds }, events = {}, error = {}, status = {}, close = {} }
local SELECTOR = { matches = {} }

local INFORMER = {
  has_synced = {}, wait_synced = { seconds }, get = { key }, each = {}, count = {}, bad_values = {}, status = {},
  error = {}, close = {}, add_index = { kind("new", none, 5), kind(function() end, none, 5, "x") },
  by_index = { kind("a", none, 5, "b") }, index_values = { kind("a", none, 5, "b") },
  index_count = { kind("a", none, 5, "b") },
  add_handler = { kind({ add = print }, none, 5, "x", {}, { colour = print }, { add = 5 }, { update = "x" },
    { add = print, resync = 0 }, { add = print, resync = nan }, { add = print, resync = "x" },
    { add = print, max_bytes = 0 }, { add = print, max_bytes = "x" }, { add = print, max_bytes = nan },
    { add = print, at_bound = "cry" }, { add = print, at_bound = 5 }) },
}
local HANDLER = { has_synced = {}, wait_synced = { seconds }, join = { seconds }, status = {}, close = {} }

local STREAM = {
  send = { kind({}, 5, "x", { colour = 1 }) },
  receive = { seconds },
  messages = {},
  finish = {},
  close = {},
}

local method = kind({}, none, 5, { [1] = print }, { a = 5 }, { a = {} }, { a = { handler = 5 } },
  { a = { handler = print, colour = 1 } }, { a = { handler = print, request = "x" } })

local SERVER = {
  addresses = {},
  mount = { kind("a.B", none, 5, {}), method },
  use = { kind({}, none, 5, { befor = print }, { before = 5 }, { after = 5 }) },
  handle = { kind("GET", none, 5, {}), kind("/a/{name}", none, 5, "a", "/{a}b"), fn },
  shutdown = { seconds },
  metrics = {},
  close = {},
}

local THREAD_SERVER = { addresses = {}, shutdown = { seconds }, metrics = {}, close = {} }

local TASK = { join = { seconds }, cancel = {} }

local SIGNALS = { wait = { seconds }, close = {} }
local SCOPE = { spawn = { fn }, cancel = {} }

local any = kind("v", none)

local CHANNEL = {
  send = { any, seconds }, receive = { seconds }, values = {}, sending = { any }, count = {}, close = {},
}

local ended = keywatch.spawn(function() end)
ended:join()

local channel, hole = keywatch.channel(1), { keywatch.channel(), nil, keywatch.channel() }
local function list_of(good, ...)
  return kind(good, none, 5, "x", { 5 }, { print }, { {} }, hole, { good[1], timeout = "x" },
    { good[1], timeout = nan }, { good[1], colour = 1 }, { [0] = good[1] }, { good[1], [1.5] = good[1] }, ...)
end

local MODULE = {
  open = { kind(nil, 5, "x", { colour = 1 }, { path = 5 }, { path = "x", colour = 1 }, { path = "x", now = "x" },
    { now = "x" },
    { on_progress = 5 }, { path = "x", on_progress = 5 }, { max_txn_ops = "x" },
    { on_progress = print, max_txn_ops = "x" }) },
  connect = { kind(LOCAL, none, 5, {}, "x", { 5 }, "ftp://a:1", "", "a:1,", "a:99999", "a:1:2", "https://a"),
    kind(nil, 5, { colour = 1 }, { timeout = "x" }, { timeout = nan }, { timeout = -1 }, { user = "x" },
    { max_message = 0.5 }, { keepalive = -1 }, { keepalive = -math.huge }, { keepalive = nan }, { backoff = 1 },
    { backoff = { 1 } },
    { backoff = { first = 0 } }, { backoff = { first = 4 } }, { backoff = { longest = nan } }, { on_state = 5 },
    { on_call = 5 }, { prefer = "last" }, { prefer = 5 }, { sync_endpoints = 0 }, { sync_endpoints = nan },
    { sync_endpoints = true }, { tls = false }, { tls = "x" }, { tls = { colour = 1 } }, { tls = { 1 } },
    { tls = { ca = 5 } }, { tls = { ca = "" } }, { tls = { ca = "a\0" } }, { tls = { cert = "x" } },
    { tls = { key = "x" } }, { tls = { crl = {} } }, { tls = { server_name = 5 } }, { tls = { verify = "no" } },
    { tls = { server_name = ("x"):rep(256) } }, { tls = { cipher_suites = "x" } }, { tls = { min_version = "x" } },
    { tls = { min_version = "TLS1.3", max_version = "TLS1.2" } }) },
  serve = { kind(nil, none, 5, {}, { store = 5 }, { colour = 1 }, { thread = 1 }, { thread = true, store = 5 },
    { thread = true, open = { colour = 1 }, listen = LOCAL }, { thread = true, open = { now = print }, listen = LOCAL },
    { thread = true, listen = "x" }, { thread = true, listen = "https://127.0.0.1:0" },
    { thread = true, listen = LOCAL, tls = 5 }, { thread = true, listen = LOCAL, tls = { auto = true } },
    { thread = true, listen = "https://127.0.0.1:0", tls = {} },
    { thread = true, listen = "https://127.0.0.1:0", tls = { auto = true, colour = 1 } },
    { thread = true, listen = "https://127.0.0.1:0", tls = { auto = true, cipher_suites = "x" } }) },
  run = { fn },
  spawn = { fn },
  scope = { fn },
  shield = { kind(0, none, "x", -1, nan, 1 / 0, {}), fn },
  on_exit = { fn },
  channel = { kind(0, -1, 1.5, nan, 1 / 0, "x", {}, true) },
  log = { kind({}, none, 5, "x", { colour = 1 }, { level = "loud" }, { level = 5 }, { handler = 5 }) },
  select = { list_of({ channel }, {}, { channel, channel }, { setmetatable({}, { __select = 5 }) }) },
  join = { list_of({ ended }, { channel }) },
  sleep = { needed_seconds },
  now = {},
  driver = { kind("uv", 5, {}, "select") },
  fd = {}, pollfd = {}, events = {}, timeout = {}, step = {},
  selector = { kind("a=b", none, 5, print, "a=(", { 5 }, { a = {} }), kind(nil, 5, { colour = 1 }, { kind = "names" },
    { kind = 5 }, { labels_at = 5 }, { kind = "fields", labels_at = "a" }) },
  signals = { kind({ "HUP" }, none, 5, "HUP", {}, { "KILL" }, { "HUP", 1 }, { HUP = true }) },
}

-- }======

--- A function that calls a method, or a function of the module, by its name.
local function caller(name, is_function)
  local text = ("local o = ... o%s%s(select(2, ...)) return nil"):format(is_function and "." or ":", name)
  return assert(load_text(text, "=blame"))
end

local function shown(value)
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for name, field in pairs(value) do parts[#parts + 1] = tostring(name) .. " = " .. shown(field) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

--- Returns a text about a violation in a raised error; nil if there is none.
local function trouble(ok, err, name)
  if ok then return "nothing was raised" end
  if type(err) ~= "string" then return "what was raised is not a text: " .. tostring(err) end
  if not err:find("^blame:1: ") then return "it was raised elsewhere: " .. err end
  local words = err:gsub("^blame:1: ", "")
  if words:find("%.lua:%d") then return "it has two positions: " .. err end
  if words:find("number of seconds expected, got number", 1, true) then return "it does not help: " .. err end
  local is_named = words:find("%f[%w]" .. name .. "%f[%W]") or words:find("^%l+%[%d+%]") -- an element of a list
  if not is_named then return "it does not name the function: " .. err end
end

--- Calls all functions in the signatures with all arguments that they refuse. Returns a list of violations.
local function misuse_all(object, signatures, is_module)
  local found = {}
  for name, arguments in pairs(signatures) do
    local call, good = caller(name, is_module), {}
    for i, argument in ipairs(arguments) do
      for _, bad in ipairs(argument.bad) do
        if bad == none then good[i] = nil else good[i] = bad end
        local ok, err = pcall(call, object, unpack(good, 1, i))
        local wrong = trouble(ok, err, name)
        if wrong then found[#found + 1] = ("%s, argument %d = %s: %s"):format(name, i, shown(bad), wrong) end
      end
      good[i] = argument.good
    end
    if not is_module then
      local ok, err = pcall(call, setmetatable({}, { __index = object[name] and { [name] = object[name] } }))
      local wrong = trouble(ok, err, name)
      if wrong then found[#found + 1] = ("%s of something else: %s"):format(name, wrong) end
    end
  end
  table.sort(found)
  return table.concat(found, "\n")
end

local NEED_NOTHING = { lease_by_id = true, namespace = true } -- of the store

--- Calls everything with what it takes on an object that is closed: it must not raise, or as it should. The names that
-- are to raise are given, or true for all. Returns what is wrong.
local function use_closed(object, signatures, words, raising)
  local found = {}
  for name, arguments in pairs(signatures) do
    local good = {}
    for i, argument in ipairs(arguments) do good[i] = argument.good end
    local ok, err = pcall(caller(name), object, unpack(good, 1, #arguments))
    if raising == true and name ~= "close" and not NEED_NOTHING[name] or raising ~= true and raising[name] then
      local position, rest = tostring(err):match("^(blame:1: )(.*)$")
      if ok then
        found[#found + 1] = name .. ": nothing was raised"
      elseif not position or rest:find("%.lua:%d") or not rest:find(words, 1, true) then
        found[#found + 1] = name .. ": " .. tostring(err)
      end
    elseif not ok then
      found[#found + 1] = name .. ": it was raised: " .. tostring(err)
    end
  end
  table.sort(found)
  return table.concat(found, "\n")
end

local function merged(...)
  local all = {}
  for _, one in ipairs { ... } do
    for name, signature in pairs(one) do all[name] = signature end
  end
  return all
end

local CALL = { receive = {}, messages = {}, send = { kind("", none, 5, {}), seconds } }

-- Of the testing kit.
local world_options = kind(nil, 5, "x", { colour = 1 }, { seed = 1.5 }, { seed = -1 }, { now = "x" }, { limit = 0 },
  { idle = "x" }, { turns = 0 }, { leftovers = "keep" })
local TESTING = { run = { fn, world_options }, world = { world_options } }
local WORLD = {
  run = { fn },
  client = { kind(nil, 5, "x", { colour = 1 }, { server = 5 }, { server = {} }, { timeout = "x" }) },
  serve = { kind({ url = "http://x:1" }, 5, "x", { colour = 1 }, { url = 5 }, { url = "x" }, { open = 5 },
    { open = { colour = 1 } }) },
  fault = { kind({ "hang", count = 0 }, none, 5, {}, { "fire" }, { "hang", colour = 1 }, { "hang", method = "fly" },
    { "hang", method = 5 }, { "hang", method = {} }, { "hang", key = 5 }, { "hang", prefix = true },
    { "hang", client = {} }, { "hang", server = {} }, { "hang", skip = -1 }, { "hang", count = 0.5 },
    { "hang", chance = 2 }, { "hang", error = "no_space" }, { "hang", seconds = 1 }, { "refuse" },
    { "refuse", error = "fire" }, { "refuse", error = {} }, { "delay" }, { "delay", seconds = -1 },
    { "delay", seconds = { 2, 1 } }, { "hang", method = "watch", key = "a" },
    { "hang", method = { "lease", "keepalive" }, key = "a" }) },
  cut = { kind({}, none, 5, {}) },
  isolate = { kind({}, none, 5, {}) },
  join = { kind({}, none, 5, {}) },
  pause = { kind(1, none, -1, "x", {}) },
  close = {},
}
local WORLD_SERVER = {
  stop = {}, start = {}, cut = {}, isolate = {}, join = {}, replace = {},
  restart = { seconds },
  kill = {},
  slow = { kind(0, none, -1, "x", {}, nan), kind(nil, -1, "x", nan) },
  compact = { optional_count },
  restore = { kind(1, none, 0, 1.5, 9, "x", {}) },
  lose_lease = { kind(7, none, 1.5, "x", {}) },
}
local RULE = { stop = {} }

-- Of controllers. The functions of each file stand by themselves.
local item = kind("a", none, nan)
local add_options = kind(nil, 5, "x", { colour = 1 }, { 1 }, { after = "x" }, { after = nan }, { after = 1 / 0 },
  { priority = "x" }, { priority = nan })
local retry_options = kind(nil, 5, "x", { colour = 1 }, { after = 1 }, { priority = "x" }, { priority = nan })
local own_limiter = { when = print, forget = print, retries = print }

--- Options of a controller: those that are needed, and others; `false` leaves one out.
local function controlled(opts)
  local all = { name = "c", sources = { channel }, reconcile = print }
  for name, value in pairs(opts) do all[name] = value or nil end
  return all
end

local function refused_sources(...)
  local all = {}
  for i, source in ipairs { ... } do all[i] = controlled { sources = { source } } end
  return unpack(all)
end

local QUEUES = {
  work_queue = { kind(nil, 5, "x", { colour = 1 }, { 1 }, { name = 5 }, { limiter = 5 }, { limiter = {} },
    { limiter = { when = print, forget = print } }) },
}
local LIMITERS = {
  exponential = { kind(nil, 5, "x", { colour = 1 }, { first = 0 }, { first = "x" }, { first = nan },
    { longest = 1 / 0 }, { first = 2, longest = 1 }) },
  fast_slow = { kind(nil, 5, "x", { colour = 1 }, { fast = 0 }, { slow = -1 }, { tries = "x" }, { tries = 0 }) },
  bucket = { kind(nil, 5, "x", { colour = 1 }, { rate = 0 }, { burst = nan }, { rate = "x" }) },
  max = { kind({ own_limiter }, none, 5, "x", {}, { 5 }, { {} }, { own_limiter, nil, own_limiter },
    { own_limiter, colour = 1 }) },
  at_most = { kind(own_limiter, none, 5, "x", {}), kind(1, none, "x", 0, nan, 1 / 0) },
}
local CONTROLLERS = {
  new = { kind(nil, none, 5, "x", {}, controlled { name = false }, controlled { name = 5 },
    controlled { sources = false }, controlled { sources = 5 }, controlled { sources = {} },
    controlled { sources = { channel, nil, channel } }, controlled { sources = { channel, timeout = 5 } },
    controlled { reconcile = false }, controlled { reconcile = "x" }, controlled { colour = 1 },
    controlled { workers = 0 }, controlled { workers = 1.5 }, controlled { workers = "x" },
    controlled { workers = nan }, controlled { timeout = 0 }, controlled { timeout = nan },
    controlled { sync_timeout = -1 }, controlled { sync_timeout = "x" }, controlled { limiter = {} },
    controlled { store = 42 }, controlled { store = "x" }, controlled { store = {} },
    refused_sources(5, "x", {}, ended, { 5 }, { {} }, { channel, colour = 1 }, { channel, map = 5 },
      { channel, where = "x" }, { channel, owner = 1 }, { channel, owner = true, map = print },
      { channel, resync = 5 }, { channel, every = 5 }, { channel, request = "x" }, { every = 5 },
      { every = 5, request = nan }, { every = 0, request = "x" }, { every = nan, request = "x" },
      { every = "x", request = "x" }, { every = 5, request = "x", map = print }, { request = "x" },
      { channel, channel })) },
}
local WORK_QUEUE = {
  add = { item, add_options }, retry = { item, retry_options }, forget = { item }, retries = { item },
  get = { seconds }, done = { kind("a", none, nan, "a", "b") }, close = {}, drain = { seconds }, count = {},
  status = {},
}
local LIMITER = { when = { item }, forget = { item }, retries = { item } }
local CONTROLLER = {
  start = { kind(nil, 42, "x", {}) }, stop = { seconds }, join = { seconds }, run = {}, add = { item, add_options },
  has_synced = {}, status = {},
}

--- Signatures of electors and of the convention: `face` is an object with the methods of a store.
local function electing(face)
  local function elected(opts)
    local all = { store = face, name = "e" }
    for name, value in pairs(opts) do all[name] = value or nil end
    return all
  end
  return {
    elector = { kind(nil, none, 5, "x", {}, elected { colour = 1 }, elected { 1 }, elected { store = false },
      elected { store = 5 }, elected { store = {} }, elected { name = false }, elected { name = 5 },
      elected { name = "" }, elected { id = 5 }, elected { id = "" }, elected { ttl = 0 }, elected { ttl = 1.5 },
      elected { ttl = "x" }, elected { ttl = nan }, elected { on_lead = 5 }, elected { on_lose = "x" },
      elected { on_leader = {} }) },
  }
end

local function owning(face)
  local object_key = kind("a", none, 5, true, {})
  local face_kind = kind(face, none, 5, "x", {}, setmetatable({}, { __index = face }))
  local finalizer = kind("f", none, 5, {}, "", "\255")
  return {
    delete = { face_kind, object_key, times },
    add_finalizer = { face_kind, object_key, finalizer, times },
    remove_finalizer = { face_kind, object_key, finalizer, times },
    has_finalizer = { kind({}, "{}"), kind("f", none, 5, {}) },
    is_deleting = { kind({}, "{}") },
    owner_of = { kind({}, "{}") },
  }
end

--- Signatures of managers: `face` is an object with the methods of a store.
local function managing(face)
  local function managed(opts)
    local all = { store = face }
    for name, value in pairs(opts) do all[name] = value or nil end
    return all
  end
  return {
    manager = { kind(nil, none, 5, "x", {}, managed { colour = 1 }, managed { 1 }, managed { store = false },
      managed { store = 5 }, managed { store = {} }, managed { election = 5 }, managed { election = "" },
      managed { id = "x" }, managed { ttl = 5 }, managed { election = "e", id = 5 },
      managed { election = "e", id = "" }, managed { election = "e", ttl = 0 }, managed { election = "e", ttl = 1.5 },
      managed { election = "e", ttl = nan }, managed { stop_timeout = -1 }, managed { stop_timeout = nan },
      managed { stop_timeout = "x" }, managed { sync_timeout = 0 }, managed { sync_timeout = nan },
      managed { sync_timeout = "x" }) },
  }
end
local MANAGER = {
  add = { kind({ start = print, stop = print }, none, 5, "x", {}, { start = print }, { start = print, stop = 5 },
    print),
    kind(nil, 5, "x", { colour = 1 }, { leader = 1 }) },
  load = { kind("/no/such/file.lua", none, 5, {}) }, start = {}, addresses = {}, has_synced = {},
  wait_synced = { seconds },
  wait_leading = { seconds },
  stop = { seconds }, join = { seconds }, is_healthy = {}, status = {}, metrics = {},
  run = { kind(nil, 5, "x", { colour = 1 }, { signals = 5 }, { signals = "INT" }, { signals = { "KILL" } },
    { signals = { 5 } }, { signals = { x = "INT" } }) },
}
local ELECTOR = {
  start = {}, stop = { seconds }, join = { seconds }, is_leader = {}, leader = {}, fence = {}, status = {},
}

local HTTP_HEADERS = { { [5] = "a" }, { ["a b"] = "c" }, { a = "b\n" }, { a = true }, { connection = "x" },
  { host = "a b" } }
local function http_options(...)
  local found = kind(nil, 5, "x", { colour = 1 }, { timeout = 0 }, { method = "" }, { method = "CONNECT" },
    { method = "A B" }, { stall = nan }, ...)
  for _, headers in ipairs(HTTP_HEADERS) do table.insert(found.bad, { headers = headers }) end
  return found
end
local http_url = kind("http://127.0.0.1:1", none, 5, {})
local HTTP_REQUEST = { request = { http_url, http_options({ body = 5 }, { max_body = -1 },
  { length = 5 }, { redirects = -1 }) } }
local HTTP = merged(HTTP_REQUEST, {
  client = { kind(nil, 5, "x", { colour = 1 }, { timeout = 0 }, { max_per_host = 0 }, { idle_timeout = 0 },
    { redirects = 0.5 }, { decompress = 5 }, { protocol = "h3" }, { tls = 5 }, { tls = { colour = 1 } },
    { headers = HTTP_HEADERS[2] }) },
})
local HTTP_CLIENT = merged(HTTP_REQUEST, { open = { http_url, http_options { body = "x" } }, close = {} })
local EXCHANGE = {
  write = { kind("x", none, 5, {}) }, finish = {}, answer = { seconds }, read = { seconds }, parts = {}, trailers = {},
  close = {},
}

local SIGNATURES = { -- by files of annotations, and classes
  ["types/keywatch.lua"] = {
    ["keywatch"] = MODULE, ["keywatch.Store"] = merged(FACE, STORE),
    ["keywatch.Client"] = merged(FACE, CLIENT), ["keywatch.Lease"] = merged(LEASE, KEPT), ["keywatch.Watch"] = WATCH,
    ["keywatch.ObjectWatch"] = OBJECT_WATCH, ["keywatch.Selector"] = SELECTOR,
    ["keywatch.Cache"] = CACHE, ["keywatch.Informer"] = INFORMER, ["keywatch.Handler"] = HANDLER,
    ["keywatch.Stream"] = STREAM, ["keywatch.Server"] = SERVER, ["keywatch.Task"] = TASK, ["keywatch.Call"] = CALL,
    ["keywatch.Signals"] = SIGNALS,
    ["keywatch.Scope"] = SCOPE, ["keywatch.Channel"] = CHANNEL, ["keywatch.Namespace"] = FACE, ["keywatch.Tx"] = TX,
    ["keywatch.Session"] = SESSION, ["keywatch.Lock"] = LOCK, ["keywatch.Leadership"] = LEADERSHIP,
    ["keywatch.Election"] = ELECTION, ["keywatch.Observer"] = OBSERVER, ["keywatch.Fence"] = FACE,
  },
  ["types/keywatch/testing.lua"] = {
    ["keywatch.testing"] = TESTING, ["keywatch.testing.World"] = WORLD, ["keywatch.testing.Server"] = WORLD_SERVER,
    ["keywatch.testing.Rule"] = RULE,
  },
  ["types/keywatch/http.lua"] = {
    ["keywatch.http"] = HTTP, ["keywatch.http.Client"] = HTTP_CLIENT, ["keywatch.http.Exchange"] = EXCHANGE,
  },
  ["types/keywatch/controller.lua"] = {
    ["keywatch.controller"] = merged(QUEUES, CONTROLLERS, electing(), managing()),
    ["keywatch.controller.limiter"] = LIMITERS, ["keywatch.controller.ownership"] = owning(),
    ["keywatch.controller.Manager"] = MANAGER,
    ["keywatch.controller.Elector"] = ELECTOR, ["keywatch.controller.WorkQueue"] = WORK_QUEUE,
    ["keywatch.controller.Limiter"] = LIMITER, ["keywatch.controller.Controller"] = CONTROLLER,
  },
}

describe("the signatures of misuse #once", function()
  for file, all in pairs(SIGNATURES) do
    it("have every public function of " .. file, function()
      local classes = annotations.read(file).classes
      for class, signatures in pairs(all) do
        for name in pairs(classes[class].methods) do assert.is_table(signatures[name], class .. " " .. name) end
      end
    end)
  end
end)

describe("a usage error is raised at the caller's line:", function()
  local store, server, client, closing

  before_each(function()
    closing = {}
    store = keywatch.open()
    server = assert(keywatch.serve { store = store, listen = LOCAL })
    client = keywatch.connect(server:addresses()[1])
  end)

  after_each(function()
    for i = #closing, 1, -1 do closing[i]:close() end
    client:close()
    server:close()
    store:close()
    directory.remove_all()
  end)

  local function close_later(object)
    table.insert(closing, object)
    return object
  end

  local function durable_store() return close_later(assert(keywatch.open { path = directory.new() })) end

  it("functions of the module", function() assert.equal("", misuse_all(keywatch, MODULE, true)) end)

  it("the HTTP client", function()
    assert.equal("", misuse_all(http, HTTP, true))
    local web = close_later(http.client())
    assert.equal("", misuse_all(web, HTTP_CLIENT))
    local exchange = close_later(assert(web:open(server:addresses()[1], { method = "POST" })))
    assert.equal("", misuse_all(exchange, EXCHANGE))
    exchange:finish()
    assert.equal("", misuse_all(exchange, { write = { kind(nil, "x") } }))
  end)

  it("work queues and limiters", function()
    assert.equal("", misuse_all(controller, QUEUES, true))
    assert.equal("", misuse_all(controller.limiter, LIMITERS, true))
    local queue = controller.work_queue()
    assert.equal("", misuse_all(queue, WORK_QUEUE))
    queue:close()
    local limiters = controller.limiter
    for _, limiter in ipairs {
      limiters.exponential(), limiters.fast_slow(), limiters.bucket(), limiters.max { limiters.bucket() },
      limiters.at_most(limiters.bucket(), 1),
    } do assert.equal("", misuse_all(limiter, LIMITER)) end
  end)

  it("controllers", function()
    assert.equal("", misuse_all(controller, CONTROLLERS, true))
    local one = controller.new(controlled {})
    assert.equal("", misuse_all(one, CONTROLLER))
    one:start()
    assert.equal("", misuse_all(one, { start = { kind(nil, none) }, run = { kind(nil, none) } }))
    one:stop()
  end)

  it("options of a wrong kind, by the kind that they must have", function()
    local queue = controller.work_queue()
    for text, wrong in pairs {
      ["add: option 'after' must be a finite number, not 'x'"] = function() queue:add("a", { after = "x" }) end,
      ["controller.new: option 'reconcile' must be a function, not 'x'"] = function()
        controller.new(controlled { reconcile = "x" })
      end,
      ["controller.new: option 'name' must be a string, not 5"] = function()
        controller.new(controlled { name = 5 })
      end,
      ["controller.new: option 'sources' must be a table, not 5"] = function()
        controller.new(controlled { sources = 5 })
      end,
      ["controller.new: option 'timeout' must be more than 0 seconds, not 'x'"] = function()
        controller.new(controlled { timeout = "x" })
      end,
      ["controller.new: option 'store' must be a store, a client, or an object with their methods, not 42"] =
        function() controller.new(controlled { store = 42 }) end,
      ["bad argument #1 to 'max' (table expected, got limiter)"] = function()
        controller.limiter.max(controller.limiter.bucket())
      end,
    } do
      local ok, err = pcall(wrong)
      assert.is_false(ok)
      assert.equal(text, (err:gsub("^%S+:%d+: ", "")))
    end
  end)

  it("electors, finalizers and owners", function()
    for _, face in ipairs { store, client, store:namespace("n/"), store:lock("l"):fence() } do
      assert.equal("", misuse_all(controller, electing(face), true))
      assert.equal("", misuse_all(controller.ownership, owning(face), true))
    end
    local cache = close_later(store:cache("a/"))
    for _, name in ipairs { "delete", "add_finalizer" } do
      local ok, err = pcall(controller.ownership[name], cache, "a/x", "f")
      assert.is_false(ok)
      assert.is_truthy(err:find("a store, a client, a namespace or a fence expected", 1, true))
    end
    local one = controller.elector { store = store, name = "e" }
    assert.equal("", misuse_all(one, ELECTOR))
    one:start()
    assert.equal("", misuse_all(one, { start = { kind(nil, none) } }))
    one:stop()
  end)

  it("managers", function()
    for _, face in ipairs { store, client, store:namespace("n/"), store:lock("l"):fence() } do
      assert.equal("", misuse_all(controller, managing(face), true))
    end
    local one = controller.manager { store = store }
    assert.equal("", misuse_all(one, MANAGER))
    local added = controller.new(controlled {})
    one:add(added)
    local started = controller.new(controlled { name = "s" })
    started:start()
    assert.equal("", misuse_all(one, { add = { kind(nil, added, started, controller.new(controlled {})) } }))
    local another = controller.manager { store = store }
    assert.equal("", misuse_all(another, { add = { kind(nil, added) } }))
    assert.equal("", misuse_all(added, { start = { kind(nil, none) }, run = { kind(nil, none) } }))
    local elector = one:add(controller.elector { store = store, name = "e" })
    assert.equal("", misuse_all(elector, { start = { kind(nil, none) } }))
    one:start()
    assert.equal("", misuse_all(one, { start = { kind(nil, none) } }))
    one:stop(0)
    started:stop(0)
    assert.equal("", misuse_all(one, { start = { kind(nil, none) } }))
  end)

  describe("open", function()
    local LINES = table.concat({ "local keywatch, opts = ...", "local function inner()",
      "  local store, err = keywatch.open(opts)", "  return store, err", "end", "local function outer()",
      "  local store, err = inner()", "  return store, err", "end", "local store, err = outer()", "return store, err" },
      "\n")
    local HERE = "blame:3: " -- where open is called, two functions deep
    local nested = assert(load_text(LINES, "=blame"))
    local asserted = assert(load_text("local keywatch, opts = ...\nreturn assert(keywatch.open(opts))", "=blame"))

    -- Options, and the name that the error must have.
    local REFUSED = {
      { { pth = "x" }, "'pth'" }, { { path = 5 }, "'path'" }, { { path = "a\0b" }, "'path'" },
      { { path = "x", replica = true }, "'path'" }, { { step_records = 0 }, "'step_records'" },
      { { min_lease_ttl = 2 ^ 52 }, "'min_lease_ttl'" }, { { now = 1e300 }, "'now'" },
      { { path = "x", now = -1e300 }, "'now'" }, { { progress_interval = 1e300 }, "'progress_interval'" },
      { { path = "x", journal_segment_bytes = 0 }, "'journal_segment_bytes'" },
      { { replica = 1 }, "'replica'" }, { { on_progress = 5 }, "'on_progress'" }, { { "x" }, "option" },
    }

    local function check_all(call)
      for _, case in ipairs(REFUSED) do
        local ok, err = call(nested, keywatch, case[1])
        assert.is_false(ok)
        assert.equal(HERE .. "open: ", tostring(err):sub(1, #HERE + 6))
        assert(err:find(case[2], 1, true), err)
        assert.is_nil(err:find("%.lua:%d"), err)
      end
    end

    it("names the option, and the line of the call, at any depth", function() check_all(pcall) end)

    it("does so in a task", within.task(function()
      check_all(function(...)
        local arguments = { ... }
        return keywatch.spawn(function() return arguments[1](arguments[2], arguments[3]) end):join()
      end)
    end))

    it("does so in a coroutine", function()
      check_all(function(call, ...) return coroutine.resume(coroutine.create(call), ...) end)
    end)

    it("does so when pcall calls open", function()
      local text = "local keywatch, opts = ...\nreturn select(2, pcall(keywatch.open, opts))"
      local call = assert(load_text(text, "=blame"))
      for _, case in ipairs(REFUSED) do assert.equal("blame:2: open: ", call(keywatch, case[1]):sub(1, 15)) end
    end)

    it("names the line of the call if the path cannot be opened", function()
      for _, bad in ipairs { "/dev/null/directory", "/etc/passwd", "" } do
        local store_or_nil, err = nested(keywatch, { path = bad })
        assert.is_nil(store_or_nil)
        assert.equal("storage", err.code)
        assert.equal("keywatch: cannot open " .. bad .. ": ", err.message:sub(1, #bad + 24))
        assert.equal(HERE .. err.message .. " (storage)", tostring(err))
        local ok, raised = pcall(asserted, keywatch, { path = bad })
        assert.is_false(ok)
        assert.equal("blame:2: " .. err.message .. " (storage)", tostring(raised))
      end
    end)
  end)

  it("options of serve", function()
    local refused = { { store = store, listen = "https://127.0.0.1:0" },
      { store = store, listen = LOCAL, tls = { auto = true } } }
    for _, name in ipairs { "max_concurrent_streams", "quota_connection_bytes", "keepalive_min_time",
      "keepalive_interval", "keepalive_timeout" } do
      for _, value in ipairs { nan, "x", -1 } do
        table.insert(refused, { store = store, listen = LOCAL, [name] = value })
      end
    end
    for _, tls in ipairs { 5, "x", {}, { auto = 1 }, { auto = true, colour = 1 }, { cert = "a" },
      { auto = true, cert = "a", key = "b" },
      { cert = 5, key = 5 }, { cert = "", key = "" }, { auto = true, validity_years = nan },
      { auto = true, directory = 5 }, { auto = true, client_cert_auth = "x" }, { auto = true, crl = "x" },
      { auto = true, min_version = "x" }, { auto = true, cipher_suites = "x" }, { auto = true, ca = "a\0b" } } do
      table.insert(refused, { store = store, listen = "https://127.0.0.1:0", tls = tls })
    end
    for _, one in ipairs(refused) do assert.equal("", misuse_all(keywatch, { serve = { kind(nil, one) } }, true)) end
  end)

  it("methods of a store", function() assert.equal("", misuse_all(store, merged(FACE, STORE))) end)
  it("methods of a durable store", function() assert.equal("", misuse_all(durable_store(), merged(FACE, STORE))) end)
  it("methods of a client", function() assert.equal("", misuse_all(client, merged(FACE, CLIENT))) end)

  it("methods of a namespace", function()
    for _, owner in ipairs { store, durable_store(), client, store:namespace("a") } do
      local namespace = owner:namespace("/app")
      assert.equal("", misuse_all(namespace, FACE))
      assert.equal("", use_closed(namespace, NOT_OF_NAMESPACES, "a namespace does not have this method", true))
      assert.equal("", misuse_all(close_later(assert(namespace:watch("a"))), WATCH))
      assert.equal("", misuse_all(assert(namespace:lease(10)), LEASE))
    end
  end)

  it("methods of a software transaction", function()
    for _, owner in ipairs { store, durable_store(), client, store:namespace("a"), client:namespace("a") } do
      local found, kept
      owner:stm(function(tx) found, kept = misuse_all(tx, TX), tx end)
      assert.equal("", found)
      assert.equal("", use_closed(kept, TX, "the software transaction has ended", true))
    end
  end)

  it("methods of sessions, locks, elections and fences", function()
    for _, owner in ipairs { store, durable_store(), client, store:namespace("a") } do
      local session = assert(owner:session())
      assert.equal("", misuse_all(session, SESSION))
      local lock, election = assert(session:lock("lock")), session:election("election")
      assert.equal("", misuse_all(lock, LOCK))
      assert.equal("", misuse_all(election, ELECTION))
      local leadership = assert(election:campaign("x"))
      assert.equal("", misuse_all(leadership, LEADERSHIP))
      assert(leadership:resign())
      assert.equal("", misuse_all(close_later(assert(election:observe())), OBSERVER))
      local fence, face = lock:fence(), merged(FACE)
      face.compact, face.close = nil, nil
      assert.equal("", misuse_all(fence, face))
      assert.equal("", use_closed(fence, { compact = {} }, "a fence cannot do this", true))
      assert.equal("", use_closed(fence, { close = {} }, "a fence cannot do this", { close = true }))
      assert(lock:unlock())
    end
  end)

  it("sessions, locks, elections and software transactions of a closed store", function()
    local closed = keywatch.open()
    local faces = { closed, closed:namespace("a"), assert(closed:lock("lock")):fence() }
    local elections = {}
    for i, face in ipairs(faces) do elections[i] = face:election("election") end
    closed:close()
    local calls = {
      session = {}, lock = { key }, try_lock = { key }, stm = { kind(function(tx) return tx:get("a") end) },
    }
    for i, face in ipairs(faces) do
      assert.equal("", use_closed(face, calls, "the store is closed", true))
      assert.equal("", use_closed(elections[i], ELECTION, "the store is closed", true))
    end
  end)

  it("sessions and leases of another store", function()
    local session, other = assert(store:session()), keywatch.open()
    local calls = { lock = { key, kind { session = session } }, election = { key, kind { session = session } } }
    assert.equal("", use_closed(other, calls, "the session belongs to another store or client", true))
    calls = { session = { kind { lease = session.lease } } }
    assert.equal("", use_closed(other, calls, "the lease belongs to another store or client", true))
    other:close()
  end)

  it("methods of leases", function()
    for _, owner in ipairs { store, durable_store(), client } do
      assert.equal("", misuse_all(owner:lease(10), LEASE))
      assert.equal("", misuse_all(owner:lease_by_id(7), LEASE))
      local lease = owner:lease(10)
      assert.equal("", misuse_all(lease, { keep = {}, error = {}, orphan = {} }))
      assert.equal("", use_closed(owner:lease(10), { wait_lost = {} }, "wait_lost: the lease is not kept", true))
      assert.equal("", misuse_all(lease:keep(), KEPT))
      lease:orphan()
    end
  end)

  it("methods of object watches and selectors", function()
    for _, owner in ipairs { store, durable_store(), client, store:namespace("a") } do
      assert.equal("", misuse_all(close_later(assert(owner:object_watch("a"))), OBJECT_WATCH))
      local shared = close_later(assert(owner:object_watch("a", { codec = "json", fields = "a=b" })))
      assert.equal("", misuse_all(shared, OBJECT_WATCH))
      assert.equal("", misuse_all(owner, { object_watch = FACE.object_watch })) -- beside one that shares
    end
    assert.equal("", misuse_all(keywatch.selector("a"), SELECTOR))
  end)

  it("methods of caches", function()
    for _, owner in ipairs { store, durable_store(), client, store:namespace("a"), client:namespace("a") } do
      local cache = close_later(assert(owner:cache("")))
      assert(cache:wait_ready())
      assert.equal("", misuse_all(cache, CACHE))
      assert.equal("", misuse_all(close_later(assert(cache:watch("a"))), WATCH))
      cache:close()
      local rest = merged(CACHE)
      rest.each = nil -- which raises the error
      assert.equal("", use_closed(cache, rest, "", {}))
    end
  end)

  it("methods of informers and handlers", function()
    for _, owner in ipairs { store, client, store:namespace("a"), close_later(assert(store:cache(""))) } do
      local informer = close_later(assert(owner:informer("a", { indexes = { a = function() end } })))
      assert(informer:wait_synced())
      assert.equal("", misuse_all(informer, INFORMER))
      local handler = assert(informer:add_handler { add = function() end })
      assert(handler:wait_synced())
      handler:close()
      assert.equal("", misuse_all(handler, HANDLER))
    end
    local informer = close_later(assert(store:informer("b", { indexes = { a = print } })))
    assert.equal("", misuse_all(informer, { add_index = { kind("a"), kind(print, function() end) } }))
    informer:close()
  end)

  it("methods of watches", function()
    for _, owner in ipairs { store, durable_store(), client } do
      assert.equal("", misuse_all(close_later(assert(owner:watch("a"))), WATCH))
    end
  end)

  it("methods of streams", function()
    local stream = close_later(assert(client:stream("/etcdserverpb.Watch/Watch")))
    assert.equal("", misuse_all(stream, STREAM))
    stream:finish()
    assert.equal("", use_closed(stream, { send = { kind {} } }, "send: stream:finish() was called before", true))
  end)

  it("methods of servers", function()
    assert.equal("", misuse_all(server, SERVER))
    local thread = close_later(assert(keywatch.serve { thread = true, listen = LOCAL }))
    assert.equal("", misuse_all(thread, THREAD_SERVER))
    assert.equal("", use_closed(thread, { mount = { key, method }, use = { method } }, "another thread", true))
  end)

  it("methods of tasks", function()
    assert.equal("", misuse_all(keywatch.spawn(function() end), TASK))
    assert.equal("", misuse_all(keywatch.channel(), CHANNEL))
    assert.equal("", misuse_all(keywatch.scope(function(scope) return scope end), SCOPE))
    keywatch.run(function() end)
  end)

  it("methods of signals", function()
    assert.equal("", misuse_all(close_later(keywatch.signals { "USR1" }), SIGNALS))
  end)

  it("methods of calls", function()
    local found
    server:mount("spec.Calls", { Stream = { stream = true, handler = function(call)
      found = misuse_all(call, CALL)
    end } })
    local stream = close_later(assert(client:stream("/spec.Calls/Stream")))
    stream:receive()
    assert.equal("", found)
  end)

  it("the testing kit", function()
    assert.equal("", misuse_all(testing, TESTING, true))
    local world = close_later(testing.world())
    assert.equal("", misuse_all(world, WORLD))
    local rule = world:fault { "hang" }
    assert.equal("", misuse_all(rule, RULE))
    assert.equal("", misuse_all(world.server, WORLD_SERVER))
    assert.equal("", misuse_all(keywatch, { -- functions that a world does not have
      open = { kind({}, { path = "/no/where", now = 1 }) },
      signals = { kind("", { "INT" }) }, driver = { kind(nil, "uv") },
      serve = { kind("", { thread = true }) },
    }, true))
    world:close()
    assert.equal("", use_closed(world, { client = {}, serve = {}, run = { fn }, fault = WORLD.fault },
      "the world is closed", true))
    assert.equal("", use_closed(world.server, WORLD_SERVER, "the world is closed", true))
  end)

  it("waits where waiting is not allowed", function()
    local stream = close_later(assert(client:stream("/etcdserverpb.Watch/Watch")))
    local found = {}
    for _, case in ipairs {
      { client, "get", "a" }, { client, "exists", "a" }, { client, "put", "a", "" }, { client, "range", "a" },
      { client, "each", "a" },
      { client, "delete", "a" }, { client, "txn", {} }, { client, "compact", 1 }, { client, "lease", 10 },
      { client, "leases" }, { client, "status" }, { client, "hash_kv" },
      { client, "stm", print, { prefetch = { "a" } } }, { client:namespace("x"), "get", "a" },
      { client:namespace("x"), "put", "a", "" }, { client:namespace("x"), "range", "a" },
      { client:namespace("x"), "each", "a" }, { client:namespace("x"), "delete", "a" },
      { client:namespace("x"), "txn", {} }, { client:namespace("x"), "watch", "a" },
      { client:namespace("x"), "status" }, { client:namespace("x"), "lease", 10 },
      { client, "members" }, { client, "health" }, { client, "sync_endpoints" }, { client, "call", "/a.B/C", "" },
      { client:lease_by_id(7), "keepalive" }, { client:lease_by_id(7), "remaining" }, { client:lease_by_id(7), "keys" },
      { client:lease_by_id(7), "revoke" }, { store:lease(10):keep(), "wait_lost" },
      { stream, "receive" }, { close_later(store:watch("a")), "next" },
      { close_later(store:watch("a")), "batch" }, { close_later(assert(client:watch("a"))), "next" },
      { close_later(assert(client:watch("a"))), "sync" }, { keywatch.spawn(function() keywatch.sleep(0) end), "join" },
      { server, "shutdown" }, { close_later(keywatch.signals { "USR1" }), "wait" },
      { client, "watch", "b" }, { client, "watch", "b", { initial = true } },
    } do
      local ok, err
      coroutine.wrap(function() ok, err = pcall(caller(case[2]), case[1], unpack(case, 3)) end)()
      local is_right = not ok and tostring(err):find("^blame:1: keywatch: " .. case[2] .. " waits, ")
      if not is_right then found[#found + 1] = ("%s: %s"):format(case[2], tostring(err)) end
    end
    assert.equal("", table.concat(found, "\n"))
    assert.equal(1, store:status().revision)
  end)

  it("uses of a closed store", function()
    local face = merged(FACE)
    face.stm = nil -- which raises where its function calls tx
    face.election = nil -- which sends no request
    for _, one in ipairs { keywatch.open(), durable_store() } do
      local lease, kept = one:lease(10), one:lease(10):keep()
      one:close()
      assert.equal("", use_closed(kept, KEPT, "", {}))
      assert.equal("", use_closed(one:lease_by_id(7), { keep = {} }, "", {}))
      assert.equal("", use_closed(one, merged(face, STORE), "the store is closed", true))
      assert.equal("", use_closed(lease, LEASE, "the store is closed", true))
      local inner = merged(face)
      inner.close = nil
      assert.equal("", use_closed(one:namespace("x"), inner, "the store is closed", true))
      local commit = { stm = { kind(function(tx) tx:put("a", "") end) } }
      assert.equal("", use_closed(one, commit, "the store is closed", true))
      local ok, err = pcall(caller("serve", true), keywatch, { store = one, listen = LOCAL })
      assert.is_false(ok)
      assert.equal("blame:1: serve: the store is closed", err)
    end
  end)

  it("uses of a closed server", function()
    server:close()
    local raised = { mount = true, use = true, metrics = true, handle = true }
    assert.equal("", use_closed(server, SERVER, "the server is closed", raised))
    assert.equal("", use_closed(server, { mount = { key, kind({ A = print }) } }, "the server is closed", true))
  end)

  it("other closed objects raise nothing", function()
    local watch, remote = store:watch("a"), assert(client:watch("a"))
    local stream, lease = assert(client:stream("/etcdserverpb.Watch/Watch")), client:lease(10)
    watch:close()
    remote:close()
    stream:close()
    local signals = keywatch.signals { "USR1" }
    signals:close()
    assert.equal("", use_closed(signals, SIGNALS, "", {}))
    for _, one in ipairs { watch, remote } do assert.equal("", use_closed(one, WATCH, "", {})) end
    assert.equal("", use_closed(stream, { send = STREAM.send, receive = {}, messages = {}, close = {} }, "", {}))
    client:close()
    local namespace = store:namespace("x")
    namespace:close()
    local without_each = merged(FACE)
    without_each.each = nil -- which raises the error that range returns
    assert.equal("", use_closed(namespace, without_each, "", {}))
    without_each = merged(FACE, CLIENT)
    without_each.each = nil -- which raises the error that range returns
    assert.equal("", use_closed(client, without_each, "", {}))
    assert.equal("", use_closed(lease, LEASE, "", {}))
    assert.equal("", use_closed(lease:keep(), KEPT, "", {}))
  end)
end)
