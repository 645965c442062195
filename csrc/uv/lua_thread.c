/* SPDX-License-Identifier: MIT
 *
 * lua_thread: threads in Lua, from outside (start_thread) and from within (this_thread).
 */
#include <math.h>
#include <uv.h>

#include "face/module.h"
#include "uv/binding.h"
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

/* Returns the waker of the open loop at index 2, with a reference. */
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
    luaL_error(L, "keywatch: the thread belongs to the parent process, which has started it, and "
                  "cannot be used after a fork in the child");
  }
  return thread;
}

/* start_thread(module, path, cpath, text): a thread in which require(module).main() runs; or nil and the text of the
 * error. */
static int l_start(lua_State *L) {
  kw_thread_plan plan = {.module = check_slice(L, 1),
                         .path = check_slice(L, 2),
                         .cpath = check_slice(L, 3),
                         .argument = check_slice(L, 4)};
  kw_new_object(L, THREAD_NAME, sizeof(void *), 0);
  int rc = kw_thread_open(lua_touserdata(L, -1), &plan);
  if (rc == 0) return 1;
  lua_pushnil(L);
  lua_pushstring(L, uv_strerror(rc));
  return 2;
}

/* Pushes a text of the thread at index 1. A finalizer may close the thread while Lua allocates memory for the copy, so
 * the text is read again after that. */
static void push_text(lua_State *L, kw_slice (*text_of)(kw_thread *thread)) {
  size_t len = text_of(check_here(L)).len;
  char *copy = lua_newuserdatauv(L, len + 1, 0);
  kw_slice text = text_of(check_here(L));
  memcpy(copy, text.data, len);
  lua_pushlstring(L, copy, len);
  lua_remove(L, -2);
}

/* thread:wait(seconds): waits until the thread is ready, and returns the text that it has reported; nil if the thread
 * has ended without a report, or after the timeout. */
static int l_wait(lua_State *L) {
  kw_thread *thread = check_here(L);
  if (kw_thread_wait(thread, (int64_t)ceil(luaL_checknumber(L, 2) * 1000)) == KW_THREAD_STARTING) {
    return 0;
  }
  if (kw_thread_ready_text(thread).data == NULL) return 0;
  push_text(L, kw_thread_ready_text);
  return 1;
}

/* thread:is_here(): true if the thread was started in this process, and not in the parent of a fork. */
static int l_is_here(lua_State *L) {
  const kw_thread *thread = *check_thread(L);
  lua_pushboolean(L, thread != NULL && kw_thread_is_here(thread));
  return 1;
}

/* thread:has_ended() */
static int l_has_ended(lua_State *L) {
  lua_pushboolean(L, kw_thread_wait(check_here(L), 0) == KW_THREAD_ENDED);
  return 1;
}

/* thread:stop(grace): asks the thread to end within `grace` seconds; nil: at once. */
static int l_stop(lua_State *L) {
  kw_thread_stop(check_here(L), luaL_optnumber(L, 2, KW_THREAD_AT_ONCE));
  return 0;
}

/* thread:ask(): asks the thread for an answer. Returns the number of the question. */
static int l_ask(lua_State *L) {
  lua_pushnumber(L, (lua_Number)kw_thread_ask(check_here(L)));
  return 1;
}

/* thread:answer(number, seconds): waits until the thread has answered a question, and returns the text; nil after the
 * timeout, or if the thread has ended. A later answer may be longer than the memory that was made for the first one. */
static int l_answer(lua_State *L) {
  uint64_t question = (uint64_t)luaL_checknumber(L, 2);
  int64_t ms = (int64_t)ceil(luaL_checknumber(L, 3) * 1000);
  size_t len, room = 0;
  char *copy = NULL;
  while (kw_thread_wait_answer(check_here(L), question, ms, copy, room, &len)) {
    if (len <= room) {
      lua_pushlstring(L, copy, len);
      return 1;
    }
    room = len;
    copy = lua_newuserdatauv(L, room, 0);
    lua_replace(L, 2);
  }
  return 0;
}

static kw_slice failure_of(kw_thread *thread) {
  kw_slice why = {0};
  kw_thread_join(thread, &why);
  return why;
}

/* thread:join(): waits until the thread has ended. true; or nil and the text of its error. */
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

/* thread:wakes(loop): answers and the end of the thread wake this loop. */
static int l_wakes(lua_State *L) {
  kw_thread *thread = check_here(L);
  kw_thread_set_owner_waker(thread, check_waker(L));
  return 0;
}

/* thread:close(). Does nothing in a forked child, where the mutex may stay locked forever. */
static int l_close(lua_State *L) {
  kw_thread **self = check_thread(L), *thread = *self;
  *self = NULL;
  if (thread != NULL && kw_thread_is_here(thread)) kw_thread_close(thread);
  return 0;
}

/* thread:abandon(): asks the thread to end at once, without waiting for it. */
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

/* this_thread(): the thread of this Lua state. Raises in a state that start_thread has not made. */
static int l_this(lua_State *L) {
  kw_thread *thread = kw_thread_current();
  if (thread == NULL) return luaL_error(L, "this is not a thread of keywatch.uv");
  kw_new_object(L, THIS_THREAD_NAME, sizeof(void *), 0);
  *(kw_thread **)lua_touserdata(L, -1) = thread;
  return 1;
}

/* this_thread:text(): the text that was passed to start_thread. */
static int l_text(lua_State *L) {
  push_slice(L, kw_thread_argument(check_this(L)));
  return 1;
}

/* this_thread:report(text): the thread is ready, and passes a text to its owner. */
static int l_report(lua_State *L) {
  kw_thread *thread = check_this(L);
  if (kw_thread_set_ready(thread, check_slice(L, 2)) < 0) return luaL_error(L, "not enough memory");
  return 0;
}

/* this_thread:asked(): nil until the owner has asked the thread to end; then the grace in seconds, negative if the
 * thread has to end at once. */
static int l_asked(lua_State *L) {
  double grace;
  if (!kw_thread_stop_requested(check_this(L), &grace)) return 0;
  lua_pushnumber(L, grace);
  return 1;
}

/* this_thread:question(): the number of the owner's last question, or 0. */
static int l_question(lua_State *L) {
  lua_pushnumber(L, (lua_Number)kw_thread_question(check_this(L)));
  return 1;
}

/* this_thread:give(number, text): answers the questions up to a number. */
static int l_give(lua_State *L) {
  kw_thread *thread = check_this(L);
  uint64_t question = (uint64_t)luaL_checknumber(L, 2);
  if (kw_thread_answer(thread, question, check_slice(L, 3)) < 0)
    return luaL_error(L, "not enough memory");
  return 0;
}

/* this_thread:wakes(loop): questions and the request to end wake this loop. */
static int l_this_wakes(lua_State *L) {
  kw_thread *thread = check_this(L);
  kw_thread_set_own_waker(thread, check_waker(L));
  return 0;
}

/* }====== */

static const luaL_Reg thread_methods[] = {{"wait", l_wait},
                                          {"is_here", l_is_here},
                                          {"has_ended", l_has_ended},
                                          {"stop", l_stop},
                                          {"join", l_join},
                                          {"wakes", l_wakes},
                                          {"ask", l_ask},
                                          {"answer", l_answer},
                                          {"abandon", l_abandon},
                                          {"close", l_close},
                                          {NULL, NULL}};
static const luaL_Reg thread_meta[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg this_methods[] = {
    {"text", l_text}, {"report", l_report},    {"asked", l_asked}, {"question", l_question},
    {"give", l_give}, {"wakes", l_this_wakes}, {NULL, NULL}};
static const luaL_Reg this_meta[] = {{NULL, NULL}};
static const luaL_Reg functions[] = {
    {"start_thread", l_start}, {"this_thread", l_this}, {NULL, NULL}};

void kw_uv_add_threads(lua_State *L) {
  kw_add_class(L, THREAD_NAME, thread_meta, thread_methods);
  kw_add_class(L, THIS_THREAD_NAME, this_meta, this_methods);
  luaL_setfuncs(L, functions, 0);
}
