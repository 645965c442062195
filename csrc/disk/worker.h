/* SPDX-License-Identifier: MIT
 *
 * worker: a thread that does one job at a time for its owner.
 *
 *   idle -> begin -> working -> done, the bell rings -> take -> idle
 *
 * While the worker is working, what the job uses belongs to the thread. All functions are called by the owner's thread.
 * A worker can be without a thread: then kw_worker_work does the job, and a take or an end that waits for the job.
 */
#ifndef KW_DISK_WORKER_H
#define KW_DISK_WORKER_H

#include "base/bell.h"
#include "base/thread.h"

typedef enum kw_worker_state { KW_WORKER_IDLE, KW_WORKER_WORKING, KW_WORKER_DONE } kw_worker_state;

typedef struct kw_worker {
  void (*job)(void *ctx);
  void *ctx;
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  kw_worker_state state;
  int64_t ring_at; /* 0: the bell does not ring without a job */
  bool must_end;
  kw_bell bell;
} kw_worker;

/* Starts the thread of a worker, whose jobs are calls of `job`; or none. Returns false if no thread can be started; the
 * worker has to be ended even then. */
bool kw_worker_start(kw_worker *worker, bool has_thread, void (*job)(void *ctx), void *ctx);

/* Waits for the job, and ends the thread. */
void kw_worker_end(kw_worker *worker);

/* Sets the bell that rings after each job, and when kw_worker_ring_at says so. The worker takes the caller's
 * reference. */
void kw_worker_set_bell(kw_worker *worker, kw_bell bell);

/* True if a job can begin: none is being done, and none waits to be taken. */
bool kw_worker_is_idle(const kw_worker *worker);

/* Begins a job. The worker is idle. */
void kw_worker_begin(kw_worker *worker);

/* True if a worker without a thread has a job to do. */
bool kw_worker_has_job(const kw_worker *worker);

/* Does the job of a worker without a thread, if there is one. */
void kw_worker_work(kw_worker *worker);

/* Has the bell ring at a time of kw_clock_ns, unless a job begins before. */
void kw_worker_ring_at(kw_worker *worker, int64_t when);

/* Takes a job that is done; with `wait`, waits until it is. Returns false if there is none. */
bool kw_worker_take(kw_worker *worker, bool wait);

#endif
