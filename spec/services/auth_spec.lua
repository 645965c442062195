--- Auth, as long as it is disabled: users and roles are kept.

local core = require "keywatch.core"

local serving = require "spec.support.serving"
local shell = require "spec.support.shell"

local AUTH = "/etcdserverpb.Auth/"
local UNKNOWN, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED = 2, 3, 8, 9, 12

describe("Auth", function()
  local peer, client

  setup(function() peer = serving.start() end)
  teardown(function() peer:stop() end)

  local function ask(method, request)
    return client:ask(AUTH .. method, request)
  end

  local function must(method, request)
    return assert(ask(method, request))
  end

  local function expect_refusal(words, method, request, status)
    assert.same({ nil, status or FAILED_PRECONDITION, "etcdserver: " .. words }, { ask(method, request) })
  end

  --- Users without a password are quick to make.
  local function add_user(name)
    must("UserAdd", { name = name, options = { no_password = true } })
  end

  local function add_role(name, ...)
    must("RoleAdd", { name = name })
    for _, permission in ipairs { ... } do must("RoleGrantPermission", { name = name, perm = permission }) end
  end

  local function grant(user, ...)
    for _, role in ipairs { ... } do must("UserGrantRole", { user = user, role = role }) end
  end

  local function roles_of(user) return must("UserGet", { name = user }).roles end
  local function permissions_of(role) return must("RoleGet", { role = role }).perm end

  --- By how much a function raises the auth revision. etcd 3.4 does not report it.
  local function expect_rise(by, fn)
    if serving.is_etcd then return fn() end
    local before = must("AuthStatus").authRevision
    fn()
    assert.equal(before + by, must("AuthStatus").authRevision)
  end

  before_each(function()
    client = peer:client()
    for _, name in ipairs(must("UserList").users or {}) do must("UserDelete", { name = name }) end
    for _, name in ipairs(must("RoleList").roles or {}) do must("RoleDelete", { role = name }) end
  end)

  it("is disabled by default", function()
    if serving.is_etcd then return end -- the question came with 3.5
    local answer = ask("AuthStatus")
    assert.is_nil(answer.enabled)
    assert.is_true(answer.authRevision >= 1)
    assert.equal(serving.revision(client), answer.header.revision)
  end)

  it("can be disabled repeatedly", function()
    expect_rise(0, function()
      assert.equal(serving.revision(client), must("AuthDisable").header.revision)
    end)
  end)

  it("needs root, with the role root, to be enabled", function()
    expect_refusal("root user does not exist", "AuthEnable")
    add_user("root")
    expect_refusal("root user does not have root role", "AuthEnable")
    add_role("root")
    expect_refusal("root user does not have root role", "AuthEnable")
  end)

  it("cannot be enabled yet", function()
    if serving.is_etcd then return end
    add_user("root")
    grant("root", "root")
    assert.same({ nil, UNIMPLEMENTED, "keywatch: authentication cannot be enabled: permissions are not checked yet" },
      { ask("AuthEnable") })
    assert.is_nil(must("AuthStatus").enabled)
  end)

  it("refuses Authenticate while authentication is disabled", function()
    expect_refusal("authentication is not enabled", "Authenticate", { name = "root", password = "x" })
  end)

  it("begins at the auth revision 1, with no users and no roles", function()
    local other = serving.start()
    client = other:client()
    if not serving.is_etcd then assert.equal(1, must("AuthStatus").authRevision) end
    assert.is_nil(must("UserList").users)
    assert.is_nil(must("RoleList").roles)
    other:stop()
  end)

  it("answers with the store's revision", function()
    local users, roles = ask("UserList"), ask("RoleList")
    assert.equal(serving.revision(client), users.header.revision)
    assert.equal(serving.revision(client), roles.header.revision)
    serving.put(client, "a", "1")
    local revision = serving.revision(client)
    assert.equal(revision, must("UserAdd", { name = "ann", password = "x" }).header.revision)
    assert.equal(revision, must("UserGet", { name = "ann" }).header.revision)
    assert.equal(revision, serving.revision(client))
  end)

  it("reports a missing user", function()
    for method, field in pairs {
      UserGet = "name", UserDelete = "name", UserChangePassword = "name", UserGrantRole = "user",
      UserRevokeRole = "name",
    } do
      expect_refusal("user name not found", method, { [field] = "ann" })
    end
  end)

  it("reports a missing role", function()
    for method, field in pairs { RoleGet = "role", RoleDelete = "role", RoleRevokePermission = "role" } do
      expect_refusal("role name not found", method, { [field] = "reader" })
    end
    expect_refusal("role name not found", "RoleGrantPermission", { name = "reader", perm = { key = "a" } })
  end)

  describe("users", function()
    it("are listed by name", function()
      for _, name in ipairs { "cleo", "Ann", "ann", "b\195\182b", "ann2" } do add_user(name) end
      assert.same({ "Ann", "ann", "ann2", "b\195\182b", "cleo" }, must("UserList").users)
      must("UserDelete", { name = "ann" })
      assert.same({ "Ann", "ann2", "b\195\182b", "cleo" }, must("UserList").users)
    end)

    it("have unique names", function()
      for _, request in ipairs { {}, { password = "x" }, { options = { no_password = true } } } do
        expect_refusal("user name is empty", "UserAdd", request, INVALID_ARGUMENT)
      end
      add_user("ann")
      expect_refusal("user name already exists", "UserAdd", { name = "ann", password = "x" })
    end)

    it("begin without roles", function()
      must("UserAdd", { name = "ann", password = "secret" })
      assert.is_nil(roles_of("ann"))
    end)

    it("may have any password, an empty one, none, and a new one", function()
      expect_rise(4, function()
        must("UserAdd", { name = "ann", password = "secret" })
        must("UserAdd", { name = "bob" })
        must("UserChangePassword", { name = "ann", password = "other" })
        must("UserChangePassword", { name = "bob" })
      end)
    end)

    it("have no password with a zero byte, at which the system's libcrypt would stop", function()
      if serving.is_etcd then return end
      assert.same({ nil, UNKNOWN, "keywatch: a password must not have a zero byte" },
        { ask("UserAdd", { name = "ann", password = "a\0b" }) })
      assert.is_nil(must("UserList").users)
    end)

    it("keep their roles with a new password", function()
      add_user("ann")
      grant("ann", "root")
      must("UserChangePassword", { name = "ann", password = "x" })
      assert.same({ "root" }, roles_of("ann"))
    end)

    it("have no password that bcrypt would truncate", function()
      if serving.is_etcd then return end -- 3.4 cuts it off
      add_user("ann")
      local long = { name = "ann", password = ("x"):rep(73) }
      for _, method in ipairs { "UserAdd", "UserChangePassword" } do
        assert.same({ nil, UNKNOWN, "bcrypt: password length exceeds 72 bytes" }, { ask(method, long) })
      end
      must("UserAdd", { name = "bob", password = ("x"):rep(72) })
    end)

    it("have their roles by name, each once", function()
      add_user("ann")
      for _, role in ipairs { "writer", "Reader", "reader" } do add_role(role) end
      expect_rise(4, function() grant("ann", "writer", "root", "reader", "Reader", "writer", "root") end)
      assert.same({ "Reader", "reader", "root", "writer" }, roles_of("ann"))
    end)

    it("get no missing role", function()
      add_user("ann")
      expect_rise(0, function()
        expect_refusal("role name not found", "UserGrantRole", { user = "ann", role = "reader" })
        expect_refusal("role name not found", "UserGrantRole", { user = "ann" })
        expect_refusal("user name not found", "UserGrantRole", { user = "bob", role = "reader" })
      end)
    end)

    it("lose the roles that are revoked", function()
      add_user("ann")
      add_role("reader")
      grant("ann", "reader", "root")
      expect_refusal("role is not granted to the user", "UserRevokeRole", { name = "ann", role = "writer" })
      expect_refusal("role is not granted to the user", "UserRevokeRole", { name = "ann" })
      must("UserRevokeRole", { name = "ann", role = "root" })
      assert.same({ "reader" }, roles_of("ann"))
      must("UserRevokeRole", { name = "ann", role = "reader" })
      assert.is_nil(roles_of("ann"))
    end)

    it("have names that fit into the database", function()
      if serving.is_etcd then return end
      expect_refusal("request is too large", "UserAdd", { name = ("x"):rep(502), options = { no_password = true } },
        INVALID_ARGUMENT)
      add_user(("x"):rep(501))
    end)
  end)

  describe("roles", function()
    it("are listed by name", function()
      for _, name in ipairs { "writer", "Reader", "reader" } do add_role(name) end
      assert.same({ "Reader", "reader", "writer" }, must("RoleList").roles)
    end)

    it("have unique names", function()
      expect_refusal("role name is empty", "RoleAdd", {}, INVALID_ARGUMENT)
      add_role("reader")
      expect_refusal("role name already exists", "RoleAdd", { name = "reader" })
    end)

    it("begin without permissions, also root", function()
      add_role("reader")
      assert.is_nil(permissions_of("reader"))
      expect_refusal("role name not found", "RoleGet", { role = "root" })
      add_role("root")
      assert.is_nil(permissions_of("root"))
    end)

    it("have their permissions by key", function()
      add_role("reader",
        { key = "b", permType = "WRITE" },
        { key = "a", range_end = "c", permType = "READWRITE" },
        { key = "c", range_end = "\0" },
        { key = "a" })
      assert.same({
        { key = "a", range_end = "c", permType = "READWRITE" },
        { key = "a" },
        { key = "b", permType = "WRITE" },
        { key = "c", range_end = "\0" },
      }, permissions_of("reader"))
    end)

    it("replace a permission for the same range", function()
      add_role("reader", { key = "a", permType = "WRITE" })
      expect_rise(2, function()
        must("RoleGrantPermission", { name = "reader", perm = { key = "a", permType = "READWRITE" } })
        must("RoleGrantPermission", { name = "reader", perm = { key = "a", permType = "READWRITE" } })
      end)
      assert.same({ { key = "a", permType = "READWRITE" } }, permissions_of("reader"))
      must("RoleGrantPermission", { name = "reader", perm = { key = "a" } })
      assert.same({ { key = "a" } }, permissions_of("reader"))
    end)

    it("may have a permission twice, if another one for its key is before it", function()
      add_role("reader", { key = "a", range_end = "b" }, { key = "a", range_end = "c" }, { key = "a", range_end = "c" })
      assert.same({
        { key = "a", range_end = "b" }, { key = "a", range_end = "c" }, { key = "a", range_end = "c" },
      }, permissions_of("reader"))
      must("RoleRevokePermission", { role = "reader", key = "a", range_end = "c" })
      assert.same({ { key = "a", range_end = "b" } }, permissions_of("reader"))
    end)

    it("lose the permissions that are revoked", function()
      add_role("reader", { key = "a" }, { key = "a", range_end = "b" })
      local refusal = "permission is not granted to the role"
      expect_refusal(refusal, "RoleRevokePermission", { role = "reader", key = "b" })
      expect_refusal(refusal, "RoleRevokePermission", { role = "reader", key = "a", range_end = "c" })
      expect_refusal(refusal, "RoleRevokePermission", { role = "reader" })
      must("RoleRevokePermission", { role = "reader", key = "a" })
      assert.same({ { key = "a", range_end = "b" } }, permissions_of("reader"))
    end)

    it("have permissions for ranges that are not empty", function()
      if serving.is_etcd then return end -- 3.4 does not look
      add_role("reader")
      for _, permission in ipairs { {}, { range_end = "b" }, { key = "b", range_end = "b" },
        { key = "b", range_end = "a" }, { key = "b", range_end = "\0\0" } } do
        expect_refusal("invalid auth management", "RoleGrantPermission", { name = "reader", perm = permission },
          INVALID_ARGUMENT)
      end
      expect_refusal("permission not given", "RoleGrantPermission", { name = "nobody" }, INVALID_ARGUMENT)
      assert.is_nil(permissions_of("reader"))
    end)

    it("are taken from all users when they are deleted", function()
      add_role("reader")
      add_role("writer")
      for _, name in ipairs { "ann", "bob", "cleo" } do add_user(name) end
      grant("ann", "reader", "writer")
      grant("bob", "writer")
      grant("cleo", "reader")
      expect_rise(1, function() must("RoleDelete", { role = "reader" }) end)
      assert.same({ "writer" }, must("RoleList").roles)
      assert.same({ "writer" }, roles_of("ann"))
      assert.same({ "writer" }, roles_of("bob"))
      assert.is_nil(roles_of("cleo"))
    end)

    it("may be root, which users keep though it was never added", function()
      add_user("ann")
      grant("ann", "root")
      expect_refusal("role name not found", "RoleDelete", { role = "root" })
      assert.same({ "root" }, roles_of("ann"))
    end)
  end)

  it("keeps its data with the store, as etcd's file has them", function()
    if serving.is_etcd then return end
    local function kept(message, name)
      return core.decode(message, peer.store:rows("auth" .. message .. "s", name))
    end
    must("UserAdd", { name = "ann", password = "secret" })
    grant("ann", "root")
    add_user("bob")
    add_role("reader", { key = "a", range_end = "b", permType = "WRITE" })
    local ann = kept("User", "ann")
    assert.matches("^%$2b%$10%$" .. ("[%w./]"):rep(53) .. "$", ann.password)
    assert.same({ name = "ann", password = ann.password, roles = { "root" }, options = {} }, ann)
    assert.same({ name = "bob", options = { no_password = true } }, kept("User", "bob"))
    assert.same({ name = "reader", keyPermission = { { key = "a", range_end = "b", permType = "WRITE" } } },
      kept("Role", "reader"))
    local revision = must("AuthStatus").authRevision
    assert.equal(("\0"):rep(6) .. string.char(math.floor(revision / 256), revision % 256),
      peer.store:rows("auth", "authRevision"))
  end)

  it("loses none of several concurrent changes of a durable store", function()
    if serving.is_etcd then return end
    local scratch = shell.must("mktemp -d")
    local other = serving.start { path = scratch .. "/data" }
    finally(function()
      other:stop()
      shell.must("rm -rf " .. scratch)
    end)
    local one, calls, names = other:client(), {}, {}
    assert(one:ask(AUTH .. "UserAdd", { name = "ann", options = { no_password = true } }))
    for i = 1, 20 do
      names[i] = ("r%02d"):format(i)
      assert(one:ask(AUTH .. "RoleAdd", { name = names[i] }))
    end
    for i = 1, 20 do calls[i] = one:begin_message(AUTH .. "UserGrantRole", { user = "ann", role = names[i] }) end
    for i = 1, 20 do assert.equal(0, (one:finish(calls[i]))) end
    assert.same(names, one:ask(AUTH .. "UserGet", { name = "ann" }).roles)
  end)

  it("lets other tasks run between the hashes of passwords", function()
    if serving.is_etcd then return end
    local adding = {}
    for i = 1, 5 do adding[i] = client:begin_message(AUTH .. "UserAdd", { name = "slow" .. i, password = "p" }) end
    client:finish(adding[1])
    assert.is_nil(adding[5].status) -- the loop has turned since
    for i = 1, 5 do assert.equal(0, (client:finish(adding[i]))) end
    for i = 1, 5 do must("UserDelete", { name = "slow" .. i }) end
  end)

  it("finds its data again in a durable store", function()
    if serving.is_etcd then return end
    local scratch = shell.must("mktemp -d")
    local other = serving.start { path = scratch .. "/data" }
    client = other:client()
    add_user("ann")
    add_user("bob")
    add_role("reader", { key = "a" })
    grant("ann", "root", "reader")
    must("UserDelete", { name = "bob" })
    local revision = must("AuthStatus").authRevision
    other:stop()
    other = serving.start { path = scratch .. "/data" }
    client = other:client()
    assert.equal(revision, must("AuthStatus").authRevision)
    assert.same({ "ann" }, must("UserList").users)
    assert.same({ "reader", "root" }, roles_of("ann"))
    assert.same({ { key = "a" } }, permissions_of("reader"))
    other:stop()
    shell.must("rm -r " .. scratch)
  end)

  it("takes a hash in place of a new password", function()
    if serving.is_etcd then return end -- that came with 3.5
    local function password() return core.decode("User", peer.store:rows("authUsers", "ann")).password end
    must("UserAdd", { name = "ann", password = "secret", hashedPassword = "eA==" })
    assert.equal(60, #password())
    for _, case in ipairs { { "JDJhJDEw", "$2a$10" }, { "AP8=", "\0\255" }, { "eA==", "x" } } do
      must("UserChangePassword", { name = "ann", hashedPassword = case[1] })
      assert.equal(case[2], password())
    end
    for _, given in ipairs { "eA", "e===", "eA==eA==", "e-==", "=" } do
      assert.same({ nil, UNKNOWN, "auth: authentication failed, password was given for no password user" },
        { ask("UserChangePassword", { name = "ann", hashedPassword = given }) })
    end
    assert.equal("x", password())
    must("UserChangePassword", { name = "ann" })
    assert.is_nil(password())
  end)

  it("ignores tokens", function()
    if serving.is_etcd then return end -- 3.4 does
    local answer = client:unary("/etcdserverpb.KV/Range", "\10\1a", { token = "nonsense" })
    assert.is_string(answer)
  end)

  --- Calls fn(hold). Until hold.is_over is true, no thread is done that hashes a password. hold.begun counts these.
  local function while_hashing(fn)
    local begin, hold = core.begin_hash, { begun = 0, is_over = false }
    core.begin_hash = function(password)
      local hashed = core.hash_password(password, 4)
      hold.begun = hold.begun + 1
      return { result = function() return hold.is_over and hashed or nil end, close = function() end }
    end
    local ok, err = pcall(fn, hold)
    hold.is_over, core.begin_hash = true, begin
    if not ok then error(err, 0) end
  end

  it("serves other calls while a password is hashed, and hashes one after the other", function()
    if serving.is_etcd then return end -- looks inside the server
    while_hashing(function(hold)
      local call = client:begin_message(AUTH .. "UserAdd", { name = "hashed", password = "secret" })
      local other = client:begin_message(AUTH .. "UserAdd", { name = "hashed", password = "another" })
      client:wait(function() return hold.begun == 1 end)
      for _ = 1, 10 do
        assert.same({}, must("UserList").users or {})
        assert(client:ask("/etcdserverpb.KV/Range", { key = "a" }))
      end
      assert.same({ 1, nil, nil }, { hold.begun, call.status, other.status })
      hold.is_over = true
      assert.equal(0, (client:finish(call)))
      assert.same({ FAILED_PRECONDITION, "etcdserver: user name already exists" }, { client:finish(other) })
      assert.equal(1, hold.begun)
    end)
    must("UserDelete", { name = "hashed" })
  end)

  it("hashes in a thread", function()
    if serving.is_etcd then return end
    local hash = core.hash_password
    core.hash_password = function() error("a password is hashed on the loop") end
    local call = client:begin_message(AUTH .. "UserAdd", { name = "threaded", password = "secret" })
    local status, text = client:finish(call)
    core.hash_password = hash
    assert.same({ 0, "" }, { status, text })
    must("UserDelete", { name = "threaded" })
  end)

  it("lets 256 changes wait, refuses more, and makes the changes in order", function()
    if serving.is_etcd then return end -- its changes do not wait
    local waiting = {}
    while_hashing(function(hold)
      local first = client:begin_message(AUTH .. "UserAdd", { name = "first", password = "secret" })
      client:wait(function() return hold.begun == 1 end)
      for i = 1, 256 do waiting[i] = client:begin_message(AUTH .. "UserDelete", { name = "first" }) end
      expect_refusal("too many requests", "UserDelete", { name = "first" }, RESOURCE_EXHAUSTED)
      assert.is_nil(first.status)
      client:cancel(waiting[1])
      local last = client:begin_message(AUTH .. "UserDelete", { name = "first" })
      client:settle()
      assert.is_nil(last.status)
      hold.is_over = true
      assert.equal(0, (client:finish(first)))
      assert.equal(0, (client:finish(waiting[2])))
      for i = 3, 256 do
        assert.same({ FAILED_PRECONDITION, "etcdserver: user name not found" }, { client:finish(waiting[i]) })
      end
      assert.equal(FAILED_PRECONDITION, (client:finish(last)))
    end)
    add_user("later")
  end)

  it("deletes a role of more users than it reads at once", function()
    must("RoleAdd", { name = "common" })
    for i = 1, 600 do
      add_user("one" .. i)
      if i % 3 == 0 then grant("one" .. i, "common") end
    end
    must("RoleDelete", { role = "common" })
    for i = 1, 600 do
      assert.same({}, must("UserGet", { name = "one" .. i }).roles or {})
      must("UserDelete", { name = "one" .. i })
    end
  end)
end)
