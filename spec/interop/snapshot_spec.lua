--- Moving to etcd and back: etcdctl takes snapshots of keywatch, real etcds are made of them, and the other way round.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local command = require "spec.support.command"
local directories = require "spec.support.directory"
local etcdctl = require "spec.support.etcdctl"
local image = require "spec.support.image"
local process = require "spec.support.process"
local server = require "spec.support.server"
local vm = require "spec.support.vm"

local COMPACTED = 6 -- the revision up to which history is forgotten

describe("a snapshot #once", function()
  if server.is_etcd then return end -- which is the other side of it

  local scratch, remove, peers

  before_each(function()
    scratch, remove = image.scratch()
    peers = {}
  end)

  after_each(function()
    for _, peer in ipairs(peers) do peer:stop() end
    process.end_all()
    remove()
    directories.remove_all()
  end)

  local function start(options)
    local peer = server.start(options)
    table.insert(peers, peer)
    return peer, etcdctl.new(peer)
  end

  local function start_durable(directory)
    return start { "--memory=false", "--data-dir", scratch .. "/" .. directory }
  end

  local function save(ctl)
    local path = scratch .. "/image"
    os.remove(path)
    ctl:must { "snapshot", "save", path }
    return path
  end

  local function status(ctl, path)
    local json = ctl:must { "snapshot", "status", path, "-w", "json" }
    return tonumber(json:match('"revision":(%d+)')), tonumber(json:match('"totalKey":(%d+)'))
  end

  --- A real etcd, made of an image.
  local function start_etcd(ctl, path)
    local directory = scratch .. "/etcd"
    ctl:must { "snapshot", "restore", path, "--data-dir", directory, "--initial-cluster",
      "default=http://127.0.0.1:1", "--initial-advertise-peer-urls", "http://127.0.0.1:1" }
    return start { kind = "etcd", "--data-dir", directory, "--initial-advertise-peer-urls", "http://127.0.0.1:1",
      "--initial-cluster", "default=http://127.0.0.1:1" }
  end

  --- A keywatch, made of an image.
  local function start_keywatch(path, ...)
    local done = command.start("restore", path, "--data-dir", scratch .. "/restored", ...)
    assert.equal(0, done:wait(), done:transcript())
    return start_durable("restored")
  end

  local function fill(ctl)
    local lease = ctl:must { "lease", "grant", "500" }:match("lease (%x+) granted")
    ctl:must { "put", "a", "1" }
    ctl:must { "put", "b", "2", "--lease=" .. lease }
    ctl:must { "txn", input = "\nput c 3\ndel a\n\n\n" }
    ctl:must { "put", "a", "again", "--lease=" .. lease }
    ctl:must { "put", "large", input = ("x"):rep(1000000) }
    for i = 1, 20 do ctl:must { "put", "n" .. i % 4, tostring(i) } end
    ctl:must { "del", "n2" }
    ctl:must { "compaction", tostring(COMPACTED) }
    ctl:must { "put", "last", "1" }
    ctl:must { "role", "add", "reader" }
    ctl:must { "role", "grant-permission", "reader", "read", "a" }
    ctl:must { "user", "add", "alice:secret" }
    ctl:must { "user", "grant-role", "alice", "reader" }
    return lease
  end

  --- What etcdctl prints of a server, without what differs from one to the other by right.
  local function all_of(ctl, lease)
    local all = { hash = {} }
    local revision = ctl:revision()
    for rev = COMPACTED + 1, revision do -- of that revision itself, etcd 3.4 has no hash
      local kvs = ctl:must { "get", "", "--prefix", "--rev=" .. rev, "-w", "json" }:match('"kvs":.*')
      table.insert(all, (kvs:gsub('"value":"([^"]*)"', function(text) return #text > 1000 and #text or text end)))
      local json = ctl:must { "endpoint", "hashkv", "--rev=" .. rev, "-w", "json" }
      table.insert(all.hash, json:match('"hash":(%d+)'))
      all.compacted = json:match('"compact_revision":(%-?%d+)')
    end
    all.revision = revision
    all.refusal = ctl:fail { "get", "a", "--rev=" .. COMPACTED - 1 }
    all.leases = ctl:must { "lease", "list" }
    local ttl, keys = ctl:must { "lease", "timetolive", lease, "--keys" }
      :match("granted with TTL%((%d+)s%).*attached keys%(%[(.*)%]%)")
    all.lease = { ttl = ttl }
    for key in keys:gmatch("%S+") do all.lease[#all.lease + 1] = key end
    table.sort(all.lease)
    all.users = ctl:must { "user", "list" }
    all.alice = ctl:must { "user", "get", "alice" }
    all.reader = ctl:must { "role", "get", "reader" }
    return all
  end

  local function expect_history(ctl, from, to)
    local watch = ctl:start { "watch", "", "--prefix", "--rev=" .. from, "-w", "json" }
    watch:expect(('"mod_revision":%d[,}]'):format(from))
    watch:expect(('"mod_revision":%d[,}]'):format(to))
    watch:signal("sigkill")
    watch:wait()
  end

  for _, kind in ipairs { "memory", "durable" } do
    it("of a server with data that is " .. kind .. " becomes an etcd", function()
      local ctl
      if kind == "memory" then
        _, ctl = start { is_in_memory = true }
      else
        _, ctl = start_durable("data")
      end
      local lease = fill(ctl)
      local before, path = all_of(ctl, lease), save(ctl)
      assert.equal(before.revision, (status(ctl, path)))
      local _, etcd = start_etcd(ctl, path)
      assert.same(before, all_of(etcd, lease))
      expect_history(etcd, COMPACTED + 1, before.revision)
      etcd:must { "put", "later", "1" }
      assert.equal(before.revision + 1, etcd:revision())
    end)
  end

  it("of an etcd with authentication becomes a keywatch without, and that is logged", function()
    local _, ctl = start { kind = "etcd", "--data-dir", scratch .. "/own" }
    ctl:must { "user", "add", "root:secret" }
    ctl:must { "user", "grant-role", "root", "root" }
    ctl:must { "auth", "enable" }
    local path = scratch .. "/image"
    ctl:must { "snapshot", "save", path, "--user", "root:secret" }
    local done = command.start("restore", path, "--data-dir", scratch .. "/restored")
    assert.equal(0, done:wait(), done:transcript())
    assert.matches("authentication was enabled in the snapshot", done:stderr())
    local _, back = start_durable("restored")
    assert.equal("root\n", back:must { "user", "list" })
    back:must { "put", "a", "1" }
  end)

  it("with many users and roles of long names becomes an etcd, and then a keywatch again", function()
    local store = assert(keywatch.open { path = scratch .. "/data" })
    local lines = { authUsers = {}, authRoles = {} }
    for kind, message in pairs { authUsers = "User", authRoles = "Role" } do
      local changes = {}
      for i = 1, 300 do
        local name = ("%d-"):format(1000 + i) .. ("n"):rep(i % 2 == 0 and i or 496)
        changes[i] = { kind, name, core.encode(message, { name = name }) }
        lines[kind][i] = name .. "\n"
      end
      assert(store:change_rows(changes))
    end
    store:close()
    local _, ctl = start_durable("data")
    local _, etcd = start_etcd(ctl, save(ctl))
    assert.equal(table.concat(lines.authUsers), etcd:must { "user", "list" })
    assert.equal(table.concat(lines.authRoles), etcd:must { "role", "list" })
    etcd:must { "user", "add", ("a"):rep(501), "--no-password" }
    etcd:must { "user", "delete", (lines.authUsers[9]:gsub("\n", "")) }
    local users = etcd:must { "user", "list" }
    local _, back = start_keywatch(save(etcd))
    assert.equal(users, back:must { "user", "list" })
    save(back)
  end)

  it("of an etcd with a user whose name keywatch cannot store is refused, with the reason", function()
    local _, ctl = start { kind = "etcd", "--data-dir", scratch .. "/own" }
    ctl:must { "user", "add", ("a"):rep(502), "--no-password" }
    local refused = command.start("restore", save(ctl), "--data-dir", scratch .. "/refused")
    assert.equal(1, refused:wait())
    assert.matches("a user or a role has a name of more than 501 bytes", refused:stderr())
  end)

  it("of an etcd keeps a user with the name of a setting", function()
    local _, ctl = start { kind = "etcd", "--data-dir", scratch .. "/own" }
    ctl:must { "user", "add", "authEnabled", "--no-password" }
    local _, back = start_keywatch(save(ctl))
    assert.equal("authEnabled\n", back:must { "user", "list" })
  end)

  it("of an etcd becomes a keywatch", function()
    local _, ctl = start { kind = "etcd", "--data-dir", scratch .. "/own" }
    local lease = fill(ctl)
    local before, path = all_of(ctl, lease), save(ctl)
    local _, back = start_keywatch(path)
    assert.same(before, all_of(back, lease))
    expect_history(back, COMPACTED + 1, before.revision)

    local bare = scratch .. "/own/member/snap/db"
    local refused = command.start("restore", bare, "--data-dir", scratch .. "/refused")
    assert.equal(1, refused:wait())
    assert.matches("the file has no SHA%-256", refused:stderr())
  end)

  it("of a stopped etcd is its file", function()
    local peer, ctl = start { kind = "etcd", "--data-dir", scratch .. "/own" }
    local lease = fill(ctl)
    local before = all_of(ctl, lease)
    table.remove(peers):stop()
    assert.is_false(peer:is_running())
    local _, back = start_keywatch(scratch .. "/own/member/snap/db", "--skip-hash-check")
    assert.same(before, all_of(back, lease))
  end)

  for _, kind in ipairs { "memory", "durable" } do
    it("is whole though others write to data that is " .. kind, function()
      local ctl
      if kind == "memory" then
        _, ctl = start { is_in_memory = true }
      else
        _, ctl = start_durable("data")
      end
      for i = 1, 10 do ctl:must { "put", "before" .. i, input = ("x"):rep(200000) } end
      local writer = ctl:start { "check", "perf", "--load=s" } -- many clients, for a minute
      local watch = ctl:start { "watch", "/etcdctl-check-perf/", "--prefix" }
      watch:expect("PUT\n")
      local at_least = ctl:revision()
      local saving = ctl:start { "snapshot", "save", scratch .. "/image" }
      assert.equal(0, saving:wait(), saving:transcript())
      local revision = status(ctl, scratch .. "/image")
      watch:expect("PUT\n")
      assert.is_nil(writer.status)
      assert.is_true(revision >= at_least and revision <= ctl:revision())
      local hash = ctl:must { "endpoint", "hashkv", "--rev=" .. revision, "-w", "json" }:match('"hash":(%d+)')
      local _, back = start_keywatch(scratch .. "/image")
      assert.equal(revision, back:revision())
      assert.equal(hash, back:must { "endpoint", "hashkv", "-w", "json" }:match('"hash":(%d+)'))
    end)
  end

  it("fails without disk space, with the reason", function()
    local child = process.start({ "sh", "-c", 'ulimit -f 200; exec "$@"', "sh", vm.interpreter, "bin/keywatch", "serve",
      "--memory", "--listen-client-urls", "http://127.0.0.1:0" },
      { env = vm.environment() })
    local ctl = etcdctl.new { address = command.wait_until_ready(child)[1] }
    ctl:must { "put", "a", input = ("x"):rep(1000000) }
    local done = ctl:run { "snapshot", "save", scratch .. "/image" }
    assert.not_equal(0, done.status)
    assert.matches("there is no space on the disk for the snapshot", done:stderr())
    assert.equal("a\n", ctl:must { "get", "a", "--keys-only" }:match("^[^\n]*\n"))
  end)

  it("becomes an etcd that compacts and continues, with any number of records", function()
    local _, ctl = start()
    local lines = {}
    for i = 1, 100 do lines[i] = "put k" .. i .. " " .. ("v"):rep(i % 50 + 1) end
    local text = "\n" .. table.concat(lines, "\n") .. "\n\n\n"
    for _ = 1, 30 do ctl:must { "txn", input = text } end
    local path = save(ctl)
    local revision, total = status(ctl, path)
    assert.same({ 31, 3000 + 1 }, { revision, total }) -- and one thing in "meta"
    local _, etcd = start_etcd(ctl, path)
    for rev = 10, 31, 7 do
      etcd:must { "compaction", tostring(rev), "--physical" }
      etcd:must { "put", "k1", "new" }
    end
    assert.equal("100", etcd:must { "get", "k", "--prefix", "--limit=1", "-w", "json" }:match('"count":(%d+)'))
    etcd:must { "defrag" }
    assert.equal(35, etcd:revision())
  end)
end)
