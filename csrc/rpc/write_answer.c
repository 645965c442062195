/* SPDX-License-Identifier: MIT */
#include "rpc/write_answer.h"

#include "codec/keyvalue.h"
#include "codec/messages.h"
#include "codec/wire.h"

#define PLAIN_ROOM 64 /* bytes of a revision, two numbers and their tags, and more */

enum { HEADER = 1, RESPONSES = 3 };

/* The fields of a message that are neither records nor responses. */
typedef struct plain {
  uint8_t bytes[PLAIN_ROOM];
  size_t len;
  size_t before; /* bytes that precede the records and the responses */
} plain;

static const uint8_t record_fields[] = {[KW_OP_RANGE] = 2, [KW_OP_PUT] = 2, [KW_OP_DELETE] = 3};

bool kw_write_answer_encode(kw_chain *encoded, const kw_op *op, const kw_blob *record,
                            bool is_own) {
  uint8_t number = record_fields[op->kind];
  if (op->kind == KW_OP_RANGE && op->range.keys_only)
    return kw_keyvalue_add_bare(encoded, number, record);
  return kw_keyvalue_add(encoded, number, (kw_blob *)record, is_own);
}

void kw_write_answer_discard(const kw_reply *reply, kw_chain *discarded) {
  if (reply->encoded != NULL) kw_chain_append(discarded, reply->encoded);
  for (size_t i = 0; reply->kind == KW_OP_TXN && i < reply->txn.n; i++)
    kw_write_answer_discard(&reply->txn.responses[i], discarded);
}

static const kw_message *message_of(const kw_reply *reply) {
  switch (reply->kind) {
    case KW_OP_RANGE: return &kw_msg_range_response;
    case KW_OP_PUT: return &kw_msg_put_response;
    case KW_OP_DELETE: return &kw_msg_delete_range_response;
    default: return &kw_msg_txn_response;
  }
}

/* The header of a nested transaction is empty, as in etcd. The header of the outermost reply is omitted. */
static plain encode_plain(const kw_reply *reply, bool is_outermost) {
  plain p;
  kw_reply own = *reply;
  uint8_t *to = p.bytes;
  const kw_message *message = message_of(reply);
  bool is_txn = reply->kind == KW_OP_TXN;
  if (is_txn) own.txn.n = 0;
  size_t rest = kw_message_rest_size(message, &own);
  assert(is_txn || is_outermost || kw_message_size(message, &own) <= PLAIN_ROOM);
  if (is_txn && !is_outermost) {
    *to++ = KW_WIRE_TAG(HEADER, KW_WIRE_BYTES);
    *to++ = 0;
  }
  to = is_txn || is_outermost ? kw_message_put_rest(message, &own, to)
                              : kw_message_put(message, &own, to);
  p.len = (size_t)(to - p.bytes);
  p.before = reply->kind == KW_OP_RANGE ? p.len - rest : p.len;
  return p;
}

/* Returns the size of the ResponseOp of a reply that was measured. */
static size_t response_size(const kw_reply *reply) {
  return 1 + kw_wire_varint_size(reply->size) + reply->size;
}

static size_t measure(kw_reply *reply, bool is_outermost) {
  size_t size = encode_plain(reply, is_outermost).len;
  if (reply->encoded != NULL) size += reply->encoded->len;
  for (size_t i = 0; reply->kind == KW_OP_TXN && i < reply->txn.n; i++) {
    measure(&reply->txn.responses[i], false);
    size_t len = response_size(&reply->txn.responses[i]);
    size += 1 + kw_wire_varint_size(len) + len;
  }
  return reply->size = size;
}

size_t kw_write_answer_measure(kw_reply *reply) {
  return measure(reply, true);
}

static bool add(kw_chain *out, const kw_reply *reply, bool is_outermost);

/* Adds a reply as a response of a transaction. The kind of an op is the number of its field in ResponseOp. */
static bool add_response(kw_chain *out, const kw_reply *reply) {
  uint8_t *start = kw_chain_reserve(out, 2 * (1 + 10));
  if (start == NULL) return false;
  *start = KW_WIRE_TAG(RESPONSES, KW_WIRE_BYTES);
  uint8_t *to = kw_wire_put_varint(start + 1, response_size(reply));
  *to++ = KW_WIRE_TAG(reply->kind, KW_WIRE_BYTES);
  to = kw_wire_put_varint(to, reply->size);
  kw_chain_commit(out, (size_t)(to - start));
  return add(out, reply, false);
}

static bool add(kw_chain *out, const kw_reply *reply, bool is_outermost) {
  plain p = encode_plain(reply, is_outermost);
  if (!kw_chain_add(out, kw_slice_of(p.bytes, p.before))) return false;
  if (reply->encoded != NULL) kw_chain_append(out, reply->encoded);
  for (size_t i = 0; reply->kind == KW_OP_TXN && i < reply->txn.n; i++) {
    if (!add_response(out, &reply->txn.responses[i])) return false;
  }
  return kw_chain_add(out, kw_slice_of(p.bytes + p.before, p.len - p.before));
}

bool kw_write_answer_add(kw_chain *out, const kw_reply *reply) {
  return add(out, reply, true);
}
