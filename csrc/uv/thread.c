/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <signal.h>
#include <uv.h>

#include "uv/thread.h"

#include "base/mem.h"
#include "base/process.h"
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
  text argument;

  uv_thread_t id;
  pid_t pid; /* process in which the thread runs */

  uv_mutex_t mutex;  /* guards the fields below */
  uv_cond_t changed; /* signals a new state */
  size_t refs;       /* one for the owner, one for the thread */
  kw_thread_state state;
  text ready_text;
  text failure;
  bool has_failed;

  uint64_t asked;    /* number of the last question */
  uint64_t answered; /* number of the last question that `answer` is for */
  text answer;

  bool is_stop_requested;
  double grace;
  kw_waker *own_waker;
  kw_waker *owner_waker;
};

static _Thread_local kw_thread *current;

/* {====== Memory ====== */

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
  if (rc == 0) rc = copy(&thread->argument, plan->argument);
  return rc;
}

static void free_texts(kw_thread *thread) {
  kw_free(thread->module.bytes);
  kw_free(thread->path.bytes);
  kw_free(thread->cpath.bytes);
  kw_free(thread->argument.bytes);
  kw_free(thread->ready_text.bytes);
  kw_free(thread->failure.bytes);
  kw_free(thread->answer.bytes);
}

static void free_thread(kw_thread *thread) {
  kw_waker_release(thread->own_waker);
  kw_waker_release(thread->owner_waker);
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

/* {====== The Lua state ====== */

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

/* If memory is short, the failure has no text. */
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

/* The caller holds the mutex. */
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
  kw_waker_wake(thread->owner_waker);
  uv_mutex_unlock(&thread->mutex);
  release(thread);
}

/* }====== */

/* {====== For the owner ====== */

/* A thread inherits the signal mask of the thread that starts it. */
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
  thread->pid = kw_process_id();
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
  return kw_process_is(thread->pid);
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

/* The text never changes once it is set. */
kw_slice kw_thread_ready_text(kw_thread *thread) {
  uv_mutex_lock(&thread->mutex);
  kw_slice ready_text = slice_of(&thread->ready_text);
  uv_mutex_unlock(&thread->mutex);
  return ready_text;
}

void kw_thread_stop(kw_thread *thread, double grace) {
  uv_mutex_lock(&thread->mutex);
  thread->is_stop_requested = true;
  thread->grace = grace;
  kw_waker_wake(thread->own_waker);
  uv_mutex_unlock(&thread->mutex);
}

uint64_t kw_thread_ask(kw_thread *thread) {
  uv_mutex_lock(&thread->mutex);
  uint64_t question = ++thread->asked;
  kw_waker_wake(thread->own_waker);
  uv_mutex_unlock(&thread->mutex);
  return question;
}

bool kw_thread_wait_answer(kw_thread *thread, uint64_t question, int64_t ms, char *to, size_t room,
                           size_t *len) {
  uint64_t now, deadline = uv_hrtime() + (uint64_t)ms * NANOSECONDS;
  uv_mutex_lock(&thread->mutex);
  while (thread->answered < question && thread->state != KW_THREAD_ENDED &&
         (now = uv_hrtime()) < deadline)
    uv_cond_timedwait(&thread->changed, &thread->mutex, deadline - now);
  bool is_answered = thread->answered >= question;
  *len = thread->answer.len;
  if (is_answered && *len <= room && *len > 0) memcpy(to, thread->answer.bytes, *len);
  uv_mutex_unlock(&thread->mutex);
  return is_answered;
}

bool kw_thread_join(kw_thread *thread, kw_slice *why) {
  uv_mutex_lock(&thread->mutex);
  while (thread->state != KW_THREAD_ENDED) uv_cond_wait(&thread->changed, &thread->mutex);
  *why = slice_of(&thread->failure);
  bool has_returned = !thread->has_failed;
  uv_mutex_unlock(&thread->mutex);
  return has_returned;
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

void kw_thread_set_owner_waker(kw_thread *thread, kw_waker *waker) {
  set_waker(thread, &thread->owner_waker, waker);
}

/* }====== */

/* {====== For the thread itself ====== */

kw_thread *kw_thread_current(void) {
  return current;
}

kw_slice kw_thread_argument(const kw_thread *thread) {
  return slice_of(&thread->argument);
}

void kw_thread_set_own_waker(kw_thread *thread, kw_waker *waker) {
  set_waker(thread, &thread->own_waker, waker);
}

int kw_thread_set_ready(kw_thread *thread, kw_slice bytes) {
  text ready_text;
  if (copy(&ready_text, bytes) < 0) return UV_ENOMEM;
  uv_mutex_lock(&thread->mutex);
  assert(thread->state == KW_THREAD_STARTING);
  thread->ready_text = ready_text;
  enter(thread, KW_THREAD_READY);
  uv_mutex_unlock(&thread->mutex);
  return 0;
}

uint64_t kw_thread_question(kw_thread *thread) {
  uv_mutex_lock(&thread->mutex);
  uint64_t question = thread->asked;
  uv_mutex_unlock(&thread->mutex);
  return question;
}

int kw_thread_answer(kw_thread *thread, uint64_t question, kw_slice bytes) {
  text answer;
  if (copy(&answer, bytes) < 0) return UV_ENOMEM;
  uv_mutex_lock(&thread->mutex);
  text before = thread->answer;
  thread->answer = answer;
  thread->answered = question;
  uv_cond_broadcast(&thread->changed);
  kw_waker_wake(thread->owner_waker);
  uv_mutex_unlock(&thread->mutex);
  kw_free(before.bytes);
  return 0;
}

bool kw_thread_stop_requested(kw_thread *thread, double *grace) {
  uv_mutex_lock(&thread->mutex);
  bool is_stop_requested = thread->is_stop_requested;
  *grace = thread->grace;
  uv_mutex_unlock(&thread->mutex);
  return is_stop_requested;
}

/* }====== */
