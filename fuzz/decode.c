/* SPDX-License-Identifier: MIT
 *
 * decode: decodes any bytes as any message that has a record. A decoded record can be encoded, and decoding that
 * gives the same record.
 *
 *   which   one byte: the message
 *   bytes   the rest
 */
#include "bytes.h"
#include "codec/keyvalue.h"
#include "codec/messages.h"
#include "model/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A message and its decoded record. */
typedef struct decoded {
  const kw_message *message;
  kw_arena arena;
  uint8_t *in; /* the bytes that the slices of the record point into */
  char *record;
  int rc;
} decoded;

static decoded decode(const kw_message *message, kw_slice bytes) {
  decoded d = {.message = message, .in = bytes_exact(bytes)};
  d.record = calloc(1, message->size);
  if (d.record == NULL) abort();
  d.rc = kw_message_decode(message, kw_slice_of(d.in, bytes.len), &d.arena, d.record);
  return d;
}

static void drop(decoded *d) {
  kw_arena_drop(&d->arena);
  free(d->record);
  free(d->in);
}

static bytes encode(const decoded *d) {
  bytes b = {0};
  size_t size = kw_message_size(d->message, d->record);
  uint8_t *room = bytes_exact(kw_slice_of(bytes_grow(&b, size), size));
  must(kw_message_put(d->message, d->record, room) == room + size,
       "as much is written as was measured");
  memcpy(b.data, room, size);
  free(room);
  return b;
}

/* {====== Are two records the same? ====== */

static bool is_same(const kw_message *message, const char *a, const char *b);

static size_t item_size(const kw_field *field) {
  if (field->is_encoded) return sizeof(kw_blob *);
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_BOOL: return sizeof(bool);
    case KW_FIELD_ENUM: return sizeof(int);
    case KW_FIELD_BYTES:
    case KW_FIELD_STRING: return sizeof(kw_slice);
    case KW_FIELD_MESSAGE: return field->message->size;
    default: return sizeof(int64_t);
  }
}

static bool is_same_value(const kw_field *field, const char *a, const char *b) {
  if (kw_field_is_number(field)) return memcmp(a, b, item_size(field)) == 0;
  if (field->is_encoded) {
    const kw_blob *x = *(const kw_blob *const *)a, *y = *(const kw_blob *const *)b;
    if (x == NULL || y == NULL) return x == y;
    return kw_slice_equal(kw_blob_slice(x), kw_blob_slice(y));
  }
  if (field->kind == KW_FIELD_MESSAGE) return is_same(field->message, a, b);
  return kw_slice_equal(*(const kw_slice *)a, *(const kw_slice *)b);
}

static bool is_same_list(const kw_field *field, const char *a, const char *b) {
  kw_repeated x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  if (x.n != y.n) return false;
  for (size_t i = 0; i < x.n; i++) {
    size_t at = i * item_size(field);
    if (!is_same_value(field, (char *)x.items + at, (char *)y.items + at)) return false;
  }
  return true;
}

static bool is_same(const kw_message *message, const char *a, const char *b) {
  int chosen = 0;
  if (message->choice != KW_NO_OFFSET) {
    chosen = *(const int *)(a + message->choice);
    if (chosen != *(const int *)(b + message->choice)) return false;
  }
  for (size_t i = 0; i < message->n; i++) {
    const kw_field *field = &message->fields[i];
    if (field->offset == KW_NO_OFFSET || (field->is_choice && field->number != chosen)) continue;
    const char *x = a + field->offset, *y = b + field->offset;
    if (!(field->is_repeated ? is_same_list(field, x, y) : is_same_value(field, x, y)))
      return false;
  }
  return true;
}

/* }====== */

/* Checks that the header of an answer and the rest, encoded one after the other, are the whole message. */
static void check_rest(const decoded *d, kw_slice whole) {
  size_t size = kw_message_rest_size(d->message, d->record);
  bytes b = {0};
  must(size <= whole.len, "the rest is no more than the whole");
  uint8_t *room = bytes_exact(kw_slice_of(bytes_grow(&b, size), size));
  must(kw_message_put_rest(d->message, d->record, room) == room + size,
       "as much of the rest is written as was measured");
  must(size == 0 || memcmp(room, whole.data + whole.len - size, size) == 0,
       "the rest is the end of the whole");
  free(room);
  bytes_drop(&b);
}

/* Checks an answer to a range with keys_only: encoded without values. */
static void check_bare(decoded *d) {
  if (d->message != &kw_msg_range_response) return;
  ((kw_reply *)d->record)->range.keys_only = true;
  bytes bare = encode(d);
  decoded again = decode(d->message, bytes_slice(&bare));
  must(again.rc == KW_OK, "what is bare can be decoded");
  const kw_records *kvs = &((kw_reply *)d->record)->range.kvs;
  const kw_records *bares = &((kw_reply *)again.record)->range.kvs;
  must(kvs->n == bares->n, "as many of them are bare");
  for (size_t i = 0; i < kvs->n; i++) {
    kw_kv kv = kw_keyvalue_of(kvs->items[i]), other = kw_keyvalue_of(bares->items[i]);
    must(other.value.len == 0 && kw_slice_equal(kv.key, other.key), "a bare one has but its key");
    must(kv.lease == other.lease && kv.version == other.version, "and its numbers");
  }
  drop(&again);
  bytes_drop(&bare);
}

/* Checks the decoder that KeyValues have beside the description. */
static void check_keyvalue(const decoded *d, kw_slice bytes) {
  kw_kv kv;
  if (d->message != &kw_msg_key_value) return;
  bool ok = kw_keyvalue_decode(bytes, &kv);
  must(ok == (d->rc == KW_OK), "both decoders of a KeyValue agree on what is malformed");
  must(!ok || is_same(d->message, d->record, (const char *)&kv), "and on what it is");
  kw_blob *blob = ok ? kw_keyvalue_encode(&kv) : NULL;
  if (blob == NULL) return;
  struct bytes again = encode(d);
  must(kw_slice_equal(kw_blob_slice(blob), bytes_slice(&again)), "and on how it is written");
  bytes_drop(&again);
  kw_blob_release(blob);
}

static void check_again(decoded *d) {
  bytes once = encode(d);
  decoded again = decode(d->message, bytes_slice(&once));
  must(again.rc == KW_OK, "what was encoded can be decoded");
  must(is_same(d->message, d->record, again.record), "it is the same when it is decoded again");
  bytes twice = encode(&again);
  must(kw_slice_equal(bytes_slice(&once), bytes_slice(&twice)), "and when it is encoded again");
  check_rest(d, bytes_slice(&once));
  bytes_drop(&twice);
  drop(&again);
  bytes_drop(&once);
}

/* True for messages that have a record. ResponseOp is left out, since it never stands alone: it is written with a
 * header, and may then nest one level deeper than it came. */
static bool is_decoded(const kw_message *message) {
  return message->size > 0 && message != &kw_msg_response_op;
}

static const kw_message *pick_message(uint8_t byte) {
  const kw_message *found[256];
  size_t n = 0;
  for (size_t i = 0; kw_message_at(i) != NULL; i++) {
    if (is_decoded(kw_message_at(i))) found[n++] = kw_message_at(i);
  }
  return found[byte % n];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  kw_slice bytes = kw_slice_of(data + 1, size - 1);
  decoded d = decode(pick_message(data[0]), bytes);
  check_keyvalue(&d, kw_slice_of(d.in, bytes.len));
  if (d.rc == KW_OK) {
    check_again(&d);
    check_bare(&d);
  }
  drop(&d);
  return 0;
}
