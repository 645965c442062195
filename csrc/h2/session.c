/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "h2/input.h"

#include "base/mem.h"

#define RESET_BURST 10000 /* streams that may be reset at once, and then each second */
#define RESET_RATE 1000
#define PING_STRIKES 2
#define SETTINGS_BURST 2000000 /* streams that settings may touch at once, and then each ms */
#define SETTINGS_RATE 1000
#define SPARE_FIELDS 64 /* that there stays room for, from one header block to the next */
#define PREFACE 24      /* bytes that a client begins with: before them a server says nothing */
#define MAX_FRAMES 1000 /* of nghttp2's own that wait: more are not provoked */
#define NEVER INT64_MAX

kw_session_options kw_session_defaults(void) {
  kw_session_options options = {.max_streams = 65536,
                                .max_message = 2 << 20,
                                .max_header_bytes = 65536,
                                .max_partial = 64 << 20,
                                .max_framed = 256 << 10,
                                .handshake_ms = 120 * 1000,
                                .keepalive_ms = 2 * 60 * 60 * 1000,
                                .keepalive_wait_ms = 20 * 1000,
                                .ping_min_ms = 5 * 1000,
                                .ping_idle_min_ms = 2 * 60 * 60 * 1000};
  kw_session_set_queue(&options, 4 << 20);
  return options;
}

void kw_session_set_queue(kw_session_options *options, size_t max_queued) {
  options->max_queued = max_queued;
  options->max_stream_queued = max_queued / 16;
  options->max_waiting = options->max_input = max_queued * 16;
}

void kw_session_end(kw_session *session) {
  session->is_over = true;
}

/* {====== Sending ====== */

/* What came is no HTTP/2, or breaks its rules. */
static void note_breach(kw_session *session, const char *words) {
  if (session->why[0] != 0) return;
  snprintf(session->why, sizeof session->why, "%s",
           session->has_peer_settings ? words : "it does not speak HTTP/2");
}

static ssize_t on_send(nghttp2_session *h2, const uint8_t *data, size_t length, int flags,
                       void *ctx) {
  kw_session *session = ctx;
  (void)h2, (void)flags;
  if (kw_session_is_full(session)) return NGHTTP2_ERR_WOULDBLOCK;
  if (!kw_chain_add(&session->out, kw_slice_of(data, length))) {
    kw_session_end(session);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return (ssize_t)length;
}

/* A server that has said all does not wait for what the client might still say. */
static int on_frame_send(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx) {
  kw_session *session = ctx;
  uint8_t type = frame->hd.type;
  if (type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
    note_breach(session, "the server breaks the rules of HTTP/2");
  if (type != NGHTTP2_HEADERS && type != NGHTTP2_DATA) return 0;
  session->sent_since_ping = true;
  kw_stream *stream = kw_session_find(session, frame->hd.stream_id);
  if (stream != NULL) stream->is_sent = true;
  if (type == NGHTTP2_DATA && stream != NULL && stream->queued > 0) kw_stream_note_window(stream);
  if (session->options.is_client || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
  if (stream != NULL && !stream->is_half_closed)
    kw_session_check(
        session, nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR));
  return 0;
}

/* }====== */

/* {====== Headers that come ====== */

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

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx) {
  kw_session *session = ctx;
  drop_fields(session);
  if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  kw_stream *stream = kw_stream_new(session, frame->hd.stream_id);
  if (stream == NULL) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  nghttp2_session_set_stream_user_data(h2, stream->id, stream);
  return 0;
}

static kw_slice slice_of(nghttp2_rcbuf *buf) {
  nghttp2_vec v = nghttp2_rcbuf_get_buf(buf);
  return kw_slice_of(v.base, v.len);
}

/* Beyond the limit lines are only counted. */
static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *ctx) {
  kw_session *session = ctx;
  size_t n = session->n_fields;
  kw_header_field field = {slice_of(name), slice_of(value)};
  (void)h2, (void)frame, (void)flags;
  session->header_bytes += field.name.len + field.value.len + 32;
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

static void refuse_quoted(kw_stream *stream, int http_status, int status, const char *words,
                          kw_slice what) {
  char text[256];
  int n = snprintf(text, sizeof text, "%s \"%.*s\"", words, (int)kw_min_size(what.len, 128),
                   what.len > 0 ? (const char *)what.data : "");
  kw_stream_refuse(stream, http_status, status, kw_slice_of(text, (size_t)n));
}

/* What gRPC wants of a request before anybody looks at what it asks for. */
static bool check_request(kw_session *session, kw_stream *stream) {
  const kw_known_fields *known = &session->known;
  kw_slice none = {0};
  if (session->header_bytes > session->options.max_header_bytes) {
    kw_stream_refuse(stream, 431, KW_GRPC_RESOURCE_EXHAUSTED, none);
  } else if (!kw_slice_is(known->method, "POST")) {
    refuse_quoted(stream, 405, KW_GRPC_INTERNAL, "http: unsupported method", known->method);
  } else if (!kw_known_is_grpc(known)) {
    refuse_quoted(stream, 415, KW_GRPC_INVALID_ARGUMENT, "invalid gRPC request content-type",
                  known->content_type);
  } else if (known->timeout.len > 0 && kw_grpc_timeout(known->timeout) < 0) {
    refuse_quoted(stream, 400, KW_GRPC_INTERNAL, "malformed grpc-timeout:", known->timeout);
  } else if (known->encoding.len > 0 && !kw_slice_is(known->encoding, "identity")) {
    refuse_quoted(stream, 200, KW_GRPC_UNIMPLEMENTED,
                  "grpc: Decompressor is not installed for grpc-encoding", known->encoding);
  } else {
    return true;
  }
  return false;
}

static void take_request(kw_session *session, kw_stream *stream) {
  stream->is_plus_proto = kw_known_is_plus_proto(&session->known);
  if (!check_request(session, stream)) return;
  kw_slice timeout = session->known.timeout;
  if (timeout.len > 0) kw_stream_set_deadline(stream, session->now + kw_grpc_timeout(timeout));
  session->hooks.on_open(stream, session->known.path, session->hooks.ctx);
}

/* Ends a client's call with a status of our own. */
static void give_up(kw_stream *stream, int status, const char *text, uint32_t code) {
  kw_stream_set_status(stream, status, kw_slice_of(text, strlen(text)));
  kw_stream_reset(stream, code);
}

static void give_up_page(kw_stream *stream, const kw_known_fields *known) {
  char text[256];
  kw_slice type = known->content_type;
  snprintf(text, sizeof text,
           "keywatch: the answer is not gRPC's: HTTP status %d, content-type \"%.*s\"",
           known->http_status, (int)kw_min_size(type.len, 128),
           type.len > 0 ? (const char *)type.data : "");
  give_up(stream, kw_status_of_http(known->http_status), text, KW_RESET_CANCEL);
}

/* What gRPC wants of an answer before anybody looks at what it says. */
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

/* An answer's headers, or its trailers. What is only informational comes before them. */
static void take_answer(kw_session *session, kw_stream *stream, bool ends) {
  const kw_known_fields *known = &session->known;
  bool is_informational = known->http_status / 100 == 1 && !ends;
  if (stream->is_reset || is_informational || !check_answer(session, stream)) return;
  stream->has_answer_headers = true;
  if (known->has_status) kw_known_take_status(known, stream);
  if (ends) kw_input_end(stream);
}

/* }====== */

/* {====== Frames that come ====== */

static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *head, void *ctx) {
  kw_session *session = ctx;
  (void)h2;
  session->frame_left = head->length;
  session->frame_ends = head->type == NGHTTP2_DATA && head->flags & NGHTTP2_FLAG_END_STREAM;
  return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream = kw_session_find(session, id);
  (void)flags;
  session->frame_left -= len;
  if (stream == NULL) {
    kw_session_check(session, nghttp2_session_consume(h2, id, len));
  } else {
    kw_input_take(stream, kw_slice_of(data, len), session->frame_ends && session->frame_left == 0);
  }
  return 0;
}

static void end_with(kw_session *session, uint32_t code, const char *why) {
  int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
  kw_session_check(session, nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, code,
                                                  (const uint8_t *)why, strlen(why)));
  session->must_end = true;
}

/* Pings cost us more than they cost a client: those that come too often end the connection, as gRPC has it. */
static void take_ping(kw_session *session) {
  int64_t least =
      session->count > 0 ? session->options.ping_min_ms : session->options.ping_idle_min_ms;
  if (session->sent_since_ping) {
    session->sent_since_ping = false;
    session->ping_strikes = 0;
  } else if (session->last_ping != NEVER && session->now - session->last_ping < least) {
    session->ping_strikes++;
  }
  session->last_ping = session->now;
  if (session->ping_strikes > PING_STRIKES)
    end_with(session, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
}

static void take_headers(kw_session *session, const nghttp2_frame *frame) {
  kw_stream *stream = kw_session_find(session, frame->hd.stream_id);
  bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
  if (stream == NULL) return;
  if (session->known.is_malformed && session->options.is_client) {
    give_up(stream, KW_GRPC_INTERNAL, "keywatch: the headers of the answer are malformed",
            NGHTTP2_PROTOCOL_ERROR);
  } else if (session->known.is_malformed) {
    kw_stream_reset(stream, NGHTTP2_PROTOCOL_ERROR);
  } else if (session->options.is_client) {
    take_answer(session, stream, ends);
  } else {
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) take_request(session, stream);
    if (ends) kw_input_end(stream);
  }
  drop_fields(session);
}

static void take_goaway_ack(kw_session *session) {
  if (!session->is_draining) return;
  int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
  kw_session_check(session, nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last,
                                                  NGHTTP2_NO_ERROR, NULL, 0));
}

/* Its words are some other program's: only what can be printed is passed on. */
static void take_goaway(kw_session *session, const nghttp2_goaway *goaway) {
  char words[64];
  size_t n = kw_min_size(goaway->opaque_data_len, sizeof words - 1);
  for (size_t i = 0; i < n; i++) {
    uint8_t c = goaway->opaque_data[i];
    words[i] = (char)(c >= ' ' && c <= '~' ? c : '?');
  }
  words[n] = 0;
  session->got_goaway = true;
  if (goaway->error_code == NGHTTP2_ENHANCE_YOUR_CALM) session->got_enhance_your_calm = true;
  snprintf(session->why, sizeof session->why, "the server goes away: %s%s%s",
           nghttp2_http2_strerror(goaway->error_code), n > 0 ? ", " : "", words);
}

/* Settings make nghttp2 look at all streams: if they come too often for so many, the connection ends, and the rest of
 * what came with them is not heard. The first settings are those that the other side begins with. */
static int take_settings(kw_session *session, bool is_ack) {
  int64_t most = session->now * SETTINGS_RATE;
  session->has_peer_settings = true;
  if (is_ack) return 0;
  session->windows_changed = true;
  if (session->settings_used_up_to < most - SETTINGS_BURST)
    session->settings_used_up_to = most - SETTINGS_BURST;
  session->settings_used_up_to += (int64_t)session->count + 1;
  if (session->settings_used_up_to <= most) return 0;
  end_with(session, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_settings");
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* After settings. Once for all that came together. */
static void note_windows(kw_session *session) {
  if (!session->windows_changed) return;
  session->windows_changed = false;
  for (kw_link *link = session->with_answers.next; link != &session->with_answers;
       link = link->next)
    kw_stream_note_window(KW_CONTAINER_OF(link, kw_stream, answers_link));
}

static void take_window(kw_session *session, int32_t id) {
  kw_stream *stream = id == 0 ? NULL : kw_session_find(session, id);
  if (stream != NULL && stream->queued > 0) kw_stream_note_window(stream);
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream;
  (void)h2;
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS: take_headers(session, frame); break;
    case NGHTTP2_DATA:
      if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) break;
      stream = kw_session_find(session, frame->hd.stream_id);
      if (stream != NULL) kw_input_end(stream);
      break;
    case NGHTTP2_SETTINGS: return take_settings(session, frame->hd.flags & NGHTTP2_FLAG_ACK);
    case NGHTTP2_WINDOW_UPDATE: take_window(session, frame->hd.stream_id); break;
    case NGHTTP2_GOAWAY: take_goaway(session, &frame->goaway); break;
    case NGHTTP2_PING:
      if (frame->hd.flags & NGHTTP2_FLAG_ACK) {
        take_goaway_ack(session);
      } else if (!session->options.is_client) {
        take_ping(session);
      }
      break;
    default: break;
  }
  return 0;
}

static void end_call(kw_stream *stream) {
  kw_session *session = stream->session;
  session->hooks.on_end(stream, session->hooks.ctx);
}

static void set_status_of_reset(kw_stream *stream, uint32_t code) {
  char text[96];
  if (code == NGHTTP2_NO_ERROR) {
    snprintf(text, sizeof text, "keywatch: the answer has no status");
  } else {
    snprintf(text, sizeof text, "keywatch: the server has reset the call: %s",
             nghttp2_http2_strerror(code));
  }
  kw_stream_set_status(stream, kw_status_of_reset(code), kw_slice_of(text, strlen(text)));
}

/* A client is told of every end: by the status that came, or by one that stands for how the stream ended. */
static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream = kw_session_find(session, id);
  (void)h2;
  if (stream == NULL) return 0;
  if (session->options.is_client) {
    if (code == NGHTTP2_NO_ERROR) kw_input_finish(stream);
    if (!stream->has_status) set_status_of_reset(stream, code);
    stream->is_refused = !stream->is_sent || code == NGHTTP2_REFUSED_STREAM;
    end_call(stream);
  }
  stream->is_reset = true;
  kw_stream_free(stream);
  if (session->is_draining && session->count == 0)
    kw_session_check(session, nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR));
  return 0;
}

/* }====== */

/* {====== Life ====== */

/* What stands before a block of nghttp2's, so that its account can be credited. */
typedef union block_head {
  size_t size;
  max_align_t align;
} block_head;

static void *mem_realloc(void *p, size_t size, void *ctx) {
  kw_session *session = ctx;
  kw_account *account = &session->account;
  block_head *head = p == NULL ? NULL : (block_head *)p - 1;
  size_t before = head == NULL ? 0 : head->size;
  if (size > SIZE_MAX - sizeof *head || kw_account_is_over(account)) return NULL;
  head = kw_realloc(head, sizeof *head + size);
  if (head == NULL) return NULL;
  head->size = sizeof *head + size;
  kw_account_resize(account, before, head->size);
#ifdef KW_PROBE
  session->h2_bytes += head->size - before;
#endif
  return head + 1;
}

static void *mem_alloc(size_t size, void *ctx) {
  return mem_realloc(NULL, size, ctx);
}

static void *mem_zeroed(size_t n, size_t size, void *ctx) {
  void *p = size > 0 && n > SIZE_MAX / size ? NULL : mem_alloc(n * size, ctx);
  return p == NULL ? NULL : memset(p, 0, n * size);
}

static void mem_free(void *p, void *ctx) {
  if (p == NULL) return;
  kw_session *session = ctx;
  block_head *head = (block_head *)p - 1;
  kw_account_credit(&session->account, head->size);
#ifdef KW_PROBE
  session->h2_bytes -= head->size;
#endif
  kw_free(head);
}

static int make_h2(kw_session *session, nghttp2_session_callbacks *calls, nghttp2_option *option) {
  nghttp2_mem memory = {session, mem_alloc, mem_free, mem_zeroed, mem_realloc};
  nghttp2_session_callbacks_set_send_callback(calls, on_send);
  nghttp2_session_callbacks_set_send_data_callback(calls, kw_stream_on_send_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_frame_send);
  nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback2(calls, on_header);
  nghttp2_session_callbacks_set_on_begin_frame_callback(calls, on_begin_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_stream_close);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_no_http_messaging(option, 1); /* see kw_known_note */
  nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESET_RATE);
  nghttp2_option_set_peer_max_concurrent_streams(option, 100); /* until its settings come */
  return session->options.is_client
             ? nghttp2_session_client_new3(&session->h2, calls, session, option, &memory)
             : nghttp2_session_server_new3(&session->h2, calls, session, option, &memory);
}

static bool open_h2(kw_session *session) {
  nghttp2_session_callbacks *calls = NULL;
  nghttp2_option *option = NULL;
  bool ok = nghttp2_session_callbacks_new(&calls) == 0 && nghttp2_option_new(&option) == 0 &&
            make_h2(session, calls, option) == 0;
  if (calls != NULL) nghttp2_session_callbacks_del(calls);
  if (option != NULL) nghttp2_option_del(option);
  return ok;
}

static bool submit_settings(kw_session *session) {
  nghttp2_settings_entry server[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, session->options.max_streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, KW_STREAM_WINDOW},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)session->options.max_header_bytes}};
  if (session->options.is_client)
    server[0] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  return nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, server, KW_LENGTH(server)) == 0 &&
         nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0,
                                               KW_SESSION_WINDOW) == 0;
}

kw_session *kw_session_new(const kw_session_options *options, const kw_session_hooks *hooks,
                           int64_t now) {
  kw_session *session = kw_alloc(sizeof *session);
  if (session == NULL) return NULL;
  *session = (kw_session){.options = *options,
                          .hooks = *hooks,
                          .now = now,
                          .created = now,
                          .last_received = now,
                          .last_ping = NEVER,
                          .pong_deadline = NEVER,
                          .drain_deadline = NEVER,
                          .settings_used_up_to = INT64_MIN,
                          .preface_bytes = options->is_client ? PREFACE : 0};
  kw_account_init(&session->account, options->budget);
  kw_account_charge(&session->account, sizeof *session);
  session->out.account = &session->account;
  kw_link_init(&session->streams);
  kw_link_init(&session->with_answers);
  kw_link_init(&session->with_input);
  kw_link_init(&session->parked_for_turn);
  kw_link_init(&session->parked_for_output);
  kw_link_init(&session->deferred);
  if (open_h2(session) && submit_settings(session)) return session;
  kw_session_free(session);
  return NULL;
}

void kw_session_free(kw_session *session) {
  while (!kw_link_is_alone(&session->streams)) {
    kw_stream *stream = KW_CONTAINER_OF(session->streams.next, kw_stream, link);
    if (session->h2 != NULL) nghttp2_session_set_stream_user_data(session->h2, stream->id, NULL);
    stream->is_reset = true;
    if (session->options.is_client) {
      if (!stream->has_status) stream->status = KW_GRPC_UNAVAILABLE;
      stream->is_refused = !stream->is_sent;
      end_call(stream);
    }
    kw_stream_free(stream);
  }
  drop_fields(session);
  if (session->h2 != NULL) nghttp2_session_del(session->h2);
  kw_chain_drop(&session->out);
  kw_heap_drop(&session->deadlines);
  free_fields(session);
  kw_account_drop(&session->account);
  kw_free(session);
}

/* Whoever speaks HTTP/1 is told in its own words. */
static void refuse_http1(kw_session *session) {
  static const char answer[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
                               "content-type: text/plain\r\n"
                               "content-length: 45\r\n"
                               "connection: close\r\n\r\n"
                               "keywatch speaks gRPC over HTTP/2 on this port";
  kw_chain_drop(&session->out);
  kw_chain_add(&session->out, kw_slice_of(answer, sizeof answer - 1));
}

void kw_session_feed(kw_session *session, kw_slice bytes, int64_t now) {
  session->now = now;
  if (session->is_over) return;
  if (bytes.len == 0) {
    kw_session_flush(session); /* it may still read */
    kw_session_end(session);
    return;
  }
  session->last_received = now;
  session->preface_bytes += kw_min_size(bytes.len, PREFACE - session->preface_bytes);
  session->pong_deadline = NEVER;
  ssize_t rc = nghttp2_session_mem_recv(session->h2, bytes.data, bytes.len);
  if (rc == NGHTTP2_ERR_FLOODED) note_breach(session, "the server asks for too much at once");
  note_windows(session);
  if (rc >= 0) {
    kw_input_resume(session);
    if (!session->must_end) return;
  }
  if (rc == NGHTTP2_ERR_BAD_CLIENT_MAGIC && session->out.len == 0) {
    refuse_http1(session);
  } else if (rc != NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
    kw_session_flush(session); /* what it has to say about that */
  }
  kw_session_end(session);
}

void kw_session_flush(kw_session *session) {
  if (session->is_over || session->preface_bytes < PREFACE) return;
  if (nghttp2_session_send(session->h2) != 0) kw_session_end(session);
}

void kw_session_wrote(kw_session *session) {
  if (!session->is_over) kw_input_resume(session);
}

void kw_session_set_time(kw_session *session, int64_t now) {
  session->now = now;
}

kw_chain *kw_session_out(kw_session *session) {
  return &session->out;
}

/* A client reads whatever it has to write: of two that wait for each other to read nobody would go on. */
bool kw_session_wants_bytes(const kw_session *session) {
  bool is_stuck = session->out.len > 0; /* the other side does not read */
  if (session->is_over || session->is_turn_over) return false;
  return session->options.is_client || !is_stuck ||
         (!kw_session_has_enough_output(session) &&
          nghttp2_session_get_outbound_queue_size(session->h2) <= MAX_FRAMES);
}

bool kw_session_is_ready(const kw_session *session) {
  return session->has_peer_settings && !session->got_goaway && !session->is_over;
}

bool kw_session_got_enhance_your_calm(const kw_session *session) {
  return session->got_enhance_your_calm;
}

bool kw_session_got_goaway(const kw_session *session) {
  return session->got_goaway;
}

const char *kw_session_why(const kw_session *session) {
  return session->why;
}

bool kw_session_is_done(const kw_session *session) {
  return session->is_over ||
         !(nghttp2_session_want_read(session->h2) || nghttp2_session_want_write(session->h2));
}

static int64_t keepalive_due(const kw_session *session) {
  if (session->pong_deadline != NEVER) return session->pong_deadline;
  if (!session->has_peer_settings) return session->created + session->options.handshake_ms;
  bool is_idle = session->options.is_client && session->count == 0;
  return session->options.keepalive_ms == 0 || is_idle
             ? NEVER
             : session->last_received + session->options.keepalive_ms;
}

/* When the next stream that is not read may lose its answers, for one that was deferred, or that one is refused. */
static int64_t room_due(const kw_session *session) {
  const kw_link *deferred = &session->deferred, *unread = &session->with_answers;
  if (kw_link_is_alone(deferred)) return NEVER;
  int64_t due =
      KW_CONTAINER_OF(deferred->next, kw_stream, parked_link)->waiting_since + KW_DEFERRED_MS;
  if (kw_link_is_alone(unread)) return due;
  int64_t lost =
      KW_CONTAINER_OF(unread->next, kw_stream, answers_link)->waiting_since + KW_STALL_MS;
  return lost < due ? lost : due;
}

int64_t kw_session_deadline(const kw_session *session) {
  const kw_heap_node *first = kw_heap_first(&session->deadlines);
  int64_t due = keepalive_due(session), room = room_due(session);
  if (session->is_over) return NEVER;
  if (session->is_turn_over) return session->now;
  if (room < due) due = room;
  if (session->drain_deadline < due) due = session->drain_deadline;
  if (first != NULL && first->when < due) due = first->when;
  return due;
}

static void keep_alive(kw_session *session) {
  if (session->now < keepalive_due(session)) return;
  if (!session->has_peer_settings || session->pong_deadline != NEVER) {
    snprintf(session->why, sizeof session->why, "%s",
             session->has_peer_settings ? "the server does not answer to a PING"
                                        : "it does not answer in time");
    kw_session_end(session);
  } else {
    kw_session_ping(session);
    session->pong_deadline = session->now + session->options.keepalive_wait_ms;
  }
}

static void expire_streams(kw_session *session) {
  kw_heap_node *first;
  while ((first = kw_heap_first(&session->deadlines)) != NULL && first->when <= session->now) {
    kw_stream *stream = KW_CONTAINER_OF(first, kw_stream, deadline);
    kw_stream_clear_deadline(stream);
    session->hooks.on_timeout(stream, session->hooks.ctx);
    kw_input_drop(stream);
  }
}

void kw_session_step(kw_session *session, int64_t now) {
  session->now = now;
  if (session->is_over) return;
  expire_streams(session);
  keep_alive(session);
  if (session->drain_deadline <= now) kw_session_end(session);
  session->is_turn_over = false;
  if (!session->is_over) kw_input_resume(session);
}

void kw_session_drain(kw_session *session, int64_t ms, int64_t now) {
  session->now = now;
  session->drain_deadline = now + ms;
  if (session->is_draining || session->is_over) return;
  session->is_draining = true;
  if (session->preface_bytes < PREFACE) {
    kw_session_end(session);
  } else if (session->count == 0) {
    kw_session_check(session, nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR));
  } else {
    kw_session_check(session, nghttp2_submit_shutdown_notice(session->h2));
    kw_session_ping(session);
  }
}

void kw_session_leave(kw_session *session) {
  if (session->is_over) return;
  kw_session_check(session, nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR));
  kw_session_flush(session);
  kw_session_end(session);
}

void *kw_session_ctx(const kw_session *session) {
  return session->hooks.ctx;
}

kw_account *kw_session_account(kw_session *session) {
  return &session->account;
}

kw_stream *kw_session_next(const kw_session *session, const kw_stream *stream) {
  const kw_link *next = stream == NULL ? session->streams.next : stream->link.next;
  return next == &session->streams ? NULL : KW_CONTAINER_OF(next, kw_stream, link);
}

const kw_header_field *kw_session_fields(const kw_session *session, size_t *n) {
  *n = session->n_fields;
  return session->fields;
}

void kw_session_ping(kw_session *session) {
  kw_session_check(session, nghttp2_submit_ping(session->h2, NGHTTP2_FLAG_NONE, NULL));
}

/* }====== */

/* {====== Requests ====== */

kw_stream *kw_session_request(kw_session *session, kw_slice authority, kw_slice path,
                              const kw_header_field *fields, size_t n, void *owner) {
  nghttp2_nv sent[KW_REQUEST_FIELDS + KW_MAX_METADATA];
  kw_stream *stream = kw_stream_new(session, 0);
  if (stream == NULL) return NULL;
  nghttp2_data_provider data = kw_stream_data(stream);
  size_t all = kw_request_fields(sent, authority, path, fields, n);
  stream->owner = owner;
  stream->has_answered = true;
  int32_t id = session->is_over || session->got_goaway
                   ? -1
                   : nghttp2_submit_request(session->h2, NULL, sent, all, &data, stream);
  if (id > 0) {
    stream->id = id;
    return stream;
  }
  kw_stream_free(stream);
  return NULL;
}

/* }====== */
