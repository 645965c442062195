/* SPDX-License-Identifier: MIT
 *
 * range_answer: a long answer to a range, see rpc/long_answer.h. The kvs come in pages; `more` and `count` follow them.
 *
 * All pages are of one revision. If that revision is compacted before the end, and the client did not ask for it by
 * number, the answer starts again at the current revision, a few times at most.
 *
 * If memory is short, or the connection's account refuses more memory, the call fails.
 *
 * A *range stream* sends each page as one message, a RangeStreamResponse. The last message has the header, `more` and
 * `count`, too. A page is made when the client's flow-control window has taken the previous page, so that a range
 * stream holds about one page, whatever its range and its client. Once a page was sent, the revision is fixed: if it is
 * compacted, the stream fails.
 */
#ifndef KW_RPC_RANGE_ANSWER_H
#define KW_RPC_RANGE_ANSWER_H

#include "rpc/long_answer.h"
#include "store/read.h"

/* Begins an answer with the first page of a read that is not finished, and takes over the read. The read's op is
 * copied. If too many answers wait on the connection, defers the op instead, and drops the read. `revision` is that of
 * the answer's header. */
void kw_range_answer_begin(kw_server *server, kw_stream *stream, kw_read *read, int64_t revision,
                           const kw_records *first);

/* Begins a range stream. Takes over the read, which must have made no step. `revision` is that of the header. */
void kw_range_answer_stream(kw_server *server, kw_stream *stream, kw_read *read, int64_t revision);

/* The on_pull of a range stream: its next page will be made. */
void kw_range_answer_pull(kw_server *server, kw_stream *stream);

/* Defers an op until fewer answers wait on the connection: the method's on_room is called then, and calls
 * kw_range_answer_resume. The op is copied. */
void kw_range_answer_defer(kw_server *server, kw_stream *stream, const kw_range_op *op);

/* Calls `range` with the deferred op of a stream, which is then no longer deferred. Does nothing if there is none. */
void kw_range_answer_resume(kw_server *server, kw_stream *stream,
                            void (*range)(kw_server *, kw_stream *, const kw_range_op *));

/* The on_close of a range's stream: drops its answer, or its deferred op, if it has one. */
void kw_range_answer_close(kw_server *server, kw_stream *stream);

/* Returns the memory that records take in a message, in addition to the memory that the store uses anyway. */
size_t kw_range_answer_size(const kw_server *server, const kw_records *kvs);

/* Adds records to a message as its kvs, with their values or only the keys. Returns false if memory is short. */
bool kw_range_answer_add(const kw_server *server, kw_chain *out, const kw_records *kvs,
                         bool keys_only);

/* Adds `more` and `count`, which follow the kvs. Returns false if memory is short. */
bool kw_range_answer_add_end(kw_chain *out, bool more, int64_t count);

#endif
