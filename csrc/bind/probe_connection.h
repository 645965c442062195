/* SPDX-License-Identifier: MIT
 *
 * probe_connection: checks the invariants of connections, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_CONNECTION_H
#define KW_BIND_PROBE_CONNECTION_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Adds check_server(server) and check_client(client) to the table on top of the stack. They raise if an invariant is
 * broken. */
void kw_bind_add_probe_connection(lua_State *L);
#endif

#endif
