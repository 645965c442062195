/* SPDX-License-Identifier: MIT
 *
 * probe_disk: holds the threads that write for a durable store, or makes them fail, and asks when a store pauses, for
 * tests in probe builds.
 */
#ifndef KW_BIND_PROBE_DISK_H
#define KW_BIND_PROBE_DISK_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Adds these functions to the table on top of the stack. Those of a store raise if it is not durable.
 *   hold_disk(store, hold)          while held, commit groups are submitted but not written
 *   hold_checkpoints(store, hold)   while held, commit groups become durable in the journal alone
 *   fail_disk(store, how)           the next commit group fails. "no_space" and "no_memory": before anything was
 *                                   written; "storage": the outcome is unknown
 *   flush_disk(store)               submits the committed writes if the disk is idle. Does not wait
 *   set_bell(store, is_there)       gives the store a bell, or none; returns how many references to it are held
 *   pauses(writes, back...)         groups of `writes` writes become durable, and `back` writers come back after each:
 *                                   returns for each group whether a pause follows it */
void kw_bind_add_probe_disk(lua_State *L);
#endif

#endif
