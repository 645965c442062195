/* SPDX-License-Identifier: MIT
 *
 * response: the answers of a server to ops, as a client reads them.
 *
 * They are the messages that a kw_reply is written as. Here the kvs stay what they are on the wire: KeyValues, in
 * slices of the bytes that were given. Only a KeyValue that somebody looks at is decoded, and can turn out malformed.
 */
#ifndef KW_CODEC_RESPONSE_H
#define KW_CODEC_RESPONSE_H

#include "codec/message.h"
#include "model/op.h"

typedef struct kw_response {
  int kind;         /* kw_op_kind */
  int64_t revision; /* of the header; 0: it has none */
  union {
    struct {
      kw_repeated kvs; /* of kw_slice */
      int64_t count;
      bool more;
    } range;
    struct {
      kw_slice prev_kv; /* data is NULL: there is none */
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

/* Fills in a zeroed response to an op of that kind; of KW_OP_NONE, the header alone. Results as of
 * kw_message_decode. */
int kw_response_decode(kw_op_kind kind, kw_slice bytes, kw_arena *arena, kw_response *response);

#endif
