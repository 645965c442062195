/* SPDX-License-Identifier: MIT
 *
 * response: decodes the answers of a server to ops, for a client.
 *
 * The server writes these answers from a kw_reply, see codec/messages.h. A kw_response has its kvs encoded, as slices
 * of the decoded bytes. The kvs are not checked: the caller decodes a KeyValue when it is needed, and may find it
 * malformed.
 */
#ifndef KW_CODEC_RESPONSE_H
#define KW_CODEC_RESPONSE_H

#include "codec/message.h"
#include "model/op.h"

typedef struct kw_response {
  int kind;         /* kw_op_kind */
  int64_t revision; /* of the header; 0: the header has none */
  union {
    struct {
      kw_repeated kvs; /* of kw_slice */
      int64_t count;
      bool more;
    } range;
    struct {
      kw_slice prev_kv; /* data == NULL: there is none */
    } put;
    struct {
      int64_t deleted;
      kw_repeated prev_kvs; /* of kw_slice */
    } delete;
    struct {
      bool succeeded;
      kw_repeated responses; /* of kw_response */
    } txn;
  };
} kw_response;

/* Decodes the answer to an op of this kind into a zeroed response; for KW_OP_NONE, only the header. The response
 * borrows `bytes`; its lists are in the arena. Returns what kw_message_decode returns. */
int kw_response_decode(kw_op_kind kind, kw_slice bytes, kw_arena *arena, kw_response *response);

#endif
