/* SPDX-License-Identifier: MIT
 *
 * target: what a request asks for: its path and its query (RFC 9112 §3.2, RFC 3986).
 *
 *   origin-form     /path?query
 *   absolute-form   http://authority/path?query
 *   asterisk-form   *               of OPTIONS alone
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

/* Takes a target apart. Returns NULL; or why the target is refused, in words: it has none of these forms, or its path
 * is refused by kw_path_fault. The slices are parts of `text`, or constants. */
const char *kw_target_parse(kw_slice method, kw_slice text, kw_target *target);

/* Returns NULL if a path without a query may be used; else why not: it does not begin with a slash, an escape is not
 * valid, a byte 0 is encoded in it, or a segment is . or .. once it is decoded. */
const char *kw_path_fault(kw_slice path);

/* Splits a path at its query. The query is without the question mark; empty: there is none. */
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
