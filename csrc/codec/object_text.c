/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* memmem */
#include "codec/object_text.h"

#include "base/decimal.h"

#define VERSION "\"resourceVersion\""
#define MEMBER VERSION ":\""

/* Returns the place after `what`, if it is at `at`; else 0. */
static size_t after(kw_slice text, size_t at, const char *what) {
  kw_slice rest = kw_slice_of(text.data + at, text.len - at), wanted = kw_slice_text(what);
  return kw_slice_begins(rest, wanted) ? at + wanted.len : 0;
}

/* Returns the place after a string without escapes, whose first byte is at `at`; 0 if there is none. */
static size_t after_string(kw_slice text, size_t at) {
  while (at < text.len && text.data[at] != '"' && text.data[at] != '\\') at++;
  return at < text.len && text.data[at] == '"' ? at + 1 : 0;
}

size_t kw_object_text_head(kw_slice text) {
  size_t at = after(text, 0, "{\"apiVersion\":\"");
  if (at > 0) at = after_string(text, at);
  if (at > 0) at = after(text, at, ",\"kind\":\"");
  if (at > 0) at = after_string(text, at);
  if (at > 0) at = after(text, at, ",\"metadata\":{");
  if (at == 0 || at == text.len) return 0;
  bool has_version = memmem(text.data + at, text.len - at, VERSION, sizeof VERSION - 1) != NULL;
  return has_version ? 0 : at;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t n) {
  memcpy(to, bytes, n);
  return to + n;
}

uint8_t *kw_object_text_write(kw_slice text, size_t head, int64_t revision, uint8_t *to) {
  char digits[20], *end = digits + sizeof digits;
  char *first = kw_decimal_write_digits(end, (uint64_t)revision);
  bool is_empty = text.data[head] == '}';
  to = put(to, text.data, head);
  to = put(to, MEMBER, sizeof MEMBER - 1);
  to = put(to, first, (size_t)(end - first));
  to = put(to, "\",", is_empty ? 1 : 2);
  return put(to, text.data + head, text.len - head);
}
