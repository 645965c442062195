/* SPDX-License-Identifier: MIT */
#include "base/blob.h"

#include "base/mem.h"

kw_blob *kw_blob_new(size_t len) {
  if (len > UINT32_MAX) return NULL;
  kw_blob *blob = kw_alloc(sizeof *blob + len);
  if (blob == NULL) return NULL;
  blob->refs = 1;
  blob->len = (uint32_t)len;
  return blob;
}

kw_blob *kw_blob_copy(kw_slice bytes) {
  kw_blob *blob = kw_blob_new(bytes.len);
  if (blob != NULL && bytes.len > 0) memcpy(blob->bytes, bytes.data, bytes.len);
  return blob;
}

void kw_blob_release(kw_blob *blob) {
  if (--blob->refs == 0) kw_free(blob);
}
