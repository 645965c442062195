-- SPDX-License-Identifier: MIT
--- server: a store that etcd's clients can talk to.
--
-- The core answers what is hot, and queues the calls of mounted methods. The driver polls the server when there is
-- nothing to run: each of those calls becomes a task. A server lives until it is closed, whoever has forgotten it.

local call = require "keywatch.server.call"
local check = require "keywatch.support.check"
local compactor = require "keywatch.server.compactor"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local identity = require "keywatch.server.identity"
local url = require "keywatch.support.url"

local DEFAULT_LISTEN = "http://localhost:2379"
local DEFAULT_PEER = "http://localhost:2380" -- nobody listens there; the ids are made of it
local RAFT_TERM = 2   -- of a fresh etcd with one member
local PORT_TRIES = 16 -- to find a port that is free on all addresses of a name
local UNAVAILABLE = 14 -- gRPC's status of calls that are cut off
local STALL_SECONDS = 60 -- without progress, after which a snapshot is no longer held for its reader
local CALLS = 64 -- that are begun at a time: then others have their turn
local GRACE, MOST_GRACE = 5, 1e9 -- seconds
local LAST_WORDS = 0.5 -- seconds, for those who are told at the end of the grace that it is over

local SERVICES = { "auth", "cluster", "election", "health", "lock", "maintenance" } -- modules, in services/

local server_methods = {}
local server_mt = { __name = "keywatch.server", __index = server_methods }

function server_mt:__tostring()
  return ("keywatch.server<%s>"):format(self.is_closed and "closed" or table.concat(self:addresses(), ","))
end

-- {====== Listening ======

local function failure(address, text, name)
  local err = core.new_error("listen_failed")
  err.message = ("keywatch: cannot listen on %s: %s"):format(url.format(address), text)
  err.errno = name
  return err
end

--- A name may have addresses of a family that the machine does not have.
local function is_absent(name)
  return name == "EAFNOSUPPORT" or name == "EADDRNOTAVAIL"
end

local function close_all(listeners)
  for _, listener in ipairs(listeners) do listener:close() end
end

--- Listens on each host, all with the same port: a list of listeners, or nil, an error and its name.
local function listen_on_hosts(object, hosts, port)
  local d, listeners, absent = driver.get(), {}, nil
  for _, host in ipairs(hosts) do
    local address = { host = host, port = port }
    local listener, text, name = d.listen(object, address)
    if listener then
      listeners[#listeners + 1] = listener
      port = listener:address().port
    elseif is_absent(name) then
      absent = absent or failure(address, text, name)
    else
      close_all(listeners)
      return nil, failure(address, text, name)
    end
  end
  if #listeners == 0 then return nil, absent end
  return listeners
end

local function listen_on(object, address)
  if address.path then
    local listener, text, name = driver.get().listen(object, address)
    if not listener then return nil, failure(address, text, name) end
    return { listener }
  end
  local hosts, text, name = driver.get().resolve(address.host)
  if not hosts then return nil, failure(address, text, name) end
  local listeners, err
  for _ = 1, address.port == 0 and PORT_TRIES or 1 do
    listeners, err = listen_on_hosts(object, hosts, address.port)
    if listeners or err.errno ~= "EADDRINUSE" then break end
  end
  return listeners, err
end

--- On all of them, or on none.
local function listen_on_all(object, addresses)
  local all = {}
  for _, address in ipairs(addresses) do
    local listeners, err = listen_on(object, address)
    if not listeners then
      close_all(all)
      return nil, err
    end
    for _, listener in ipairs(listeners) do all[#all + 1] = listener end
  end
  return all
end

-- }======

-- {====== Calls ======

local source_methods = {}
local source_mt = { __index = source_methods }

local function begin(server, id)
  local opened = call.open(server, id)
  if not opened then return end
  server.calls[id] = opened
  opened.task = driver.get().spawn(call.serve, opened)
end

--- The client has got its answer, or has lost interest.
local function finish(server, known, status)
  server.calls[known.id] = nil
  known.is_over = true
  known.task:cancel()
  if #server.middleware > 0 then driver.get().spawn(call.tell_after, known, status) end
end

--- Makes tasks of the calls that are new, wakes those that wait for their client or for a snapshot, and tells who waits
-- for the end that it has come.
function source_methods:poll()
  local server, n = self.server, 0
  for id, is_new, has_input, has_room, status in server.object.next_news, server.object do
    if is_new then begin(server, id) end
    local known = server.calls[id]
    if known and has_input then known.arrived:set() end
    if known and has_room then known.has_room:set() end
    if known and status then finish(server, known, status) end
    n = n + 1
    if n == CALLS then break end
  end
  for snapshot, ready in pairs(server.snapshots) do
    if snapshot:is_ready() ~= false then ready:set() end
  end
  if server.gone and not driver.get().hosts(server.object) then server.gone:set() end
end

local function add_method(server, path, method)
  server.methods[path] = method
  server.object:mount(path, method.is_stream, method.takes_one)
end

--- The services of this house have the server as their first argument.
local function mount_all(server)
  for _, name in ipairs(SERVICES) do
    for path, entry in pairs(require("keywatch.server.services." .. name)) do
      local handler = entry[3]
      add_method(server, path, {
        request = entry[1],
        response = entry[2],
        is_stream = entry.is_stream,
        takes_one = entry.takes_one,
        handler = entry.is_stream and function(c) return handler(server, c) end
          or function(request, c) return handler(server, request, c) end,
      })
    end
  end
end

local is_message = {}
for _, name in ipairs(core.messages) do is_message[name] = true end

local function is_function(value) return type(value) == "function" end
local function is_boolean(value) return type(value) == "boolean" end
local function is_codec(value) return is_function(value) or is_message[value] == true end

--- What their fields must be: in words, and as a function.
local METHOD_FIELDS = {
  handler = { "a function", is_function },
  stream = { "a boolean", is_boolean },
  request = { "the name of a message, or a function", is_codec },
  response = { "the name of a message, or a function", is_codec },
}

local MIDDLEWARE_FIELDS = {
  before = { "a function", is_function },
  after = { "a function", is_function },
}

--- Raises, unless all fields of a table are as they must be.
local function check_fields(given, fields, what)
  for name, value in pairs(given) do
    local field = fields[name]
    if not field then check.misuse("%s has no field '%s'", what, tostring(name)) end
    if not field[2](value) then check.misuse("%s: '%s' must be %s", what, name, field[1]) end
  end
end

--- A method as a user has written it down: a function, or a table.
local function read_method(name, given)
  if type(name) ~= "string" then check.misuse("mount: methods are by name") end
  if type(given) == "function" then given = { handler = given } end
  if type(given) ~= "table" or given.handler == nil then
    check.misuse("mount: %s must be a function, or a table with a function 'handler'", name)
  end
  check_fields(given, METHOD_FIELDS, "mount: " .. name)
  return {
    handler = given.handler,
    is_stream = given.stream == true,
    request = given.request,
    response = given.response,
  }
end

local function read_middleware(given)
  check_fields(given, MIDDLEWARE_FIELDS, "use")
  return { before = given.before, after = given.after }
end

-- }======

--- The URLs that it listens on, with the ports that the kernel chose.
function server_methods:addresses()
  check.self(self, "addresses", server_mt)
  local list = {}
  for i, listener in ipairs(self.listeners) do list[i] = url.format(listener:address()) end
  return list
end

--- Accepts no more, and cuts off whoever is connected. Twice is fine.
function server_methods:close()
  check.self(self, "close", server_mt)
  if self.is_closed then return true end
  local d = driver.get()
  self.is_closed = true
  if self.compactor then self.compactor:close() end
  close_all(self.listeners)
  self.listeners = {}
  d.release(self.object)
  self.object:close()
  d.detach(self.source)
  for _, known in pairs(self.calls) do finish(self, known, UNAVAILABLE) end
  if self.gone then self.gone:set() end
  return true
end

--- Accepts no more, asks clients to go elsewhere, waits until they have gone, `grace` seconds at most, and closes. Any
-- number of tasks may do so at once.
function server_methods:shutdown(grace)
  check.self(self, "shutdown", server_mt)
  check.timeout(grace, "shutdown")
  if self.is_closed then return true end
  local d = driver.get()
  d.check_wait()
  grace = math.max(0, math.min(grace or GRACE, MOST_GRACE))
  close_all(self.listeners)
  self.listeners = {}
  self.object:drain(grace)
  self.gone = self.gone or d.event()
  if self.is_closed then return true end -- a finalizer was before the event
  self.gone:wait(grace + LAST_WORDS)
  return self:close()
end

local function check_open(server, name)
  if server.is_closed then check.misuse("%s: the server is closed", name) end
end

--- Adds a service: methods by name, each a function of request and call that returns the answer, or a table:
-- { handler =, stream =, request =, response = }.
function server_methods:mount(service, methods)
  check.self(self, "mount", server_mt)
  check.argument(type(service) == "string", 1, "mount", "string", service)
  check.argument(type(methods) == "table", 2, "mount", "table", methods)
  check_open(self, "mount")
  local read = {}
  for name, given in pairs(methods) do read[("/%s/%s"):format(service, name)] = read_method(name, given) end
  for path, method in pairs(read) do add_method(self, path, method) end
end

--- Adds what is to happen before and after every call of every service: { before = function(call), after =
-- function(call, status) }. What `before` raises, or returns as nil and an error, is the call's answer.
function server_methods:use(middleware)
  check.self(self, "use", server_mt)
  check.argument(type(middleware) == "table", 1, "use", "table", middleware)
  check_open(self, "use")
  local read = read_middleware(middleware)
  if #self.middleware == 0 then self.object:intercept() end
  self.middleware[#self.middleware + 1] = read
end

-- {====== Opening ======

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

local function is_string(value) return type(value) == "string" end
local function is_number(value) return type(value) == "number" and value == value end
local function is_table(value) return type(value) == "table" end
local function is_amount(value) return is_number(value) and value >= 0 and value < math.huge end
local function is_count(value) return is_amount(value) and value % 1 == 0 and value <= 2 ^ 53 end
local function is_mode(value) return value == "periodic" or value == "revision" end

--- What an option must be: in words, and as a function.
local OPTIONS = {
  store = { "a store", is_store },
  thread = { "a boolean", is_boolean },
  open = { "a table of options", is_table },
  listen = { "a URL, or a list of them", is_list_of_strings },
  name = { "a string", is_string },
  advertise = { "a URL, or a list of them", is_list_of_strings },
  peer_urls = { "a URL, or a list of them", is_list_of_strings },
  cluster_token = { "a string", is_string },
  max_concurrent_streams = { "a whole number that is not negative", is_count },
  quota_connection_bytes = { "a whole number of bytes that is not negative", is_count },
  keepalive_min_time = { "a number of seconds", is_number },
  keepalive_interval = { "a number of seconds", is_number },
  keepalive_timeout = { "a number of seconds", is_number },
  auto_compaction_mode = { '"periodic" or "revision"', is_mode },
  auto_compaction_retention = { "a number of seconds, or of revisions", is_amount },
}

local LISTS = { listen = true, advertise = true, peer_urls = true }

--- A copy in which every list is one.
local function read_options(opts)
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

--- A store stays where it is: whoever serves in another thread opens one there.
local function check_store(opts)
  if opts.thread then
    if not opts.store then return end
    check.misuse("serve: a store cannot go to another thread: leave out 'store', and give the options of a new one as"
      .. " 'open'")
  end
  if opts.open then check.misuse("serve: option 'open' is of use with 'thread' alone") end
  if not opts.store then check.misuse("serve: option 'store' must be a store") end
  local ok, why = pcall(opts.store.deadline, opts.store)
  if not ok then check.misuse("serve: %s", why) end -- it is closed
end

local function parse_urls(urls)
  local addresses = {}
  for i, text in ipairs(urls) do
    local address, why = url.parse(text)
    if not address then check.misuse("serve: %s %s", text, why) end
    addresses[i] = address
  end
  return addresses
end

--- nil if all is to be kept.
local function open_compactor(opts)
  if opts.auto_compaction_retention == 0 then return nil end
  return compactor.open(opts.store, opts.auto_compaction_mode, opts.auto_compaction_retention)
end

--- Serves a store. It listens when this returns, and answers while the loop turns; in a thread, always.
local function serve(opts)
  opts = read_options(opts)
  check_store(opts)
  local addresses = parse_urls(opts.listen)
  if opts.thread then return require("keywatch.server.thread").start(opts) end
  local ids, err = identity.of(opts.store, opts.peer_urls, opts.cluster_token)
  if not ids then return nil, err end
  local object
  object, err = core.serve(opts.store, {
    cluster_id = ids.cluster_id,
    member_id = ids.member_id,
    raft_term = RAFT_TERM,
    max_concurrent_streams = opts.max_concurrent_streams,
    quota_connection_bytes = opts.quota_connection_bytes,
    keepalive_min_time = opts.keepalive_min_time,
    keepalive_interval = opts.keepalive_interval,
    keepalive_timeout = opts.keepalive_timeout,
  })
  if not object then return nil, err end
  local listeners
  listeners, err = listen_on_all(object, addresses)
  if not listeners then
    object:close()
    return nil, err
  end
  local server = setmetatable({
    store = opts.store,
    object = object, -- the core's
    listeners = listeners,
    methods = {},    -- those that Lua answers, by path
    middleware = {}, -- { before, after }, in order
    calls = {},      -- that Lua has to do with, by id
    snapshots = {},  -- that are being written, with the event for when they are not any more
    source = nil,    -- what the driver polls
    compactor = open_compactor(opts),

    name = opts.name,
    identity = ids,
    raft_term = RAFT_TERM,
    peer_urls = opts.peer_urls,
    client_urls = opts.advertise,

    stall_seconds = STALL_SECONDS,
    gone = nil, -- an event, set when nobody is connected any more
    is_closed = false,
  }, server_mt)
  server.client_urls = server.client_urls or server:addresses()
  mount_all(server)
  server.source = setmetatable({ server = server }, source_mt)
  driver.get().attach(server.source)
  return server
end

-- }======

return { serve = serve, methods = server_methods, mt = server_mt }
