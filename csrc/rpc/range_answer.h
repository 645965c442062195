/* SPDX-License-Identifier: MIT
 *
 * range_answer: a large answer to a range, made page by page, so that other calls have their turn between pages.
 *
 *   prefix, header | kvs of a page | kvs of the next | ... | more, count
 *
 * All pages are of one revision. If that revision is compacted meanwhile, and the client did not ask for it by
 * number, the answer starts again at the current revision, a few times at most. The pages wait in the stream until
 * the answer is complete, because the message begins with its length.
 *
 * If memory is short, or the connection holds too much already, the call fails.
 */
#ifndef KW_RPC_RANGE_ANSWER_H
#define KW_RPC_RANGE_ANSWER_H

#include "rpc/service.h"

/* Limit of records in a page. */
#ifdef KW_PROBE
#define KW_PAGE_RECORDS 8
#else
#define KW_PAGE_RECORDS 1000
#endif

/* True if the answer to an op can be made of pages: the op asks for the kvs of a range, not of one key, in the order
 * of keys, without filters. */
bool kw_range_answer_can_page(const kw_range_op *op);

/* Begins an answer with `first`, the reply of its first page, which must not be all of it. Defers the op instead if
 * too many answers wait on the connection. The op is copied. */
void kw_range_answer_begin(kw_server *server, kw_stream *stream, const kw_range_op *op,
                           const kw_reply *first);

/* Defers an op until fewer answers wait on the connection: the method's on_room is called then, and calls
 * kw_range_answer_resume. The op is copied. */
void kw_range_answer_defer(kw_server *server, kw_stream *stream, const kw_range_op *op);

/* Calls `range` with the deferred op of a stream, which is then no longer deferred. Does nothing if there is none. */
void kw_range_answer_resume(kw_server *server, kw_stream *stream,
                            void (*range)(kw_server *, kw_stream *, const kw_range_op *));

/* Makes one more page of each answer. Returns true if an answer is still not complete. */
bool kw_range_answer_tend(kw_server *server);

/* The on_close of a range's stream: drops its answer, or its deferred op, if it has one. */
void kw_range_answer_close(kw_server *server, kw_stream *stream);

/* Returns the memory that records take in a message, beside what the store holds anyway. */
size_t kw_range_answer_size(const kw_server *server, const kw_records *kvs);

/* Adds records, with their values, to a message as its kvs. Returns false if memory is short. */
bool kw_range_answer_add(const kw_server *server, kw_chain *out, const kw_records *kvs);

/* Adds `more` and `count`, which follow the kvs. Returns false if memory is short. */
bool kw_range_answer_add_end(kw_chain *out, bool more, int64_t count);

#ifdef KW_PROBE
/* Returns the charge to the stream's account for the op of its answer, or of its deferred op; or 0. */
size_t kw_range_answer_charge(const kw_stream *stream);
#endif

#endif
