/* SPDX-License-Identifier: MIT */
#include "codec/grpc.h"

#include "base/mem.h"

#define KEPT_BYTES 1024 /* a larger buffer is freed after its message */
#define MAX_DIGITS 8    /* of a timeout, as gRPC defines it */

static kw_slice take(kw_slice *input, size_t max) {
  kw_slice taken = kw_slice_of(input->data, kw_min_size(input->len, max));
  if (taken.len > 0) input->data += taken.len;
  input->len -= taken.len;
  return taken;
}

/* {====== Frames ====== */

static bool has_prefix(const kw_grpc_splitter *splitter) {
  return splitter->n_prefix == KW_GRPC_PREFIX;
}

static void take_prefix(kw_grpc_splitter *splitter, kw_slice *input) {
  kw_slice part = take(input, KW_GRPC_PREFIX - splitter->n_prefix);
  for (size_t i = 0; i < part.len; i++) splitter->prefix[splitter->n_prefix++] = part.data[i];
  if (has_prefix(splitter)) splitter->len = kw_big_endian_get32(splitter->prefix + 1);
}

static void free_large_buffer(kw_grpc_splitter *splitter) {
  if (splitter->cap > KEPT_BYTES) kw_grpc_drop(splitter);
}

static bool gather(kw_grpc_splitter *splitter, kw_slice *input) {
  kw_slice part = take(input, splitter->len - splitter->n);
  if (part.len == 0) return true;
  if (!kw_reserve(&splitter->bytes, &splitter->cap, splitter->n + part.len, 1)) return false;
  memcpy(splitter->bytes + splitter->n, part.data, part.len);
  splitter->n += part.len;
  return true;
}

static kw_grpc_split finish(kw_grpc_splitter *splitter, kw_slice found, kw_slice *message) {
  *message = found;
  splitter->n_prefix = 0;
  splitter->n = 0;
  return KW_GRPC_MESSAGE;
}

kw_grpc_split kw_grpc_next(kw_grpc_splitter *splitter, kw_slice *input, kw_slice *message) {
  if (kw_grpc_is_between(splitter)) free_large_buffer(splitter);
  if (!has_prefix(splitter)) take_prefix(splitter, input);
  if (!has_prefix(splitter)) return KW_GRPC_MORE;
  if (splitter->len > splitter->max_len) return KW_GRPC_TOO_LARGE;
  if (splitter->prefix[0] != 0) return KW_GRPC_COMPRESSED;
  if (splitter->n == 0 && input->len >= splitter->len) {
    return finish(splitter, take(input, splitter->len), message);
  }
  if (!gather(splitter, input)) return KW_GRPC_NO_MEMORY;
  if (splitter->n < splitter->len) return KW_GRPC_MORE;
  return finish(splitter, kw_slice_of(splitter->bytes, splitter->n), message);
}

bool kw_grpc_is_between(const kw_grpc_splitter *splitter) {
  return splitter->n_prefix == 0;
}

void kw_grpc_drop(kw_grpc_splitter *splitter) {
  kw_free(splitter->bytes);
  splitter->bytes = NULL;
  splitter->n = 0;
  splitter->cap = 0;
}

/* }====== */

/* {====== Headers ====== */

static const char hex[] = "0123456789ABCDEF";

size_t kw_grpc_escape(kw_slice text, uint8_t *to) {
  uint8_t *at = to;
  for (size_t i = 0; i < text.len; i++) {
    uint8_t byte = text.data[i];
    if (byte >= 0x20 && byte <= 0x7e && byte != '%') {
      *at++ = byte;
      continue;
    }
    *at++ = '%';
    *at++ = (uint8_t)hex[byte >> 4];
    *at++ = (uint8_t)hex[byte & 15];
  }
  return (size_t)(at - to);
}

/* The value of a hexadecimal digit, or -1. */
static int digit_of(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

static bool is_escape(const uint8_t *text, size_t len) {
  return len >= 3 && text[0] == '%' && digit_of(text[1]) >= 0 && digit_of(text[2]) >= 0;
}

size_t kw_grpc_unescape(uint8_t *text, size_t len) {
  size_t n = 0;
  for (size_t i = 0; i < len;) {
    if (is_escape(text + i, len - i)) {
      text[n++] = (uint8_t)(digit_of(text[i + 1]) << 4 | digit_of(text[i + 2]));
      i += 3;
    } else {
      text[n++] = text[i++]; /* this includes a percent sign without two digits */
    }
  }
  return n;
}

int64_t kw_grpc_timeout(kw_slice text) {
  int64_t v = 0;
  if (text.len < 2 || text.len > MAX_DIGITS + 1) return -1;
  for (size_t i = 0; i < text.len - 1; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return -1;
    v = v * 10 + (text.data[i] - '0');
  }
  switch (text.data[text.len - 1]) {
    case 'H': return v * 3600 * 1000;
    case 'M': return v * 60 * 1000;
    case 'S': return v * 1000;
    case 'm': return v;
    case 'u': return (v + 999) / 1000;
    case 'n': return (v + 999999) / 1000000;
  }
  return -1;
}

/* }====== */
