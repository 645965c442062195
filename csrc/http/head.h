/* SPDX-License-Identifier: MIT
 *
 * head: the head of an HTTP/1.1 message: its first line and its fields (RFC 9112 §2 to §6).
 *
 *   GET /path HTTP/1.1 CR LF      kw_head_find finds the end of a head, in bytes that may arrive in any pieces
 *   Host: localhost CR LF         kw_head_parse_request and kw_head_parse_answer take the whole head apart
 *   CR LF
 *
 * A head is refused if two readers could understand it in different ways, since that allows request smuggling: lines
 * that end without CR, folded lines, space before a colon, control bytes, several lengths, both a length and a
 * transfer-encoding, any transfer-encoding except chunked, a length with a sign or leading zeros.
 */
#ifndef KW_HTTP_HEAD_H
#define KW_HTTP_HEAD_H

#include "http/exchange.h"

#define KW_HEAD_FIELDS 100 /* maximum number of fields of a head; more are refused with 431 */
#define KW_HEAD_HTTP2 2    /* as the minor version: HTTP/2, whose fields arrive already split */

/* Why a message is refused: the status of the answer, and a text. Status 0: it is not refused. */
typedef struct kw_refusal {
  int status;
  const char *text;
} kw_refusal;

/* A search for the end of a head. It begins as all 0, or, for the end of trailers, with line_number 1. */
typedef struct kw_head_search {
  size_t at;            /* all bytes before were searched */
  size_t line;          /* start of the line at `at` */
  unsigned line_number; /* 0: the first line, then one for each field */
} kw_head_search;

/* Continues a search in `bytes`, all that were received since the head began. Sets *len to the length of the head, or
 * to 0: it is not complete. The first line may have max_line bytes, and the head max_head. */
kw_refusal kw_head_find(kw_head_search *search, kw_slice bytes, size_t max_line, size_t max_head,
                        size_t *len);

/* A parsed head. The slices are parts of the parsed bytes. */
typedef struct kw_head {
  kw_http_request request; /* of a request */
  kw_http_answer answer;   /* of an answer */
  kw_http_field fields[KW_HEAD_FIELDS];
  size_t n_fields;

  uint8_t minor;    /* HTTP/1.0 or HTTP/1.1; or KW_HEAD_HTTP2 */
  bool is_chunked;  /* the length is -1 */
  bool closes;      /* the field connection says close, or HTTP/1.0 does not say keep-alive */
  bool expects;     /* the client waits for status 100 before it sends the body */
  kw_slice upgrade; /* if the field connection says upgrade */
} kw_head;

/* Parse a whole head. `head` may be uninitialized. */
kw_refusal kw_head_parse_request(kw_slice bytes, kw_head *head);
kw_refusal kw_head_parse_answer(kw_slice bytes, kw_head *head);

/* True if the owner of an exchange must not send a field of this name, because the connection sets or interprets it. */
bool kw_head_is_reserved(kw_slice name);

/* Parses the fields after a chunked body, up to the empty line. */
kw_refusal kw_head_parse_trailers(kw_slice bytes, kw_head *head);

/* Do the same for HTTP/2. `fields` are those of the message without the pseudo-header fields. Before the call the
 * caller puts the values of the pseudo-header fields into `head`: head->request has the method, scheme, authority and
 * path; or head->answer has the status. */
kw_refusal kw_head_take_request(const kw_http_field *fields, size_t n, kw_head *head);
kw_refusal kw_head_take_answer(const kw_http_field *fields, size_t n, kw_head *head);
kw_refusal kw_head_take_trailers(const kw_http_field *fields, size_t n, kw_head *head);

#endif
