/* SPDX-License-Identifier: MIT
 *
 * request: HTTP requests. If a request has no fixed answer (rpc/fixed_answer.h), Lua answers it: then it is a call
 * without a method (rpc/call.h), its path in kw_call_info is empty, and its metadata begins with the fields :method,
 * :scheme, :authority and :path.
 *
 *   news    open -> input*, each a part of the body or its end -> end
 *   Lua     kw_request_answer -> kw_call_send* -> kw_call_finish
 *           kw_request_answer_all
 *
 * kw_call_finish with status 0 ends the answer. With another status it closes the connection, so that the client
 * notices that the answer is not complete. If memory is short, the request ends with its connection.
 */
#ifndef KW_RPC_REQUEST_H
#define KW_RPC_REQUEST_H

#include "http/exchange.h"
#include "rpc/call.h"

/* The hooks of a connection whose ctx is its kw_peer. */
extern const kw_exchange_hooks kw_request_hooks;

/* Sends the head of the answer to a request. Returns false if the status or a field is not valid, if an answer was sent
 * before, or if memory is short. For a request that has ended, sends nothing and returns true. */
bool kw_request_answer(kw_server *server, uint64_t id, const kw_http_answer *answer);

/* Does the same, and then sends the body and finishes the request. answer->length is that of the body. */
bool kw_request_answer_all(kw_server *server, uint64_t id, const kw_http_answer *answer,
                           kw_slice body);

/* Does what kw_call_send does, for a blob, which is retained and not copied if it is long. */
void kw_request_send_blob(kw_server *server, uint64_t id, kw_blob *blob, bool *has_room);

#endif
