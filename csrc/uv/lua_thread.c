/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <uv.h>

#include "uv/lua_thread.h"

#include "uv/loop.h"
#include "face/module.h"
#include "uv/object.h"
#include "uv/thread.h"

#define THREAD_NAME "keywatch.uv.thread"
#define THIS_THREAD_NAME "keywatch.uv.this_thread"

static kw_slice check_slice(lua_State *L, int i) {
  size_t len;
  const char *bytes = luaL_checklstring(L, i, &len);
  return kw_slice_of(bytes, len);
}

static void push_slice(lua_State *L, kw_slice bytes) {
  lua_pushlstring(L, (const char *)bytes.data, bytes.len);
}

/* A waker of the open loop at 2. */
static kw_waker *check_waker(lua_State *L) {
  kw_loop **loop = luaL_checkudata(L, 2, KW_LOOP_NAME);
  luaL_argcheck(L, *loop != NULL && kw_loop_enter(*loop) == 0, 2, "the loop is closed");
  kw_waker *waker = kw_loop_share_waker(*loop);
  if (waker == NULL) luaL_error(L, "not enough memory");
  return waker;
}

/* {====== From outside ====== */

static kw_thread **check_thread(lua_State *L) {
  return luaL_checkudata(L, 1, THREAD_NAME);
}

static kw_thread *check_here(lua_State *L) {
  kw_thread *thread = *check_thread(L);
  if (thread == NULL) luaL_error(L, "the thread is closed");
  if (!kw_thread_is_here(thread)) {
    luaL_error(L, "keywatch: the thread was left behind by a fork: it is in the process that "
                  "has started it, and only there can it be used");
  }
  return thread;
}

/* start_thread(module, path, cpath, text): a thread in which require(module).main() runs; or nil and text of the
 * error. */
static int l_start(lua_State *L) {
  kw_thread_plan plan = {.module = check_slice(L, 1),
                         .path = check_slice(L, 2),
                         .cpath = check_slice(L, 3),
                         .argument = check_slice(L, 4)};
  kw_object_push(L, THREAD_NAME, 0);
  int rc = kw_thread_open(lua_touserdata(L, -1), &plan);
  if (rc == 0) return 1;
  lua_pushnil(L);
  lua_pushstring(L, uv_strerror(rc));
  return 2;
}

/* Pushes a text of the thread at 1. Finalizers may close the thread, so room for the text is made first, and the text
 * looked at again. */
static void push_text(lua_State *L, kw_slice (*text_of)(kw_thread *thread)) {
  size_t len = text_of(check_here(L)).len;
  char *copy = lua_newuserdatauv(L, len + 1, 0);
  kw_slice text = text_of(check_here(L));
  memcpy(copy, text.data, len);
  lua_pushlstring(L, copy, len);
  lua_remove(L, -2);
}

/* thread:wait(seconds): until it has told something, which is returned, or has ended, or time is over: nil. */
static int l_wait(lua_State *L) {
  kw_thread *thread = check_here(L);
  if (kw_thread_wait(thread, (int64_t)ceil(luaL_checknumber(L, 2) * 1000)) == KW_THREAD_STARTING) {
    return 0;
  }
  if (kw_thread_ready_text(thread).data == NULL) return 0;
  push_text(L, kw_thread_ready_text);
  return 1;
}

/* thread:is_here(): whether it was started in this process. */
static int l_is_here(lua_State *L) {
  const kw_thread *thread = *check_thread(L);
  lua_pushboolean(L, thread != NULL && kw_thread_is_here(thread));
  return 1;
}

static int l_has_ended(lua_State *L) {
  lua_pushboolean(L, kw_thread_wait(check_here(L), 0) == KW_THREAD_ENDED);
  return 1;
}

/* thread:stop(grace): asks it to end; at once, if there is no grace. */
static int l_stop(lua_State *L) {
  kw_thread_stop(check_here(L), luaL_optnumber(L, 2, KW_THREAD_AT_ONCE));
  return 0;
}

static kw_slice failure_of(kw_thread *thread) {
  kw_slice why = {0};
  kw_thread_join(thread, &why);
  return why;
}

/* thread:join(): waits for its end; true, or nil and what it failed with. */
static int l_join(lua_State *L) {
  kw_slice why;
  if (kw_thread_join(check_here(L), &why)) {
    lua_pushboolean(L, 1);
    return 1;
  }
  lua_pushnil(L);
  if (why.len > 0) {
    push_text(L, failure_of);
  } else {
    lua_pushliteral(L, "not enough memory");
  }
  return 2;
}

/* thread:wakes(loop): when it ends. */
static int l_wakes(lua_State *L) {
  kw_thread *thread = check_here(L);
  kw_thread_set_owner_waker(thread, check_waker(L));
  return 0;
}

/* In a child of the process what is left of it is a picture, in which somebody may hold the mutex for ever. */
static int l_close(lua_State *L) {
  kw_thread **self = check_thread(L), *thread = *self;
  *self = NULL;
  if (thread != NULL && kw_thread_is_here(thread)) kw_thread_close(thread);
  return 0;
}

static int l_abandon(lua_State *L) {
  kw_thread *thread = check_here(L);
  *check_thread(L) = NULL;
  kw_thread_abandon(thread);
  return 0;
}

/* }====== */

/* {====== From within ====== */

static kw_thread *check_this(lua_State *L) {
  return *(kw_thread **)luaL_checkudata(L, 1, THIS_THREAD_NAME);
}

/* this_thread(): the thread that this state was made in. */
static int l_this(lua_State *L) {
  kw_thread *thread = kw_thread_current();
  if (thread == NULL) return luaL_error(L, "this is not a thread of keywatch.uv");
  kw_object_push(L, THIS_THREAD_NAME, 0);
  *(kw_thread **)lua_touserdata(L, -1) = thread;
  return 1;
}

static int l_text(lua_State *L) {
  push_slice(L, kw_thread_argument(check_this(L)));
  return 1;
}

/* this_thread:tell(text): it is ready. */
static int l_tell(lua_State *L) {
  kw_thread *thread = check_this(L);
  if (kw_thread_set_ready(thread, check_slice(L, 2)) < 0) return luaL_error(L, "not enough memory");
  return 0;
}

/* this_thread:asked(): the grace, negative for none, with which it shall end; nil as long as it need not. */
static int l_asked(lua_State *L) {
  double grace;
  if (!kw_thread_stop_requested(check_this(L), &grace)) return 0;
  lua_pushnumber(L, grace);
  return 1;
}

/* this_thread:wakes(loop): when it is asked to end. */
static int l_this_wakes(lua_State *L) {
  kw_thread *thread = check_this(L);
  kw_thread_set_own_waker(thread, check_waker(L));
  return 0;
}

/* }====== */

static const luaL_Reg thread_methods[] = {
    {"wait", l_wait},       {"is_here", l_is_here}, {"has_ended", l_has_ended},
    {"stop", l_stop},       {"join", l_join},       {"wakes", l_wakes},
    {"abandon", l_abandon}, {"close", l_close},     {NULL, NULL}};
static const luaL_Reg thread_meta[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg this_methods[] = {
    {"text", l_text}, {"tell", l_tell}, {"asked", l_asked}, {"wakes", l_this_wakes}, {NULL, NULL}};
static const luaL_Reg this_meta[] = {{NULL, NULL}};
static const luaL_Reg functions[] = {
    {"start_thread", l_start}, {"this_thread", l_this}, {NULL, NULL}};

void kw_uv_add_threads(lua_State *L) {
  kw_add_class(L, THREAD_NAME, thread_meta, thread_methods);
  kw_add_class(L, THIS_THREAD_NAME, this_meta, this_methods);
  luaL_setfuncs(L, functions, 0);
}
