/* SPDX-License-Identifier: MIT
 *
 * buffer: a FIFO of bytes in one block. An empty buffer has no block: idle channels take no memory for theirs.
 */
#ifndef KW_TLS_BUFFER_H
#define KW_TLS_BUFFER_H

#include "base/common.h"

/* An all-zero buffer is empty and ready for use. */
typedef struct kw_tls_buffer {
  uint8_t *bytes;
  size_t from; /* index of the first byte */
  size_t len;
  size_t cap;
} kw_tls_buffer;

/* Adds bytes to the end. Returns false, with nothing added, if memory is short. */
bool kw_tls_buffer_add(kw_tls_buffer *buffer, const void *bytes, size_t len);

/* Removes the first `n` bytes, at most buffer->len. The last one frees the block. */
void kw_tls_buffer_skip(kw_tls_buffer *buffer, size_t n);

/* Frees the block. The buffer is then empty, and ready for use. */
void kw_tls_buffer_drop(kw_tls_buffer *buffer);

static inline const uint8_t *kw_tls_buffer_bytes(const kw_tls_buffer *buffer) {
  return buffer->bytes + buffer->from;
}

#endif
