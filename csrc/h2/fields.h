/* SPDX-License-Identifier: MIT
 *
 * fields: gRPC's HTTP/2 header fields, received and sent: those of requests, answers and trailers.
 */
#ifndef KW_H2_FIELDS_H
#define KW_H2_FIELDS_H

#include <nghttp2/nghttp2.h>

#include "h2/session.h"

#define KW_STATUS_TEXT 1024 /* limit of a status text that is sent, in bytes; the rest is cut */
#define KW_STATUS_ROOM (3 * KW_STATUS_TEXT) /* room for the same text, escaped */
#define KW_REQUEST_FIELDS 7                 /* fields that every request has, besides metadata */

/* The fields that the session itself reads. The slices of absent fields are empty; the others point into the header
 * block, and are valid until it is dropped. */
typedef struct kw_known_fields {
  kw_slice method;
  kw_slice path;
  kw_slice content_type;
  kw_slice timeout;  /* grpc-timeout */
  kw_slice encoding; /* grpc-encoding */
  kw_slice text;     /* grpc-message, escaped */
  int http_status;   /* of an answer; or 0 */
  int status;        /* grpc-status; UNKNOWN if its value is not one of gRPC's */
  bool has_status;
  bool has_regular;  /* a regular field has arrived: pseudo-header fields must not follow */
  bool is_malformed; /* a field breaks the rules of HTTP/2 */
} kw_known_fields;

/* Checks a received field, and stores its value in *known if the session reads it; or sets is_malformed. Our own check
 * replaces that of nghttp2, which would refuse the :authority of some gRPC clients: a path, or a whole URL. */
void kw_known_note(kw_known_fields *known, const kw_http_field *field);

/* True if the content-type is application/grpc, alone or with a suffix. */
bool kw_known_is_grpc(const kw_known_fields *known);

/* True if the content-type is application/grpc+proto. */
bool kw_known_is_plus_proto(const kw_known_fields *known);

/* Writes the fields of a request: KW_REQUEST_FIELDS and at most KW_MAX_METADATA of `fields`; more are left out. `to`
 * needs room for both. `scheme` is "http" or "https". Copies nothing: the slices must live until the request is
 * submitted. Returns how many. */
size_t kw_request_fields(nghttp2_nv *to, const char *scheme, kw_slice authority, kw_slice path,
                         const kw_http_field *fields, size_t n);

/* Writes the fields that begin an answer to `to`. Returns how many: two. */
size_t kw_answer_fields(const kw_stream *stream, nghttp2_nv *to);

/* Writes the trailers, which end an answer. Returns how many: at most two. `text` has KW_STATUS_ROOM bytes; the
 * escaped text of the status is written there and must live until the trailers are submitted. */
size_t kw_trailer_fields(const kw_stream *stream, uint8_t *text, nghttp2_nv *to);

/* Returns gRPC's status for the HTTP status of an answer that does not come from a gRPC server. */
int kw_status_of_http(int http_status);

/* Returns gRPC's status for the code of a RST_STREAM frame. */
int kw_status_of_reset(uint32_t code);

#endif
