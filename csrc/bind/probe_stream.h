/* SPDX-License-Identifier: MIT
 *
 * probe_stream: an outlet with ids and many watchers, like a server's watch stream, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_STREAM_H
#define KW_BIND_PROBE_STREAM_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes the function stream(store, max_bytes), which returns an object with these methods:
 *   watch(key, options, id)   the id of the watcher, or nil and an error
 *   cancel(id)                true if there was such a watcher
 *   progress(id)              queues progress for one watcher, without an id for all: true if it was queued
 *   take()                    kind, id (nil: for all), revision, and the keys of the events; nothing if it is empty
 *   close() */
void kw_bind_push_probe_stream(lua_State *L);
#endif

#endif
