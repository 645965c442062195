/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <uv.h>

#include "uv/thread.h"

#include "base/mem.h"
#include "face/compat.h"

#define NANOSECONDS 1000000 /* of a millisecond */

typedef struct text {
  char *bytes;
  size_t len;
} text;

struct kw_thread {
  text module;
  text path;
  text cpath;
  text given;

  uv_thread_t id;
  pid_t pid; /* of the process that it is in */

  uv_mutex_t mutex;  /* of all below */
  uv_cond_t changed; /* the state is another one */
  size_t refs;       /* of the owner and of the thread */
  kw_thread_state state;
  text told;
  text failure;
  bool has_failed;

  bool is_asked;
  double grace;
  kw_waker *inner;
  kw_waker *outer;
};

static _Thread_local kw_thread *current;

/* {====== Its memory ====== */

static int copy(text *to, kw_slice from) {
  to->bytes = kw_alloc(from.len + 1);
  if (to->bytes == NULL) return UV_ENOMEM;
  if (from.len > 0) memcpy(to->bytes, from.data, from.len);
  to->len = from.len;
  return 0;
}

static kw_slice slice_of(const text *from) {
  return kw_slice_of(from->bytes, from->len);
}

static int copy_plan(kw_thread *thread, const kw_thread_plan *plan) {
  int rc = copy(&thread->module, plan->module);
  if (rc == 0) rc = copy(&thread->path, plan->path);
  if (rc == 0) rc = copy(&thread->cpath, plan->cpath);
  if (rc == 0) rc = copy(&thread->given, plan->text);
  return rc;
}

static void free_texts(kw_thread *thread) {
  kw_free(thread->module.bytes);
  kw_free(thread->path.bytes);
  kw_free(thread->cpath.bytes);
  kw_free(thread->given.bytes);
  kw_free(thread->told.bytes);
  kw_free(thread->failure.bytes);
}

static void free_thread(kw_thread *thread) {
  kw_waker_release(thread->inner);
  kw_waker_release(thread->outer);
  uv_cond_destroy(&thread->changed);
  uv_mutex_destroy(&thread->mutex);
  free_texts(thread);
  kw_free(thread);
}

static void release(kw_thread *thread) {
  uv_mutex_lock(&thread->mutex);
  bool is_last = --thread->refs == 0;
  uv_mutex_unlock(&thread->mutex);
  if (is_last) free_thread(thread);
}

/* }====== */

/* {====== The state ====== */

static void set_package_field(lua_State *L, const char *name, const text *value) {
  lua_getglobal(L, "package");
  lua_pushlstring(L, value->bytes, value->len);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

static int l_main(lua_State *L) {
  luaL_openlibs(L);
  set_package_field(L, "path", &current->path);
  set_package_field(L, "cpath", &current->cpath);
  lua_getglobal(L, "require");
  lua_pushlstring(L, current->module.bytes, current->module.len);
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "main");
  lua_call(L, 0, 0);
  return 0;
}

/* Without a text there was no memory. */
static void keep_failure(kw_thread *thread, const char *bytes, size_t len) {
  thread->has_failed = true;
  copy(&thread->failure, kw_slice_of(bytes, len));
}

static void keep_error(kw_thread *thread, lua_State *L) {
  static const char no_text[] = "an error that is not a text";
  size_t len = sizeof no_text - 1;
  const char *bytes = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &len) : no_text;
  keep_failure(thread, bytes, len);
}

static void run_state(kw_thread *thread) {
  lua_State *L = luaL_newstate();
  if (L == NULL) {
    keep_failure(thread, NULL, 0);
    return;
  }
  if (kw_protect(L, l_main) != 0) keep_error(thread, L);
  lua_close(L);
}

/* The mutex must be held. */
static void enter(kw_thread *thread, kw_thread_state state) {
  thread->state = state;
  uv_cond_broadcast(&thread->changed);
}

static void run(void *ctx) {
  kw_thread *thread = ctx;
  current = thread;
  run_state(thread);
  uv_mutex_lock(&thread->mutex);
  enter(thread, KW_THREAD_ENDED);
  kw_waker_wake(thread->outer);
  uv_mutex_unlock(&thread->mutex);
  release(thread);
}

/* }====== */

/* {====== For the owner ====== */

/* A thread begins with the mask of the one that starts it. */
int kw_thread_start(uv_thread_t *id, void (*body)(void *ctx), void *ctx) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = uv_thread_create(id, body, ctx);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return rc;
}

int kw_thread_open(kw_thread **result, const kw_thread_plan *plan) {
  kw_thread *thread = kw_alloc_zeroed(sizeof *thread);
  if (thread == NULL) return UV_ENOMEM;
  thread->pid = getpid();
  thread->refs = 2;
  int rc = copy_plan(thread, plan);
  if (rc < 0) goto no_mutex;
  rc = uv_mutex_init(&thread->mutex);
  if (rc < 0) goto no_mutex;
  rc = uv_cond_init(&thread->changed);
  if (rc < 0) goto no_cond;
  rc = kw_thread_start(&thread->id, run, thread);
  if (rc < 0) goto no_start;
  *result = thread;
  return 0;

no_start:
  uv_cond_destroy(&thread->changed);
no_cond:
  uv_mutex_destroy(&thread->mutex);
no_mutex:
  free_texts(thread);
  kw_free(thread);
  return rc;
}

bool kw_thread_is_here(const kw_thread *thread) {
  return thread->pid == getpid();
}

kw_thread_state kw_thread_wait(kw_thread *thread, int64_t ms) {
  uint64_t deadline = uv_hrtime() + (uint64_t)ms * NANOSECONDS;
  uv_mutex_lock(&thread->mutex);
  for (uint64_t now; thread->state == KW_THREAD_STARTING && (now = uv_hrtime()) < deadline;) {
    uv_cond_timedwait(&thread->changed, &thread->mutex, deadline - now);
  }
  kw_thread_state state = thread->state;
  uv_mutex_unlock(&thread->mutex);
  return state;
}

/* What was told does not change any more. */
kw_slice kw_thread_told(kw_thread *thread) {
  uv_mutex_lock(&thread->mutex);
  kw_slice told = slice_of(&thread->told);
  uv_mutex_unlock(&thread->mutex);
  return told;
}

void kw_thread_stop(kw_thread *thread, double grace) {
  uv_mutex_lock(&thread->mutex);
  thread->is_asked = true;
  thread->grace = grace;
  kw_waker_wake(thread->inner);
  uv_mutex_unlock(&thread->mutex);
}

bool kw_thread_join(kw_thread *thread, kw_slice *why) {
  uv_mutex_lock(&thread->mutex);
  while (thread->state != KW_THREAD_ENDED) uv_cond_wait(&thread->changed, &thread->mutex);
  *why = slice_of(&thread->failure);
  bool is_well = !thread->has_failed;
  uv_mutex_unlock(&thread->mutex);
  return is_well;
}

void kw_thread_close(kw_thread *thread) {
  kw_thread_stop(thread, KW_THREAD_AT_ONCE);
  uv_thread_join(&thread->id);
  release(thread);
}

void kw_thread_abandon(kw_thread *thread) {
  kw_thread_stop(thread, KW_THREAD_AT_ONCE);
  pthread_detach(thread->id);
  release(thread);
}

static void set_waker(kw_thread *thread, kw_waker **to, kw_waker *waker) {
  uv_mutex_lock(&thread->mutex);
  kw_waker *before = *to;
  *to = waker;
  uv_mutex_unlock(&thread->mutex);
  kw_waker_release(before);
}

void kw_thread_set_outer(kw_thread *thread, kw_waker *waker) {
  set_waker(thread, &thread->outer, waker);
}

/* }====== */

/* {====== For the thread itself ====== */

kw_thread *kw_thread_current(void) {
  return current;
}

kw_slice kw_thread_text(const kw_thread *thread) {
  return slice_of(&thread->given);
}

void kw_thread_set_inner(kw_thread *thread, kw_waker *waker) {
  set_waker(thread, &thread->inner, waker);
}

int kw_thread_tell(kw_thread *thread, kw_slice bytes) {
  text told;
  if (copy(&told, bytes) < 0) return UV_ENOMEM;
  uv_mutex_lock(&thread->mutex);
  assert(thread->state == KW_THREAD_STARTING);
  thread->told = told;
  enter(thread, KW_THREAD_READY);
  uv_mutex_unlock(&thread->mutex);
  return 0;
}

bool kw_thread_is_asked(kw_thread *thread, double *grace) {
  uv_mutex_lock(&thread->mutex);
  bool is_asked = thread->is_asked;
  *grace = thread->grace;
  uv_mutex_unlock(&thread->mutex);
  return is_asked;
}

/* }====== */
