/* SPDX-License-Identifier: MIT
 *
 * probe_disk: holds the threads that write for a durable store, or makes them fail, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_DISK_H
#define KW_BIND_PROBE_DISK_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Adds these functions to the table on top of the stack. They raise if the store is not durable.
 *   hold_disk(store, hold)   while held, commit groups are submitted but not written
 *   fail_disk(store, how)    the next commit group fails. "no_space" and "no_memory": before anything was written;
 *                            "storage": the outcome is unknown
 *   flush_disk(store)        submits the committed writes if the disk is idle. Does not wait */
void kw_bind_add_probe_disk(lua_State *L);
#endif

#endif
