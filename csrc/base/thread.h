/* SPDX-License-Identifier: MIT
 *
 * thread: starts a thread.
 */
#ifndef KW_BASE_THREAD_H
#define KW_BASE_THREAD_H

#pragma GCC visibility push(default)
#include <pthread.h>
#include <signal.h>
#pragma GCC visibility pop

#include "base/common.h"

/* Starts a thread that blocks all signals, so that they go to the threads of the program. Returns false if the system
 * refuses. The caller joins or detaches the thread. */
static inline bool kw_thread_start(pthread_t *thread, void *(*run)(void *ctx), void *ctx) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool ok = pthread_create(thread, NULL, run, ctx) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return ok;
}

#endif
