/* SPDX-License-Identifier: MIT */
#include "codec/response.h"

#define FIELD(n, type, member)                                                                     \
  .number = n, .kind = KW_FIELD_##type, .offset = offsetof(kw_response, member)
#define INNER(n, fields) .number = n, .kind = KW_FIELD_MESSAGE, .message = &(fields)
#define LIST .is_repeated = true
#define CHOICE .is_choice = true

#define DESCRIPTION(symbol, place)                                                                 \
  {                                                                                                \
    .name = #symbol, .fields = symbol##_fields, .n = KW_LENGTH(symbol##_fields),                   \
    .size = sizeof(kw_response), .choice = place                                                   \
  }
#define RESPONSE(symbol) static const kw_message symbol = DESCRIPTION(symbol, KW_NO_PLACE)

static const kw_field header_fields[] = {{FIELD(3, INT64, revision)}};
RESPONSE(header);

#define HEADER                                                                                     \
  { INNER(1, header) }

static const kw_field bare_fields[] = {HEADER};
RESPONSE(bare);

static const kw_field range_fields[] = {
    HEADER,
    {FIELD(2, BYTES, range.kvs), LIST},
    {FIELD(3, BOOL, range.more)},
    {FIELD(4, INT64, range.count)},
};
RESPONSE(range);

static const kw_field put_fields[] = {
    HEADER,
    {FIELD(2, BYTES, put.prev_kv)},
};
RESPONSE(put);

static const kw_field delete_range_fields[] = {
    HEADER,
    {FIELD(2, INT64, delete.deleted)},
    {FIELD(3, BYTES, delete.prev_kvs), LIST},
};
RESPONSE(delete_range);

static const kw_message op;

static const kw_field txn_fields[] = {
    HEADER,
    {FIELD(2, BOOL, txn.succeeded)},
    {FIELD(3, MESSAGE, txn.responses), .message = &op, LIST},
};
RESPONSE(txn);

static const kw_field op_fields[] = {
    {INNER(1, range), CHOICE},
    {INNER(2, put), CHOICE},
    {INNER(3, delete_range), CHOICE},
    {INNER(4, txn), CHOICE},
};
static const kw_message op = DESCRIPTION(op, offsetof(kw_response, kind));

static const kw_message *const of_kind[] = {
    [KW_OP_NONE] = &bare,           [KW_OP_RANGE] = &range, [KW_OP_PUT] = &put,
    [KW_OP_DELETE] = &delete_range, [KW_OP_TXN] = &txn,
};

int kw_response_decode(kw_op_kind kind, kw_slice bytes, kw_arena *arena, kw_response *response) {
  int rc = kw_message_decode(of_kind[kind], bytes, arena, response);
  response->kind = kind;
  return rc;
}
