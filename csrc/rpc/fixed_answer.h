/* SPDX-License-Identifier: MIT
 *
 * fixed_answer: the answers to HTTP requests that never change. The server sends them without Lua.
 */
#ifndef KW_RPC_FIXED_ANSWER_H
#define KW_RPC_FIXED_ANSWER_H

#include "rpc/service.h"

/* Adds the answer to GET and HEAD of a path without a query: status 200, a body and its content type. They are copied.
 * Replaces the answer of the same path. Returns false if memory is short. */
bool kw_fixed_answer_add(kw_server *server, kw_slice path, kw_slice type, kw_slice body);

/* Answers a request. Returns false if it has no fixed answer, or if Lua intercepts calls: then Lua answers. */
bool kw_fixed_answer_send(kw_server *server, const kw_http_request *request, kw_exchange *exchange);

/* Frees all answers of a server. */
void kw_fixed_answer_free(kw_server *server);

#endif
