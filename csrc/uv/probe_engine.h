/* SPDX-License-Identifier: MIT
 *
 * probe_engine: an engine that echoes, for specs of the loop in probe builds.
 */
#ifndef KW_UV_PROBE_ENGINE_H
#define KW_UV_PROBE_ENGINE_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes a table:
 *   enter(version)    replaces core's engine in the registry by this one
 *   leave()           puts core's engine back
 *   server(options)   makes a server of this engine, whose peers send back what they get
 *   client(options)   makes a client of this engine, which keeps what it gets
 *   live()            returns how many blocks of this object's memory are allocated
 *   fail_at(n)        makes the n-th allocation of this object fail */
void kw_uv_push_probe(lua_State *L);
#endif

#endif
