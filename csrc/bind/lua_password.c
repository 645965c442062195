/* SPDX-License-Identifier: MIT */
#if __has_include(<crypt.h>)
#include <crypt.h>
#endif

#include <stdatomic.h>

#include "bind/lua_password.h"

#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "bind/lua_value.h"
#include "face/module.h"

#define HASHING_NAME "keywatch.core.hashing"
#define MAX_HASH 128
#define MIN_COST 4
#define MAX_COST 31

static const char zero_byte[] = "keywatch: a password must not have a zero byte";
static const char no_bcrypt[] = "keywatch: the system's libcrypt makes no bcrypt hashes";

/* The state that a thread and a hashing object share. */
typedef struct kw_hash_job {
  atomic_int references; /* those of the thread and the object */
  atomic_bool is_done;
  bool is_ok;
  pid_t pid; /* the process in which the thread runs */
  unsigned long cost;
  char found[MAX_HASH];
  size_t len;
  char text[]; /* ends with a 0 */
} kw_hash_job;

typedef struct lua_hashing {
  kw_hash_job *job; /* NULL: closed */
} lua_hashing;

#ifdef CRYPT_GENSALT_IMPLEMENTS_AUTO_ENTROPY

/* Returns false if the library has no bcrypt, or memory is short. */
static bool hash(const char *text, unsigned long cost, char found[MAX_HASH]) {
  void *work = NULL;
  int work_size = 0;
  char *salt = crypt_gensalt_ra("$2b$", cost, NULL, 0);
  const char *result = salt == NULL ? NULL : crypt_ra(text, salt, &work, &work_size);
  bool ok = result != NULL && result[0] != '*' && strlen(result) < MAX_HASH; /* '*': failed */
  if (ok) strcpy(found, result);
  free(salt);
  free(work);
  return ok;
}

#else

static bool hash(const char *text, unsigned long cost, char found[MAX_HASH]) {
  (void)text, (void)cost, (void)found;
  return false;
}

#endif

static int fail(lua_State *L, const char *why) {
  lua_pushnil(L);
  lua_pushstring(L, why);
  return 2;
}

/* Returns the text of a password, the first argument, and checks the cost, the second argument. */
static kw_slice check_arguments(lua_State *L, unsigned long *cost) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  int64_t given = kw_bind_check_int(L, 2, MIN_COST);
  luaL_argcheck(L, given <= MAX_COST, 2, "too high");
  *cost = (unsigned long)given;
  return text;
}

int kw_bind_hash_password(lua_State *L) {
  char found[MAX_HASH];
  unsigned long cost;
  kw_slice text = check_arguments(L, &cost);
  if (memchr(text.data, 0, text.len) != NULL) return fail(L, zero_byte);
  if (!hash((const char *)text.data, cost, found)) /* Lua's strings end with a 0 */
    return fail(L, no_bcrypt);
  lua_pushstring(L, found);
  return 1;
}

/* {====== Hashing by a thread ====== */

static void free_job(kw_hash_job *job) {
  explicit_bzero(job->text, job->len);
  kw_free(job);
}

/* Releases the reference of the thread or of the object. */
static void release(kw_hash_job *job) {
  if (atomic_fetch_sub(&job->references, 1) == 1) free_job(job);
}

static void *run(void *ctx) {
  kw_hash_job *job = ctx;
  job->is_ok = hash(job->text, job->cost, job->found);
  job->is_done = true;
  release(job);
  return NULL;
}

static kw_hash_job *new_job(kw_slice text, unsigned long cost) {
  kw_hash_job *job = kw_alloc_zeroed(sizeof *job + text.len + 1);
  if (job == NULL) return NULL;
  job->references = 2;
  job->pid = kw_process_id();
  job->cost = cost;
  job->len = text.len;
  memcpy(job->text, text.data, text.len);
  return job;
}

static int l_begin_hash(lua_State *L) {
  unsigned long cost;
  kw_slice text = check_arguments(L, &cost);
  lua_settop(L, 2);
  if (memchr(text.data, 0, text.len) != NULL) return fail(L, zero_byte);
  lua_hashing *self = kw_new_object(L, HASHING_NAME, sizeof *self, 0);
  kw_hash_job *job = new_job(text, cost);
  if (job == NULL) return fail(L, "keywatch: memory is short");
  pthread_t thread;
  if (!kw_thread_start(&thread, run, job)) {
    free_job(job);
    return fail(L, "keywatch: no thread can be started");
  }
  pthread_detach(thread);
  self->job = job;
  return 1;
}

static lua_hashing *check_hashing(lua_State *L) {
  return luaL_checkudata(L, 1, HASHING_NAME);
}

static int l_result(lua_State *L) {
  const kw_hash_job *job = check_hashing(L)->job;
  if (job == NULL) return luaL_error(L, "the hashing is closed");
  if (job->is_done && job->is_ok) {
    char found[MAX_HASH];
    memcpy(found, job->found, sizeof found); /* a finalizer may close the object */
    lua_pushstring(L, found);
    return 1;
  }
  if (!job->is_done && kw_process_is(job->pid)) {
    lua_pushnil(L);
    return 1;
  }
  const char *why =
      job->is_done ? no_bcrypt : "keywatch: the process has forked while a password was hashed";
  lua_pushboolean(L, 0);
  lua_pushstring(L, why);
  return 2;
}

/* After a fork the thread belongs to the parent, and has no reference here. */
static int l_close(lua_State *L) {
  lua_hashing *self = check_hashing(L);
  kw_hash_job *job = self->job;
  self->job = NULL;
  if (job == NULL) return 0;
  if (kw_process_is(job->pid))
    release(job);
  else
    free_job(job);
  return 0;
}

static const luaL_Reg methods[] = {{"result", l_result}, {"close", l_close}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_push_begin_hash(lua_State *L) {
  kw_add_class(L, HASHING_NAME, meta, methods);
  lua_pushcfunction(L, l_begin_hash);
}

/* }====== */
