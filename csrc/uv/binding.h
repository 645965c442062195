/* SPDX-License-Identifier: MIT
 *
 * binding: the private header of keywatch.uv's Lua binding, one file for each noun:
 *
 *   uv.c            opens the module                     lua_address.c   addresses as tables, errors as results
 *   lua_loop.c      the loop                             lua_lookup.c    loop:resolve, loop:lookup
 *   lua_handle.c    keeps servers and clients alive      lua_signals.c   loop:catch, catchers
 *   lua_listener.c  loop:listen, listeners               lua_bell.c      loop:bell
 *   lua_dialer.c    loop:dial                            lua_thread.c    threads
 *   lua_process.c   clocks, names, limits of the process lua_tls.c       TLS contexts
 *
 * For the rule of finalizers see face/module.h: after pushes a function calls kw_uv_check_loop again.
 */
#ifndef KW_UV_BINDING_H
#define KW_UV_BINDING_H

#include "base/common.h"
#include "face/module.h"
#include "face/tls.h"
#include "uv/address.h"
#include "uv/loop.h"
#include "uv/loop_client.h"
#include "uv/loop_server.h"

#define KW_LOOP_NAME "keywatch.uv.loop" /* metatable of loops, in the registry */

/* {====== Objects ====== */

/* Returns the loop at index 1, entered (see kw_loop_enter). Raises if the loop is closed, or if it cannot be used
 * after a fork. */
kw_loop *kw_uv_check_loop(lua_State *L);

/* Returns the engine that core has published. Raises if there is none, or one of another version. */
const kw_engine *kw_uv_check_engine(lua_State *L);

/* Returns the TLS context at index i, and the functions of keywatch.tls as *tls; for nil both are NULL. Raises for
 * any other value, for a closed context, and for a context of clients if is_server is set, or of servers if not. */
kw_tls_context *kw_uv_check_context(lua_State *L, int i, bool is_server, const kw_tls **tls);

/* Pushes nil, the text of libuv's error and its name. Returns 3. */
int kw_uv_push_failure(lua_State *L, int rc);

/* }====== */

/* {====== Addresses ====== */

/* Reads { path = } or { host =, port = } at index i, the host in digits. Returns 0 or libuv's negative error;
 * raises for wrong types. */
int kw_uv_read_address(lua_State *L, int i, kw_address *address);

/* Pushes { path = } or { host =, port = }. */
void kw_uv_push_address(lua_State *L, const kw_address *address);

/* Pushes a list of IP addresses in digits. */
void kw_uv_push_hosts(lua_State *L, const kw_address *addresses, int n);

/* }====== */

/* {====== Handles ====== */

/* A handle ties a server or client object to the loop that uses its pointer. The loop's user value is a table with
 * the handles as keys and the objects as values, which keeps both alive. A handle is a userdata that is younger
 * than its object. When a Lua state closes, finalizers run from the youngest on: the handle's finalizer closes
 * listeners and connections before that of the object runs. */
typedef struct kw_uv_handle {
  kw_loop_server *server; /* or NULL */
  kw_loop_client *client; /* or NULL */
} kw_uv_handle;

/* Adds a handle for the object at index 2 to the loop at index 1. Returns the handle, which the loop's table keeps
 * alive and whose pointers are NULL. The caller passes the address of one of them to kw_loop_server_open or
 * kw_loop_client_open as `owner`. Leaves the stack unchanged. */
kw_uv_handle *kw_uv_add_handle(lua_State *L);

/* Removes the handles of servers without listeners and connections, and of clients without a connection, from the
 * loop at index 1. If the loop is closed, removes all handles. */
void kw_uv_release_idle(lua_State *L);

/* }====== */

/* {====== Opening ====== */

/* Adds the class of loops and `open` to the module on top of the stack. Pushes the table of the loop's methods. */
void kw_uv_add_loop(lua_State *L);

/* Each of these adds its methods to the table of the loop's methods on top of the stack. */
void kw_uv_add_handles(lua_State *L);
void kw_uv_add_listeners(lua_State *L);
void kw_uv_add_dialer(lua_State *L);
void kw_uv_add_lookups(lua_State *L);
void kw_uv_add_signals(lua_State *L);
void kw_uv_add_bells(lua_State *L);

/* Adds signal_names to the module on top of the stack. */
void kw_uv_add_signal_names(lua_State *L);

/* Adds start_thread and this_thread to the module on top of the stack. */
void kw_uv_add_threads(lua_State *L);

/* Adds now, time, pid, hostname and raise_limit to the module on top of the stack. */
void kw_uv_add_process(lua_State *L);

/* }====== */

#endif
