/* SPDX-License-Identifier: MIT
 *
 * method: finds the method of a path, and passes requests to methods.
 */
#ifndef KW_RPC_METHOD_H
#define KW_RPC_METHOD_H

#include "rpc/service.h"

#define KW_NUMBERS_REQUEST 4096 /* bytes; there is room for fields that only newer clients know */

/* Adds a method, which is copied with its path. Replaces a method of the same path, whose counters remain. Returns
 * false if memory is short. */
bool kw_method_add(kw_server *server, const kw_method *method);

/* Returns the method of a path, in the form of a request: "/package.Service/Method". NULL if there is none. */
const kw_method *kw_method_find(const kw_server *server, kw_slice path);

/* Counts a call that begins. */
void kw_method_count(const kw_server *server, const kw_method *method, kw_stream *stream);

/* Counts a call whose stream is closed, if kw_method_count has counted that it begins. */
void kw_method_count_end(const kw_server *server, const kw_stream *stream);

/* Sets what the stream of a call of a method may receive. Done by kw_method_begin, unless it was done before. */
void kw_method_prepare(kw_stream *stream, const kw_method *method);

/* Begins a call of a method. A larger request than the method takes is refused when its length has arrived, with gRPC's
 * text. The limit is method->max_request; or by default the session's max_message, but KW_NUMBERS_REQUEST for a method
 * whose requests have only numbers. It is never above max_message. */
void kw_method_begin(kw_server *server, kw_stream *stream, const kw_method *method);

/* Decodes a request with the description of its method, and passes it to the method. If decoding fails, the call
 * fails. With has_to_wait the method, which must have only_reads, gets the request only if it is a read. Returns true
 * if the caller has to queue the request, see rpc/write_queue.h. */
bool kw_method_deliver(kw_server *server, kw_stream *stream, kw_slice message, bool has_to_wait);

/* Ends a call whose path has no method, with UNIMPLEMENTED and gRPC's text. */
void kw_method_refuse(const kw_server *server, kw_stream *stream, kw_slice path);

#endif
