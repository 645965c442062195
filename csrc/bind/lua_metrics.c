/* SPDX-License-Identifier: MIT */
#include "bind/lua_metrics.h"

#include "bind/lua_server.h"
#include "bind/lua_value.h"

/* Everything is copied to here before the first value is pushed. */
typedef struct snapshot {
  kw_store_metrics store;
  kw_hub_metrics hub;
  kw_server_counters server;
  uint64_t events_taken;
  uint64_t events_queued;
  size_t connections;
  size_t held;
  kw_method_metrics methods[];
} snapshot;

typedef enum field_kind { NUMBER, HISTOGRAM } field_kind; /* NUMBER: of 64 bits */

typedef struct field {
  const char *name;
  field_kind kind;
  size_t offset; /* in a snapshot */
} field;

#define FIELD(name, kind, place)                                                                   \
  { #name, kind, offsetof(snapshot, place) }

static const field fields[] = {
    FIELD(puts, NUMBER, store.counters.ops.puts),
    FIELD(put_bytes, NUMBER, store.counters.ops.put_bytes),
    FIELD(deletes, NUMBER, store.counters.ops.deletes),
    FIELD(ranges, NUMBER, store.counters.ops.ranges),
    FIELD(txns, NUMBER, store.counters.ops.txns),
    FIELD(undone, NUMBER, store.counters.undone),
    FIELD(keys, NUMBER, store.status.keys),
    FIELD(revision, NUMBER, store.status.revision),
    FIELD(applied, NUMBER, store.applied),
    FIELD(compact_revision, NUMBER, store.status.compact_revision),
    FIELD(compacted_records, NUMBER, store.counters.removed),
    FIELD(compaction, HISTOGRAM, store.counters.compaction),
    FIELD(compaction_pause, HISTOGRAM, store.counters.compaction_pause),
    FIELD(db_size, NUMBER, store.status.db_size),
    FIELD(db_size_in_use, NUMBER, store.status.db_size_in_use),
    FIELD(quota, NUMBER, store.status.quota),
    FIELD(leases, NUMBER, store.status.leases),
    FIELD(leases_granted, NUMBER, store.counters.ops.granted),
    FIELD(leases_renewed, NUMBER, store.counters.renewed),
    FIELD(leases_revoked, NUMBER, store.revoked),
    FIELD(leases_expired, NUMBER, store.expired),
    FIELD(lease_ttl, HISTOGRAM, store.counters.lease_ttl),
    FIELD(index_bytes, NUMBER, store.index_bytes),
    FIELD(log_bytes, NUMBER, store.log_bytes),
    FIELD(lease_bytes, NUMBER, store.lease_bytes),
    FIELD(watch_streams, NUMBER, hub.streams),
    FIELD(watchers_synced, NUMBER, hub.watchers[KW_WATCHER_SYNCED]),
    FIELD(watchers_lagging, NUMBER, hub.watchers[KW_WATCHER_LAGGING]),
    FIELD(watchers_blocked, NUMBER, hub.watchers[KW_WATCHER_BLOCKED]),
    FIELD(watchers_failed, NUMBER, hub.watchers[KW_WATCHER_FAILED]),
    FIELD(events_taken, NUMBER, events_taken),
    FIELD(events_queued, NUMBER, events_queued),
    FIELD(outlet_bytes, NUMBER, hub.outlets.bytes),
    FIELD(connections, NUMBER, connections),
    FIELD(connection_bytes, NUMBER, held),
    FIELD(accepted, NUMBER, server.accepted),
    FIELD(rejected, NUMBER, server.rejected),
    FIELD(cut, NUMBER, server.cut),
    FIELD(accept_failures, NUMBER, server.accept_failures),
    FIELD(malformed, NUMBER, server.malformed),
    FIELD(unknown_method, NUMBER, server.unknown),
    FIELD(over_memory, NUMBER, server.over_memory),
    FIELD(groups, NUMBER, store.disk.groups),
    FIELD(direct_groups, NUMBER, store.disk.direct),
    FIELD(slow_groups, NUMBER, store.disk.slow),
    FIELD(group_changes, HISTOGRAM, store.disk.changes),
    FIELD(group_time, HISTOGRAM, store.disk.group),
    FIELD(journal_written, NUMBER, store.disk.journal_bytes),
    FIELD(append_time, HISTOGRAM, store.disk.append),
    FIELD(checkpoints, NUMBER, store.disk.checkpoints),
    FIELD(checkpoint_time, HISTOGRAM, store.disk.checkpoint),
    FIELD(copy_time, HISTOGRAM, store.disk.copy),
    FIELD(lacking_bytes, NUMBER, store.lacking_bytes),
};

static void set_number(lua_State *L, const char *name, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, name);
}

/* Pushes the lists of bounds, and of the numbers of values up to each. */
static void push_histogram(lua_State *L, const kw_histogram *histogram) {
  const kw_buckets *buckets = histogram->buckets;
  uint64_t count = 0;
  lua_createtable(L, 0, 4);
  lua_createtable(L, (int)buckets->n, 0);
  lua_createtable(L, (int)buckets->n, 0);
  for (size_t i = 0; i < buckets->n; i++) {
    count += histogram->counts[i];
    lua_pushnumber(L, (double)buckets->bounds[i] * buckets->unit);
    lua_rawseti(L, -3, (int)i + 1);
    kw_bind_push_int(L, (int64_t)count);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -3, "counts");
  lua_setfield(L, -2, "bounds");
  kw_bind_set_int(L, "count", (int64_t)(count + histogram->counts[buckets->n]));
  set_number(L, "sum", histogram->sum * buckets->unit);
}

static void set_field(lua_State *L, const snapshot *s, const field *f) {
  const void *place = (const char *)s + f->offset;
  if (f->kind == HISTOGRAM) {
    push_histogram(L, place);
    lua_setfield(L, -2, f->name);
  } else {
    kw_bind_set_int(L, f->name, *(const int64_t *)place);
  }
}

static void push_handled(lua_State *L, const kw_method_counters *counters) {
  lua_newtable(L);
  for (int status = 0; status < KW_GRPC_CODES; status++) {
    if (counters->handled[status] == 0) continue;
    kw_bind_push_int(L, (int64_t)counters->handled[status]);
    lua_rawseti(L, -2, status);
  }
}

static void push_method(lua_State *L, const kw_method_metrics *method) {
  const kw_method_counters *counters = &method->counters;
  lua_createtable(L, 0, 10);
  lua_pushstring(L, method->path);
  lua_setfield(L, -2, "path");
  kw_bind_set_bool(L, "is_unary", method->is_unary);
  kw_bind_set_bool(L, "takes_one", method->takes_one);
  kw_bind_set_int(L, "started", (int64_t)counters->started);
  kw_bind_set_int(L, "received", (int64_t)counters->received);
  kw_bind_set_int(L, "received_bytes", (int64_t)counters->received_bytes);
  kw_bind_set_int(L, "sent", (int64_t)counters->sent.messages);
  kw_bind_set_int(L, "sent_bytes",
                  (int64_t)(counters->sent.bytes - KW_GRPC_PREFIX * counters->sent.messages));
  push_handled(L, counters);
  lua_setfield(L, -2, "handled");
  if (counters->seconds.buckets == NULL) return;
  push_histogram(L, &counters->seconds);
  lua_setfield(L, -2, "seconds");
}

static kw_lua_server *check_open(lua_State *L) {
  kw_lua_server *self = luaL_checkudata(L, 1, KW_SERVER_NAME);
  if (self->store == NULL) luaL_error(L, "the server is closed, or has no store");
  return self;
}

/* The methods that a finalizer mounts in between are left out. */
static int l_counters(lua_State *L) {
  size_t n = kw_server_get_methods(check_open(L)->server, NULL, 0);
  snapshot *s = lua_newuserdatauv(L, sizeof *s + n * sizeof s->methods[0], 0);
  const kw_lua_server *self = check_open(L); /* again */
  *s = (snapshot){.store = kw_store_get_metrics(self->store->store),
                  .hub = kw_hub_get_metrics(self->store->hub),
                  .server = *kw_server_get_counters(self->server),
                  .connections = kw_server_count(self->server),
                  .held = kw_server_held(self->server)};
  const kw_outlet_totals *events = &s->hub.outlets;
  s->events_taken = events->removed - events->dropped;
  s->events_queued = events->added - events->removed;
  kw_server_get_methods(self->server, s->methods, n);
  lua_createtable(L, 0, (int)KW_LENGTH(fields));
  for (size_t i = 0; i < KW_LENGTH(fields); i++) set_field(L, s, &fields[i]);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    push_method(L, &s->methods[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 2;
}

static const luaL_Reg methods[] = {{"counters", l_counters}, {NULL, NULL}};

void kw_bind_add_metrics(lua_State *L) {
  luaL_setfuncs(L, methods, 0);
}
