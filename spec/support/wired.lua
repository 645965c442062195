--- A store behind a server in this process, with the methods of the store: each call uses core.requests, a connection,
-- and core.answers. The clock is manual.

local core = require "keywatch.core"
local lease = require "keywatch.store.lease"
local pages = require "keywatch.store.pages"

local pair = require "spec.support.pair"

local PATHS = {
  get = "Range", range = "Range", put = "Put", delete = "DeleteRange", txn = "Txn", compact = "Compact",
  lease_grant = "LeaseGrant", lease_revoke = "LeaseRevoke", lease_keepalive = "LeaseKeepAlive",
  lease_time_to_live = "LeaseTimeToLive", leases = "LeaseLeases",
}

local methods = {}
local mt = { __index = methods }

--- `on_answer`, if given, is called for every answer, with the method, the bytes and the memo.
local function new(options, on_answer)
  local host = pair.host(options)
  return setmetatable({ host = host, client = host:client(), on_answer = on_answer }, mt)
end

--- Makes a unary call. Returns the message of the answer; or nil, the status and its text.
local function exchange(self, path, bytes)
  local client = self.client
  local call = client:start(path, nil, bytes)
  client.client:half_close(call)
  self.host:pump()
  client:take()
  local back = client.returns[call]
  client.returns[call] = nil
  if back.status ~= 0 then return nil, back.status, back.text end
  assert(#back == 1, "not one answer")
  return back[1]
end

for verb, path in pairs(PATHS) do
  methods[verb] = function(self, ...)
    local bytes, err, _, memo = core.requests[verb](self, ...)
    if not bytes then return nil, err end
    local answer, status, text = exchange(self, path, bytes)
    if not answer then return nil, core.error_of(status, text) end
    if self.on_answer then self.on_answer(verb, answer, memo) end
    return core.answers[verb](answer, memo)
  end
end

function methods:each(key, opts) return pages.iterate(self, key, opts) end

function methods:lease(ttl, opts)
  local granted, err = self:lease_grant(ttl, opts)
  if not granted then return nil, err end
  return setmetatable({ owner = self, id = granted.id, ttl = granted.ttl }, lease.mt)
end

function methods:lease_by_id(id) return setmetatable({ owner = self, id = core.id(id) }, lease.mt) end

--- Returns a keeper without leases.
function methods.lease_keeper() return { find = function() end } end

function methods:step(now) return self.host.store:step(now) end
function methods:close() self.host:close() end

return { new = new }
