/* SPDX-License-Identifier: MIT
 *
 * probe_disk: holds the commit thread of a durable store, or makes it fail, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_DISK_H
#define KW_BIND_PROBE_DISK_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Adds hold_disk, fail_disk and flush_disk to the table on top of the stack. */
void kw_bind_add_probe_disk(lua_State *L);
#endif

#endif
