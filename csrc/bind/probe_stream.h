/* SPDX-License-Identifier: MIT
 *
 * probe_stream: an outlet with ids and many watchers, like a server's watch stream, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_STREAM_H
#define KW_BIND_PROBE_STREAM_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes stream(store, max_bytes): an object with watch(key, options, id), cancel(id), progress(id), take(),
 * close(). */
void kw_bind_push_probe_stream(lua_State *L);
#endif

#endif
