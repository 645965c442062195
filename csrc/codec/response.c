/* SPDX-License-Identifier: MIT */
#include "codec/response.h"

#include "codec/describe.h"

#define RESPONSE(symbol, label)                                                                    \
  static const kw_message symbol = DESCRIPTION(symbol, label, sizeof(kw_response), NONE)

static const kw_field header_fields[] = {{INT64(3, revision, AT(kw_response, revision))}};
RESPONSE(header, ResponseHeader);

#define OWN_HEADER                                                                                 \
  { NESTED(1, header, header, 0) }

static const kw_field bare_fields[] = {OWN_HEADER};
RESPONSE(bare, Response);

static const kw_field range_fields[] = {
    OWN_HEADER,
    {BYTES(2, kvs, AT(kw_response, range.kvs)), LIST},
    {BOOL(3, more, AT(kw_response, range.more))},
    {INT64(4, count, AT(kw_response, range.count))},
};
RESPONSE(range, RangeResponse);

static const kw_field put_fields[] = {
    OWN_HEADER,
    {BYTES(2, prev_kv, AT(kw_response, put.prev_kv))},
};
RESPONSE(put, PutResponse);

static const kw_field delete_range_fields[] = {
    OWN_HEADER,
    {INT64(2, deleted, AT(kw_response, delete.deleted))},
    {BYTES(3, prev_kvs, AT(kw_response, delete.prev_kvs)), LIST},
};
RESPONSE(delete_range, DeleteRangeResponse);

static const kw_message op;

static const kw_field txn_fields[] = {
    OWN_HEADER,
    {BOOL(2, succeeded, AT(kw_response, txn.succeeded))},
    {NESTED(3, responses, op, AT(kw_response, txn.responses)), LIST},
};
RESPONSE(txn, TxnResponse);

static const kw_field op_fields[] = {
    {NESTED(1, response_range, range, 0), CHOICE},
    {NESTED(2, response_put, put, 0), CHOICE},
    {NESTED(3, response_delete_range, delete_range, 0), CHOICE},
    {NESTED(4, response_txn, txn, 0), CHOICE},
};
static const kw_message op =
    DESCRIPTION(op, ResponseOp, sizeof(kw_response), offsetof(kw_response, kind));

static const kw_message *const of_kind[] = {
    [KW_OP_NONE] = &bare,           [KW_OP_RANGE] = &range, [KW_OP_PUT] = &put,
    [KW_OP_DELETE] = &delete_range, [KW_OP_TXN] = &txn,
};

int kw_response_decode(kw_op_kind kind, kw_slice bytes, kw_arena *arena, kw_response *response) {
  int rc = kw_message_decode(of_kind[kind], bytes, arena, response);
  response->kind = kind;
  return rc;
}
