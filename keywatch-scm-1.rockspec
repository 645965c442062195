rockspec_format = "3.0"
package = "keywatch"
version = "scm-1"

source = {
  url = "git+https://github.com/keywatch/keywatch.git",
}

description = {
  summary = "List-watch for Lua: a versioned key-value store with etcd's semantics",
  detailed = [[
    keywatch is a store whose every change has a revision: read any key or range as it was, compare and change
    many keys in one transaction, bind keys to leases, compact the past away, and watch what happens, from any
    revision on, without gap. Its semantics are those of etcd v3. The core is C, for Lua 5.4 and LuaJIT.
  ]],
  homepage = "https://github.com/keywatch/keywatch",
  license = "MIT",
  labels = { "etcd", "database", "watch", "mvcc" },
}

dependencies = {
  "lua >= 5.1, < 5.5",
}

external_dependencies = {
  LMDB = { header = "lmdb.h", library = "lmdb" },
  NGHTTP2 = { header = "nghttp2/nghttp2.h", library = "nghttp2" },
  UV = { header = "uv.h", library = "uv" },
}

build = {
  type = "builtin",
  copy_directories = { "examples", "types" },
  install = {
    bin = { keywatch = "bin/keywatch" },
  },
  modules = {
    ["keywatch"] = "lua/keywatch/init.lua",
    ["keywatch.call"] = "lua/keywatch/call.lua",
    ["keywatch.check"] = "lua/keywatch/check.lua",
    ["keywatch.command"] = "lua/keywatch/command.lua",
    ["keywatch.command.flags"] = "lua/keywatch/command/flags.lua",
    ["keywatch.command.serve"] = "lua/keywatch/command/serve.lua",
    ["keywatch.compat"] = "lua/keywatch/compat.lua",
    ["keywatch.driver"] = "lua/keywatch/driver.lua",
    ["keywatch.driver.uv"] = "lua/keywatch/driver/uv.lua",
    ["keywatch.identity"] = "lua/keywatch/identity.lua",
    ["keywatch.lease"] = "lua/keywatch/lease.lua",
    ["keywatch.log"] = "lua/keywatch/log.lua",
    ["keywatch.pages"] = "lua/keywatch/pages.lua",
    ["keywatch.server"] = "lua/keywatch/server.lua",
    ["keywatch.services.auth"] = "lua/keywatch/services/auth.lua",
    ["keywatch.services.cluster"] = "lua/keywatch/services/cluster.lua",
    ["keywatch.services.contest"] = "lua/keywatch/services/contest.lua",
    ["keywatch.services.election"] = "lua/keywatch/services/election.lua",
    ["keywatch.services.header"] = "lua/keywatch/services/header.lua",
    ["keywatch.services.health"] = "lua/keywatch/services/health.lua",
    ["keywatch.services.lock"] = "lua/keywatch/services/lock.lua",
    ["keywatch.services.maintenance"] = "lua/keywatch/services/maintenance.lua",
    ["keywatch.services.refusal"] = "lua/keywatch/services/refusal.lua",
    ["keywatch.timers"] = "lua/keywatch/timers.lua",
    ["keywatch.url"] = "lua/keywatch/url.lua",
    ["keywatch.watch"] = "lua/keywatch/watch.lua",
    ["keywatch.core"] = {
      sources = {
        "csrc/base/arena.c",
        "csrc/base/blob.c",
        "csrc/base/chain.c",
        "csrc/base/crc32c.c",
        "csrc/base/heap.c",
        "csrc/base/map.c",
        "csrc/base/mem.c",
        "csrc/base/sha1.c",
        "csrc/face/module.c",
        "csrc/model/error.c",
        "csrc/codec/event.c",
        "csrc/codec/grpc.c",
        "csrc/codec/keyvalue.c",
        "csrc/codec/message.c",
        "csrc/codec/messages.c",
        "csrc/codec/wire.c",
        "csrc/store/check.c",
        "csrc/store/compaction.c",
        "csrc/store/disk.c",
        "csrc/store/follower.c",
        "csrc/store/hash.c",
        "csrc/store/index.c",
        "csrc/store/key_history.c",
        "csrc/store/lease.c",
        "csrc/store/log.c",
        "csrc/store/read.c",
        "csrc/store/store.c",
        "csrc/store/txn.c",
        "csrc/store/write.c",
        "csrc/watch/batch.c",
        "csrc/watch/group.c",
        "csrc/watch/hub.c",
        "csrc/watch/outlet.c",
        "csrc/watch/slots.c",
        "csrc/watch/walk.c",
        "csrc/h2/input.c",
        "csrc/h2/session.c",
        "csrc/h2/status.c",
        "csrc/h2/stream.c",
        "csrc/rpc/call.c",
        "csrc/rpc/client.c",
        "csrc/rpc/kv_service.c",
        "csrc/rpc/lease_service.c",
        "csrc/rpc/method.c",
        "csrc/rpc/peer.c",
        "csrc/rpc/server.c",
        "csrc/rpc/service.c",
        "csrc/rpc/watch_service.c",
        "csrc/bind/core.c",
        "csrc/bind/lua_call.c",
        "csrc/bind/lua_client.c",
        "csrc/bind/lua_error.c",
        "csrc/bind/lua_message.c",
        "csrc/bind/lua_op.c",
        "csrc/bind/lua_options.c",
        "csrc/bind/lua_peer.c",
        "csrc/bind/lua_reply.c",
        "csrc/bind/lua_server.c",
        "csrc/bind/lua_store.c",
        "csrc/bind/lua_value.c",
        "csrc/bind/lua_watch.c",
        "csrc/bind/probe.c",
        "csrc/bind/probe_codec.c",
        "csrc/bind/probe_stream.c",
      },
      incdirs = { "csrc", "$(NGHTTP2_INCDIR)", "$(LMDB_INCDIR)" },
      libdirs = { "$(NGHTTP2_LIBDIR)", "$(LMDB_LIBDIR)" },
      libraries = { "nghttp2", "lmdb", "pthread", "m" },
    },
    ["keywatch.uv"] = {
      sources = {
        "csrc/base/heap.c",
        "csrc/base/mem.c",
        "csrc/face/module.c",
        "csrc/uv/address.c",
        "csrc/uv/connection.c",
        "csrc/uv/hosted.c",
        "csrc/uv/listener.c",
        "csrc/uv/loop.c",
        "csrc/uv/probe_engine.c",
        "csrc/uv/uv.c",
      },
      incdirs = { "csrc", "$(UV_INCDIR)" },
      libdirs = { "$(UV_LIBDIR)" },
      libraries = { "uv" },
    },
  },
}

test = {
  type = "command",
  command = "make test",
}
