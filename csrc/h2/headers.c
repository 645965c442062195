/* SPDX-License-Identifier: MIT
 *
 * headers: received header blocks: requests at a server, answers and trailers at a client.
 *
 * HTTP/2 sends one header block at a time on a connection, so the session has space for one. Names and values stay in
 * nghttp2's reference-counted buffers and are not copied. The fields are dropped after the block was used, or when the
 * next block begins.
 */
#include <stdio.h>

#include "h2/carrier.h"
#include "h2/input.h"

#include "base/mem.h"

#define SPARE_FIELDS 64   /* fields whose memory is kept for the next header block */
#define FIELD_OVERHEAD 32 /* bytes that HTTP/2 counts for each field besides its name and value */

/* {====== Fields ====== */

static bool reserve_fields(kw_session *session, size_t n) {
  size_t before = kw_session_fields_room(session);
  bool ok = kw_reserve(&session->fields, &session->cap_fields, n, sizeof *session->fields) &&
            kw_reserve(&session->field_buffers, &session->cap_field_buffers, 2 * n,
                       sizeof *session->field_buffers);
  kw_account_resize(&session->account, before, kw_session_fields_room(session));
  return ok;
}

static void free_fields(kw_session *session) {
  kw_account_credit(&session->account, kw_session_fields_room(session));
  kw_free(session->fields);
  kw_free(session->field_buffers);
  session->fields = NULL;
  session->field_buffers = NULL;
  session->cap_fields = session->cap_field_buffers = 0;
}

static void drop_fields(kw_session *session) {
  for (size_t i = 0; i < 2 * session->n_fields; i++)
    nghttp2_rcbuf_decref(session->field_buffers[i]);
  session->n_fields = session->header_bytes = 0;
  session->known = (kw_known_fields){0};
  if (session->cap_fields > SPARE_FIELDS) free_fields(session);
}

void kw_headers_drop(kw_session *session) {
  drop_fields(session);
  free_fields(session);
}

int kw_headers_on_begin(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx) {
  kw_session *session = ctx;
  drop_fields(session);
  if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  kw_stream *stream = kw_stream_new(session, frame->hd.stream_id);
  if (stream == NULL) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  nghttp2_session_set_stream_user_data(h2, stream->id, stream);
  return kw_flood_note_stream(session, stream->id);
}

static kw_slice slice_of(nghttp2_rcbuf *buf) {
  nghttp2_vec v = nghttp2_rcbuf_get_buf(buf);
  return kw_slice_of(v.base, v.len);
}

/* Fields beyond max_header_bytes are counted, but not stored. */
int kw_headers_on_field(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                        nghttp2_rcbuf *value, uint8_t flags, void *ctx) {
  kw_session *session = ctx;
  size_t n = session->n_fields;
  kw_http_field field = {slice_of(name), slice_of(value)};
  (void)h2, (void)frame, (void)flags;
  session->header_bytes += field.name.len + field.value.len + FIELD_OVERHEAD;
  if (session->header_bytes > session->options.max_header_bytes) return 0;
  if (!reserve_fields(session, n + 1)) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  nghttp2_rcbuf_incref(name);
  nghttp2_rcbuf_incref(value);
  session->field_buffers[2 * n] = name;
  session->field_buffers[2 * n + 1] = value;
  session->fields[n] = field;
  session->n_fields = n + 1;
  kw_known_note(&session->known, &field);
  return 0;
}

const kw_http_field *kw_session_fields(const kw_session *session, size_t *n) {
  *n = session->n_fields;
  return session->fields;
}

/* }====== */

/* {====== Requests ====== */

/* Refuses a request. The text ends with the wrong value, truncated after 128 bytes. */
static void refuse_value(kw_stream *stream, int http_status, int status, const char *words,
                         kw_slice value) {
  char text[256];
  int n = snprintf(text, sizeof text, "%s \"%.*s\"", words, (int)kw_min_size(value.len, 128),
                   value.len > 0 ? (const char *)value.data : "");
  kw_stream_refuse(stream, http_status, status, kw_slice_of(text, (size_t)n));
}

/* Checks the rules of gRPC for requests. If one is broken, refuses the request and returns false. */
static bool check_request(kw_session *session, kw_stream *stream) {
  const kw_known_fields *known = &session->known;
  kw_slice none = {0};
  if (session->header_bytes > session->options.max_header_bytes) {
    kw_stream_refuse(stream, 431, KW_GRPC_RESOURCE_EXHAUSTED, none);
  } else if (known->timeout.len > 0 && kw_grpc_timeout(known->timeout) < 0) {
    refuse_value(stream, 400, KW_GRPC_INTERNAL, "malformed grpc-timeout:", known->timeout);
  } else if (known->encoding.len > 0 && !kw_slice_is(known->encoding, "identity")) {
    refuse_value(stream, 200, KW_GRPC_UNIMPLEMENTED,
                 "grpc: Decompressor is not installed for grpc-encoding", known->encoding);
  } else {
    return true;
  }
  return false;
}

/* True if the header block is that of a call, or too large to be known. */
static bool is_call(const kw_session *session) {
  const kw_known_fields *known = &session->known;
  return (kw_known_is_grpc(known) && kw_slice_is(known->method, "POST")) ||
         session->header_bytes > session->options.max_header_bytes;
}

static void take_call(kw_session *session, kw_stream *stream) {
  stream->is_plus_proto = kw_known_is_plus_proto(&session->known);
  const kw_session_hooks *hooks = &session->hooks;
  if (!check_request(session, stream)) {
    if (hooks->on_refused != NULL) hooks->on_refused(stream, session->known.path, hooks->ctx);
    return;
  }
  kw_slice timeout = session->known.timeout;
  if (timeout.len > 0) kw_stream_set_deadline(stream, session->now + kw_grpc_timeout(timeout));
  hooks->on_open(stream, session->known.path, hooks->ctx);
}

static void take_request(kw_session *session, kw_stream *stream, const nghttp2_frame *frame) {
  bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
  if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
    if (stream->exchange != NULL) kw_carrier_take_trailers(stream, ends);
  } else if (is_call(session)) {
    take_call(session, stream);
  } else {
    kw_carrier_take_request(stream, ends);
  }
  if (ends) kw_input_end(stream);
}

/* }====== */

/* {====== Answers ====== */

/* Ends a call of a client with a status that the client itself sets. */
static void give_up(kw_stream *stream, int status, const char *text, uint32_t code) {
  kw_stream_set_status(stream, status, kw_slice_of(text, strlen(text)));
  kw_stream_reset(stream, code);
}

/* Ends a call whose answer is not from a gRPC server, but for example from a proxy. */
static void give_up_page(kw_stream *stream, const kw_known_fields *known) {
  char text[256];
  kw_slice type = known->content_type;
  snprintf(text, sizeof text,
           "keywatch: the answer is not from a gRPC server: HTTP status %d, content-type \"%.*s\"",
           known->http_status, (int)kw_min_size(type.len, 128),
           type.len > 0 ? (const char *)type.data : "");
  give_up(stream, kw_status_of_http(known->http_status), text, KW_RESET_CANCEL);
}

/* Checks the rules of gRPC for answers. If one is broken, ends the call and returns false. */
static bool check_answer(kw_session *session, kw_stream *stream) {
  const kw_known_fields *known = &session->known;
  bool is_good = kw_known_is_grpc(known) && (known->has_status || known->http_status == 200);
  if (session->header_bytes > session->options.max_header_bytes) {
    give_up(stream, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: the headers of the answer are too large",
            KW_RESET_CANCEL);
  } else if (!stream->has_answer_headers && !is_good) {
    give_up_page(stream, known);
  } else {
    return true;
  }
  return false;
}

static void take_status(kw_stream *stream, const kw_known_fields *known) {
  kw_stream_set_status(stream, known->status, known->text);
  kw_blob *text = stream->text;
  if (text != NULL) text->len = (uint32_t)kw_grpc_unescape(text->bytes, text->len);
}

/* Takes the headers of an answer, or its trailers. Informational headers (1xx) may come before them and are
 * skipped. */
static void take_answer(kw_session *session, kw_stream *stream, bool ends) {
  const kw_known_fields *known = &session->known;
  bool is_informational = known->http_status / 100 == 1 && !ends;
  if (stream->is_reset || is_informational || !check_answer(session, stream)) return;
  stream->has_answer_headers = true;
  if (known->has_status) take_status(stream, known);
  if (ends) kw_input_end(stream);
}

/* }====== */

void kw_headers_take(kw_session *session, const nghttp2_frame *frame) {
  kw_stream *stream = kw_session_find(session, frame->hd.stream_id);
  bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
  if (stream == NULL) return;
  if (stream->exchange != NULL && session->options.is_client) {
    kw_carrier_take_answer(stream, ends);
    if (ends) kw_input_end(stream);
  } else if (session->known.is_malformed && session->options.is_client) {
    give_up(stream, KW_GRPC_INTERNAL, "keywatch: the headers of the answer are malformed",
            NGHTTP2_PROTOCOL_ERROR);
  } else if (session->known.is_malformed) {
    kw_stream_reset(stream, NGHTTP2_PROTOCOL_ERROR);
  } else if (session->options.is_client) {
    take_answer(session, stream, ends);
  } else {
    take_request(session, stream, frame);
  }
  drop_fields(session);
}
