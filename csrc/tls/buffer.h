/* SPDX-License-Identifier: MIT
 *
 * buffer: a FIFO of bytes in one block. An empty buffer has no block: the buffers of an idle channel take no memory.
 */
#ifndef KW_TLS_BUFFER_H
#define KW_TLS_BUFFER_H

#include "base/common.h"
#include "face/tls.h"

/* An all-zero buffer is empty and ready for use. */
typedef struct kw_tls_buffer {
  uint8_t *bytes;
  size_t from; /* index of the first byte */
  size_t len;
  size_t cap;
} kw_tls_buffer;

/* Adds bytes to the end. Returns false, with nothing added, if memory is short. */
bool kw_tls_buffer_add(kw_tls_buffer *buffer, const void *bytes, size_t len);

/* Removes the first `n` bytes, at most buffer->len. Frees the block if no bytes are left. */
void kw_tls_buffer_skip(kw_tls_buffer *buffer, size_t n);

/* Frees the block. The buffer is then empty, and ready for use. */
void kw_tls_buffer_drop(kw_tls_buffer *buffer);

/* A large block that buffers use one after the other, so that a busy buffer need not grow again and again. All zero at
 * first. */
typedef struct kw_tls_spare {
  uint8_t *block; /* KW_TLS_SPARE bytes; or NULL */
} kw_tls_spare;

#define KW_TLS_SPARE                                                                               \
  (KW_TLS_OUTPUT + 20480) /* limit of pending bytes after a write: KW_TLS_OUTPUT and one record */

/* Gives the spare block to a buffer, unless the buffer has a block. If there is no spare block, makes a new block of
 * that size if `is_large`: much is about to be added. A buffer that gets no block here grows from a small one. */
void kw_tls_buffer_borrow(kw_tls_buffer *buffer, kw_tls_spare *spare, bool is_large);

/* Like kw_tls_buffer_skip, but if no bytes are left, a block of KW_TLS_SPARE bytes is not freed: it becomes the spare
 * block, unless there is one. */
void kw_tls_buffer_skip_or_return(kw_tls_buffer *buffer, size_t n, kw_tls_spare *spare);

static inline const uint8_t *kw_tls_buffer_bytes(const kw_tls_buffer *buffer) {
  return buffer->bytes + buffer->from;
}

#endif
