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
 *   enter(version)    replaces core's engine in the registry by this one, with this version or the current one
 *   leave()           puts core's engine back
 *   server(options)   makes a server of this engine, whose peers send back what they get. For the options see l_server
 *                     in probe_engine.c
 *   client(options)   makes a client of this engine, which keeps what it gets. For the options see l_client there
 *   live()            returns how many blocks of this object's memory are allocated
 *   fail_at(n)        makes the n-th allocation of this object from now on fail; 0: none
 * "This object" is the shared object keywatch.uv. */
void kw_uv_push_probe(lua_State *L);
#endif

#endif
