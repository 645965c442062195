/* SPDX-License-Identifier: MIT
 *
 * answers: checks what a server sends. Frames follow each other without a gap. Every stream has headers, then data,
 * then an end. The data of a call's stream is complete messages that can be decoded.
 */
#ifndef KW_FUZZ_ANSWERS_H
#define KW_FUZZ_ANSWERS_H

#include "bytes.h"
#include "codec/grpc.h"
#include "codec/message.h"

typedef struct answer {
  uint32_t stream;
  const kw_message *message; /* NULL: any bytes */
  kw_grpc_splitter splitter;
  bool is_call; /* of gRPC, or it may be */
  bool has_begun;
  bool is_over;
} answer;

/* An all-zero struct is ready for use: the server has sent nothing yet. */
typedef struct answers {
  bytes in; /* a frame that is not complete */
  answer *list;
  size_t n;
  bool is_wild;          /* the client has sent something malformed: only frames are checked */
  uint64_t n_messages;   /* that were checked... */
  uint64_t n_of_watches; /* ...and those of Watch among them */
  uint64_t n_body;       /* bytes of answers of HTTP */
} answers;

/* Notes that the client has opened a stream. */
void answers_expect(answers *a, uint32_t stream, const kw_message *message);

/* Notes that the newest stream is an HTTP request. */
void answers_expect_http(answers *a);

void answers_take(answers *a, kw_slice said);
void answers_drop(answers *a);

#endif
