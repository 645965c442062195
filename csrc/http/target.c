/* SPDX-License-Identifier: MIT */
#include "http/target.h"

static kw_slice skip(kw_slice text, size_t n) {
  return kw_slice_of(text.data + n, text.len - n);
}

/* Returns the place of a character, or the length of the text. */
static size_t find(kw_slice text, char c) {
  const uint8_t *at = text.len > 0 ? memchr(text.data, c, text.len) : NULL;
  return at == NULL ? text.len : (size_t)(at - text.data);
}

/* Takes a character, decoded. Returns -1 if an escape is not valid. */
static int take_byte(kw_slice *text) {
  int c = text->data[0], n = 1;
  if (c == '%') {
    int high = text->len < 3 ? -1 : kw_text_hex(text->data[1]);
    int low = text->len < 3 ? -1 : kw_text_hex(text->data[2]);
    c = high < 0 || low < 0 ? -1 : high * 16 + low;
    n = 3;
  }
  if (c >= 0) *text = skip(*text, (size_t)n);
  return c;
}

ptrdiff_t kw_percent_decode(kw_slice text, bool has_plus, uint8_t *to) {
  uint8_t *at = to;
  while (text.len > 0) {
    bool is_plus = has_plus && text.data[0] == '+';
    int c = take_byte(&text);
    if (c < 0) return -1;
    *at++ = is_plus ? ' ' : (uint8_t)c;
  }
  return at - to;
}

static const char *segment_fault(kw_slice segment) {
  size_t dots = 0, others = 0;
  while (segment.len > 0) {
    int c = take_byte(&segment);
    if (c < 0) return "an escape in the path is not valid";
    if (c == 0) return "the path has a byte 0";
    dots += c == '.';
    others += c != '.';
  }
  return others == 0 && (dots == 1 || dots == 2) ? "the path has a segment . or .." : NULL;
}

const char *kw_path_fault(kw_slice path) {
  kw_slice segment;
  if (path.len == 0 || path.data[0] != '/') return "the path does not begin with a slash";
  if (find(path, '%') == path.len && find(path, '.') == path.len) return NULL;
  while (kw_path_next(&path, &segment)) {
    const char *fault = segment_fault(segment);
    if (fault != NULL) return fault;
  }
  return NULL;
}

void kw_path_split(kw_slice whole, kw_slice *path, kw_slice *query) {
  size_t len = find(whole, '?');
  *path = kw_slice_of(whole.data, len);
  *query = len == whole.len ? (kw_slice){0} : skip(whole, len + 1);
}

bool kw_path_next(kw_slice *path, kw_slice *segment) {
  if (path->len == 0) return false;
  kw_slice rest = skip(*path, 1);
  size_t len = find(rest, '/');
  *segment = kw_slice_of(rest.data, len);
  *path = skip(rest, len);
  return true;
}

bool kw_query_next(kw_slice *query, kw_slice *name, kw_slice *value) {
  if (query->len == 0) return false;
  size_t len = find(*query, '&');
  kw_slice one = kw_slice_of(query->data, len);
  size_t equals = find(one, '=');
  *query = skip(*query, len == query->len ? len : len + 1);
  *name = kw_slice_of(one.data, equals);
  *value = equals == len ? (kw_slice){0} : skip(one, equals + 1);
  return true;
}

/* Takes "http://" or "https://", and what follows up to the path or the query. */
static const char *parse_absolute(kw_slice text, kw_target *target) {
  size_t len = find(text, ':');
  target->scheme = kw_slice_of(text.data, len);
  if (!kw_text_equal(target->scheme, "http") && !kw_text_equal(target->scheme, "https"))
    return "the request target is neither a path nor a URL of http";
  text = skip(text, len);
  if (!kw_slice_begins(text, kw_slice_text("://")))
    return "the request target is neither a path nor a URL of http";
  text = skip(text, 3);
  len = kw_min_size(find(text, '/'), find(text, '?'));
  target->authority = kw_slice_of(text.data, len);
  target->path = skip(text, len);
  return kw_text_is_authority(target->authority) ? NULL : "the host of the URL is not valid";
}

const char *kw_target_parse(kw_slice method, kw_slice text, kw_target *target) {
  bool is_options = kw_slice_is(method, "OPTIONS");
  const char *fault = NULL;
  kw_slice path, query;
  *target = (kw_target){.path = text};
  if (!kw_text_is_target(text)) return "the request target has characters that are not allowed";
  if (is_options && kw_slice_is(text, "*")) return NULL;
  if (text.data[0] != '/') fault = parse_absolute(text, target);
  if (fault != NULL) return fault;
  if (target->path.len == 0) target->path = kw_slice_text(is_options ? "*" : "/");
  if (kw_slice_is(target->path, "*")) return NULL;
  kw_path_split(target->path, &path, &query);
  return path.len == 0 ? "the URL has a query, but no path" : kw_path_fault(path);
}
