/* SPDX-License-Identifier: MIT */
#include "tls/buffer.h"

#include "base/mem.h"

#define FIRST 512 /* bytes of the first block: an alert, a ping, a small request */

static bool make_room(kw_tls_buffer *buffer, size_t len) {
  if (buffer->from > 0 && buffer->from + buffer->len + len > buffer->cap) {
    memmove(buffer->bytes, buffer->bytes + buffer->from, buffer->len);
    buffer->from = 0;
  }
  size_t need = buffer->from + buffer->len + len;
  if (need <= buffer->cap) return true;
  size_t cap = buffer->cap == 0 ? FIRST : buffer->cap;
  while (cap < need) cap *= 2;
  uint8_t *bytes = kw_realloc(buffer->bytes, cap);
  if (bytes == NULL) return false;
  buffer->bytes = bytes;
  buffer->cap = cap;
  return true;
}

bool kw_tls_buffer_add(kw_tls_buffer *buffer, const void *bytes, size_t len) {
  if (len == 0) return true;
  if (!make_room(buffer, len)) return false;
  memcpy(buffer->bytes + buffer->from + buffer->len, bytes, len);
  buffer->len += len;
  return true;
}

void kw_tls_buffer_skip(kw_tls_buffer *buffer, size_t n) {
  buffer->from += n;
  buffer->len -= n;
  if (buffer->len == 0) kw_tls_buffer_drop(buffer);
}

void kw_tls_buffer_drop(kw_tls_buffer *buffer) {
  kw_free(buffer->bytes);
  *buffer = (kw_tls_buffer){NULL, 0, 0, 0};
}
