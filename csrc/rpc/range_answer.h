/* SPDX-License-Identifier: MIT
 *
 * range_answer: a large answer to a range, made page by page, so that others have their turn between.
 *
 *   prefix, header | kvs of a page | kvs of the next | ... | more, count
 *
 * All pages are of one revision. If that is compacted meanwhile, and the asker did not insist on it, the answer begins
 * anew at a later one. What has been made waits in the stream until it is whole, since its length goes first.
 */
#ifndef KW_RPC_RANGE_ANSWER_H
#define KW_RPC_RANGE_ANSWER_H

#include "rpc/service.h"

#ifdef KW_PROBE
#define KW_PAGE_RECORDS 8
#else
#define KW_PAGE_RECORDS 1000
#endif

/* Whether the answer to an op can be made of pages: it is in the order of keys, and has no filter. */
bool kw_range_answer_can_page(const kw_range_op *op);

/* Answers an op whose first page is there, and is not all; or defers it, where too many answers wait. */
void kw_range_answer_begin(kw_server *server, kw_stream *stream, const kw_range_op *op,
                           const kw_reply *first);

/* Puts off an op until fewer answers wait on the connection; and does it then, by `range`. */
void kw_range_answer_defer(kw_server *server, kw_stream *stream, const kw_range_op *op);
void kw_range_answer_resume(kw_server *server, kw_stream *stream,
                            void (*range)(kw_server *, kw_stream *, const kw_range_op *));

/* One more page for each answer that is being made; whether any goes on. */
bool kw_range_answer_tend(kw_server *server);

/* The stream of an answer closes; or of none. */
void kw_range_answer_close(kw_server *server, kw_stream *stream);

/* What records take in a message, beside those that the store holds anyway. */
size_t kw_range_answer_size(const kw_server *server, const kw_records *kvs);

/* Adds records to a message, as kvs of an answer; false if memory is short. */
bool kw_range_answer_add(const kw_server *server, kw_chain *out, const kw_records *kvs);

/* Ends it: what follows the kvs. */
bool kw_range_answer_add_end(kw_chain *out, bool more, int64_t count);

#ifdef KW_PROBE
/* What a stream's account is charged for the request whose answer is being made, or is deferred; or 0. */
size_t kw_range_answer_charge(const kw_stream *stream);
#endif

#endif
