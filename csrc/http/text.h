/* SPDX-License-Identifier: MIT
 *
 * text: the character sets of HTTP/1.1, and case-insensitive comparisons (RFC 9110 §5.6).
 */
#ifndef KW_HTTP_TEXT_H
#define KW_HTTP_TEXT_H

#include "base/slice.h"

/* True if the slice is a token: the name of a method or of a field. Not empty. */
bool kw_text_is_token(kw_slice text);

/* Returns the length of the token at the start of the slice; 0: there is none. */
size_t kw_text_token(kw_slice text);

/* True if the slice may be the value of a field: no control bytes except tabs. May be empty. */
bool kw_text_is_value(kw_slice text);

/* True if the slice may be a request target: visible ASCII, except the four characters " # < >. Not empty. Browsers
 * send the other characters that RFC 3986 does not allow, such as | in a query, without encoding them. */
bool kw_text_is_target(kw_slice text);

/* True if the slice is a host with an optional port: a name, an IPv4 address, or an IPv6 address in brackets. */
bool kw_text_is_authority(kw_slice text);

/* True if the slice equals `lower`, which has no capital letters. Ignores the case of the slice. */
bool kw_text_equal(kw_slice text, const char *lower);

/* Takes the next element of a list that is separated by commas, without the white space around it. Elements may be
 * empty. Returns false at the end of the list. */
bool kw_text_next(kw_slice *list, kw_slice *element);

/* Returns the slice without spaces and tabs at both ends. */
kw_slice kw_text_trim(kw_slice text);

/* Returns the value of a hexadecimal digit, or -1. */
static inline int kw_text_hex(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
