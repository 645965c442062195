/* SPDX-License-Identifier: MIT
 *
 * state: the inside of a session. For this folder only.
 */
#ifndef KW_H2_STATE_H
#define KW_H2_STATE_H

#include <nghttp2/nghttp2.h>

#include "h2/session.h"
#include "h2/fields.h"

#define KW_STREAM_WINDOW (1 << 20)
#define KW_SESSION_WINDOW (8 << 20)

struct kw_session {
  nghttp2_session *h2;
  kw_session_options options;
  kw_session_hooks hooks;
  kw_account account;
#ifdef KW_PROBE
  size_t h2_bytes; /* of it, what nghttp2 takes */
#endif
  int64_t now;

  kw_chain out;
  size_t queued;        /* answers in the chains of all streams */
  size_t sendable;      /* of these: what waits for nothing but the connection */
  bool is_pulling;      /* what is added now was asked for, and is no answer */
  kw_link with_answers; /* streams whose answers wait, by stream->waiting_since */
  size_t partial_bytes; /* what has come of messages that are not complete */
  size_t input_bytes;   /* what has come of streams that are parked */
  size_t uncredited;    /* what has come, and the connection's window is still shut for */
  kw_link with_input;   /* these, oldest first */
  kw_link streams;
  size_t count;
  size_t
      n_reset_unsent; /* a client's: streams that were reset before they have left, and have not gone */
  kw_heap deadlines;

  kw_link
      parked_for_turn; /* streams whose input goes on in this turn or in the next, oldest first */
  kw_link parked_for_output; /* unary ones whose input waits for room in the output, oldest first */
  kw_link deferred;          /* those whose request waits until fewer answers do, oldest first */
  bool is_resuming;
  bool is_turn_over; /* they wait for the next step */

  /* The header block that is being heard: there is only one at a time. */
  kw_header_field *fields;
  nghttp2_rcbuf **field_buffers; /* two for each line */
  size_t n_fields;
  size_t cap_fields;
  size_t cap_field_buffers;
  size_t header_bytes;
  kw_known_fields known;

  size_t frame_left; /* of the DATA frame that is being heard */
  bool frame_ends;   /* its stream */

  size_t preface_bytes;       /* bytes, up to the length of the preface */
  bool must_end;              /* once it has said why */
  bool is_over;               /* nothing more is heard, and nothing said but what has been framed */
  bool has_peer_settings;     /* the other side's settings have come */
  bool got_goaway;            /* the other side takes no more streams */
  bool got_enhance_your_calm; /* and it says that it was asked too often whether it lives */
  char why[128];              /* it has ended, or is about to, in words; or empty */
  bool windows_changed;       /* settings may have changed those of all streams */
  bool is_draining;
  bool sent_since_ping;
  int ping_strikes;
  int64_t created;
  int64_t
      settings_used_up_to; /* up to where settings have used up what they may touch, see take_settings */
  int64_t last_received;  /* when bytes came last */
  int64_t last_ping;      /* when the other side asked last; or NEVER */
  int64_t pong_deadline;  /* or NEVER */
  int64_t drain_deadline; /* or NEVER */
};

static inline size_t kw_session_fields_room(const kw_session *session) {
  return session->cap_fields * sizeof *session->fields +
         session->cap_field_buffers * sizeof *session->field_buffers;
}

/* What nghttp2 has answered: without memory, a session ends. */
static inline void kw_session_check(kw_session *session, int rc) {
  if (rc == NGHTTP2_ERR_NOMEM) kw_session_end(session);
}

/* Streams are made and freed by the session alone; their owner is told. NULL if memory is short. */
kw_stream *kw_stream_new(kw_session *session, int32_t id);
void kw_stream_free(kw_stream *stream);
void kw_stream_set_status(kw_stream *stream, int status, kw_slice text);
void kw_stream_set_deadline(kw_stream *stream, int64_t when);
void kw_stream_clear_deadline(kw_stream *stream);

/* What has come of messages that were not told yet. */
void kw_stream_drop_partial(kw_stream *stream);

static inline kw_stream *kw_session_find(kw_session *session, int32_t id) {
  return nghttp2_session_get_stream_user_data(session->h2, id);
}

/* Where nghttp2 takes the data of a stream from: the source is the stream; and where it goes. */
nghttp2_data_provider kw_stream_data(kw_stream *stream);
int kw_stream_on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head,
                           size_t length, nghttp2_data_source *source, void *ctx);

static inline bool kw_session_is_full(const kw_session *session) {
  return session->out.len >= session->options.max_framed;
}

/* A server's: whether the connection has enough to send. */
static inline bool kw_session_has_enough_output(const kw_session *session) {
  return session->out.len + session->sendable > session->options.max_queued;
}

/* A server's: the peer has changed the stream's window. */
void kw_stream_note_window(kw_stream *stream);

/* A server's: whether fewer answers wait than may, after streams that are not read have lost theirs. */
bool kw_session_make_room(kw_session *session);

#endif
