/* SPDX-License-Identifier: MIT */
#include "bind/lua_watch.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "bind/lua_value.h"

#define WATCH_NAME "keywatch.core.watch"

static const int kind_names[] = {[KW_ITEM_EVENTS] = KW_UP_EVENTS,
                                 [KW_ITEM_PROGRESS] = KW_UP_PROGRESS,
                                 [KW_ITEM_COMPACTED] = KW_UP_COMPACTED,
                                 [KW_ITEM_CORRUPT] = KW_UP_CORRUPT};

typedef struct lua_watch {
  kw_outlet outlet;    /* its hub is NULL: closed, by itself or with its store */
  kw_lua_store *owner; /* valid while the outlet has a hub */
  kw_watcher *watcher; /* valid while the outlet has a hub */
  kw_item giving;      /* the item whose events are being pushed */
  bool is_giving;
} lua_watch;

static lua_watch *check_watch(lua_State *L) {
  return luaL_checkudata(L, 1, WATCH_NAME);
}

int kw_bind_make_hub(kw_lua_store *self) {
  if (self->hub != NULL) return KW_OK;
  kw_hub_options options = kw_hub_defaults();
  options.seed = self->seed;
  options.progress_ms = self->progress_ms;
  self->hub = kw_hub_new(self->store, &options);
  return self->hub == NULL ? KW_ERR_NO_MEMORY : KW_OK;
}

static int l_open_watch(lua_State *L) {
  kw_lua_store *owner = kw_bind_check_open(L);
  kw_watch_spec spec;
  int64_t max_bytes = KW_DEFAULT_OUTLET_BYTES;
  lua_settop(L, 3);
  lua_watch *self = lua_newuserdatauv(L, sizeof *self, 0); /* first: it may let finalizers run */
  *self = (lua_watch){.owner = owner};
  luaL_getmetatable(L, WATCH_NAME);
  lua_setmetatable(L, -2);
  kw_bind_enter(L);
  int rc = kw_bind_read_watch_spec(L, &owner->arena, &spec, &max_bytes);
  if (rc == KW_OK) rc = kw_bind_make_hub(owner);
  if (rc != KW_OK) return kw_bind_fail(L, owner, rc);
  kw_hub_open_outlet(owner->hub, &self->outlet, &owner->ready, (size_t)max_bytes, false);
  self->outlet.tag = ++owner->last_tag;
  rc = kw_hub_watch(owner->hub, &self->outlet, &spec, &self->watcher);
  if (rc != KW_OK) {
    kw_outlet_close(&self->outlet);
    return kw_bind_fail(L, owner, rc);
  }
  kw_bind_push_int(L, (int64_t)self->outlet.tag);
  kw_bind_push_int(L, kw_store_revision(owner->store));
  return 3;
}

static int l_next_ready(lua_State *L) {
  kw_lua_store *self = kw_bind_to_store(L, 1);
  kw_outlet *outlet = kw_ready_next(&self->ready);
  if (outlet == NULL) return 0;
  kw_bind_push_int(L, (int64_t)outlet->tag);
  return 1;
}

enum { USED = 2 }; /* the index of a list of tables that are used again, or of nil */

/* Called protected: pushes the events of the item that the watch at index 1 is giving. */
static int l_push_events(lua_State *L) {
  const kw_item *item = &((lua_watch *)lua_touserdata(L, 1))->giving;
  uint32_t n = item->batch->n - item->from;
  lua_createtable(L, (int)n, 0);
  for (uint32_t i = 0; i < n; i++) {
    kw_bind_push_event(L, &item->batch->events[item->from + i], USED, (int)i + 1);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

/* Pushes the events of the oldest item. Finalizers may write to the store and close it meanwhile: the batch is
 * retained. */
static void push_events(lua_State *L, lua_watch *self, const kw_item *first) {
  self->giving = *first;
  kw_batch_retain(self->giving.batch);
  self->is_giving = true;
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PUSH));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, USED);
  int status = lua_pcall(L, 2, 1, 0);
  self->is_giving = false;
  kw_batch_release(self->giving.batch);
  if (status != 0) lua_error(L);
}

static int l_take(lua_State *L) {
  lua_watch *self = check_watch(L);
  kw_item item;
  if (self->is_giving) kw_bind_refuse_finalizer(L, "watch");
  if (self->outlet.hub == NULL) {
    lua_pushliteral(L, "closed");
    return 1;
  }
  if (self->outlet.n == 0) {
    kw_bind_check_process(L, self->owner);
    kw_bind_step_if_due(self->owner);
  }
  const kw_item *first = kw_outlet_first(&self->outlet);
  if (first == NULL) return 0;
  lua_settop(L, USED);
  luaL_checkstack(L, 4, WATCH_NAME);
  lua_pushvalue(L, lua_upvalueindex(kind_names[first->kind]));
  if (first->kind == KW_ITEM_EVENTS) {
    push_events(L, self, first);
  } else {
    kw_bind_push_int(L, first->revision);
  }
  if (kw_outlet_take(&self->outlet, &item) && item.batch != NULL) kw_batch_release(item.batch);
  return 2;
}

static int l_arm(lua_State *L) {
  kw_outlet *outlet = &check_watch(L)->outlet;
  kw_outlet_arm(outlet);
  if (outlet->n > 0) kw_ready_add(outlet);
  return 0;
}

static int l_disarm(lua_State *L) {
  kw_outlet_disarm(&check_watch(L)->outlet);
  return 0;
}

static int l_request_progress(lua_State *L) {
  lua_watch *self = check_watch(L);
  kw_hub *hub = self->outlet.hub;
  bool ok =
      hub != NULL && (kw_watcher_is_early(self->watcher, kw_store_revision(self->owner->store)) ||
                      kw_hub_progress(hub, self->watcher));
  if (ok) {
    kw_bind_push_int(L, kw_store_revision(self->owner->store));
  } else {
    lua_pushboolean(L, false);
  }
  return 1;
}

static int l_has_failed(lua_State *L) {
  const lua_watch *self = check_watch(L);
  lua_pushboolean(L, self->outlet.hub != NULL && self->watcher->state == KW_WATCHER_FAILED);
  return 1;
}

static int l_is_blocked(lua_State *L) {
  const lua_watch *self = check_watch(L);
  lua_pushboolean(L, self->outlet.hub != NULL && self->watcher->state == KW_WATCHER_BLOCKED);
  return 1;
}

/* Returns the items that wait to be taken, their bytes, and whether there are more events than the queue holds. */
static int l_backlog(lua_State *L) {
  const lua_watch *self = check_watch(L);
  bool is_open = self->outlet.hub != NULL;
  size_t n = is_open ? self->outlet.n : 0, bytes = is_open ? self->outlet.bytes : 0;
  bool is_behind = is_open && (self->watcher->state == KW_WATCHER_BLOCKED ||
                               self->watcher->state == KW_WATCHER_LAGGING);
  kw_bind_push_int(L, (int64_t)n);
  kw_bind_push_int(L, (int64_t)bytes);
  lua_pushboolean(L, is_behind);
  return 3;
}

static int l_close(lua_State *L) {
  kw_outlet_close(&check_watch(L)->outlet);
  return 0;
}

const luaL_Reg kw_bind_watch_methods[] = {
    {"open_watch", l_open_watch}, {"next_ready", l_next_ready}, {NULL, NULL}};

static const luaL_Reg methods[] = {{"take", l_take},
                                   {"arm", l_arm},
                                   {"disarm", l_disarm},
                                   {"request_progress", l_request_progress},
                                   {"is_blocked", l_is_blocked},
                                   {"has_failed", l_has_failed},
                                   {"backlog", l_backlog},
                                   {"close", l_close},
                                   {NULL, NULL}};

static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_add_watch_class(lua_State *L) {
  kw_bind_add_class(L, WATCH_NAME, meta, methods, l_push_events);
}
