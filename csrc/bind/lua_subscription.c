/* SPDX-License-Identifier: MIT */
#include "bind/lua_subscription.h"

#include "bind/lua_client.h"
#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_peer.h"
#include "bind/lua_reply.h"
#include "bind/lua_scratch.h"
#include "bind/lua_value.h"
#include "codec/event.h"
#include "codec/wire.h"
#include "face/module.h"
#include "model/error.h"
#include "rpc/watch_call.h"

#define SUBSCRIPTION_NAME "keywatch.core.subscription"

enum { UP_SCRATCH = 1 }; /* of core.subscription */
enum { SCRATCH = 4 };    /* its index on the stack */

typedef struct lua_subscription {
  kw_subscription sub;
  bool is_open;   /* `sub` is initialised: kw_watch_call_drop is due */
  bool is_giving; /* its first news is being pushed */
  bool must_drop; /* a finalizer has closed it during is_giving */
} lua_subscription;

static const char *const state_names[] = {[KW_SUBSCRIPTION_IDLE] = "idle",
                                          [KW_SUBSCRIPTION_CREATING] = "creating",
                                          [KW_SUBSCRIPTION_OPEN] = "open",
                                          [KW_SUBSCRIPTION_FAILED] = "failed"};

static lua_subscription *check_self(lua_State *L) {
  return luaL_checkudata(L, 1, SUBSCRIPTION_NAME);
}

kw_subscription *kw_bind_check_subscription(lua_State *L, int i) {
  lua_subscription *self = luaL_checkudata(L, i, SUBSCRIPTION_NAME);
  if (self->is_giving) kw_bind_refuse_finalizer(L, "watch");
  return self->is_open ? &self->sub : NULL;
}

static lua_subscription *new_self(lua_State *L) {
  lua_subscription *self = kw_new_object(L, SUBSCRIPTION_NAME, sizeof *self, 0);
  return self;
}

static int read_spec(lua_State *L, lua_subscription *self, kw_arena *arena) {
  kw_watch_spec spec;
  int64_t max_bytes = KW_DEFAULT_OUTLET_BYTES;
  int rc = kw_bind_read_watch_spec(L, arena, &spec, &max_bytes);
  if (rc != KW_OK) return rc;
  self->is_open = true;
  if (!kw_subscription_init(&self->sub, &spec.range, (size_t)max_bytes)) return KW_ERR_NO_MEMORY;
  self->sub.prev_kv = spec.prev_kv;
  self->sub.no_put = spec.no_put;
  self->sub.no_delete = spec.no_delete;
  self->sub.progress = spec.progress;
  self->sub.next = spec.start_revision;
  return KW_OK;
}

static int l_subscription(lua_State *L) {
  int64_t tag = kw_bind_check_int(L, 1, 1);
  lua_settop(L, 3);
  kw_arena *arena = kw_bind_take_scratch(L, UP_SCRATCH);
  lua_subscription *self = new_self(L);
  if (read_spec(L, self, arena) != KW_OK) return luaL_error(L, "not enough memory");
  self->sub.tag = (uint64_t)tag;
  kw_bind_return_scratch(L, UP_SCRATCH, SCRATCH);
  return 1;
}

/* {====== Events ====== */

enum { USED = 2 }; /* the stack index of a list of tables to reuse, or of nil */

/* Adds the events of a response to the list on top of the stack, which has `n`. Returns its new length. */
static int add_events(lua_State *L, const kw_notice *news, int n) {
  kw_wire_reader reader = kw_wire_read(kw_blob_slice(news->bytes));
  kw_wire_field field;
  kw_event_fields event;
  while (kw_wire_next(&reader, &field)) {
    if (field.number != KW_WATCH_RESPONSE_EVENTS) continue;
    if (!kw_event_decode(field.bytes, &event)) continue;
    if (event.kv.mod_revision < news->revision) continue;                   /* delivered before */
    if (news->until != 0 && event.kv.mod_revision >= news->until) return n; /* delivered later */
    n++;
    kw_bind_push_event_of(L, event.is_delete, &event.kv, event.has_prev ? &event.prev : NULL, USED,
                          n);
    lua_rawseti(L, -2, n);
  }
  return n;
}

/* Pushes the events of a response, which may consist of fragments. */
static void push_events(lua_State *L, const kw_notice *news) {
  int n = 0;
  lua_createtable(L, (int)kw_min_size(news->n, INT16_MAX), 0);
  while (true) {
    n = add_events(L, news, n);
    if (!news->has_more) return;
    news = KW_CONTAINER_OF(news->link.next, kw_notice, link);
  }
}

static int push_failure(lua_State *L, const kw_notice *news) {
  lua_pushliteral(L, "failed");
  lua_pushstring(L, kw_error_describe(news->error)->code);
  if (news->bytes == NULL) return 2;
  kw_bind_push_slice(L, kw_blob_slice(news->bytes));
  return 3;
}

/* Called protected: pushes the first news of the subscription at index 1. Progress that arrives during the call is
 * merged into the same news, so its revision is read last. */
static int l_push_news(lua_State *L) {
  const kw_notice *news = kw_subscription_first(&((lua_subscription *)lua_touserdata(L, 1))->sub);
  switch (news->kind) {
    case KW_NOTICE_EVENTS:
      lua_pushvalue(L, lua_upvalueindex(KW_UP_EVENTS));
      push_events(L, news);
      return 2;
    case KW_NOTICE_PROGRESS: lua_pushvalue(L, lua_upvalueindex(KW_UP_PROGRESS)); break;
    case KW_NOTICE_COMPACTED: lua_pushvalue(L, lua_upvalueindex(KW_UP_COMPACTED)); break;
    case KW_NOTICE_FAILED: return push_failure(L, news);
  }
  kw_bind_push_int(L, news->revision);
  return 2;
}

/* }====== */

/* {====== Taking ====== */

static void drop(lua_subscription *self) {
  if (!self->is_open) return;
  if (self->is_giving) {
    self->must_drop = true;
    return;
  }
  self->is_open = false;
  kw_watch_call_drop(&self->sub);
}

/* Pushes the first news, then removes it from the queue. Returns the number of values. Finalizers may close the
 * subscription during the call, so the news exists until it is pushed. If memory runs out, the news remains in the
 * queue. */
static int give(lua_State *L, lua_subscription *self) {
  int before = lua_gettop(L);
  self->is_giving = true;
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PUSH));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, USED);
  int status = lua_pcall(L, 2, LUA_MULTRET, 0);
  self->is_giving = false;
  if (status == 0) kw_subscription_skip(&self->sub);
  if (self->must_drop) drop(self);
  return status == 0 ? lua_gettop(L) - before : lua_error(L);
}

static void check_idle(lua_State *L, const lua_subscription *self) {
  if (self->is_giving) kw_bind_refuse_finalizer(L, "watch");
}

static int l_take(lua_State *L) {
  lua_subscription *self = check_self(L);
  check_idle(L, self);
  if (!self->is_open) {
    lua_pushliteral(L, "closed");
    return 1;
  }
  lua_settop(L, USED);
  luaL_checkstack(L, 4, SUBSCRIPTION_NAME);
  return kw_subscription_first(&self->sub) == NULL ? 0 : give(L, self);
}

/* }====== */

static int l_attach(lua_State *L) {
  lua_subscription *self = check_self(L);
  kw_client *client = kw_bind_check_client(L, 2);
  kw_watch_call *call = kw_watch_call_find(client, (uint64_t)kw_bind_check_int(L, 3, 1));
  bool may = self->is_open && call != NULL && self->sub.state == KW_SUBSCRIPTION_IDLE;
  lua_pushboolean(L, may && kw_watch_call_attach(call, &self->sub));
  return 1;
}

static int l_detach(lua_State *L) {
  lua_subscription *self = check_self(L);
  if (self->is_open) kw_watch_call_detach(&self->sub);
  return 0;
}

static int l_arm(lua_State *L) {
  lua_subscription *self = check_self(L);
  self->sub.is_armed = self->is_open;
  if (self->is_open) kw_watch_call_wake(&self->sub);
  return 0;
}

static int l_disarm(lua_State *L) {
  check_self(L)->sub.is_armed = false;
  return 0;
}

static int l_follow(lua_State *L) {
  check_self(L)->sub.announces_progress = lua_toboolean(L, 2);
  return 0;
}

static int l_state(lua_State *L) {
  const lua_subscription *self = check_self(L);
  const kw_subscription sub = self->sub; /* a copy: finalizers may change it */
  bool is_open = self->is_open;
  lua_pushstring(L, is_open ? state_names[sub.state] : "closed");
  kw_bind_push_int(L, sub.next);
  lua_pushboolean(L, sub.is_lagging);
  lua_pushboolean(L, is_open && kw_subscription_has_room(&sub));
  lua_pushboolean(L, sub.is_suspect);
  return 5;
}

static int l_seen(lua_State *L) {
  const kw_subscription *sub = &check_self(L)->sub;
  kw_bind_push_int(L, sub->is_suspect ? sub->sure_seen : sub->seen);
  lua_pushboolean(L, sub->was_created);
  kw_bind_push_int(L, sub->server_revision);
  if (!sub->has_cluster) return 3;
  kw_bind_push_uint(L, (uint64_t)sub->cluster);
  return 4;
}

static int l_heard(lua_State *L) {
  int64_t heard_at = check_self(L)->sub.heard_at;
  if (heard_at == 0) return 0;
  lua_pushnumber(L, (lua_Number)heard_at / 1000);
  return 1;
}

static int l_begin(lua_State *L) {
  kw_subscription *sub = &check_self(L)->sub;
  uint64_t cluster;
  sub->seen = kw_bind_check_int(L, 2, 0);
  sub->next = sub->seen + 1;
  sub->has_cluster = kw_bind_to_uint(L, 3, &cluster);
  if (sub->has_cluster) sub->cluster = (int64_t)cluster;
  sub->overlaps = lua_toboolean(L, 4);
  return 0;
}

static int l_accept(lua_State *L) {
  kw_subscription *sub = &check_self(L)->sub;
  kw_subscription_validate(sub);
  kw_watch_call_wake(sub);
  return 0;
}

static int l_fail(lua_State *L) {
  lua_subscription *self = check_self(L);
  int rc = kw_error_find(luaL_checkstring(L, 2));
  kw_slice text = lua_isnoneornil(L, 3) ? kw_slice_of("", 0) : kw_bind_check_bytes(L, 3);
  if (!self->is_open) return 0;
  kw_watch_call_detach(&self->sub);
  kw_subscription_fail(&self->sub, 0, text, rc);
  return 0;
}

static int l_refusal(lua_State *L) {
  kw_blob **holder = kw_bind_new_holder(L); /* first: it may let finalizers run */
  const lua_subscription *self = check_self(L);
  kw_blob *words = self->is_open ? kw_subscription_refusal(&self->sub) : NULL;
  if (words == NULL) return 0;
  *holder = kw_blob_retain(words);
  kw_bind_push_held(L, holder);
  return 1;
}

static int l_revive(lua_State *L) {
  lua_subscription *self = check_self(L);
  check_idle(L, self); /* the news that is being pushed could be the refusal */
  if (self->is_open) kw_subscription_revive(&self->sub);
  return 0;
}

static int l_close(lua_State *L) {
  drop(check_self(L));
  return 0;
}

static const luaL_Reg methods[] = {
    {"take", l_take},       {"attach", l_attach}, {"detach", l_detach}, {"arm", l_arm},
    {"disarm", l_disarm},   {"state", l_state},   {"seen", l_seen},     {"begin", l_begin},
    {"heard", l_heard},     {"accept", l_accept}, {"fail", l_fail},     {"follow", l_follow},
    {"refusal", l_refusal}, {"revive", l_revive}, {"close", l_close},   {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_push_subscription(lua_State *L) {
  kw_bind_add_class(L, SUBSCRIPTION_NAME, meta, methods, l_push_news);
  kw_bind_add_scratch(L);
  lua_pushnil(L);
  lua_pushcclosure(L, l_subscription, 1);
}
