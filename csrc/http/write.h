/* SPDX-License-Identifier: MIT
 *
 * write: writes heads, with the fields that the connection adds: the length of the body, date, connection and upgrade.
 */
#ifndef KW_HTTP_WRITE_H
#define KW_HTTP_WRITE_H

#include "base/chain.h"
#include "http/exchange.h"

/* How the fields of a head define the end of the body. */
typedef enum kw_write_framing {
  KW_WRITE_NOTHING,
  KW_WRITE_LENGTH,
  KW_WRITE_CHUNKED
} kw_write_framing;

typedef struct kw_write_extra {
  kw_write_framing framing;
  int64_t length;         /* with KW_WRITE_LENGTH */
  const char *connection; /* value of the field connection; NULL: none */
  kw_slice date;          /* empty: none */
} kw_write_extra;

#define KW_WRITE_FIELDS (60 << 10) /* bytes of the fields of a head; nghttp2 sends no longer ones */

/* True if each name is a token that the connection does not set itself, no value has control bytes, which could inject
 * a line into the head, and the fields are not longer than KW_WRITE_FIELDS. */
bool kw_write_allows(const kw_http_field *fields, size_t n);

/* True if each part of a request may be sent, and its head is not longer than KW_WRITE_FIELDS. */
bool kw_write_allows_request(const kw_http_request *request);

/* True if the request gets the field content-length: it has a body of known length, or none, and a method (POST, PUT,
 * PATCH) that usually has one. */
bool kw_write_has_length(const kw_http_request *request);

/* Returns the value of the field `date` that is added to an answer. Empty: none, or the answer has one. */
kw_slice kw_write_date(const kw_http_answer *answer, const kw_exchange_hooks *hooks, void *ctx);

/* Add a head to the chain. The caller has validated all parts. Return false, with nothing added, if memory is short. */
bool kw_write_answer(kw_chain *chain, const kw_http_answer *answer, const kw_write_extra *extra);
bool kw_write_request(kw_chain *chain, const kw_http_request *request, const kw_write_extra *extra);

/* Adds the last chunk and trailers. Returns false, with nothing added, if memory is short. */
bool kw_write_trailers(kw_chain *chain, const kw_http_field *trailers, size_t n);

/* Returns the usual text of a status, or "". */
const char *kw_write_reason(int status);

#endif
