/* SPDX-License-Identifier: MIT
 *
 * long_answer: an answer to a call that only reads, and is long to make: it is made page by page, and other calls have
 * their turn between pages. All long answers share the work of a turn. For this folder only.
 *
 *   prefix, header | a page | the next | ... | the end
 *
 * The pages wait in the stream until the answer is complete, because the message begins with its length.
 */
#ifndef KW_RPC_LONG_ANSWER_H
#define KW_RPC_LONG_ANSWER_H

#include "rpc/service.h"

/* Visits of a page. A turn makes several pages, one for each answer after the other; or only one while requests
 * arrive. */
#define KW_PAGE_VISITS KW_LIMIT(1000, 8)

typedef struct kw_long_answer kw_long_answer;

struct kw_long_answer {
  kw_link link; /* among the long answers of the server */
  kw_stream *stream;
  size_t charged;  /* to the connection's account */
  uint8_t *prefix; /* gRPC prefix in the stream, to be filled in at the end */
  size_t before;   /* bytes in the stream before the prefix */
  /* Makes a page. May free the answer. */
  void (*step)(kw_server *server, kw_long_answer *answer, kw_work *page);
};

/* Adds the prefix and the header to the stream. Returns false if memory is short. */
bool kw_long_answer_begin(const kw_server *server, kw_long_answer *answer, int64_t revision);

/* Sends a complete message when the ticket is settled; or fails the call, if the message is too large. `answer` is a
 * copy of the kw_long_answer, which is freed already. */
void kw_long_answer_send(kw_server *server, const kw_long_answer *answer, uint64_t ticket);

/* Changes the charge of an answer to `size`, the memory that it takes now. Returns false if the connection's account
 * refuses that: the charge is changed even so. */
bool kw_long_answer_charge(kw_long_answer *answer, size_t size);

/* Makes pages, as many as the work of a turn allows. */
void kw_long_answer_step(kw_server *server);

#endif
