--- All commands of etcdctl that a single server can answer: the output is the same as with etcd.

local etcdctl = require "spec.support.etcdctl"
local server = require "spec.support.server"

describe("etcdctl #once", function()
  local ctl = etcdctl.with_server()

  --- Puts keys with values, in order; returns the revision of the first.
  local function put_all(...)
    local pairs_of = { ... }
    local first = ctl:revision() + 1
    for i = 1, #pairs_of, 2 do assert.equal("OK\n", ctl:must { "put", pairs_of[i], pairs_of[i + 1] }) end
    return first
  end

  --- A new lease; returns its id, as etcdctl writes it.
  local function grant(ttl)
    return ctl:must { "lease", "grant", tostring(ttl) }:match("^lease (%x+) granted with TTL%(%d+s%)\n$")
  end

  describe("put", function()
    it("answers OK, and with --prev-kv the previous kv", function()
      assert.equal("OK\n", ctl:must { "put", "put/a", "1" })
      assert.equal("OK\nput/a\n1\n", ctl:must { "put", "put/a", "2", "--prev-kv" })
      assert.equal("OK\n", ctl:must { "put", "put/new", "2", "--prev-kv" })
    end)

    it("reports what is wrong with a request", function()
      assert.equal("etcdserver: key is not provided", ctl:fail { "put", "", "1" })
      assert.equal("etcdserver: key not found", ctl:fail { "put", "put/nothing", "--ignore-value" })
      assert.equal("etcdserver: key not found", ctl:fail { "put", "put/nothing", "1", "--ignore-lease" })
      assert.equal("etcdserver: requested lease not found", ctl:fail { "put", "put/a", "1", "--lease", "1234" })
    end)
  end)

  describe("get", function()
    setup(function()
      put_all("get/a", "3", "get/b", "2", "get/c", "1", "get/a", "4")
    end)

    it("prints the key and the value, the value alone, or the key alone", function()
      assert.equal("get/a\n4\n", ctl:must { "get", "get/a" })
      assert.equal("4\n", ctl:must { "get", "get/a", "--print-value-only" })
      assert.equal("get/a\n\n", ctl:must { "get", "get/a", "--keys-only" })
      assert.equal("", ctl:must { "get", "get/nothing" })
      assert.equal("get/a\n4\n", ctl:must { "get", "get/a", "--consistency", "s" })
    end)

    it("takes a prefix, a range and all keys from a key on", function()
      assert.equal("get/a\n4\nget/b\n2\nget/c\n1\n", ctl:must { "get", "get/", "--prefix" })
      assert.equal("get/a\n4\nget/b\n2\n", ctl:must { "get", "get/a", "get/c" })
      assert.equal("get/b\n2\nget/c\n1\n", ctl:must { "get", "get/b", "--from-key", "--limit=2" })
      assert.equal("", ctl:must { "get", "get/c", "get/a" })
    end)

    it("prints every field, in each format", function()
      local first = put_all("get/fields", "1", "get/fields", "2")
      local json = ctl:must { "get", "get/fields", "-w", "json" }
      assert.matches(('"kvs":%%[{"key":"Z2V0L2ZpZWxkcw==","create_revision":%d,"mod_revision":%d,"version":2,'
        .. '"value":"Mg=="}%%],"count":1}\n$'):format(first, first + 1), json)
      assert.matches(('^{"header":{"cluster_id":%%d+,"member_id":%%d+,"revision":%d,"raft_term":%%d+},')
        :format(first + 1), json)

      local fields = ctl:must { "get", "get/fields", "-w", "fields" }
      assert.matches(('"Revision" : %d\n"RaftTerm" : %%d+\n"Key" : "get/fields"\n"CreateRevision" : %d\n'
        .. '"ModRevision" : %d\n"Version" : 2\n"Value" : "2"\n"Lease" : 0\n"More" : false\n"Count" : 1\n$')
        :format(first + 1, first, first + 1), fields)

      local message = ctl:must { "get", "get/fields", "-w", "protobuf" }
      assert.matches("\n\10get/fields\16[\1-\255]+\24[\1-\255]+ \2%*\0012 \1$", message)
    end)
  end)

  describe("del", function()
    it("prints how many keys were deleted, and with --prev-kv which", function()
      put_all("del/a", "1", "del/b", "2", "del/c", "3", "del/d", "4")
      assert.equal("0\n", ctl:must { "del", "del/nothing" })
      assert.equal("1\n", ctl:must { "del", "del/a" })
      assert.equal("2\ndel/b\n2\ndel/c\n3\n", ctl:must { "del", "del/b", "del/d", "--prev-kv" })
      assert.equal("1\n", ctl:must { "del", "del/", "--prefix" })
    end)
  end)

  describe("txn", function()
    --- Runs a transaction of compares and two lists of requests.
    local function txn(compares, success, failure, format)
      local input = compares .. "\n" .. success .. "\n" .. failure .. "\n"
      return ctl:must { "txn", "-w", format or "simple", input = input }
    end

    it("takes either branch, and answers each of its requests", function()
      put_all("txn/a", "1", "txn/b", "1")
      assert.equal("SUCCESS\n\nOK\n\ntxn/a\n2\n\n1\n",
        txn('value("txn/a") = "1"\n', "put txn/a 2\nget txn/a\ndel txn/b\n", "get txn/b\n"))
      assert.equal("FAILURE\n\nOK\n", txn('value("txn/a") = "1"\n', "get txn/a\n", "put txn/a 3\n"))
      assert.equal("SUCCESS\n\ntxn/a\n3\n", txn("", "get txn/a\n", ""))
    end)

    it("asks for its parts in interactive mode", function()
      local done = ctl:start { "txn", "-i" }
      done:expect("compares:\n")
      done:write('version("txn/typed") = "0"\n\n')
      done:expect("success requests %(get, put, del%):\n")
      done:write("put txn/typed 1\n\n")
      done:expect("failure requests %(get, put, del%):\n")
      done:write("\n")
      done:expect("SUCCESS\n\nOK\n")
      assert.equal(0, done:wait())
    end)
  end)

  describe("watch", function()
    it("prints past events of a key, and then new ones", function()
      local first = put_all("watch/a", "1", "watch/b", "2")
      local watch = ctl:start { "watch", "watch/a", "--rev=" .. first }
      watch:expect("^PUT\nwatch/a\n1\n")
      put_all("watch/b", "3", "watch/a", "4")
      watch:expect("^PUT\nwatch/a\n4\n")
      ctl:must { "del", "watch/a" }
      watch:expect("^DELETE\nwatch/a\n\n")
    end)

    it("takes a prefix and a range, and prints previous kvs", function()
      local first = put_all("watch/p/a", "1")
      local prefix = ctl:start { "watch", "watch/p/", "--prefix", "--prev-kv", "--rev=" .. first }
      local range = ctl:start { "watch", "watch/p/a", "watch/p/b", "--rev=" .. first }
      prefix:expect("^PUT\nwatch/p/a\n1\n")
      range:expect("^PUT\nwatch/p/a\n1\n")
      put_all("watch/p/b", "2", "watch/p/a", "3")
      prefix:expect("^PUT\nwatch/p/b\n2\nPUT\nwatch/p/a\n1\nwatch/p/a\n3\n")
      range:expect("^PUT\nwatch/p/a\n3\n")
      ctl:must { "del", "watch/p/", "--prefix" }
      prefix:expect("^DELETE\nwatch/p/a\n3\nwatch/p/a\n\nDELETE\nwatch/p/b\n2\nwatch/p/b\n\n")
      range:expect("^DELETE\nwatch/p/a\n\n")
    end)

    it("watches several keys at once, and prints progress on request", function()
      local first = put_all("watch/i/a", "1")
      local watch = ctl:start { "watch", "-i" }
      watch:write(("watch watch/i/a --rev=%d\n"):format(first))
      watch:expect("PUT\nwatch/i/a\n1\n")
      watch:write(("watch watch/i/b/ --prefix --prev-kv --rev=%d\n"):format(first))
      put_all("watch/i/b/x", "2")
      watch:expect("PUT\nwatch/i/b/x\n2\n")
      put_all("watch/i/a", "3")
      watch:expect("PUT\nwatch/i/a\n3\n")
      watch:write("progress\n")
      assert.equal(tostring(first + 2), watch:expect("progress notify: (%d+)\n"))
    end)

    it("runs a command for each event", function()
      local first = put_all("watch/exec", "1")
      local watch = ctl:start { "watch", "watch/exec", "--rev=" .. first, "--", "sh", "-c",
        'echo "$ETCD_WATCH_EVENT_TYPE at $ETCD_WATCH_REVISION: $ETCD_WATCH_KEY = $ETCD_WATCH_VALUE"' }
      watch:expect(('"PUT" at %d: "watch/exec" = "1"\n'):format(first))
      ctl:must { "del", "watch/exec" }
      watch:expect(('"DELETE" at %d: "watch/exec" = ""\n'):format(first + 1))
    end)

    it("of a compacted revision fails, and prints the compacted revision", function()
      local first = put_all("watch/c", "1", "watch/c", "2", "watch/c", "3")
      ctl:must { "compaction", tostring(first + 1) }
      local watch = ctl:start { "watch", "watch/c", "--rev=" .. first }
      watch:expect_error("watch was canceled %(etcdserver: mvcc: required revision has been compacted%)")
      watch:expect_error("Error: watch is canceled by the server")
      assert.not_equal(0, watch:wait())

      watch = ctl:start { "watch", "watch/c", "--rev=" .. first + 1 }
      watch:expect("^PUT\nwatch/c\n2\nPUT\nwatch/c\n3\n")
    end)
  end)

  describe("lease", function()
    it("is granted, listed, queried and revoked with its keys", function()
      local lease = grant(600)
      assert.matches(lease, ctl:must { "lease", "list" })
      ctl:must { "put", "lease/a", "1", "--lease", lease }
      ctl:must { "put", "lease/b", "1", "--lease", lease }
      assert.matches(("^lease %s granted with TTL%%(600s%%), remaining%%(%%d+s%%)\n$"):format(lease),
        ctl:must { "lease", "timetolive", lease })
      local keys = ctl:must { "lease", "timetolive", lease, "--keys" }:match("attached keys%(%[(.*)%]%)\n$")
      assert.is_true(keys == "lease/a lease/b" or keys == "lease/b lease/a")
      assert.equal(("lease %s revoked\n"):format(lease), ctl:must { "lease", "revoke", lease })
      assert.equal("", ctl:must { "get", "lease/", "--prefix" })
      assert.equal(("lease %s already expired\n"):format(lease), ctl:must { "lease", "timetolive", lease })
    end)

    it("is kept alive once, and continuously", function()
      local lease = grant(3)
      assert.equal(("lease %s keepalived with TTL(3)\n"):format(lease),
        ctl:must { "lease", "keep-alive", "--once", lease })
      local alive = ctl:start { "lease", "keep-alive", lease }
      for _ = 1, 4 do alive:expect(("lease %s keepalived with TTL%%(3%%)\n"):format(lease)) end
      assert.matches("remaining", ctl:must { "lease", "timetolive", lease })
      ctl:must { "lease", "revoke", lease }
      alive:expect(("lease %s expired or revoked"):format(lease))
      assert.equal(0, alive:wait())
    end)

    it("that is missing is reported", function()
      assert.equal("failed to revoke lease (etcdserver: requested lease not found)",
        ctl:fail { "lease", "revoke", "1234" })
      assert.equal("etcdserver: requested lease not found", ctl:fail { "lease", "keep-alive", "--once", "1234" })
      assert.equal("lease 0000000000001234 already expired\n", ctl:must { "lease", "timetolive", "1234" })
      assert.equal("failed to grant lease (etcdserver: too large lease TTL)",
        ctl:fail { "lease", "grant", "9000000001" })
    end)
  end)

  describe("compaction", function()
    it("removes the past once, and never the present", function()
      local first = put_all("compact/a", "1", "compact/a", "2", "compact/a", "3")
      local to = first + 1
      assert.equal(("compacted revision %d\n"):format(to), ctl:must { "compaction", tostring(to) })
      assert.equal("compact/a\n2\n", ctl:must { "get", "compact/a", "--rev=" .. to })
      assert.equal("etcdserver: mvcc: required revision has been compacted",
        ctl:fail { "get", "compact/a", "--rev=" .. first })
      assert.equal("etcdserver: mvcc: required revision has been compacted", ctl:fail { "compaction", tostring(to) })
      assert.equal("etcdserver: mvcc: required revision is a future revision",
        ctl:fail { "compaction", tostring(to + 1000000) })
      assert.equal(("compacted revision %d\n"):format(to + 1), ctl:must { "compaction", "--physical",
        tostring(to + 1) })
    end)
  end)

  describe("lock", function()
    it("is held while a command runs", function()
      assert.matches("^lock/b/%x+ %d+\n$", ctl:must { "lock", "lock/b", "--", "sh", "-c",
        'echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"' })
      assert.equal("", ctl:must { "get", "lock/b", "--prefix" })
    end)
  end)

  describe("endpoint", function()
    it("status prints a leader with a version and a size", function()
      local json = ctl:must { "endpoint", "status", "-w", "json" }
      local member = json:match('"member_id":(%d+)')
      assert.equal(member, json:match('"leader":(%d+)'))
      assert.is_true(tonumber(json:match('"dbSize":(%d+)')) > 0)
      assert.is_true(tonumber(json:match('"raftIndex":(%d+)')) >= tonumber(json:match('"raftAppliedIndex":(%d+)')))
      assert.equal(json:match('"raft_term":(%d+)'), json:match('"raftTerm":(%d+)'))
      local major, minor, patch = json:match('"version":"(%d+)%.(%d+)%.(%d+)"')
      assert.equal(server.is_etcd and "3.4" or "3.5", major .. "." .. minor)
      if not server.is_etcd then assert.is_true(tonumber(patch) >= 13) end
    end)

    it("health is good", function()
      assert.matches("is healthy: successfully committed proposal: took = ", ctl:run { "endpoint", "health" }:stderr())
    end)
  end)

  it("lists one member, started, with a name and its address", function()
    local list = ctl:must { "member", "list" }
    local id, name, url = list:match("^(%x+), started, ([^,]+), [^,]*, ([^,]+), false\n$")
    assert.is_string(name)
    assert.equal(ctl.peer.url, url)
    assert.equal(id, ctl:must { "endpoint", "status" }:match("^[^,]+, (%x+), "))
  end)

  it("finds no alarm, and disarms none", function()
    assert.equal("", ctl:must { "alarm", "list" })
    assert.equal("", ctl:must { "alarm", "disarm" })
  end)

  it("defragments", function()
    assert.matches("^Finished defragmenting etcd member", ctl:must { "defrag" })
  end)

  describe("bytes", function()
    local all = {}
    for byte = 0, 255 do all[#all + 1] = string.char(byte) end
    all = table.concat(all)

    it("of every kind are returned unchanged", function()
      ctl:must { "put", "bytes/empty", "" }
      assert.equal("bytes/empty\n\n", ctl:must { "get", "bytes/empty" })
      for name, value in pairs { binary = all, unicode = "žluťoučký 🐎", lines = "\n\n" } do
        ctl:must { "put", "bytes/" .. name, input = value }
        assert.equal(value .. "\n", ctl:must { "get", "bytes/" .. name, "--print-value-only" })
      end
    end)

    it("make keys of every kind", function()
      local keys = { "bytes/k/ключ", "bytes/k/\255", "bytes/k/\255\255", "bytes/k/ \t%" }
      for _, key in ipairs(keys) do put_all(key, "1") end
      table.sort(keys)
      assert.equal(table.concat(keys, "\n\n") .. "\n\n", ctl:must { "get", "bytes/k/", "--prefix", "--keys-only" })
      assert.equal("2\n", ctl:must { "del", "bytes/k/\255", "--prefix" })
    end)
  end)
end)
