/* SPDX-License-Identifier: MIT
 *
 * process: the id of this process, without a system call.
 *
 * Objects that must notice a fork keep the id of the process that they belong to, and compare it at every call. libc
 * does not cache the id, so that each comparison would be a system call.
 */
#ifndef KW_BASE_PROCESS_H
#define KW_BASE_PROCESS_H

#include <sys/types.h>

#include "base/common.h"

/* Returns the id of this process. Any thread may call this function, and so may a signal handler after the first call.
 *
 * A child learns its id from a handler of pthread_atfork. Children that run none are not noticed: those of a raw clone
 * system call, of _Fork, and of vfork, which may only call exec. The handler stays registered, so the shared object
 * that has called this function must never be unloaded: see kw_pin. */
pid_t kw_process_id(void);

#endif
