/* SPDX-License-Identifier: MIT
 *
 * process: the id of this process, without a system call; and the rule of forks.
 *
 * The rule of forks. An object with a thread, a mutex, or descriptors and files of one process has a field `pid`, the
 * id of that process. The object's first call in a child process finds that the object is inherited: from then on it
 * behaves as closed, cancelled or failed. The child frees the memory of the object, and touches nothing else: not the
 * thread, which only the parent has, not the mutex, which may stay locked forever, and not the files and descriptors.
 */
#ifndef KW_BASE_PROCESS_H
#define KW_BASE_PROCESS_H

#include <sys/types.h>

#include "base/common.h"

/* Returns the id of this process. Any thread may call this function, and so may a signal handler after the first call.
 *
 * A child learns its id from a handler of pthread_atfork. In a child that runs no such handlers the result is the
 * parent's id: after a raw clone system call, after _Fork, and after vfork, whose child may only call exec. The handler
 * stays registered, so the shared object that has called this function must never be unloaded: see kw_pin. */
pid_t kw_process_id(void);

/* True if an object belongs to this process, whose `pid` is given; false in a child, which has inherited the object. */
static inline bool kw_process_is(pid_t pid) {
  return pid == kw_process_id();
}

#endif
