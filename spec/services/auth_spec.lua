--- Auth, as long as it is disabled, and there are neither users nor roles.

local serving = require "spec.support.serving"

local AUTH = "/etcdserverpb.Auth/"
local FAILED_PRECONDITION, UNIMPLEMENTED = 9, 12

describe("Auth", function()
  local peer, client

  setup(function() peer = serving.start() end)
  teardown(function() peer:stop() end)
  before_each(function() client = peer:client() end)

  local function ask(method, request)
    return client:ask(AUTH .. method, request)
  end

  local function expect_refusal(words, method, request)
    assert.same({ nil, FAILED_PRECONDITION, "etcdserver: " .. words }, { ask(method, request) })
  end

  it("is disabled", function()
    if serving.is_etcd then return end -- the question came with 3.5
    local answer = ask("AuthStatus")
    assert.is_nil(answer.enabled)
    assert.equal(1, answer.authRevision)
    assert.equal(serving.revision(client), answer.header.revision)
  end)

  it("can be disabled, and not enabled", function()
    assert.equal(serving.revision(client), assert(ask("AuthDisable")).header.revision)
    expect_refusal("root user does not exist", "AuthEnable")
  end)

  it("lets clients that would log in know that they need not", function()
    expect_refusal("authentication is not enabled", "Authenticate", { name = "root", password = "x" })
  end)

  it("has no users and no roles", function()
    local users, roles = ask("UserList"), ask("RoleList")
    assert.is_nil(users.users)
    assert.is_nil(roles.roles)
    assert.equal(serving.revision(client), users.header.revision)
    assert.equal(serving.revision(client), roles.header.revision)
  end)

  it("finds no user", function()
    for method, field in pairs {
      UserGet = "name", UserDelete = "name", UserChangePassword = "name", UserGrantRole = "user",
      UserRevokeRole = "name",
    } do
      expect_refusal("user name not found", method, { [field] = "ann" })
    end
  end)

  it("finds no role", function()
    for method, field in pairs { RoleGet = "role", RoleDelete = "role", RoleRevokePermission = "role" } do
      expect_refusal("role name not found", method, { [field] = "reader" })
    end
    expect_refusal("role name not found", "RoleGrantPermission", { name = "reader", perm = { key = "a" } })
  end)

  it("takes no users and roles yet", function()
    if serving.is_etcd then return end
    for _, method in ipairs { "UserAdd", "RoleAdd" } do
      assert.same({ nil, UNIMPLEMENTED, "keywatch: there are no users and roles yet" },
        { ask(method, { name = "ann" }) })
    end
  end)

  it("does not look at tokens", function()
    if serving.is_etcd then return end -- 3.4 does
    local answer = client:unary("/etcdserverpb.KV/Range", "\10\1a", { token = "nonsense" })
    assert.is_string(answer)
  end)
end)
