--- The server for the specs of services: a server in this process, or in the pass etcd a real etcd. Both must behave in
-- the same way; `is_etcd` marks known differences of etcd 3.4.

local busted = require "busted"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"

local etcd = require "spec.support.server"
local rpc = require "spec.support.rpc"

local KV, LEASE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/"

local serving = { is_etcd = etcd.is_etcd }
serving.__index = serving

--- Starts a server. Options of keywatch's store: `now`, for a manual clock, and `path`.
function serving.start(options)
  local self = setmetatable({ clients = {} }, serving)
  if etcd.is_etcd then
    self.process = etcd.start()
    self.url = self.process.url
    return self
  end
  options = options or {}
  self.store = assert(keywatch.open { now = options.now, path = options.path })
  self.server = assert(keywatch.serve { store = self.store, listen = "http://127.0.0.1:0" })
  self.url = self.server:addresses()[1]
  return self
end

--- Connects a client.
function serving:client()
  local client = rpc.connect(self.url)
  table.insert(self.clients, client)
  return client
end

function serving:stop()
  for _, client in ipairs(self.clients) do client:close() end
  if self.process then self.process:stop() end
  if self.server then self.server:close() end
  if self.store then self.store:close() end
end

--- For the calling block of tests: calls set(serving, client) before each test, with a new server and client.
function serving.for_each_test(set, options)
  local one
  busted.before_each(function()
    one = serving.start(options)
    set(one, one:client())
  end)
  busted.after_each(function() one:stop() end)
end

--- For the calling block of tests: calls set(store, server, client) before each test, with a server in this process and
-- a client without a socket.
function serving.in_process(set)
  local store, server, client
  busted.before_each(function()
    store = keywatch.open()
    server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    client = rpc.attach(server)
    set(store, server, client)
  end)
  busted.after_each(function()
    client:close()
    server:close()
    keywatch.run(function() keywatch.sleep(0) end) -- delivers late notices
    store:close()
  end)
end

--- For the calling block of tests: calls set(serving, client, other) before each test, with new clients of one server.
-- Returns a function that grants a lease, with an id if given, which is revoked after the test.
function serving.for_lock_services(set)
  local self, client, leases
  busted.setup(function() self = serving.start() end)
  busted.teardown(function() self:stop() end)
  busted.before_each(function()
    client, leases = self:client(), {}
    set(self, client, self:client())
  end)
  busted.after_each(function()
    for _, lease in ipairs(leases) do client:ask(LEASE .. "LeaseRevoke", { ID = lease }) end
  end)
  return function(id)
    leases[#leases + 1] = serving.grant(client, 100, id)
    return leases[#leases]
  end
end

-- What services are made of, over the wire ----------------------------------------------------------------------------

function serving.put(client, key, value)
  return assert(client:ask(KV .. "Put", { key = key, value = value }))
end

--- Returns the keys below a prefix, in the order of their creation.
function serving.keys(client, prefix)
  local answer = assert(client:ask(KV .. "Range", {
    key = prefix, range_end = prefix:sub(1, -2) .. string.char(prefix:byte(-1) + 1), sort_target = "CREATE",
    sort_order = "ASCEND",
  }))
  local list = {}
  for i, kv in ipairs(answer.kvs or {}) do list[i] = kv.key end
  return list
end

function serving.revision(client) return assert(client:ask(KV .. "Range", { key = "\1" })).header.revision end

function serving.grant(client, ttl, id)
  return assert(client:ask(LEASE .. "LeaseGrant", { TTL = ttl, ID = id })).ID
end

function serving.revoke(client, lease) assert(client:ask(LEASE .. "LeaseRevoke", { ID = lease })) end

--- Returns the log lines of a function.
function serving.log_of(fn)
  local lines, write = {}, log.write
  log.write = function(_, format, ...) table.insert(lines, format:format(...)) end
  local ok, err = pcall(fn)
  log.write = write
  if not ok then error(err, 0) end
  return lines
end

return serving
