/* SPDX-License-Identifier: MIT
 *
 * reply: the answer of a store to an op.
 *
 * Records are encoded KeyValues. They are borrowed from the store: kw_store_apply says how long they are valid. The
 * records of a reply that takes several turns are retained or encoded by its owner, see kw_on_record. Arrays lie in the
 * arena that was passed with the op.
 */
#ifndef KW_MODEL_REPLY_H
#define KW_MODEL_REPLY_H

#include "base/chain.h"
#include "model/op.h"

typedef struct kw_records {
  const kw_blob **items;
  size_t n;
} kw_records;

typedef struct kw_reply kw_reply;

struct kw_reply {
  kw_op_kind kind;  /* of the op */
  int64_t revision; /* of the store, after the op */
  /* Kvs, prev_kv or prev_kvs as fields of the message; NULL: there are none, or they are records. */
  kw_chain *encoded;
  size_t size; /* of the encoded message, for code that encodes it in parts */
  union {
    struct {
      kw_records kvs;
      int64_t count;  /* of all keys in the range, whatever the limit */
      bool more;      /* the limit has left out kvs */
      bool keys_only; /* the codec leaves out the values, which the records have */
    } range;
    struct {
      const kw_blob *prev_kv; /* NULL: the op has no prev_kv, or the key did not exist */
    } put;
    struct {
      int64_t deleted;     /* number of keys */
      kw_records prev_kvs; /* empty if the op has no prev_kv */
    } delete;
    struct {
      bool succeeded;
      kw_reply *responses; /* of the branch that ran, in order */
      size_t n;
    } txn;
  };
};

#endif
