/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "bytes.h"

#include "codec/wire.h"

void bytes_drop(bytes *b) {
  free(b->data);
  *b = (bytes){0};
}

uint8_t *bytes_grow(bytes *b, size_t n) {
  if (b->data == NULL || b->cap - b->len < n) {
    b->cap = 2 * b->cap + n + 64;
    b->data = realloc(b->data, b->cap);
    if (b->data == NULL) abort();
  }
  b->len += n;
  return b->data + b->len - n;
}

void bytes_add(bytes *b, kw_slice more) {
  uint8_t *to = bytes_grow(b, more.len);
  if (more.len > 0) memcpy(to, more.data, more.len);
}

void bytes_add_text(bytes *b, const char *text) {
  bytes_add(b, kw_slice_of(text, strlen(text)));
}

void bytes_add_byte(bytes *b, uint8_t byte) {
  *bytes_grow(b, 1) = byte;
}

void bytes_add_varint(bytes *b, uint64_t v) {
  kw_wire_put_varint(bytes_grow(b, kw_wire_varint_size(v)), v);
}

void bytes_add_number(bytes *b, uint64_t v, int width) {
  while (width-- > 0) bytes_add_byte(b, (uint8_t)(v >> 8 * width));
}

void bytes_skip(bytes *b, size_t n) {
  b->len -= n;
  if (b->len > 0) memmove(b->data, b->data + n, b->len);
}

uint8_t *bytes_exact(kw_slice from) {
  uint8_t *copy = malloc(from.len + (from.len == 0));
  if (copy == NULL) abort();
  if (from.len > 0) memcpy(copy, from.data, from.len);
  return copy;
}

void must(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "does not hold: %s\n", what);
  abort();
}

void must_be_sound(const char *fault) {
  must(fault == NULL, fault);
}
