-- SPDX-License-Identifier: MIT
--- options: the options of keywatch.serve: their types, defaults and valid combinations.
--
-- Every wrong option raises an error, at the line that called keywatch.

local check = require "keywatch.support.check"
local log = require "keywatch.support.log"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

local DEFAULT_LISTEN = "http://localhost:2379"
local DEFAULT_PEER = "http://localhost:2380" -- only the ids are made from this URL: no socket listens there

local function is_store(value)
  local meta = type(value) == "userdata" and getmetatable(value)
  return type(meta) == "table" and meta.__name == "keywatch.store"
end

local function is_string(value) return type(value) == "string" end
local function is_amount(value) return type(value) == "number" and value >= 0 and value < math.huge end

local URLS = check.list_of("a URL, or a list of them", is_string, 1)
local ANY_URLS = { URLS[1], function(value) return is_string(value) or URLS[2](value) end }
local ORIGINS = check.list_of("an origin, or a list of them", is_string, 1)
local HOSTS = check.list_of("a host name, or a list of them", is_string, 1)
local LISTS = { [URLS] = true, [ORIGINS] = true, [HOSTS] = true } -- kinds of options that may be one string

-- Every option, and its kind: see check.known.
local OPTIONS = {
  store = { "a store", is_store }, thread = "boolean", open = "table", module = "string",
  listen = URLS, listen_metrics = URLS, tls = "table", name = "string", advertise = URLS, peer_urls = URLS,
  cluster_token = "string",
  max_concurrent_streams = "amount", quota_connection_bytes = "amount",
  keepalive_min_time = "0 or more", keepalive_interval = "0 or more", keepalive_timeout = "0 or more",
  log_level = { "debug, info, warn, error, panic or fatal", log.is_level }, on_log = "function",
  metrics = check.one_of("basic", "extensive"),
  auto_compaction_mode = check.one_of("periodic", "revision"),
  cors = ORIGINS, host_whitelist = HOSTS,
  auto_compaction_retention = { "a number of seconds, or of revisions", is_amount },
}

--- Returns a copy of the options with the defaults filled in, and with a list for every option that may be one URL.
local function read_fields(opts)
  local t = { listen = { DEFAULT_LISTEN }, name = "default", peer_urls = { DEFAULT_PEER }, metrics = "basic",
    auto_compaction_mode = "periodic", auto_compaction_retention = 0 }
  for name, value in pairs(check.options(opts, "serve")) do
    t[name] = LISTS[OPTIONS[name]] and is_string(value) and { value } or value
  end
  check.known(t, "serve", OPTIONS)
  if t.auto_compaction_mode == "revision" and t.auto_compaction_retention % 1 ~= 0 then
    check.misuse("serve: option 'auto_compaction_retention' must be a whole number of revisions")
  end
  return t
end

--- Raises if there are both a function for log lines and a thread, to which the function cannot be passed.
local function check_log(opts)
  if not opts.thread or not opts.on_log then return end
  check.misuse("serve: a function cannot go to another thread: serve without 'thread', or without 'on_log'")
end

--- Raises unless there is an open store, or if there are options for a thread. With `thread`, raises only if there is a
-- store, which only the thread that has opened it can use.
local function check_store(opts)
  if opts.thread then
    if not opts.store then return end
    check.misuse("serve: a store cannot go to another thread: leave out 'store', and give the options of a new one as"
      .. " 'open'")
  end
  for _, name in ipairs { "open", "module" } do
    if opts[name] then check.misuse("serve: option '%s' has an effect only with 'thread'", name) end
  end
  if not opts.store then check.misuse("serve: option 'store' must be a store") end
  local ok, why = pcall(opts.store.status, opts.store)
  if not ok then check.misuse("serve: %s", why) end -- the store is closed
end

--- Returns the parsed addresses of an option of the function `caller`, and adds them to the list `all`.
local function parse_urls(caller, opts, name, all)
  local addresses, urls = {}, opts[name] or {}
  for i, text in ipairs(is_string(urls) and { urls } or urls) do
    local address, why = url.parse(text)
    if not address then check.misuse("%s: option '%s': '%s' %s", caller, name, text, why) end
    addresses[i], all[#all + 1] = address, address
  end
  return addresses
end

--- Returns the URL of the first address with TLS; or nil.
local function first_secure(addresses)
  for _, address in ipairs(addresses) do
    if address.is_tls then return url.format(address) end
  end
end

--- Checks the option `tls` of the function `caller`, which is a table or nil. `names` are the options that have the
-- addresses. Does not read files.
local function check_tls(caller, given, addresses, names)
  local secure = first_secure(addresses)
  if given then
    tls.check_server(given, caller)
    if not secure then check.misuse("%s: option 'tls' needs an https:// or unixs: URL in %s", caller, names) end
  elseif secure then
    check.misuse("%s: %s asks for TLS: give the option 'tls'", caller, secure)
  end
end

--- Returns the checked options; the addresses of `listen`, those of `listen_metrics`, and all of them.
local function read(opts)
  opts = read_fields(opts)
  check_store(opts)
  check_log(opts)
  local all = {}
  local addresses = parse_urls("serve", opts, "listen", all)
  local monitoring = parse_urls("serve", opts, "listen_metrics", all)
  check_tls("serve", opts.tls, all, "'listen' or 'listen_metrics'")
  return opts, addresses, monitoring, all
end

return { read = read, parse_urls = parse_urls, check_tls = check_tls, URLS = ANY_URLS }
