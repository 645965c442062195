/* SPDX-License-Identifier: MIT
 *
 * reply: what a store answers to an op.
 *
 * Records are encoded KeyValues, borrowed from the store until its next change or step; the arrays live
 * in the arena that was given with the op.
 */
#ifndef KW_MODEL_REPLY_H
#define KW_MODEL_REPLY_H

#include "base/blob.h"
#include "model/op.h"

typedef struct kw_records {
  const kw_blob **items;
  size_t n;
} kw_records;

typedef struct kw_reply kw_reply;

struct kw_reply {
  kw_op_kind kind;
  int64_t revision;
  union {
    struct {
      kw_records kvs;
      int64_t count;
      bool more;
      bool keys_only; /* leave the values out when the records are passed on */
    } range;
    struct {
      const kw_blob *prev_kv; /* or NULL */
    } put;
    struct {
      int64_t deleted;
      kw_records prev_kvs; /* empty unless asked for */
    } delete;
    struct {
      bool succeeded;
      kw_reply *responses;
      size_t n;
    } txn;
  };
};

#endif
