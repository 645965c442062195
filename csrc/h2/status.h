/* SPDX-License-Identifier: MIT
 *
 * status: gRPC's meaning in header lines, both ways: what a request says about itself, and how a call has ended.
 */
#ifndef KW_H2_STATUS_H
#define KW_H2_STATUS_H

#include <nghttp2/nghttp2.h>

#include "h2/session.h"

#define KW_STATUS_TEXT 1024 /* bytes of a status text that are passed on */
#define KW_STATUS_ROOM (3 * KW_STATUS_TEXT)
#define KW_REQUEST_LINES 7

/* The lines that the session itself looks at; empty where they are not there. */
typedef struct kw_request_lines {
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
} kw_request_lines;

/* nghttp2 would check lines, too, and refuse what gRPC's clients put into :authority: a path, or a whole URL. */
void kw_request_note(kw_request_lines *known, const kw_field_line *line);
bool kw_request_is_grpc(const kw_request_lines *known);
bool kw_request_is_plus_proto(const kw_request_lines *known);

/* The status that came becomes the stream's. */
void kw_request_take_status(const kw_request_lines *known, kw_stream *stream);

/* The lines of a request; returns how many. */
size_t kw_request_lines_put(nghttp2_nv *to, kw_slice authority, kw_slice path,
                            const kw_field_line *lines, size_t n);

/* The lines that begin an answer, at most two, and those that end it, at most two, with the escaped text in `text`. */
size_t kw_status_answer_lines(const kw_stream *stream, nghttp2_nv *to);
size_t kw_status_lines(const kw_stream *stream, uint8_t *text, nghttp2_nv *to);

/* gRPC's status for the HTTP status of an answer that is none of gRPC's, and for the code of a reset. */
int kw_status_of_http(int http_status);
int kw_status_of_reset(uint32_t code);

#endif
