/* SPDX-License-Identifier: MIT */
#include "probe/bind.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_value.h"
#include "bind/lua_watch.h"
#include "codec/keyvalue.h"
#include "face/module.h"
#include "watch/scroll.h"

#define STREAM_NAME "keywatch.core.probe.stream"

typedef struct stream {
  kw_outlet outlet;
  kw_lua_store *owner;
} stream;

static stream *check_stream(lua_State *L) {
  return luaL_checkudata(L, 1, STREAM_NAME);
}

static int l_stream(lua_State *L) {
  kw_lua_store *owner = kw_bind_check_store(L, 1);
  if (kw_bind_make_hub(owner) != KW_OK) return luaL_error(L, "no memory");
  size_t max_bytes = (size_t)luaL_optinteger(L, 2, KW_DEFAULT_OUTLET_BYTES);
  stream *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (stream){.owner = owner};
  luaL_getmetatable(L, STREAM_NAME);
  lua_setmetatable(L, -2);
  kw_hub_open_outlet(owner->hub, &self->outlet, &owner->ready, max_bytes, true);
  return 1;
}

/* stream:watch(key, options, id): the id, or nil and an error. */
static int l_watch(lua_State *L) {
  stream *self = check_stream(L);
  kw_watch_spec spec;
  kw_watcher *watcher;
  int64_t unused;
  lua_settop(L, 4);
  int64_t id = lua_isnil(L, 4) ? 0 : kw_bind_check_id(L, 4);
  kw_arena_reset(&self->owner->arena);
  int rc = kw_bind_read_watch_spec(L, &self->owner->arena, &spec, &unused);
  spec.id = id;
  if (rc == KW_OK) rc = kw_hub_watch(self->outlet.hub, &self->outlet, &spec, &watcher);
  if (rc == KW_OK) {
    kw_bind_push_id(L, watcher->id);
    return 1;
  }
  kw_bind_push_error_meta(L);
  return kw_bind_push_failure(L, lua_gettop(L), rc);
}

/* stream:cancel(id): true if there was such a watcher. */
static int l_cancel(lua_State *L) {
  stream *self = check_stream(L);
  kw_watcher *watcher = kw_outlet_find(&self->outlet, kw_bind_check_id(L, 2));
  if (watcher != NULL) kw_hub_cancel(self->outlet.hub, watcher);
  lua_pushboolean(L, watcher != NULL);
  return 1;
}

/* stream:progress(id): queues progress for one watcher, without an id for all. True if it was queued. */
static int l_progress(lua_State *L) {
  stream *self = check_stream(L);
  kw_hub *hub = self->outlet.hub;
  bool ok;
  if (lua_isnoneornil(L, 2)) {
    ok = kw_hub_progress_all(hub, &self->outlet);
  } else {
    ok = kw_hub_progress(hub, kw_outlet_find(&self->outlet, kw_bind_check_id(L, 2)));
  }
  lua_pushboolean(L, ok);
  return 1;
}

/* Adds the keys of a long batch to the table on the top. */
static void push_long(lua_State *L, const stream *self, const kw_item *item) {
  kw_scroll scroll;
  kw_event event;
  kw_work work = kw_work_without_end();
  kw_scroll_open(&scroll, self->outlet.hub, item);
  bool ok = kw_scroll_seek(&scroll);
  for (int i = 1; ok && scroll.left > 0; i++) {
    ok = kw_scroll_next(&scroll, &work, &event) == KW_OK;
    if (!ok) break;
    kw_bind_push_slice(L, kw_keyvalue_key(event.record));
    lua_rawseti(L, -2, i);
  }
  kw_scroll_close(&scroll);
}

/* stream:take(): kind, id (nil: for all), revision, and the keys of the events; nothing if the outlet is empty. */
static int l_take(lua_State *L) {
  static const char *const kinds[] = {[KW_ITEM_EVENTS] = "events",
                                      [KW_ITEM_PROGRESS] = "progress",
                                      [KW_ITEM_COMPACTED] = "compacted",
                                      [KW_ITEM_CORRUPT] = "corrupt"};
  stream *self = check_stream(L);
  kw_item item;
  if (!kw_outlet_take(&self->outlet, &item)) return 0;
  lua_pushstring(L, kinds[item.kind]);
  if (item.watcher != NULL) {
    kw_bind_push_id(L, item.watcher->id);
  } else {
    lua_pushnil(L);
  }
  kw_bind_push_int(L, item.revision);
  lua_newtable(L);
  if (item.batch != NULL && item.batch->long_revision != 0) push_long(L, self, &item);
  for (uint32_t i = item.from; item.batch != NULL && i < item.batch->n; i++) {
    kw_bind_push_slice(L, kw_keyvalue_key(item.batch->events[i].record));
    lua_rawseti(L, -2, (int)(i - item.from) + 1);
  }
  if (item.batch != NULL) kw_batch_release(item.batch);
  return 4;
}

static int l_close(lua_State *L) {
  kw_outlet_close(&check_stream(L)->outlet);
  return 0;
}

static const luaL_Reg methods[] = {{"watch", l_watch},       {"cancel", l_cancel},
                                   {"progress", l_progress}, {"take", l_take},
                                   {"close", l_close},       {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_push_probe_stream(lua_State *L) {
  kw_add_class(L, STREAM_NAME, meta, methods);
  lua_pushcfunction(L, l_stream);
}
