/* SPDX-License-Identifier: MIT
 *
 * status: gRPC's meaning in header lines, both ways: what a request says about itself, and how a call has ended.
 */
#ifndef KW_H2_FIELDS_H
#define KW_H2_FIELDS_H

#include <nghttp2/nghttp2.h>

#include "h2/session.h"

#define KW_STATUS_TEXT 1024 /* bytes of a status text that are passed on */
#define KW_STATUS_ROOM (3 * KW_STATUS_TEXT)
#define KW_REQUEST_FIELDS 7

/* The lines that the session itself looks at; empty where they are not there. */
typedef struct kw_known_fields {
  kw_slice method;
  kw_slice path;
  kw_slice content_type;
  kw_slice timeout;
  kw_slice encoding;
  kw_slice text;   /* grpc-message, escaped */
  int http_status; /* of an answer; or 0 */
  int status;      /* grpc-status */
  bool has_status;
  bool has_regular;  /* a line that is none of HTTP/2's own has come */
  bool is_malformed; /* against HTTP/2's rules for lines */
} kw_known_fields;

/* nghttp2 would check lines, too, and refuse what gRPC's clients put into :authority: a path, or a whole URL. */
void kw_known_note(kw_known_fields *known, const kw_header_field *field);
bool kw_known_is_grpc(const kw_known_fields *known);
bool kw_known_is_plus_proto(const kw_known_fields *known);

/* The status that came becomes the stream's. */
void kw_known_take_status(const kw_known_fields *known, kw_stream *stream);

/* The lines of a request; returns how many. */
size_t kw_request_fields(nghttp2_nv *to, kw_slice authority, kw_slice path,
                         const kw_header_field *fields, size_t n);

/* The lines that begin an answer, at most two, and those that end it, at most two, with the escaped text in `text`. */
size_t kw_answer_fields(const kw_stream *stream, nghttp2_nv *to);
size_t kw_trailer_fields(const kw_stream *stream, uint8_t *text, nghttp2_nv *to);

/* gRPC's status for the HTTP status of an answer that is none of gRPC's, and for the code of a reset. */
int kw_status_of_http(int http_status);
int kw_status_of_reset(uint32_t code);

#endif
