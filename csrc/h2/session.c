/* SPDX-License-Identifier: MIT
 *
 * session: making and ending a session, and passing bytes into and out of nghttp2.
 */
#include "h2/input.h"

#include "base/mem.h"

#define MAX_EXCHANGES 100 /* of a client, at once */
#define MAX_FRAMES 1000   /* frames that nghttp2 may queue; beyond that a server stops reading */

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
                                .ping_idle_min_ms = 2 * 60 * 60 * 1000,
                                .max_body = 2 << 20,
                                .body_ms = 60 * 1000};
  kw_session_set_queue(&options, 4 << 20);
  return options;
}

void kw_session_set_queue(kw_session_options *options, size_t max_queued) {
  options->max_queued = max_queued;
  options->max_stream_queued = max_queued / 16;
  options->max_waiting = options->max_input = max_queued * 16;
}

/* {====== Life ====== */

kw_session *kw_session_new(const kw_session_options *options, const kw_session_hooks *hooks,
                           int64_t now) {
  kw_session *session = kw_alloc(sizeof *session);
  if (session == NULL) return NULL;
  *session = (kw_session){.options = *options,
                          .hooks = *hooks,
                          .now = now,
                          .created = now,
                          .last_received = now,
                          .last_ping = KW_SESSION_NEVER,
                          .pong_deadline = KW_SESSION_NEVER,
                          .drain_deadline = KW_SESSION_NEVER,
                          .preface_bytes = options->is_client ? KW_PREFACE : 0};
  kw_account_init(&session->account, options->budget);
  kw_account_charge(&session->account, sizeof *session);
  session->out.account = &session->account;
  kw_link_init(&session->streams);
  kw_link_init(&session->with_answers);
  kw_link_init(&session->with_input);
  for (int wait = 0; wait < KW_WAITS; wait++) kw_link_init(&session->waiting[wait]);
  if (kw_frames_open(session)) return session;
  kw_session_free(session);
  return NULL;
}

void kw_session_free(kw_session *session) {
  while (!kw_link_is_alone(&session->streams)) {
    kw_stream *stream = KW_CONTAINER_OF(session->streams.next, kw_stream, link);
    if (session->h2 != NULL) nghttp2_session_set_stream_user_data(session->h2, stream->id, NULL);
    stream->is_reset = true;
    if (session->options.is_client && stream->exchange == NULL) {
      if (!stream->has_status) stream->status = KW_GRPC_UNAVAILABLE;
      stream->is_refused = !stream->is_sent;
      session->hooks.on_end(stream, session->hooks.ctx);
    }
    kw_stream_free(stream);
  }
  kw_headers_drop(session);
  if (session->h2 != NULL) nghttp2_session_del(session->h2);
  kw_chain_drop(&session->out);
  kw_heap_drop(&session->deadlines);
  kw_account_drop(&session->account);
  kw_free(session);
}

void kw_session_leave(kw_session *session) {
  if (session->is_over) return;
  kw_session_check(session, nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR));
  kw_session_flush(session);
  kw_session_end(session);
}

/* }====== */

/* {====== Bytes ====== */

/* SETTINGS frames may have changed the windows of all streams. Called once for all frames of one feed. */
static void note_windows(kw_session *session) {
  if (!session->windows_changed) return;
  session->windows_changed = false;
  for (kw_link *link = session->with_answers.next; link != &session->with_answers;
       link = link->next)
    kw_stream_note_window(KW_CONTAINER_OF(link, kw_stream, answers_link));
}

/* Called when the peer has closed its side. The peer may still read, so waiting frames are sent. */
static void end_by_peer(kw_session *session) {
  kw_session_flush(session);
  if (!session->options.is_client) kw_session_note_why(session, "the client closed the connection");
  kw_session_end(session);
}

/* Called when nghttp2 has refused the input with an error (rc < 0), or when the session has last words. */
static void end_by_error(kw_session *session, ssize_t rc) {
  kw_flood_end(session);
  kw_session_flush(session); /* the GOAWAY */
  if (rc < 0 && !session->options.is_client) {
    kw_session_note_why(session, "HTTP/2 failed: %s", nghttp2_strerror((int)rc));
  } else if (rc < 0 && rc != NGHTTP2_ERR_NOMEM && rc != NGHTTP2_ERR_CALLBACK_FAILURE) {
    kw_session_note_broken(session);
  }
  kw_session_end(session);
}

/* Called when too many frames that demand an answer have arrived. A server that begins with these does not speak
 * HTTP/2. */
static void note_flood(kw_session *session) {
  if (session->has_peer_settings || !session->options.is_client) {
    kw_session_note_why(session, "the %s sends too many frames that must be answered",
                        kw_session_peer(session));
  } else {
    kw_session_note_why(session, "it does not speak HTTP/2");
  }
}

/* Recognizes an HTTP/1.1 server, or a port that speaks TLS. */
static void note_http1(kw_session *session, kw_slice first) {
  static const char head[] = "HTTP/1.";
  if (first.len >= sizeof head - 1 && memcmp(first.data, head, sizeof head - 1) == 0)
    kw_session_note_why(session,
                        "it does not speak HTTP/2, and answers in HTTP/1.1: it may need https://");
}

void kw_session_feed(kw_session *session, kw_slice bytes, int64_t now) {
  size_t n_before = session->preface_bytes;
  session->now = now;
  if (session->is_over) return;
  if (bytes.len == 0) {
    end_by_peer(session);
    return;
  }
  session->last_received = now;
  session->preface_bytes += kw_min_size(bytes.len, KW_PREFACE - n_before);
  session->pong_deadline = KW_SESSION_NEVER;
  if (session->options.is_client && !session->has_peer_settings) note_http1(session, bytes);
  ssize_t rc = nghttp2_session_mem_recv(session->h2, bytes.data, bytes.len);
  if (rc == NGHTTP2_ERR_FLOODED) note_flood(session);
  note_windows(session);
  if (rc >= 0) {
    kw_input_resume(session);
    if (session->last_words == NULL) return;
  }
  if (rc == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
    kw_preface_refuse(session, n_before, bytes);
    kw_session_end(session);
  } else {
    end_by_error(session, rc);
  }
}

void kw_session_flush(kw_session *session) {
  if (session->is_over || session->preface_bytes < KW_PREFACE) return;
  int rc = nghttp2_session_send(session->h2);
  kw_session_check(session, rc);
  if (rc != 0) kw_session_end(session);
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

/* A server stops reading while the client does not read. A client always reads: if both stopped, they would
 * deadlock. */
bool kw_session_wants_bytes(const kw_session *session) {
  bool is_stuck = session->out.len > 0; /* the peer does not read */
  if (session->is_over || session->is_turn_over) return false;
  return session->options.is_client || !is_stuck ||
         (!kw_session_has_enough_output(session) &&
          nghttp2_session_get_outbound_queue_size(session->h2) <= MAX_FRAMES);
}

/* }====== */

/* {====== State ====== */

bool kw_session_is_ready(const kw_session *session) {
  return session->has_peer_settings && !session->got_goaway && !session->is_over;
}

size_t kw_session_most(const kw_session *session) {
  uint32_t most =
      nghttp2_session_get_remote_settings(session->h2, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return kw_min_size(most, MAX_EXCHANGES);
}

bool kw_session_takes_more(const kw_session *session) {
  return kw_session_is_ready(session) && session->count < kw_session_most(session);
}

bool kw_session_got_enhance_your_calm(const kw_session *session) {
  return session->got_enhance_your_calm;
}

uint64_t kw_session_data_bytes(const kw_session *session) {
  return session->data_bytes;
}

bool kw_session_got_goaway(const kw_session *session) {
  return session->got_goaway;
}

bool kw_session_is_foreign(const kw_session *session) {
  return session->is_foreign;
}

const char *kw_session_why(const kw_session *session) {
  return session->why;
}

bool kw_session_is_done(const kw_session *session) {
  return session->is_over ||
         !(nghttp2_session_want_read(session->h2) || nghttp2_session_want_write(session->h2));
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

/* }====== */

kw_stream *kw_session_request(kw_session *session, kw_slice authority, kw_slice path,
                              const kw_http_field *fields, size_t n, void *owner) {
  nghttp2_nv sent[KW_REQUEST_FIELDS + KW_MAX_METADATA];
  kw_stream *stream = kw_stream_new(session, 0);
  if (stream == NULL) return NULL;
  nghttp2_data_provider data = kw_stream_data(stream);
  const char *scheme = session->options.is_tls ? "https" : "http";
  size_t all = kw_request_fields(sent, scheme, authority, path, fields, n);
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
