/* SPDX-License-Identifier: MIT
 *
 * probe_engine: an engine that sends back what it gets, for tests of the loop in probe builds.
 */
#ifndef KW_UV_PROBE_ENGINE_H
#define KW_UV_PROBE_ENGINE_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes a table: enter(version) puts the engine in the place of core's, leave() core's again, server(options) is a
 * server of it, client(options) a client that keeps what it gets, and live() and fail_at(n) are those of this
 * object's memory. */
void kw_uv_push_probe(lua_State *L);
#endif

#endif
