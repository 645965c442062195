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

void kw_tls_buffer_borrow(kw_tls_buffer *buffer, kw_tls_spare *spare, bool is_large) {
  if (buffer->bytes != NULL) return;
  buffer->bytes = spare->block != NULL || !is_large ? spare->block : kw_alloc(KW_TLS_SPARE);
  buffer->cap = buffer->bytes == NULL ? 0 : KW_TLS_SPARE;
  spare->block = NULL;
}

void kw_tls_buffer_skip_or_return(kw_tls_buffer *buffer, size_t n, kw_tls_spare *spare) {
  if (n == buffer->len && buffer->cap == KW_TLS_SPARE && spare->block == NULL) {
    spare->block = buffer->bytes;
    *buffer = (kw_tls_buffer){NULL, 0, 0, 0};
  } else {
    kw_tls_buffer_skip(buffer, n);
  }
}

void kw_tls_buffer_drop(kw_tls_buffer *buffer) {
  kw_free(buffer->bytes);
  *buffer = (kw_tls_buffer){NULL, 0, 0, 0};
}
