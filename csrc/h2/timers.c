/* SPDX-License-Identifier: MIT
 *
 * timers: the timers of a session: handshake timeout, keepalive, deadlines of calls, bodies of exchanges, deferred
 * requests and the end of a drain.
 *
 * The session reads no clock. Its owner calls kw_session_step at the time that kw_session_deadline returns.
 */
#include "h2/carrier.h"
#include "h2/input.h"

/* Returns when the session sends the next PING, or ends because the last one was not answered. A client without streams
 * does not ping. */
static int64_t keepalive_due(const kw_session *session) {
  if (session->pong_deadline != KW_SESSION_NEVER) return session->pong_deadline;
  if (!session->has_peer_settings) return session->created + session->options.handshake_ms;
  bool is_idle = session->options.is_client && session->count == 0;
  return session->options.keepalive_ms == 0 || is_idle
             ? KW_SESSION_NEVER
             : session->last_received + session->options.keepalive_ms;
}

/* Returns when to check the first deferred request: the first stalled stream may lose its answers, or the request is
 * refused. */
static int64_t room_due(const kw_session *session) {
  const kw_link *waiting = &session->with_answers;
  const kw_stream *deferred = kw_session_first(session, KW_WAIT_ROOM);
  if (deferred == NULL) return KW_SESSION_NEVER;
  int64_t due = deferred->waiting_since + KW_DEFERRED_MS;
  if (kw_link_is_alone(waiting)) return due;
  int64_t stalled =
      KW_CONTAINER_OF(waiting->next, kw_stream, answers_link)->waiting_since + KW_STALL_MS;
  return stalled < due ? stalled : due;
}

int64_t kw_session_deadline(const kw_session *session) {
  const kw_heap_node *first = kw_heap_first(&session->deadlines);
  int64_t due = keepalive_due(session), room = room_due(session);
  if (session->is_over) return KW_SESSION_NEVER;
  if (session->is_turn_over) return session->now;
  if (room < due) due = room;
  if (session->drain_deadline < due) due = session->drain_deadline;
  if (first != NULL && first->when < due) due = first->when;
  return due;
}

static void note_timeout(kw_session *session) {
  session->why[0] = 0;
  if (session->has_peer_settings) {
    kw_session_note_why(session, "the %s does not answer a PING", kw_session_peer(session));
  } else if (session->options.is_client) {
    kw_session_note_why(session, "it does not answer in time");
  } else {
    kw_session_note_why(session, "the client has not begun to speak HTTP/2 in time");
    session->is_foreign = true;
  }
}

static void keep_alive(kw_session *session) {
  if (session->now < keepalive_due(session)) return;
  if (!session->has_peer_settings || session->pong_deadline != KW_SESSION_NEVER) {
    note_timeout(session);
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
    if (stream->exchange != NULL) {
      kw_carrier_expire(stream);
      continue;
    }
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

void kw_session_ping(kw_session *session) {
  kw_session_check(session, nghttp2_submit_ping(session->h2, NGHTTP2_FLAG_NONE, NULL));
}

void kw_session_drain(kw_session *session, int64_t ms, int64_t now) {
  session->now = now;
  session->drain_deadline = now + ms;
  if (session->is_draining || session->is_over) return;
  session->is_draining = true;
  kw_session_note_why(session, "the server is shutting down");
  if (session->preface_bytes < KW_PREFACE) {
    kw_session_end(session);
  } else if (session->count == 0) {
    kw_session_check(session, nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR));
  } else {
    kw_session_check(session, nghttp2_submit_shutdown_notice(session->h2));
    kw_session_ping(session);
  }
}
