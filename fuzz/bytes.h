/* SPDX-License-Identifier: MIT
 *
 * bytes: a growing string of bytes. Its memory is not allocated by base/mem: it is not counted, and never made to
 * fail.
 */
#ifndef KW_FUZZ_BYTES_H
#define KW_FUZZ_BYTES_H

#include "base/slice.h"

/* An all-zero struct is empty and ready for use. */
typedef struct bytes {
  uint8_t *data;
  size_t len;
  size_t cap;
} bytes;

void bytes_drop(bytes *b);

/* Adds `n` bytes at the end, and returns them to be filled in. */
uint8_t *bytes_grow(bytes *b, size_t n);
void bytes_add(bytes *b, kw_slice more);
void bytes_add_text(bytes *b, const char *text);
void bytes_add_byte(bytes *b, uint8_t byte);
void bytes_add_varint(bytes *b, uint64_t v);

/* Adds a number in `width` bytes, the highest first. */
void bytes_add_number(bytes *b, uint64_t v, int width);

/* Removes the first `n` bytes. */
void bytes_skip(bytes *b, size_t n);

static inline kw_slice bytes_slice(const bytes *b) {
  return kw_slice_of(b->data, b->len);
}

/* Returns a copy in a block of exactly that size, so that sanitizers see every access beyond its end. The caller
 * frees it. */
uint8_t *bytes_exact(kw_slice from);

/* Aborts if a condition does not hold: the input has found a bug. */
void must(bool ok, const char *what);

/* Aborts if an invariant check has returned a text, which says what is wrong, and not NULL. */
void must_be_sound(const char *fault);

#endif
