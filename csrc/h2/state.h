/* SPDX-License-Identifier: MIT
 *
 * state: the inside of a session, shared by the files of this folder and used nowhere else.
 *
 *   session.c   life of a session; bytes into and out of nghttp2
 *   frames.c    nghttp2's callbacks for frames
 *   headers.c   received header blocks                    fields.c   gRPC's header fields, both ways
 *   preface.c   the first bytes of a connection           flood.c    frames that are too frequent
 *   input.c     received DATA, split into messages        stream.c   one call, and sent messages
 *   timers.c    timeouts, keepalive, deadlines            memory.c   nghttp2's allocator
 *   ending.c    the end of a session, and its reason      carrier.c  HTTP exchanges
 */
#ifndef KW_H2_STATE_H
#define KW_H2_STATE_H

#include <nghttp2/nghttp2.h>

#include "h2/fields.h"
#include "h2/session.h"

/* Bytes that a peer may send on one stream without WINDOW_UPDATE. */
#define KW_STREAM_WINDOW (1 << 20)
#define KW_SESSION_WINDOW (8 << 20) /* the same for all streams of a connection together */
#define KW_PREFACE 24               /* length of the text that a client begins with */
#define KW_SESSION_NEVER INT64_MAX  /* for a time: never */
#define KW_SESSION_WHY 128          /* bytes of session->why, with the 0 at its end */

#define KW_CROWDS 64 /* parts of the table of streams, see flood.c */

struct kw_session {
  nghttp2_session *h2;
  kw_session_options options;
  kw_session_hooks hooks;
  kw_account account;
  int64_t now; /* milliseconds, as last given by the owner */

  /* Streams */
  kw_link streams;
  size_t count;          /* length of `streams` */
  size_t n_reset_unsent; /* client: open streams that were reset before their request was sent */
  kw_heap deadlines;     /* streams by the deadline of their call */

  /* Output */
  kw_chain out;         /* frames for the socket */
  size_t queued;        /* bytes of answers in stream->out of all streams */
  size_t sendable;      /* the part of `queued` that the streams' windows have space for */
  bool is_pulling;      /* on_pull is being called: its messages are not counted as answers */
  kw_link with_answers; /* streams with queued answers, by waiting_since, oldest first */

  /* Input */
  size_t partial_bytes; /* bytes of messages that are not complete, or wait for the half-close */
  size_t input_bytes;   /* bytes in stream->input of all streams */
  size_t uncredited;    /* DATA bytes that no WINDOW_UPDATE of the connection has returned yet */
  kw_link with_input;   /* streams with bytes in stream->input, oldest first */

  /* Streams that wait, see input.h */
  kw_link waiting
      [KW_WAITS];   /* one list for each reason, by stream->wait_link, oldest first; [0] is empty */
  bool is_resuming; /* kw_input_resume is running */
  bool is_turn_over; /* the turn is used up; the next kw_session_step begins another */

  /* The header block that is being received; HTTP/2 has only one at a time on a connection */
  kw_http_field *fields;
  nghttp2_rcbuf **field_buffers; /* owners of the bytes of `fields`: two for each field */
  size_t n_fields;
  size_t cap_fields;
  size_t cap_field_buffers;
  size_t header_bytes; /* size of the block as HTTP/2 counts it */
  kw_known_fields known;

  /* The frame that is being received */
  size_t frame_left; /* remaining payload bytes */
  bool frame_ends;   /* a DATA frame with END_STREAM */

  /* State */
  uint64_t data_bytes;    /* of received DATA frames */
  size_t preface_bytes;   /* received bytes of the client's preface: a server waits for all */
  bool has_peer_settings; /* a SETTINGS frame was received */
  bool windows_changed;   /* by SETTINGS frames: `sendable` of the streams must be counted again */
  bool got_goaway;        /* the peer takes no more streams */
  bool is_broken;         /* client: the server breaks the rules of HTTP/2 */
  bool got_enhance_your_calm; /* see kw_session_got_enhance_your_calm */
  bool is_draining;           /* a GOAWAY was submitted; the session ends with its last stream */
  const char *last_words;     /* text of a GOAWAY that ends the session after this feed; or NULL */
  bool is_foreign;            /* see kw_session_is_foreign */
  bool is_over;               /* reads nothing more; `out` is all that will be sent */
  char why[KW_SESSION_WHY];   /* reason of the end, see kw_session_why */

  /* Received PING, SETTINGS and HEADERS frames, see flood.c */
  bool sent_since_ping;       /* HEADERS or DATA were sent since the peer's last PING */
  int ping_strikes;           /* PINGs of the peer that arrived too early */
  int64_t last_ping;          /* when the peer's last PING arrived; or KW_SESSION_NEVER */
  kw_meter settings;          /* the peer's SETTINGS frames */
  uint16_t crowds[KW_CROWDS]; /* of a server: number of streams in each part of nghttp2's table */

  /* Times in milliseconds, see timers.c */
  int64_t created;        /* when the session was made */
  int64_t last_received;  /* when bytes last arrived */
  int64_t pong_deadline;  /* for the answer to our PING; or KW_SESSION_NEVER */
  int64_t drain_deadline; /* or KW_SESSION_NEVER */
};

/* Notes why the session ends. Only the first reason is stored. */
void kw_session_note_why(kw_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Client: notes that the session ends because the server breaks the rules of HTTP/2. */
void kw_session_note_broken(kw_session *session);

/* Returns "server" or "client": what the peer is. */
static inline const char *kw_session_peer(const kw_session *session) {
  return session->options.is_client ? "server" : "client";
}

/* Ends the session for lack of memory. */
void kw_session_end_without_memory(kw_session *session);

/* Ends the session if nghttp2 had no memory. `rc` is what an nghttp2 function returned. */
static inline void kw_session_check(kw_session *session, int rc) {
  if (rc == NGHTTP2_ERR_NOMEM) kw_session_end_without_memory(session);
}

/* Returns the stream of this id, or NULL. */
static inline kw_stream *kw_session_find(kw_session *session, int32_t id) {
  return nghttp2_session_get_stream_user_data(session->h2, id);
}

/* True if no more frames may be added to session->out. */
static inline bool kw_session_is_full(const kw_session *session) {
  return session->out.len >= session->options.max_framed;
}

/* Server: true if so many bytes wait to be sent that unary requests have to wait. */
static inline bool kw_session_has_enough_output(const kw_session *session) {
  return session->out.len + session->sendable > session->options.max_queued;
}

/* Server: resets stalled streams while too many answers wait, see stream.h. Returns true if there then is space for a
 * deferred answer. */
bool kw_session_make_room(kw_session *session);

/* {====== frames.c, memory.c, preface.c, flood.c ====== */

/* Makes session->h2 and submits our SETTINGS. False if memory is short. */
bool kw_frames_open(kw_session *session);

/* Returns the allocator for session->h2. */
nghttp2_mem kw_session_memory(kw_session *session);

/* Server: answers a client that did not begin with the preface, in session->out, and notes in session->why which
 * protocol the client speaks. `n_before` bytes of the preface arrived before `bytes`. */
void kw_preface_refuse(kw_session *session, size_t n_before, kw_slice bytes);

/* Server: counts a PING of the client. After too many sets session->last_words. */
void kw_flood_note_ping(kw_session *session);

/* Submits the GOAWAY with the last words of the session, if there are any. */
void kw_flood_end(kw_session *session);

/* Counts a SETTINGS frame of the peer. Returns 0, or an nghttp2 error after which nothing more of the input is
 * read. */
int kw_flood_note_settings(kw_session *session);

/* Notes a new stream of the client. Returns 0; or NGHTTP2_ERR_CALLBACK_FAILURE if too many streams collide. */
int kw_flood_note_stream(kw_session *session, int32_t id);

/* Notes the end of a stream of the client. */
void kw_flood_forget_stream(kw_session *session, int32_t id);

/* }====== */

/* {====== headers.c ====== */

/* nghttp2's callback: a header block begins. */
int kw_headers_on_begin(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx);

/* nghttp2's callback: a field of the header block. */
int kw_headers_on_field(nghttp2_session *h2, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                        nghttp2_rcbuf *value, uint8_t flags, void *ctx);

/* Uses a header block that is complete: opens a call, or takes the headers or trailers of an answer. */
void kw_headers_take(kw_session *session, const nghttp2_frame *frame);

/* Frees the fields of the last header block and the memory for fields. */
void kw_headers_drop(kw_session *session);

/* Returns the bytes allocated for the header block. */
static inline size_t kw_session_fields_room(const kw_session *session) {
  return session->cap_fields * sizeof *session->fields +
         session->cap_field_buffers * sizeof *session->field_buffers;
}

/* }====== */

/* {====== stream.c ====== */

/* Makes a stream, and adds it to session->streams. NULL if memory is short. Only the session makes and frees
 * streams. */
kw_stream *kw_stream_new(kw_session *session, int32_t id);

/* Sets what the stream waits for. KW_WAIT_NOTHING ends the wait. Delivers nothing. */
void kw_stream_wait_for(kw_stream *stream, kw_stream_wait wait);

/* Returns the stream that has waited longest for this; or NULL. */
static inline kw_stream *kw_session_first(const kw_session *session, kw_stream_wait wait) {
  const kw_link *list = &session->waiting[wait];
  return kw_link_is_alone(list) ? NULL : KW_CONTAINER_OF(list->next, kw_stream, wait_link);
}

/* Calls on_close and frees the stream. */
void kw_stream_free(kw_stream *stream);

/* Sets the status of the stream and its text; if memory is short, the text is omitted. */
void kw_stream_set_status(kw_stream *stream, int status, kw_slice text);

/* Sets the deadline of the call. If memory is short, there is no deadline: the client also measures it. */
void kw_stream_set_deadline(kw_stream *stream, int64_t when);

/* Removes the deadline of the call, if it has one. */
void kw_stream_clear_deadline(kw_stream *stream);

/* Drops the bytes of messages that were not delivered: partial ones and the unary message. */
void kw_stream_drop_partial(kw_stream *stream);

/* Sets stream->sendable after the stream's window or its answers have changed. */
void kw_stream_note_window(kw_stream *stream);

/* Returns the data provider through which nghttp2 asks the stream for its data. */
nghttp2_data_provider kw_stream_data(kw_stream *stream);

/* nghttp2's callback: moves the data of one DATA frame from stream->out to session->out, without copying. */
int kw_stream_on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head,
                           size_t length, nghttp2_data_source *source, void *ctx);

/* }====== */

#endif
