/* SPDX-License-Identifier: MIT
 *
 * blob: immutable bytes with a count of references, shared from the put to the socket.
 *
 * The count belongs to the thread of the loop; other threads may only read the bytes.
 */
#ifndef KW_BASE_BLOB_H
#define KW_BASE_BLOB_H

#include "base/slice.h"

typedef struct kw_blob {
  uint32_t refs;
  uint32_t len;
  uint8_t bytes[];
} kw_blob;

/* A blob of `len` bytes with one reference, its bytes to be filled in by the caller; NULL if memory is
 * short or `len` does not fit. */
kw_blob *kw_blob_new(size_t len);

/* The same with a copy of some bytes. */
kw_blob *kw_blob_copy(kw_slice bytes);

void kw_blob_release(kw_blob *blob);

static inline kw_blob *kw_blob_retain(kw_blob *blob) {
  blob->refs++;
  return blob;
}

static inline kw_slice kw_blob_slice(const kw_blob *blob) {
  return kw_slice_of(blob->bytes, blob->len);
}

#endif
