/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <unistd.h>

#include "base/process.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* 0: the handler could not be registered, and the system must be asked each time. */
static pid_t cached;

static void refresh(void) {
  cached = getpid();
}

static void begin(void) {
  if (pthread_atfork(NULL, NULL, refresh) == 0) refresh();
}

pid_t kw_process_id(void) {
  pthread_once(&once, begin);
  return cached != 0 ? cached : getpid();
}
