/* SPDX-License-Identifier: MIT */
#define kw_worker_start usual_start
#define kw_worker_end usual_end
#include "disk/worker.c"
#undef kw_worker_start
#undef kw_worker_end

#include "probe/disk.h"

bool kw_worker_start(kw_worker *worker, bool has_thread, void (*job)(void *ctx), void *ctx);
void kw_worker_end(kw_worker *worker);

/* A job that waits while it is held. */
typedef struct held_job {
  kw_worker *worker;
  void (*job)(void *ctx);
  void *ctx;
  bool has_thread;
  bool is_held; /* guarded by the worker's mutex */
} held_job;

/* A worker that ends does its job first, even while it is held. */
static void work(void *ctx) {
  held_job *held = ctx;
  kw_worker *worker = held->worker;
  pthread_mutex_lock(&worker->mutex);
  while (held->has_thread && held->is_held && !worker->must_end) wait_for_change(worker);
  pthread_mutex_unlock(&worker->mutex);
  held->job(held->ctx);
}

bool kw_worker_start(kw_worker *worker, bool has_thread, void (*job)(void *ctx), void *ctx) {
  held_job *held = malloc(sizeof *held);
  if (held == NULL) abort();
  *held = (held_job){worker, job, ctx, has_thread, false};
  return usual_start(worker, has_thread, work, held);
}

void kw_worker_end(kw_worker *worker) {
  usual_end(worker);
  free(worker->ctx);
}

void kw_worker_hold(kw_worker *worker, bool hold) {
  pthread_mutex_lock(&worker->mutex);
  ((held_job *)worker->ctx)->is_held = hold;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->mutex);
}
