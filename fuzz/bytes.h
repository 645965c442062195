/* SPDX-License-Identifier: MIT
 *
 * bytes: a string of bytes that grows. Its memory is none of the core's: it is not counted, and never fails.
 */
#ifndef KW_FUZZ_BYTES_H
#define KW_FUZZ_BYTES_H

#include "base/slice.h"

/* All zero, it is empty and ready for use. */
typedef struct bytes {
  uint8_t *data;
  size_t len;
  size_t cap;
} bytes;

void bytes_drop(bytes *b);

/* Room for `n` more at the end, which are there already. */
uint8_t *bytes_grow(bytes *b, size_t n);
void bytes_add(bytes *b, kw_slice more);
void bytes_add_text(bytes *b, const char *text);
void bytes_add_byte(bytes *b, uint8_t byte);
void bytes_add_varint(bytes *b, uint64_t v);

/* `width` bytes, the highest first. */
void bytes_add_number(bytes *b, uint64_t v, int width);

/* Forgets the first `n`. */
void bytes_skip(bytes *b, size_t n);

static inline kw_slice bytes_slice(const bytes *b) {
  return kw_slice_of(b->data, b->len);
}

/* A block of exactly as many bytes, so that sanitizers see every step beyond it; freed by the caller. */
uint8_t *bytes_exact(kw_slice from);

/* What has to hold: if not, the input has found a bug. */
void must(bool ok, const char *what);

/* The same for a check that returns the text of what is wrong, or NULL. */
void must_be_sound(const char *fault);

#endif
