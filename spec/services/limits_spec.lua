--- Limits of every method: the size of a request, and the number of items that an answer may list.

local core = require "keywatch.core"

local methods = require "spec.support.methods"
local misuse = require "spec.support.misuse"
local serving = require "spec.support.serving"
local wire = require "spec.support.wire"

local OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 0, 3, 8
local AUTH, ELECTION, LOCK = "/etcdserverpb.Auth/", "/v3electionpb.Election/", "/v3lockpb.Lock/"
local SMALL = 4096 -- bytes of a request
local CONNECTION = 2 * 1024 * 1024 -- bytes of a request, the limit of all
local MOST, MOST_ITEMS = 5000, 1000 -- users, and roles; roles of a user, and permissions of a role

-- The methods whose requests may be larger than SMALL.
local LARGER = {
  [ELECTION .. "Campaign"] = CONNECTION, [ELECTION .. "Proclaim"] = CONNECTION, [ELECTION .. "Resign"] = 4 * SMALL,
  [LOCK .. "Unlock"] = 4 * SMALL, ["/etcdserverpb.KV/Compact"] = SMALL,
}

if serving.is_etcd then return end -- whose limits are others

describe("a request", function()
  local peer, client

  serving.for_each_test(function(...) peer, client = ... end)

  local function limit_of(path)
    if LARGER[path] then return LARGER[path] end
    return path:find("^/etcdserverpb%.KV/") and CONNECTION or path:find("%.Watch/") and CONNECTION or SMALL
  end

  --- Bytes that every message takes for an unknown field.
  local function padding(n)
    local short = wire.field(200, "")
    local head = n - #short < 128 and #short or n - #short < 16384 and #short + 1 or #short + 2
    local bytes = wire.field(200, ("x"):rep(n - head))
    assert.equal(n, #bytes)
    return bytes
  end

  local function too_large(n, limit)
    return ("grpc: received message larger than max (%d vs. %d)"):format(n, limit)
  end

  --- The status and the text of a call with one request; no status if the call continues.
  local function outcome(path, bytes)
    local call = client:begin(path, bytes)
    for _ = 1, 2000 do
      if call.status then return call.status, call.text end
      client:turn()
    end
    client:cancel(call)
  end

  it("of any method has a limit, above which it is not decoded", function()
    for _, method in ipairs(methods.of(peer.server)) do
      local limit = limit_of(method.path)
      assert.same({ RESOURCE_EXHAUSTED, too_large(limit + 1, limit) }, { outcome(method.path, padding(limit + 1)) },
        method.path)
    end
  end)

  it("of a transaction is not decoded with more operations than any transaction may have", function()
    local op = wire.field(2, wire.field(1, wire.field(1, "k")))
    local cut = wire.field(2, wire.field(1, "\16"))
    local text = "etcdserver: too many operations in txn request"
    assert.not_equal(text, select(2, outcome("/etcdserverpb.KV/Txn", op:rep(16383) .. cut)))
    assert.same({ INVALID_ARGUMENT, text }, { outcome("/etcdserverpb.KV/Txn", op:rep(16384) .. cut) })
    for _ = 1, 2000 do op = wire.field(2, wire.field(4, op)) end
    assert.same({ INVALID_ARGUMENT, text }, { outcome("/etcdserverpb.KV/Txn", op) })
  end)

  it("of a method of the core may have thousands of fields beside its lists, and no more", function()
    local text = "etcdserver: request is too large"
    for _, path in ipairs { "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn", "/etcdserverpb.Watch/Watch" } do
      for _, field in ipairs { wire.field(15, ""), wire.field(1, "") } do
        local request = path:find("Txn") and wire.field(2, "") .. wire.field(15, ""):rep(30000) or field:rep(5000)
        assert.same({ INVALID_ARGUMENT, text }, { outcome(path, request) }, path)
      end
      assert.not_equal(text, select(2, outcome(path, wire.field(15, ""):rep(4000))), path)
    end
  end)

  it("is answered up to the limit of its method", function()
    for _, path in ipairs { "/etcdserverpb.Cluster/MemberList", "/etcdserverpb.Lease/LeaseLeases", AUTH .. "UserList",
      "/etcdserverpb.Maintenance/Status", ELECTION .. "Proclaim" } do
      local status, text = outcome(path, padding(limit_of(path)))
      assert.not_equal(RESOURCE_EXHAUSTED, status, text)
    end
  end)

  it("may name a lock with as many bytes as fit, and unlock it", function()
    local name = ("n"):rep(SMALL - 10)
    local lock = assert(client:ask(LOCK .. "Lock", { name = name }))
    assert(client:ask(LOCK .. "Unlock", { key = lock.key }))
    assert.same({}, serving.keys(client, name .. "/"))
  end)

  it("may carry the large value of a leader, and no large name", function()
    local value = ("v"):rep(1000000)
    local name = ("n"):rep(4000)
    local won = assert(client:ask(ELECTION .. "Campaign", { name = name, value = value }))
    assert.is_true(value == client:ask(ELECTION .. "Leader", { name = name }).kv.value)
    assert(client:ask(ELECTION .. "Proclaim", { leader = won.leader, value = value }))
    assert(client:ask(ELECTION .. "Resign", { leader = won.leader }))
    assert.same({ nil, INVALID_ARGUMENT, core.errors.request_too_large.message },
      { client:ask(ELECTION .. "Campaign", { name = name .. "n" }) })
  end)

  it("of a call with middleware has the same limit", function()
    peer.server:use { before = function() end }
    assert.equal(RESOURCE_EXHAUSTED, (outcome("/etcdserverpb.Lease/LeaseGrant", padding(SMALL + 1))))
  end)

  describe("to a mounted service", function()
    local function mount(method)
      peer.server:mount("spec.Limits", { Method = method })
      return "/spec.Limits/Method"
    end

    local function echo(request) return tostring(type(request)) end

    it("may have 64 KiB unless the method says otherwise", function()
      local path = mount(echo)
      assert.equal(OK, (outcome(path, ("x"):rep(65536))))
      assert.same({ RESOURCE_EXHAUSTED, too_large(65537, 65536) }, { outcome(path, ("x"):rep(65537)) })
      path = mount { handler = echo, max_bytes = 10 }
      assert.equal(OK, (outcome(path, ("x"):rep(10))))
      assert.same({ RESOURCE_EXHAUSTED, too_large(11, 10) }, { outcome(path, ("x"):rep(11)) })
      path = mount { handler = echo, max_bytes = math.huge }
      assert.equal(OK, (outcome(path, ("x"):rep(CONNECTION))))
      assert.equal(RESOURCE_EXHAUSTED, (outcome(path, ("x"):rep(CONNECTION + 1))))
    end)

    it("is one message of a stream, each with the limit", function()
      local path = mount { stream = true, max_bytes = 10, handler = function(call)
        for message in call:messages() do call:send(message) end
      end }
      local call = client:call(path)
      for _ = 1, 3 do client:send(call, ("x"):rep(10)) end
      client:wait(function() return #call.messages == 3 end)
      client:send(call, ("x"):rep(11))
      assert.same({ RESOURCE_EXHAUSTED, too_large(11, 10) }, { client:finish(call) })
    end)

    it("has a limit of fields and of items in lists", function()
      local function status_of(request, max_fields, bytes)
        return (outcome(mount { handler = echo, request = request, max_bytes = math.huge, max_fields = max_fields },
          bytes))
      end
      local url = wire.field(2, "")
      assert.equal(OK, status_of("MemberUpdateRequest", nil, url:rep(4096)))
      assert.equal(INVALID_ARGUMENT, status_of("MemberUpdateRequest", nil, url:rep(4097)))
      assert.equal(OK, status_of("MemberUpdateRequest", math.huge, url:rep(4097)))
      for _, case in ipairs {
        { "AlarmRequest", "\8\1" }, { "AlarmRequest", padding(5) }, { "ResignRequest", wire.field(1, "") },
        { "TxnRequest", wire.field(1, "\8\0"), 2 }, { "WatchCreateRequest", "\40\1" },
      } do
        local name, bytes, n = case[1], case[2], case[3] or 1
        assert.equal(OK, status_of(name, 20, bytes:rep(20 / n)), name)
        assert.equal(INVALID_ARGUMENT, status_of(name, 20, bytes:rep(20 / n + 1)), name)
      end
      assert.equal(OK, status_of("WatchCreateRequest", 20, wire.field(5, ("\1"):rep(19)))) -- packed
      assert.equal(INVALID_ARGUMENT, status_of("WatchCreateRequest", 20, wire.field(5, ("\1"):rep(20))))
    end)

    it("may have no limit", function()
      for _, limit in ipairs { 0, -1, 1.5, 0 / 0, "1", true } do
        for _, name in ipairs { "max_bytes", "max_fields" } do
          assert.matches("'" .. name .. "' must be a whole number above 0",
            misuse.raises(mount, { handler = echo, [name] = limit }))
        end
      end
    end)
  end)

  describe("for one more", function()
    --- Writes users, or roles, without asking the service.
    local function fill(message, n)
      local changes = {}
      for i = 1, n do
        local name = ("%s %04d"):format(message, i)
        changes[i] = { "auth" .. message .. "s", name, core.encode(message, { name = name }) }
      end
      assert(peer.store:change_rows(changes))
    end

    local function refused(what, path, request)
      assert.same({ nil, RESOURCE_EXHAUSTED, "keywatch: there are too many " .. what },
        { client:ask(AUTH .. path, request) })
    end

    it("user is refused when there are many, which are all listed", function()
      fill("User", MOST - 1)
      local ann = { name = "ann", options = { no_password = true } }
      assert(client:ask(AUTH .. "UserAdd", ann))
      refused("users", "UserAdd", { name = "bob", options = ann.options })
      assert.equal(MOST, #client:ask(AUTH .. "UserList").users)
      assert(client:ask(AUTH .. "UserDelete", { name = "ann" }))
      assert(client:ask(AUTH .. "UserAdd", ann))
    end)

    it("role is refused when there are many, which are all listed", function()
      fill("Role", MOST - 1)
      assert(client:ask(AUTH .. "RoleAdd", { name = "one" }))
      refused("roles", "RoleAdd", { name = "two" })
      assert.equal(MOST, #client:ask(AUTH .. "RoleList").roles)
    end)

    it("role of a user is refused, and permission of a role, when there are many", function()
      local roles, permissions = {}, {}
      for i = 1, MOST_ITEMS do roles[i], permissions[i] = "r" .. i, { key = ("k%04d"):format(i) } end
      assert(peer.store:change_rows {
        { "authUsers", "ann", core.encode("User", { name = "ann", roles = roles }) },
        { "authRoles", "r", core.encode("Role", { name = "r", keyPermission = permissions }) },
      })
      refused("roles of the user", "UserGrantRole", { user = "ann", role = "r" })
      refused("permissions of the role", "RoleGrantPermission", { name = "r", perm = { key = "new" } })
      assert(client:ask(AUTH .. "RoleGrantPermission", { name = "r", perm = { key = "k0500", permType = "WRITE" } }))
      assert(client:ask(AUTH .. "RoleRevokePermission", { role = "r", key = "k0001" }))
      assert(client:ask(AUTH .. "RoleGrantPermission", { name = "r", perm = { key = "new" } }))
      assert.equal(MOST_ITEMS, #client:ask(AUTH .. "RoleGet", { role = "r" }).perm)
    end)

    it("deletion of a role takes it from many users", function()
      fill("User", 100)
      fill("Role", 1)
      for i = 1, 100, 9 do
        assert(client:ask(AUTH .. "UserGrantRole", { user = ("User %04d"):format(i), role = "Role 0001" }))
      end
      assert(client:ask(AUTH .. "RoleDelete", { role = "Role 0001" }))
      for i = 1, 100, 9 do
        assert.is_nil(client:ask(AUTH .. "UserGet", { name = ("User %04d"):format(i) }).roles)
      end
    end)
  end)
end)
