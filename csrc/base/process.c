/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/process.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The id of this process; 0: the handler could not be registered, so each call is a system call. */
static _Atomic pid_t cached;

static void refresh(void) {
  atomic_store_explicit(&cached, getpid(), memory_order_relaxed);
}

static void begin(void) {
  if (pthread_atfork(NULL, NULL, refresh) == 0) refresh();
}

pid_t kw_process_id(void) {
  pthread_once(&once, begin);
  pid_t pid = atomic_load_explicit(&cached, memory_order_relaxed);
  return pid != 0 ? pid : getpid();
}
