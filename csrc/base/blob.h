/* SPDX-License-Identifier: MIT
 *
 * blob: immutable bytes with a reference count. A record is one blob, from the put to the socket.
 *
 * The count is not atomic: only the thread of the event loop retains and releases. Other threads may read the bytes
 * while that thread holds a reference for them.
 */
#ifndef KW_BASE_BLOB_H
#define KW_BASE_BLOB_H

#include "base/slice.h"

typedef struct kw_blob {
  uint32_t refs;
  uint32_t len;
  uint8_t bytes[];
} kw_blob;

/* Returns a blob of `len` bytes with one reference, which the caller owns; or NULL if memory is short or `len` is
 * above UINT32_MAX. The caller fills in the bytes before the blob is shared. */
kw_blob *kw_blob_new(size_t len);

/* Returns a blob with a copy of `bytes` and one reference, which the caller owns; or NULL, like kw_blob_new. */
kw_blob *kw_blob_copy(kw_slice bytes);

/* Gives up a reference. The last one frees the blob. */
void kw_blob_release(kw_blob *blob);

/* Adds a reference. Returns the blob. */
static inline kw_blob *kw_blob_retain(kw_blob *blob) {
  blob->refs++;
  return blob;
}

/* Returns all bytes of the blob. They are valid while a reference is held. */
static inline kw_slice kw_blob_slice(const kw_blob *blob) {
  return kw_slice_of(blob->bytes, blob->len);
}

#endif
