--- etcdctl make-mirror: a server and a real etcd, each the mirror of the other.

local etcdctl = require "spec.support.etcdctl"
local process = require "spec.support.process"
local server = require "spec.support.server"

describe("A server and etcd #once", function()
  local servers, ctls -- by name

  setup(function()
    servers = {}
    servers.server = server.start()
    servers.etcd = server.start { kind = "etcd" }
    ctls = { server = etcdctl.new(servers.server), etcd = etcdctl.new(servers.etcd) }
  end)

  after_each(process.end_all)

  teardown(function()
    for _, one in pairs(servers) do one:stop() end
  end)

  for from, to in pairs { server = "etcd", etcd = "server" } do
    it(("are mirrored: the %s by the %s"):format(from, to), function()
      local source, destination = ctls[from], ctls[to]
      local prefix, mirrored = "from-" .. from .. "/", "mirror-of-" .. from .. "/"
      source:must { "put", prefix .. "a", "1" }
      source:must { "put", prefix .. "b", "2" }
      source:must { "put", "not this", "3" }
      local seen = destination:start { "watch", mirrored, "--prefix", "--rev=" .. destination:revision() + 1 }
      source:start { "make-mirror", servers[to].address, "--prefix", prefix, "--dest-prefix", mirrored }

      local function expect(what)
        seen:expect("^" .. what:gsub("MIRROR/", (mirrored:gsub("%-", "%%%%-"))))
      end
      expect("PUT\nMIRROR/a\n1\nPUT\nMIRROR/b\n2\n") -- existing keys
      source:must { "put", prefix .. "c", "4" }
      expect("PUT\nMIRROR/c\n4\n")
      source:must { "del", prefix .. "a" }
      expect("DELETE\nMIRROR/a\n\n")
      local before = destination:revision()
      source:must { "txn", input = ("\nput %sd 5\ndel %sb\nput %sc 6\n\n\n"):format(prefix, prefix, prefix) }
      expect("PUT\nMIRROR/d\n5\nDELETE\nMIRROR/b\n\nPUT\nMIRROR/c\n6\n")
      assert.equal(before + 1, destination:revision()) -- in one transaction there, too
      source:must { "put", prefix .. "large", input = ("x"):rep(1000000) }
      expect("PUT\nMIRROR/large\nx+\n")
      assert.equal("c\n6\nd\n5\nlarge\n" .. ("x"):rep(1000000) .. "\n",
        (destination:must { "get", mirrored, "--prefix" }:gsub(mirrored:gsub("%-", "%%-"), "")))
    end)
  end

  it("have the same hash after the same history", function()
    local fresh = { server.start(), server.start { kind = "etcd" } }
    finally(function()
      for _, one in ipairs(fresh) do one:stop() end
    end)
    local hashes = {}
    for i, one in ipairs(fresh) do
      local ctl = etcdctl.new(one)
      ctl:must { "put", "a", "1" }
      ctl:must { "put", "b", "" }
      ctl:must { "put", "a", "2" }
      ctl:must { "del", "b" }
      ctl:must { "txn", input = "\nput c 1\ndel a\nput d 2\n\n\n" }
      hashes[i] = ctl:must { "endpoint", "hashkv" }:match(", (%d+)\n$")
    end
    assert.equal(hashes[2], hashes[1])
  end)
end)
