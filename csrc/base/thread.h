/* SPDX-License-Identifier: MIT
 *
 * thread: how a thread of ours begins.
 */
#ifndef KW_BASE_THREAD_H
#define KW_BASE_THREAD_H

#pragma GCC visibility push(default)
#include <pthread.h>
#include <signal.h>
#pragma GCC visibility pop

#include "base/common.h"

/* Starts a thread that no signal is given to: those are for the threads of the program. False if there can be none. */
static inline bool kw_thread_start(pthread_t *thread, void *(*run)(void *ctx), void *ctx) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool ok = pthread_create(thread, NULL, run, ctx) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return ok;
}

#endif
