/* SPDX-License-Identifier: MIT */
#include "rpc/range_answer.h"

#include "base/mem.h"
#include "codec/keyvalue.h"
#include "codec/wire.h"
#include "model/error.h"

#define MAX_RESTARTS 3
#define REFERENCE_BYTES 160 /* memory of a record that a chain references without a copy */

enum { KVS = 2, MORE = 3, COUNT = 4 };
enum { RANGE_RESPONSE = 1 };

typedef struct range_answer {
  kw_long_answer base;
  kw_read read;     /* for a deferred op: only the op */
  kw_blob *bytes;   /* the requested key and end; the op's slices point into it */
  int64_t revision; /* of the header */
  int restarts;
  bool is_stream;
} range_answer;

/* {====== Parts of the message ====== */

/* The records of a durable store are copies from the disk, so they are charged to the answer. Large records of a store
 * in memory are shared with the store. */
size_t kw_range_answer_size(const kw_server *server, const kw_records *kvs) {
  bool is_own = kw_store_is_durable(server->store);
  size_t size = 0;
  for (size_t i = 0; i < kvs->n; i++) {
    size_t len = kvs->items[i]->len;
    size += is_own || len < KW_CHAIN_COPIED ? len : REFERENCE_BYTES;
  }
  return size;
}

bool kw_range_answer_add(const kw_server *server, kw_chain *out, const kw_records *kvs,
                         bool keys_only) {
  bool ok = true, is_own = kw_store_is_durable(server->store);
  for (size_t i = 0; ok && i < kvs->n; i++) {
    kw_blob *record = (kw_blob *)kvs->items[i];
    ok = keys_only ? kw_keyvalue_add_bare(out, KVS, record)
                   : kw_keyvalue_add(out, KVS, record, is_own);
  }
  return ok;
}

bool kw_range_answer_add_end(kw_chain *out, bool more, int64_t count) {
  uint8_t *start = kw_chain_reserve(out, 2 * (1 + 10));
  if (start == NULL) return false;
  uint8_t *to = kw_wire_put_number(start, MORE, more);
  to = kw_wire_put_number(to, COUNT, (uint64_t)count);
  kw_chain_commit(out, (size_t)(to - start));
  return true;
}

/* }====== */

/* Returns the charge for the part of a request that its answer stores. */
static size_t request_size(const kw_range_op *op) {
  return sizeof(range_answer) + op->range.key.len + op->range.end.len;
}

/* Charges the current memory of the answer. Returns false if the connection exceeds its limit. */
static bool charge(range_answer *a) {
  return kw_long_answer_charge(&a->base, request_size(&a->read.op) + kw_read_held(&a->read));
}

static void free_answer(range_answer *a) {
  kw_link_remove(&a->base.link);
  kw_account_credit(kw_session_account(a->base.stream->session), a->base.charged);
  kw_read_drop(&a->read);
  kw_blob_release(a->bytes);
  a->base.stream->owner = NULL;
  kw_free(a);
}

/* Fails the call. Earlier messages of a range stream are still sent. */
static void fail(range_answer *a, int rc) {
  kw_stream *stream = a->base.stream;
  if (!a->is_stream) kw_stream_forget(stream);
  free_answer(a);
  kw_service_fail(stream, rc);
}

/* {====== Pages ====== */

/* True if the read and the records of a page are within the limit of the connection. */
static bool may_hold(const kw_server *server, range_answer *a, const kw_records *kvs) {
  kw_account *account = kw_session_account(a->base.stream->session);
  return charge(a) && (kvs->n == 0 || kw_account_ask(account, kw_range_answer_size(server, kvs)));
}

static bool add_kvs(const kw_server *server, range_answer *a, const kw_records *kvs) {
  return kw_range_answer_add(server, &a->base.stream->out, kvs, a->read.op.keys_only);
}

static int add_page(const kw_server *server, range_answer *a, const kw_records *kvs) {
  if (!may_hold(server, a, kvs)) return KW_ERR_TOO_MANY_REQUESTS;
  if (kvs->n == 0) return KW_OK;
  bool ok = add_kvs(server, a, kvs);
  kw_stream_count(a->base.stream);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

static void finish(kw_server *server, range_answer *a) {
  kw_long_answer done = a->base;
  if (!kw_range_answer_add_end(&done.stream->out, a->read.more, a->read.count)) {
    fail(a, KW_ERR_NO_MEMORY);
    return;
  }
  free_answer(a);
  kw_long_answer_send(server, &done, 0);
}

/* {====== Messages of a range stream ====== */

/* Adds the beginning of a message whose RangeResponse takes `len` bytes, with the header if `head` is above 0. */
static bool begin_chunk(const kw_server *server, const range_answer *a, size_t len, size_t head) {
  kw_chain *out = &a->base.stream->out;
  size_t size = 1 + kw_wire_varint_size(len);
  if (!kw_stream_begin_parts(a->base.stream, size + len)) return false;
  uint8_t *to = kw_chain_reserve(out, size + head);
  if (to == NULL) return false;
  *to++ = KW_WIRE_TAG(RANGE_RESPONSE, KW_WIRE_BYTES);
  to = kw_wire_put_varint(to, len);
  if (head > 0) kw_service_put_header(server, a->revision, to);
  kw_chain_commit(out, size + head);
  return true;
}

/* Sends a page. This fixes the revision: the read can no longer be restarted. */
static int send_chunk(const kw_server *server, range_answer *a, const kw_records *kvs,
                      bool is_last) {
  kw_reply page = {.kind = KW_OP_RANGE, .range = {.kvs = *kvs, .keys_only = a->read.op.keys_only}};
  if (!may_hold(server, a, kvs)) return KW_ERR_TOO_MANY_REQUESTS;
  if (kvs->n == 0 && !is_last) return KW_OK;
  if (is_last) {
    page.range.more = a->read.more;
    page.range.count = a->read.count;
  }
  size_t head = is_last ? kw_service_header_size(server, a->revision) : 0;
  size_t len = head + kw_message_rest_size(&kw_msg_range_response, &page);
  if (len > KW_MAX_ANSWER) {
    kw_service_refuse_size(a->base.stream, len);
    return KW_ERR_TOO_MANY_REQUESTS;
  }
  bool ok =
      begin_chunk(server, a, len, head) && add_kvs(server, a, kvs) &&
      (!is_last || kw_range_answer_add_end(&a->base.stream->out, a->read.more, a->read.count));
  if (!ok) {
    kw_stream_reset(a->base.stream, KW_RESET_INTERNAL); /* the message is incomplete */
    return KW_ERR_NO_MEMORY;
  }
  a->read.op.revision = a->read.revision;
  kw_stream_sent(a->base.stream);
  if (!is_last) kw_link_remove(&a->base.link); /* until the window has space for more */
  return KW_OK;
}

static void end_stream(range_answer *a) {
  kw_stream *stream = a->base.stream;
  free_answer(a);
  kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
}

/* }====== */

/* Restarts an answer, at the store's revision. Returns KW_OK; KW_ERR_COMPACTED if that is not allowed: the client asked
 * for a certain revision, or the answer was restarted too often; or KW_ERR_NO_MEMORY. */
static int restart(kw_server *server, range_answer *a) {
  kw_range_op op = a->read.op;
  if (op.revision > 0 || ++a->restarts > MAX_RESTARTS) return KW_ERR_COMPACTED;
  kw_stream_forget(a->base.stream);
  kw_read_drop(&a->read);
  a->revision = kw_store_revision(server->store);
  int rc = kw_read_begin(server->store, &a->read, &op, &server->arena);
  if (rc != KW_OK) return rc;
  bool ok = a->is_stream || kw_long_answer_begin(server, &a->base, a->revision);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

static void step(kw_server *server, kw_long_answer *base, kw_work *work) {
  range_answer *a = KW_CONTAINER_OF(base, range_answer, base);
  kw_records page;
  int rc = kw_read_step(server->store, &a->read, &server->arena, work, &page);
  if (rc == KW_ERR_COMPACTED) {
    rc = restart(server, a);
    if (rc != KW_OK) fail(a, rc);
    return;
  }
  int added = rc;
  if (rc >= 0) {
    added = a->is_stream ? send_chunk(server, a, &page, rc == KW_OK) : add_page(server, a, &page);
  }
  if (added != KW_OK) {
    fail(a, added);
  } else if (rc == KW_OK) {
    if (a->is_stream) {
      end_stream(a);
    } else {
      finish(server, a);
    }
  }
}

/* }====== */

/* Copies the op, since the slices of a request are valid only during the call. */
static bool copy_op(range_answer *a, const kw_range_op *op) {
  a->bytes = kw_blob_new(op->range.key.len + op->range.end.len);
  if (a->bytes == NULL) return false;
  a->read.op = *op;
  a->read.op.range = kw_range_copy(&op->range, a->bytes->bytes);
  return true;
}

/* Makes an answer that is in no list yet. If memory is short, or the connection exceeds its limit, the call fails, and
 * the function returns NULL. */
static range_answer *new_answer(kw_stream *stream, const kw_range_op *op) {
  kw_account *account = kw_session_account(stream->session);
  if (!kw_account_ask(account, request_size(op))) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    return NULL;
  }
  range_answer *a = kw_alloc_zeroed(sizeof *a);
  if (a == NULL || !copy_op(a, op)) {
    kw_free(a);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return NULL;
  }
  a->base = (kw_long_answer){.stream = stream, .charged = request_size(op), .step = step};
  stream->owner = a;
  kw_account_charge(account, a->base.charged);
  kw_link_init(&a->base.link);
  return a;
}

/* Makes the answer of a read, and takes over the read; the pages are made later. Returns NULL like new_answer. */
static range_answer *begin(kw_server *server, kw_stream *stream, kw_read *read, int64_t revision) {
  range_answer *a = new_answer(stream, &read->op);
  if (a == NULL) {
    kw_read_drop(read);
    return NULL;
  }
  kw_range_op op = a->read.op;
  a->read = *read;
  a->read.op = op;
  a->revision = revision;
  kw_link_add(&server->long_answers, &a->base.link);
  return a;
}

void kw_range_answer_stream(kw_server *server, kw_stream *stream, kw_read *read, int64_t revision) {
  range_answer *a = begin(server, stream, read, revision);
  if (a != NULL) a->is_stream = stream->is_paced = true;
}

void kw_range_answer_pull(kw_server *server, kw_stream *stream) {
  range_answer *a = stream->owner;
  if (a != NULL && kw_link_is_alone(&a->base.link))
    kw_link_add(&server->long_answers, &a->base.link);
}

void kw_range_answer_begin(kw_server *server, kw_stream *stream, kw_read *read, int64_t revision,
                           const kw_records *first) {
  if (!kw_stream_has_room(stream, SIZE_MAX)) {
    kw_range_answer_defer(server, stream, &read->op);
    kw_read_drop(read);
    return;
  }
  range_answer *a = begin(server, stream, read, revision);
  if (a == NULL) return;
  bool ok = kw_long_answer_begin(server, &a->base, a->revision);
  int rc = ok ? add_page(server, a, first) : KW_ERR_NO_MEMORY;
  if (rc != KW_OK) fail(a, rc);
}

void kw_range_answer_defer(kw_server *server, kw_stream *stream, const kw_range_op *op) {
  (void)server;
  if (new_answer(stream, op) != NULL) kw_stream_defer(stream);
}

void kw_range_answer_resume(kw_server *server, kw_stream *stream,
                            void (*range)(kw_server *, kw_stream *, const kw_range_op *)) {
  range_answer *a = stream->owner;
  if (a == NULL) return;
  kw_range_op op = a->read.op;
  kw_blob *bytes = kw_blob_retain(a->bytes);
  free_answer(a);
  range(server, stream, &op);
  kw_blob_release(bytes);
}

void kw_range_answer_close(kw_server *server, kw_stream *stream) {
  (void)server;
  if (stream->owner != NULL) free_answer(stream->owner);
}
