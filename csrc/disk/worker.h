/* SPDX-License-Identifier: MIT
 *
 * worker: a thread that does one job at a time for its owner.
 *
 *   idle -> begin -> working -> done, the bell rings -> take -> idle
 *
 * While the worker is working, the data of the job belong to the thread. All functions are called by the owner's
 * thread. A worker can have no thread: then kw_worker_work does the job, or kw_worker_take with `wait`, or
 * kw_worker_end.
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
  pthread_mutex_t mutex; /* guards the fields below */
  pthread_cond_t changed;
  kw_worker_state state;
  int64_t ring_at; /* when the bell rings without a job; 0: never */
  bool must_end;
  kw_bell bell;
} kw_worker;

/* Initializes a worker whose jobs are calls of `job`, and starts its thread, if it has one. Returns false if the thread
 * cannot be started; kw_worker_end must be called even then. */
bool kw_worker_start(kw_worker *worker, bool has_thread, void (*job)(void *ctx), void *ctx);

/* Waits for the job, ends the thread, and releases the bell. */
void kw_worker_end(kw_worker *worker);

/* Sets the bell that rings after each job, and at the time of kw_worker_ring_at. The worker takes the caller's
 * reference. */
void kw_worker_set_bell(kw_worker *worker, kw_bell bell);

/* True if a job can begin: none is running, and none waits to be taken. */
bool kw_worker_is_idle(const kw_worker *worker);

/* Begins a job. The worker must be idle. */
void kw_worker_begin(kw_worker *worker);

/* True if a worker without a thread has a job to do. */
bool kw_worker_has_job(const kw_worker *worker);

/* Does the job of a worker without a thread, if there is one. */
void kw_worker_work(kw_worker *worker);

/* Makes the bell ring at a time of kw_clock_ns, unless a job begins earlier. Without a thread, does nothing. */
void kw_worker_ring_at(kw_worker *worker, int64_t when);

/* Takes a finished job; with `wait`, waits until the job is finished. Returns false if there is none. */
bool kw_worker_take(kw_worker *worker, bool wait);

#endif
