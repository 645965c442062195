/* SPDX-License-Identifier: MIT
 *
 * split: splits bytes into gRPC messages. The same bytes in one piece and in many pieces give the same messages.
 *
 *   limit   one byte: the largest message
 *   n       one byte, then n bytes: the lengths of the pieces, used in turn
 *   bytes   the rest
 */
#include "bytes.h"
#include "codec/grpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The messages that were found, one after the other, each with its length before it. */
typedef struct result {
  bytes messages;
  kw_grpc_split end;
  bool is_between;
} result;

static kw_slice take(kw_slice *from, size_t max) {
  kw_slice taken = kw_slice_of(from->data, kw_min_size(from->len, max));
  if (taken.len > 0) from->data += taken.len;
  from->len -= taken.len;
  return taken;
}

static kw_grpc_split split_piece(kw_grpc_splitter *splitter, kw_slice piece, bytes *to) {
  kw_slice message;
  for (;;) {
    kw_grpc_split found = kw_grpc_next(splitter, &piece, &message);
    must(splitter->n <= splitter->max_len, "no more than a message is gathered");
    if (found == KW_GRPC_MORE) must(piece.len == 0, "all of the input is used up");
    if (found != KW_GRPC_MESSAGE) return found;
    must(message.len <= splitter->max_len, "a message is within the limit");
    bytes_add_varint(to, message.len);
    bytes_add(to, message);
  }
}

/* The lengths are used in turn. Without lengths all bytes are one piece. */
static result split(size_t max_len, kw_slice lengths, kw_slice input) {
  kw_grpc_splitter splitter = {.max_len = max_len};
  result r = {.end = KW_GRPC_MORE};
  for (size_t i = 0; r.end == KW_GRPC_MORE && input.len > 0; i++) {
    size_t len = lengths.len == 0 ? input.len : lengths.data[i % lengths.len] + 1u;
    kw_slice piece = take(&input, len);
    uint8_t *copy = bytes_exact(piece);
    r.end = split_piece(&splitter, kw_slice_of(copy, piece.len), &r.messages);
    free(copy);
  }
  r.is_between = kw_grpc_is_between(&splitter);
  kw_grpc_drop(&splitter);
  return r;
}

static void split_both_ways(size_t max_len, kw_slice lengths, kw_slice input) {
  result whole = split(max_len, (kw_slice){0}, input);
  result torn = split(max_len, lengths, input);
  must(whole.end == torn.end, "both end in the same way");
  must(kw_slice_equal(bytes_slice(&whole.messages), bytes_slice(&torn.messages)),
       "both have the same messages");
  must(whole.is_between == torn.is_between, "both are between messages, or not");
  bytes_drop(&whole.messages);
  bytes_drop(&torn.messages);
}

static void check_headers(kw_slice text) {
  uint8_t *copy = bytes_exact(text);
  bytes escaped = {0};
  size_t len = kw_grpc_escape(text, bytes_grow(&escaped, 3 * text.len));
  must(len <= 3 * text.len, "an escaped text is at most three times as long");
  for (size_t i = 0; i < len; i++)
    must(escaped.data[i] >= 0x20 && escaped.data[i] < 0x7f, "it can stand in a header");
  must(kw_slice_equal(kw_slice_of(escaped.data, kw_grpc_unescape(escaped.data, len)), text),
       "it comes back");
  must(kw_grpc_timeout(kw_slice_of(copy, text.len)) >= -1, "a timeout is no other failure");
  must(kw_grpc_unescape(copy, text.len) <= text.len, "a text does not grow");
  bytes_drop(&escaped);
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kw_slice input = kw_slice_of(data, size);
  kw_slice limit = take(&input, 1);
  kw_slice n = take(&input, 1);
  if (n.len == 0) return 0;
  kw_slice lengths = take(&input, n.data[0]);
  check_headers(input);
  split_both_ways((size_t)limit.data[0] * limit.data[0], lengths, input);
  return 0;
}
