/* SPDX-License-Identifier: MIT
 *
 * slice: a pointer to borrowed bytes, and their number. The owner of the bytes outlives the slice. The pointer of an
 * empty slice may be anything, NULL included.
 */
#ifndef KW_BASE_SLICE_H
#define KW_BASE_SLICE_H

#include "base/order.h"

typedef struct kw_slice {
  const uint8_t *data;
  size_t len;
} kw_slice;

/* Returns a slice of `len` bytes. */
static inline kw_slice kw_slice_of(const void *data, size_t len) {
  return (kw_slice){.data = data, .len = len};
}

/* Returns the bytes of a C string, without the 0 at its end. */
static inline kw_slice kw_slice_text(const char *text) {
  return kw_slice_of(text, strlen(text));
}

/* Compares bytewise; a prefix comes first. Returns a negative number, 0 or a positive number. */
static inline int kw_slice_compare(kw_slice a, kw_slice b) {
  size_t n = kw_min_size(a.len, b.len);
  int c = n == 0 ? 0 : memcmp(a.data, b.data, n);
  return c != 0 ? c : kw_order_unsigned(a.len, b.len);
}

/* True if both have the same bytes. */
static inline bool kw_slice_equal(kw_slice a, kw_slice b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* True if the slice begins with the bytes of `prefix`. */
static inline bool kw_slice_begins(kw_slice slice, kw_slice prefix) {
  return slice.len >= prefix.len && kw_slice_equal(kw_slice_of(slice.data, prefix.len), prefix);
}

/* True if the slice has the bytes of a C string. */
static inline bool kw_slice_is(kw_slice slice, const char *text) {
  return kw_slice_equal(slice, kw_slice_text(text));
}

#endif
