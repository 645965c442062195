-- SPDX-License-Identifier: MIT
--- options: the options of keywatch.serve: their types, their defaults, and which of them go together.
--
-- Every wrong option raises, with the position of the caller of keywatch.

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

local function is_list_of_strings(value)
  if type(value) ~= "table" or #value == 0 then return false end
  for _, item in ipairs(value) do
    if type(item) ~= "string" then return false end
  end
  return true
end

local function is_function(value) return type(value) == "function" end
local function is_boolean(value) return type(value) == "boolean" end
local function is_string(value) return type(value) == "string" end
local function is_number(value) return type(value) == "number" and value == value end
local function is_table(value) return type(value) == "table" end
local function is_amount(value) return is_number(value) and value >= 0 and value < math.huge end
local function is_count(value) return is_amount(value) and value % 1 == 0 and value < 2 ^ 53 end
local function is_mode(value) return value == "periodic" or value == "revision" end

--- Every option: a description of the value for error texts, and a function that is true for a good value.
local OPTIONS = {
  store = { "a store", is_store },
  thread = { "a boolean", is_boolean },
  open = { "a table of options", is_table },
  listen = { "a URL, or a list of them", is_list_of_strings },
  tls = { "a table of options", is_table },
  name = { "a string", is_string },
  advertise = { "a URL, or a list of them", is_list_of_strings },
  peer_urls = { "a URL, or a list of them", is_list_of_strings },
  cluster_token = { "a string", is_string },
  max_concurrent_streams = { "a whole number that is not negative", is_count },
  quota_connection_bytes = { "a whole number of bytes that is not negative", is_count },
  keepalive_min_time = { "a number of seconds", is_number },
  keepalive_interval = { "a number of seconds", is_number },
  keepalive_timeout = { "a number of seconds", is_number },
  log_level = { "debug, info, warn, error, panic or fatal", log.is_level },
  on_log = { "a function", is_function },
  auto_compaction_mode = { '"periodic" or "revision"', is_mode },
  auto_compaction_retention = { "a number of seconds, or of revisions", is_amount },
}

local LISTS = { listen = true, advertise = true, peer_urls = true } -- options that may be one URL instead of a list

--- Returns a copy of the options with the defaults filled in, and with a list for every option that may be one.
local function read_fields(opts)
  if type(opts) ~= "table" then check.misuse("serve: options must be a table, not a %s", type(opts)) end
  local t = { listen = { DEFAULT_LISTEN }, name = "default", peer_urls = { DEFAULT_PEER },
    auto_compaction_mode = "periodic", auto_compaction_retention = 0 }
  for name, value in pairs(opts) do
    local option = OPTIONS[name]
    if not option then check.misuse("serve: there is no option '%s'", tostring(name)) end
    if LISTS[name] and type(value) == "string" then value = { value } end
    if not option[2](value) then check.misuse("serve: option '%s' must be %s", name, option[1]) end
    t[name] = value
  end
  if t.auto_compaction_mode == "revision" and t.auto_compaction_retention % 1 ~= 0 then
    check.misuse("serve: option 'auto_compaction_retention' must be a whole number of revisions")
  end
  return t
end

--- Raises if there is a function for log lines, and a thread to which it cannot go.
local function check_log(opts)
  if not opts.thread or not opts.on_log then return end
  check.misuse("serve: a function cannot go to another thread: serve without 'thread', or without 'on_log'")
end

--- Raises unless there is an open store; with `thread`, unless there is none: a store stays in the thread that opened
-- it.
local function check_store(opts)
  if opts.thread then
    if not opts.store then return end
    check.misuse("serve: a store cannot go to another thread: leave out 'store', and give the options of a new one as"
      .. " 'open'")
  end
  if opts.open then check.misuse("serve: option 'open' is of use with 'thread' alone") end
  if not opts.store then check.misuse("serve: option 'store' must be a store") end
  local ok, why = pcall(opts.store.deadline, opts.store)
  if not ok then check.misuse("serve: %s", why) end -- the store is closed
end

--- Returns the parsed addresses of a list of URLs.
local function parse_urls(urls)
  local addresses = {}
  for i, text in ipairs(urls) do
    local address, why = url.parse(text)
    if not address then check.misuse("serve: %s %s", text, why) end
    addresses[i] = address
  end
  return addresses
end

--- Returns the URL of the first address with TLS; or nil.
local function first_secure(addresses)
  for _, address in ipairs(addresses) do
    if address.is_tls then return url.format(address) end
  end
end

--- Checks the option `tls`, which is a table or nil. Its files are not looked at here.
local function check_tls(given, addresses)
  local secure = first_secure(addresses)
  if given then
    tls.check_server(given, "serve")
    if not secure then check.misuse("serve: option 'tls' needs an https:// or unixs: URL in 'listen'") end
  elseif secure then
    check.misuse("serve: %s asks for TLS: give the option 'tls'", secure)
  end
end

--- Returns the checked options, and the addresses to listen on.
local function read(opts)
  opts = read_fields(opts)
  check_store(opts)
  check_log(opts)
  local addresses = parse_urls(opts.listen)
  check_tls(opts.tls, addresses)
  return opts, addresses
end

return { read = read }
