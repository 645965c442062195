/* SPDX-License-Identifier: MIT */
#include "bind/lua_watch.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "bind/lua_value.h"
#include "codec/keyvalue.h"
#include "face/module.h"
#include "watch/scroll.h"

#define WATCH_NAME "keywatch.core.watch"

/* Limits of a piece of a long batch. */
#define PIECE_EVENTS 512
#define PIECE_BYTES (256 * 1024)

static const int kind_names[] = {[KW_ITEM_EVENTS] = KW_UP_EVENTS,
                                 [KW_ITEM_PROGRESS] = KW_UP_PROGRESS,
                                 [KW_ITEM_COMPACTED] = KW_UP_COMPACTED,
                                 [KW_ITEM_CORRUPT] = KW_UP_CORRUPT};

typedef struct lua_watch {
  kw_outlet outlet;    /* without a hub: closed, by itself or with its store */
  kw_lua_store *owner; /* valid while the outlet has a hub */
  kw_watcher *watcher; /* valid while the outlet has a hub */
  kw_item giving;      /* the item whose events are being pushed */
  bool is_giving;
  kw_scroll scroll; /* reads the long batch that is the oldest item */
  kw_batch *piece;  /* events of that batch that were not pushed yet; or NULL */
} lua_watch;

static lua_watch *check_watch(lua_State *L) {
  return luaL_checkudata(L, 1, WATCH_NAME);
}

static int l_open_watch(lua_State *L) {
  kw_watch_spec spec;
  int64_t max_bytes = KW_DEFAULT_OUTLET_BYTES;
  lua_settop(L, 3);
  lua_watch *self = kw_new_object(L, WATCH_NAME, sizeof *self, 0);
  kw_lua_store *owner = self->owner = kw_bind_enter(L);
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

enum { USED = 2 }; /* the stack index of a list of tables to reuse, or of nil */

/* {====== Into a table ====== */

enum {
  TARGET = 2,
  CUT,
  APPLY_ARGS = CUT
}; /* indexes: the table, and the number of bytes cut off keys */

/* Sets the key of an event in the table, or removes it. */
static void apply_event(lua_State *L, const kw_event *event, size_t cut) {
  kw_kv kv = kw_keyvalue_of(event->record);
  size_t off = kw_min_size(cut, kv.key.len);
  kw_bind_push_slice(L, kw_slice_of(kv.key.data + off, kv.key.len - off));
  if (event->is_delete) {
    lua_pushnil(L);
  } else {
    kw_bind_push_slice(L, kv.value);
  }
  lua_rawset(L, TARGET);
}

static bool is_long(const kw_item *item) {
  return item->kind == KW_ITEM_EVENTS && item->batch->long_revision != 0;
}

/* Begins to push the oldest item, if it has events; of a long batch, the piece, if there is one. Retains the batch,
 * because a finalizer may write to the store or close the watch. */
static bool begin_giving(lua_watch *self) {
  const kw_item *first = self->outlet.hub == NULL ? NULL : kw_outlet_first(&self->outlet);
  if (first == NULL || first->kind != KW_ITEM_EVENTS) return false;
  if (is_long(first) && self->piece == NULL) return false;
  self->giving = *first;
  if (is_long(first)) self->giving.batch = self->piece;
  kw_batch_retain(self->giving.batch);
  return self->is_giving = true;
}

static void end_giving(lua_watch *self) {
  if (!self->is_giving) return;
  self->is_giving = false;
  kw_batch_release(self->giving.batch);
}

/* Drops the oldest item. */
static void skip(lua_watch *self) {
  kw_item item;
  if (kw_outlet_take(&self->outlet, &item) && item.batch != NULL) kw_batch_release(item.batch);
}

/* Called protected: applies all events to the table at index TARGET. Returns the revision of the last one, or 0. */
static int apply_all(lua_State *L, lua_watch *self) {
  size_t cut = (size_t)lua_tonumber(L, CUT);
  int64_t revision = 0;
  while (begin_giving(self)) {
    const kw_item *item = &self->giving;
    for (uint32_t i = item->from; i < item->batch->n; i++)
      apply_event(L, &item->batch->events[i], cut);
    revision = item->revision;
    end_giving(self);
    skip(self);
  }
  kw_bind_push_int(L, revision);
  return 1;
}

/* }====== */

/* Called protected: pushes the events of the current item of the watch at index 1; or, with APPLY_ARGS arguments,
 * applies all events. */
static int l_push_events(lua_State *L) {
  if (lua_gettop(L) == APPLY_ARGS) return apply_all(L, lua_touserdata(L, 1));
  const kw_item *item = &((lua_watch *)lua_touserdata(L, 1))->giving;
  uint32_t n = item->batch->n - item->from;
  lua_createtable(L, (int)n, 0);
  for (uint32_t i = 0; i < n; i++) {
    kw_bind_push_event(L, &item->batch->events[item->from + i], USED, (int)i + 1);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

/* Pushes the events of the oldest item. */
static void push_events(lua_State *L, lua_watch *self) {
  begin_giving(self);
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PUSH));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, USED);
  int status = lua_pcall(L, 2, 1, 0);
  end_giving(self);
  if (status != 0) lua_error(L);
}

/* {====== Long batches ====== */

static void drop_piece(lua_watch *self) {
  if (self->piece != NULL) kw_batch_release(self->piece);
  self->piece = NULL;
}

/* Fills the piece with the next events of the scroll, at least one. */
static int fill_piece(lua_watch *self) {
  kw_event event;
  while (self->scroll.left > 0 && self->piece->n < PIECE_EVENTS &&
         self->piece->bytes < PIECE_BYTES) {
    kw_work work = kw_work_without_end();
    int rc = kw_scroll_next(&self->scroll, &work, &event);
    if (rc != KW_OK) return self->piece->n > 0 ? KW_OK : rc;
    kw_batch_add(self->piece, &event);
  }
  return KW_OK;
}

/* Makes the next piece of the long batch that is the oldest item. Returns KW_OK, KW_ERR_NO_MEMORY with nothing changed,
 * or another error: then the batch was removed from the queue, and the watcher has failed or will get the revision
 * again. */
static int make_piece(lua_watch *self, const kw_item *first) {
  if (self->piece != NULL) return KW_OK;
  kw_hub *hub = self->outlet.hub;
  int64_t rev = first->revision;
  if (self->scroll.batch == NULL) kw_scroll_open(&self->scroll, hub, first);
  bool is_new = self->scroll.left == self->scroll.batch->long_n;
  int rc = kw_scroll_seek(&self->scroll) ? KW_OK : KW_ERR_COMPACTED;
  if (rc == KW_OK && (self->piece = kw_batch_new(PIECE_EVENTS)) == NULL) return KW_ERR_NO_MEMORY;
  if (rc == KW_OK) rc = fill_piece(self);
  if (rc == KW_OK) return KW_OK;
  drop_piece(self);
  if (rc == KW_ERR_NO_MEMORY) return rc;
  kw_scroll_close(&self->scroll);
  skip(self);
  if (is_new && rc == KW_ERR_COMPACTED) {
    kw_hub_deliver_again(hub, self->watcher, rev);
  } else {
    kw_hub_fail(hub, self->watcher, rc);
  }
  return rc;
}

/* Returns the oldest item, or NULL. Does a step of the store if there is no item. If the item is a long batch, makes a
 * piece of it, unless there is one. */
static const kw_item *first_item(lua_State *L, lua_watch *self) {
  for (;;) {
    if (self->outlet.n == 0) {
      kw_bind_check_process(L, self->owner);
      kw_bind_step_if_due(self->owner);
    }
    const kw_item *first = kw_outlet_first(&self->outlet);
    if (first == NULL || !is_long(first)) return first;
    int rc = make_piece(self, first);
    if (rc == KW_ERR_NO_MEMORY) luaL_error(L, "not enough memory");
    if (rc == KW_OK) return first;
  }
}

/* Drops the oldest item, after its events were pushed; of a long batch only the piece, unless it was the last one.
 * Returns true if more of the same revision follows. A finalizer may have closed the watch. */
static bool advance(lua_watch *self) {
  drop_piece(self);
  if (self->scroll.batch != NULL && self->scroll.left > 0) return true;
  kw_scroll_close(&self->scroll);
  skip(self);
  return false;
}

/* }====== */

static int l_take(lua_State *L) {
  lua_watch *self = check_watch(L);
  if (self->is_giving) kw_bind_refuse_finalizer(L, "watch");
  if (self->outlet.hub == NULL) {
    lua_pushliteral(L, "closed");
    return 1;
  }
  const kw_item *first = first_item(L, self);
  if (first == NULL) return 0;
  lua_settop(L, USED);
  luaL_checkstack(L, 4, WATCH_NAME);
  lua_pushvalue(L, lua_upvalueindex(kind_names[first->kind]));
  if (first->kind == KW_ITEM_EVENTS) {
    push_events(L, self);
  } else {
    kw_bind_push_int(L, first->revision);
  }
  if (!advance(self)) return 2;
  lua_pushboolean(L, true);
  return 3;
}

/* True if steps of the store may still have events for an open watch, see kw_hub_is_behind. */
static bool is_behind(const lua_watch *self) {
  return kw_hub_is_behind(self->outlet.hub, self->watcher);
}

/* If memory runs out, the events that were not applied remain in the queue. */
static int l_apply(lua_State *L) {
  lua_watch *self = check_watch(L);
  luaL_checktype(L, TARGET, LUA_TTABLE);
  luaL_checknumber(L, CUT);
  lua_settop(L, APPLY_ARGS);
  luaL_checkstack(L, 8, WATCH_NAME);
  if (self->is_giving) kw_bind_refuse_finalizer(L, "watch");
  if (self->outlet.hub != NULL && self->outlet.n == 0) {
    kw_bind_check_process(L, self->owner);
    kw_bind_step_if_due(self->owner);
  }
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PUSH));
  for (int i = 1; i <= APPLY_ARGS; i++) lua_pushvalue(L, i);
  int status = lua_pcall(L, APPLY_ARGS, 1, 0);
  end_giving(self);
  if (status != 0) return lua_error(L);
  lua_pushboolean(L, self->outlet.hub == NULL || self->outlet.n > 0 || is_behind(self));
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
  bool ok = hub != NULL &&
            (kw_watcher_is_early(self->watcher, kw_store_revision(self->owner->store) + 1) ||
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

static int l_backlog(lua_State *L) {
  const lua_watch *self = check_watch(L);
  bool is_open = self->outlet.hub != NULL;
  size_t n = is_open ? self->outlet.n : 0, bytes = is_open ? self->outlet.bytes : 0;
  kw_bind_push_int(L, (int64_t)n);
  kw_bind_push_int(L, (int64_t)bytes);
  lua_pushboolean(L, is_open && is_behind(self));
  return 3;
}

static int l_close(lua_State *L) {
  lua_watch *self = check_watch(L);
  drop_piece(self);
  kw_scroll_close(&self->scroll);
  kw_outlet_close(&self->outlet);
  return 0;
}

const luaL_Reg kw_bind_watch_methods[] = {
    {"open_watch", l_open_watch}, {"next_ready", l_next_ready}, {NULL, NULL}};

static const luaL_Reg methods[] = {{"take", l_take},
                                   {"apply", l_apply},
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
