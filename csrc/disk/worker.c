/* SPDX-License-Identifier: MIT */
#include "disk/worker.h"

#include "base/clock.h"

/* Called with the mutex locked. */
static bool has_job(const kw_worker *worker) {
  return worker->state == KW_WORKER_WORKING;
}

/* Waits for a change, or rings the bell if that is due. Called with the mutex locked. */
static void wait_for_change(kw_worker *worker) {
  int64_t when = worker->ring_at;
  if (when == 0) {
    pthread_cond_wait(&worker->changed, &worker->mutex);
  } else if (kw_clock_ns() < when) {
    struct timespec until = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000};
    pthread_cond_timedwait(&worker->changed, &worker->mutex, &until);
  } else {
    worker->ring_at = 0;
    kw_bell_ring(&worker->bell);
  }
}

static void *run(void *ctx) {
  kw_worker *worker = ctx;
  pthread_mutex_lock(&worker->mutex);
  while (true) {
    while (!has_job(worker) && !worker->must_end) wait_for_change(worker);
    if (!has_job(worker)) break;
    pthread_mutex_unlock(&worker->mutex);
    worker->job(worker->ctx);
    pthread_mutex_lock(&worker->mutex);
    worker->state = KW_WORKER_DONE;
    pthread_cond_broadcast(&worker->changed);
    kw_bell_ring(&worker->bell);
  }
  pthread_mutex_unlock(&worker->mutex);
  return NULL;
}

/* Timed waits use the monotonic clock. */
static void init_condition(pthread_cond_t *condition) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

bool kw_worker_start(kw_worker *worker, bool has_thread, void (*job)(void *ctx), void *ctx) {
  *worker = (kw_worker){.job = job, .ctx = ctx};
  pthread_mutex_init(&worker->mutex, NULL);
  init_condition(&worker->changed);
  worker->has_thread = has_thread && kw_thread_start(&worker->thread, run, worker);
  return worker->has_thread || !has_thread;
}

bool kw_worker_has_job(const kw_worker *worker) {
  return !worker->has_thread && worker->state == KW_WORKER_WORKING;
}

void kw_worker_work(kw_worker *worker) {
  if (!kw_worker_has_job(worker)) return;
  worker->job(worker->ctx);
  worker->state = KW_WORKER_DONE;
}

void kw_worker_end(kw_worker *worker) {
  kw_worker_work(worker);
  pthread_mutex_lock(&worker->mutex);
  worker->must_end = true;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->mutex);
  if (worker->has_thread) pthread_join(worker->thread, NULL);
  kw_bell_release(&worker->bell);
  pthread_cond_destroy(&worker->changed);
  pthread_mutex_destroy(&worker->mutex);
}

void kw_worker_set_bell(kw_worker *worker, kw_bell bell) {
  pthread_mutex_lock(&worker->mutex);
  kw_bell before = worker->bell;
  worker->bell = bell;
  pthread_mutex_unlock(&worker->mutex);
  kw_bell_release(&before);
}

bool kw_worker_is_idle(const kw_worker *worker) {
  pthread_mutex_t *mutex = (pthread_mutex_t *)&worker->mutex;
  pthread_mutex_lock(mutex);
  bool is_idle = worker->state == KW_WORKER_IDLE;
  pthread_mutex_unlock(mutex);
  return is_idle;
}

void kw_worker_begin(kw_worker *worker) {
  pthread_mutex_lock(&worker->mutex);
  worker->state = KW_WORKER_WORKING;
  worker->ring_at = 0;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->mutex);
}

void kw_worker_ring_at(kw_worker *worker, int64_t when) {
  pthread_mutex_lock(&worker->mutex);
  worker->ring_at = when;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->mutex);
}

bool kw_worker_take(kw_worker *worker, bool wait) {
  if (wait) kw_worker_work(worker);
  pthread_mutex_lock(&worker->mutex);
  while (wait && worker->state == KW_WORKER_WORKING)
    pthread_cond_wait(&worker->changed, &worker->mutex);
  bool is_done = worker->state == KW_WORKER_DONE;
  if (is_done) worker->state = KW_WORKER_IDLE;
  pthread_mutex_unlock(&worker->mutex);
  return is_done;
}
