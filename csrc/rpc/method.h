/* SPDX-License-Identifier: MIT
 *
 * method: from a path to what answers it.
 */
#ifndef KW_RPC_METHOD_H
#define KW_RPC_METHOD_H

#include "rpc/service.h"

/* Adds a method, which stays where it is; false if memory is short. One of the same path is replaced. */
bool kw_method_add(kw_server *server, const kw_method *method);

/* NULL if there is none. */
const kw_method *kw_method_find(const kw_server *server, kw_slice path);

/* Ends the call of a method that there is not, in gRPC's words. */
void kw_method_refuse(const kw_server *server, kw_stream *stream, kw_slice path);

#endif
