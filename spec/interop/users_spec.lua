--- etcdctl's commands for users and roles, with authentication disabled: the output is the same as with etcd.

local etcdctl = require "spec.support.etcdctl"
local server = require "spec.support.server"

describe("etcdctl #once", function()
  local ctl = etcdctl.with_server()

  local function add_user(name) ctl:must { "user", "add", name, "--no-password" } end
  local function add_role(name) ctl:must { "role", "add", name } end

  it("adds users, with and without a password", function()
    assert.equal("User ann created\n", ctl:must { "user", "add", "ann:secret" })
    assert.equal("User bob created\n", ctl:must { "user", "add", "bob", "--no-password" })
    assert.equal("User cleo created\n", ctl:must { "user", "add", "cleo", "--interactive=false", input = "secret\n" })
    assert.equal("etcdserver: user name already exists", ctl:fail { "user", "add", "ann:other" })
    assert.equal("ann\nbob\ncleo\n", ctl:must { "user", "list" })
    assert.equal("User: ann\nRoles:\n", ctl:must { "user", "get", "ann" })
  end)

  it("grants permissions, and revokes them", function()
    add_role("reader")
    for _, argv in ipairs {
      { "read", "x", "--from-key" }, { "readwrite", "p/", "--prefix" }, { "write", "b", "c" }, { "read", "a" },
      { "write", "b", "c" },
    } do
      table.insert(argv, 1, "reader")
      table.insert(argv, 1, "grant-permission")
      table.insert(argv, 1, "role")
      assert.equal("Role reader updated\n", ctl:must(argv))
    end
    assert.equal("Role reader\nKV Read:\n\ta\n\t[p/, p0) (prefix p/)\n\t[x, <open ended>\n" ..
      "KV Write:\n\t[b, c) (prefix b)\n\t[p/, p0) (prefix p/)\n", ctl:must { "role", "get", "reader" })
    assert.equal("Permission of range [p/, p0) is revoked from role reader\n",
      ctl:must { "role", "revoke-permission", "reader", "p/", "--prefix" })
    assert.equal("Permission of key a is revoked from role reader\n",
      ctl:must { "role", "revoke-permission", "reader", "a" })
    assert.equal("Permission of range [x, <open ended> is revoked from role reader\n",
      ctl:must { "role", "revoke-permission", "reader", "x", "--from-key" })
    assert.equal("etcdserver: permission is not granted to the role",
      ctl:fail { "role", "revoke-permission", "reader", "a" })
    assert.matches('"perm":%[{"permType":1,"key":"Yg==","range_end":"Yw=="}%]}',
      ctl:must { "role", "get", "reader", "-w", "json" })
  end)

  it("creates root as required, and reports that authentication cannot be enabled yet", function()
    if server.is_etcd then return end -- where it can
    add_user("root")
    assert.equal("keywatch: authentication cannot be enabled: permissions are not checked yet",
      ctl:fail { "auth", "enable" }:match("desc = (.*)$"))
    assert.equal("User: root\nRoles: root\n", ctl:must { "user", "get", "root" })
  end)
end)
