/* SPDX-License-Identifier: MIT
 *
 * target: the target of a request: its path and its query (RFC 9112 §3.2, RFC 3986).
 *
 *   origin-form     /path?query
 *   absolute-form   http://authority/path?query
 *   asterisk-form   *               only of OPTIONS
 *
 * A path stays encoded until it was split at its slashes, so that an encoded slash is not a separator.
 */
#ifndef KW_HTTP_TARGET_H
#define KW_HTTP_TARGET_H

#include "http/text.h"

typedef struct kw_target {
  kw_slice scheme;    /* of the absolute-form; else empty */
  kw_slice authority; /* the same */
  kw_slice path;      /* with the query; or * */
} kw_target;

/* Parses a target. Returns NULL; or the reason why the target is refused: it has none of these forms, an invalid
 * character or host, or a path that kw_path_fault refuses. The slices are parts of `text`, or constants. */
const char *kw_target_parse(kw_slice method, kw_slice text, kw_target *target);

/* Returns NULL if a path, given without its query, is valid; else the reason why not: it does not begin with a slash,
 * an escape is not valid, it has an encoded byte 0, or a decoded segment is . or .. */
const char *kw_path_fault(kw_slice path);

/* Splits a path from its query. The query has no question mark; it is empty if there is none. */
void kw_path_split(kw_slice whole, kw_slice *path, kw_slice *query);

/* Takes the next segment of a path, which begins with a slash: /a/b has the segments a and b; /a/ has a and an empty
 * one. Returns false at the end. */
bool kw_path_next(kw_slice *path, kw_slice *segment);

/* Takes the next parameter of a query; both slices are still encoded. A parameter without = has an empty value. Returns
 * false at the end. */
bool kw_query_next(kw_slice *query, kw_slice *name, kw_slice *value);

/* Decodes escapes of % into `to`, which has room for text.len bytes; with `has_plus`, as in a query, a plus is a space.
 * Returns the length; or -1: an escape is not valid. */
ptrdiff_t kw_percent_decode(kw_slice text, bool has_plus, uint8_t *to);

#endif
