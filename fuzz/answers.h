/* SPDX-License-Identifier: MIT
 *
 * answers: what a server says, taken apart: frames follow each other without a gap, every stream has headers, then
 * data, then an end, and its data is whole messages that can be decoded.
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
  bool has_begun;
  bool is_over;
} answer;

/* All zero, nothing was said yet. */
typedef struct answers {
  bytes in; /* a frame that is not complete */
  answer *list;
  size_t n;
  bool
      is_wild; /* the other side has said what nobody knows the answer to: only frames are looked at */
} answers;

/* A stream was opened. */
void answers_expect(answers *a, uint32_t stream, const kw_message *message);

void answers_take(answers *a, kw_slice said);
void answers_drop(answers *a);

#endif
