/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <uv.h>

#include "uv/lookup.h"

#include "base/mem.h"
#include "base/process.h"
#include "uv/thread.h"

struct kw_lookup {
  char *name;
  pid_t pid; /* process in which its thread runs */

  uv_mutex_t mutex; /* guards the fields below */
  size_t refs;      /* one for the owner, one for the thread */
  kw_waker *waker;  /* NULL: the owner was notified of the end, or has closed the lookup */
  bool has_ended;
  int n;
  kw_address addresses[KW_LOOKUP_ADDRESSES];
};

/* {====== Memory ====== */

/* Does not destroy the mutex, which may be locked in a forked child. */
static void free_lookup(kw_lookup *lookup) {
  kw_waker_release(lookup->waker);
  kw_free(lookup->name);
  kw_free(lookup);
}

static void release(kw_lookup *lookup) {
  uv_mutex_lock(&lookup->mutex);
  bool is_last = --lookup->refs == 0;
  uv_mutex_unlock(&lookup->mutex);
  if (!is_last) return;
  uv_mutex_destroy(&lookup->mutex);
  free_lookup(lookup);
}

/* Releases the waker, so that the end of the lookup wakes nothing. */
static void forget_waker(kw_lookup *lookup) {
  kw_waker *waker = lookup->waker;
  lookup->waker = NULL;
  kw_waker_release(waker);
}

/* }====== */

/* {====== The thread ====== */

/* libuv resolves names only on a loop, and the caller's loop belongs to another thread, so this thread has its own. */
static int resolve(kw_lookup *lookup) {
  uv_loop_t uv;
  int n = uv_loop_init(&uv);
  if (n < 0) return n;
  n = kw_address_resolve(&uv, lookup->name, lookup->addresses, KW_LOOKUP_ADDRESSES);
  uv_loop_close(&uv);
  return n;
}

static void run(void *ctx) {
  kw_lookup *lookup = ctx;
  int n = resolve(lookup);
  uv_mutex_lock(&lookup->mutex);
  lookup->n = n;
  lookup->has_ended = true;
  kw_waker_wake(lookup->waker);
  uv_mutex_unlock(&lookup->mutex);
  release(lookup);
}

static int start(kw_lookup *lookup) {
  uv_thread_t id;
  int rc = kw_thread_start(&id, run, lookup);
  if (rc == 0) pthread_detach(id);
  return rc;
}

/* }====== */

int kw_lookup_open(kw_lookup **result, kw_loop *loop, const char *name) {
  kw_lookup *lookup = kw_alloc_zeroed(sizeof *lookup);
  int rc = UV_ENOMEM;
  if (lookup == NULL) return rc;
  lookup->pid = kw_process_id();
  lookup->refs = 2;
  lookup->name = kw_alloc(strlen(name) + 1);
  if (lookup->name == NULL) goto no_start;
  memcpy(lookup->name, name, strlen(name) + 1);
  lookup->waker = kw_loop_share_waker(loop);
  if (lookup->waker == NULL) goto no_start;
  rc = uv_mutex_init(&lookup->mutex);
  if (rc < 0) goto no_start;
  *result = lookup;
  rc = start(lookup);
  if (rc == 0) return 0;
  *result = NULL;
  uv_mutex_destroy(&lookup->mutex);

no_start:
  free_lookup(lookup);
  return rc;
}

bool kw_lookup_has_ended(kw_lookup *lookup, const kw_address **addresses, int *n) {
  *addresses = lookup->addresses;
  *n = UV_ECANCELED;
  if (!kw_process_is(lookup->pid)) {
    forget_waker(lookup);
    return true;
  }
  uv_mutex_lock(&lookup->mutex);
  bool has_ended = lookup->has_ended;
  if (has_ended) *n = lookup->n;
  if (has_ended) forget_waker(lookup);
  uv_mutex_unlock(&lookup->mutex);
  return has_ended;
}

void kw_lookup_close(kw_lookup *lookup) {
  if (!kw_process_is(lookup->pid)) {
    free_lookup(lookup);
    return;
  }
  uv_mutex_lock(&lookup->mutex);
  forget_waker(lookup);
  uv_mutex_unlock(&lookup->mutex);
  release(lookup);
}
