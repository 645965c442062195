/* SPDX-License-Identifier: MIT
 *
 * fault: whether a session is as it must be between two calls. In probe builds.
 *
 *   - What the session counts is what its streams have.
 *   - The connection's window is open for all that has come. A stream's is shut for nothing but what it holds.
 *   - A stream with something to send is told to nghttp2, and a stream that waits waits for something that will come: a
 *     window, the socket, the next step, its owner, or a deadline.
 */
#include "h2/state.h"

#ifdef KW_PROBE

/* What all streams have together. */
typedef struct sums {
  size_t n;
  size_t queued;
  size_t sendable;
  size_t held;
  size_t torn;
  size_t n_unread;
  size_t n_holders;
  size_t n_parked;
} sums;

static size_t count_links(const kw_link *list) {
  size_t n = 0;
  for (const kw_link *at = list->next; at != list; at = at->next) n++;
  return n;
}

static size_t torn_of(const kw_stream *stream) {
  return stream->splitter.n + (stream->kept == NULL ? 0 : stream->kept->len);
}

static void add_stream(sums *all, const kw_stream *stream) {
  all->n++;
  all->queued += stream->queued;
  all->sendable += stream->sendable;
  all->held += stream->held.len;
  all->torn += torn_of(stream);
  all->n_unread += !kw_link_is_alone(&stream->unread);
  all->n_holders += !kw_link_is_alone(&stream->holding);
  all->n_parked += !kw_link_is_alone(&stream->parked);
}

/* {====== One stream ====== */

static const char *output_fault(const kw_stream *stream) {
  const kw_session *session = stream->session;
  bool is_sent = stream->queued > 0 && stream->has_answered;
  if (stream->seen > stream->out.len || stream->queued > stream->seen)
    return "a stream counts more than it has to send";
  if (stream->is_reset || session->options.is_client) return NULL;
  if (is_sent == kw_link_is_alone(&stream->unread)) return "a stream's answers wait unseen";
  int32_t window = nghttp2_session_get_stream_remote_window_size(session->h2, stream->id);
  size_t sendable = kw_min_size(stream->queued, window < 0 ? 0 : (size_t)window);
  sendable = is_sent ? kw_min_size(sendable, session->options.max_stream_queued) : 0;
  if (stream->sendable != sendable) return "a stream's window is not as it was counted";
  return NULL;
}

static const char *input_fault(const kw_stream *stream) {
  const kw_session *session = stream->session;
  int32_t id = stream->id;
  if (stream->uncredited != stream->held.len)
    return "a stream's window is not shut for just what it holds";
  if ((stream->held.len > 0) == kw_link_is_alone(&stream->holding)) return "input is held unseen";
  if (stream->is_half_closed || stream->is_reset || stream->has_trailers) return NULL;
  int32_t shut = nghttp2_session_get_stream_effective_recv_data_length(session->h2, id);
  bool is_sent = shut >= 0; /* else it is a request that has not left */
  if (is_sent && shut - (int32_t)stream->held.len > KW_STREAM_WINDOW / 2)
    return "nghttp2 keeps a stream's window shut";
  return NULL;
}

static const char *progress_fault(const kw_stream *stream) {
  const kw_session *session = stream->session;
  bool has_output = stream->out.len > 0 && stream->has_answered;
  bool is_listed = !kw_link_is_alone(&stream->parked);
  if (stream->is_reset) return NULL;
  if (has_output && stream->is_waiting) return "a stream has output that nghttp2 does not know of";
  if (stream->is_choked && stream->queued <= session->options.max_stream_queued / 2)
    return "a stream waits for answers that have left";
  if (stream->held.len > 0 && !stream->is_paused && !stream->is_choked && !is_listed)
    return "a stream's input waits for nothing";
  return NULL;
}

static const char *stream_fault(const kw_stream *stream) {
  const char *fault = output_fault(stream);
  if (fault == NULL) fault = input_fault(stream);
  return fault == NULL ? progress_fault(stream) : fault;
}

/* }====== */

/* {====== The session ====== */

static const char *count_fault(const kw_session *session, const sums *all) {
  size_t parked = count_links(&session->parked) + count_links(&session->crowded) +
                  count_links(&session->deferred);
  if (all->n != session->count) return "the streams are not as many as were counted";
  if (all->queued != session->queued) return "the answers are not what was counted";
  if (all->sendable != session->sendable) return "what can be sent is not what was counted";
  if (all->held != session->held_bytes) return "what is held is not what was counted";
  if (all->torn != session->torn) return "what is torn is not what was counted";
  if (all->n_unread != count_links(&session->unread)) return "the answers wait elsewhere";
  if (all->n_holders != count_links(&session->holders)) return "input is held elsewhere";
  if (all->n_parked != parked) return "a stream waits elsewhere";
  return NULL;
}

static const char *order_fault(const kw_session *session) {
  int64_t last = INT64_MIN;
  for (const kw_link *at = session->unread.next; at != &session->unread; at = at->next) {
    const kw_stream *stream = KW_CONTAINER_OF(at, const kw_stream, unread);
    if (stream->read < last) return "streams are not in the order in which they were read";
    last = stream->read;
  }
  return NULL;
}

static bool is_due(const kw_session *session, const kw_stream *deferred) {
  return kw_session_deadline(session) <= deferred->read + KW_DEFERRED_MS;
}

/* Output that waits for the socket is an event: kw_session_wrote follows. */
static const char *wait_fault(const kw_session *session) {
  const kw_link *deferred = &session->deferred;
  bool will_go_on = session->is_late || session->out.len > 0;
  if (session->is_late && kw_session_deadline(session) > session->now)
    return "a connection that has had its time is not due";
  if (!kw_link_is_alone(deferred) &&
      !is_due(session, KW_CONTAINER_OF(deferred->next, const kw_stream, parked)))
    return "a deferred stream is not due";
  if (will_go_on) return NULL;
  if (!kw_link_is_alone(&session->parked)) return "a parked stream waits for nothing";
  if (!kw_link_is_alone(&session->crowded) && !kw_session_is_crowded(session))
    return "a stream waits for room that there is";
  if (!kw_link_is_alone(&session->deferred) && session->queued <= session->options.max_waiting)
    return "a deferred stream waits for room that there is";
  return NULL;
}

static const char *window_fault(const kw_session *session) {
  bool has_window = nghttp2_session_get_remote_window_size(session->h2) > 0;
  if (session->uncredited > 0) return "the connection's window is shut for something";
  if (nghttp2_session_get_effective_recv_data_length(session->h2) > KW_SESSION_WINDOW / 2)
    return "nghttp2 keeps the connection's window shut";
  if (session->sendable > 0 && has_window && !nghttp2_session_want_write(session->h2))
    return "nghttp2 does not send what it could";
  return NULL;
}

const char *kw_session_fault(const kw_session *session) {
  sums all = {0};
  const kw_stream *stream = NULL;
  const char *fault = NULL;
  if (kw_session_is_done(session)) return NULL;
  while (fault == NULL && (stream = kw_session_next(session, stream)) != NULL) {
    add_stream(&all, stream);
    fault = stream_fault(stream);
  }
  if (fault == NULL) fault = count_fault(session, &all);
  if (fault == NULL) fault = order_fault(session);
  if (fault == NULL) fault = wait_fault(session);
  return fault == NULL ? window_fault(session) : fault;
}

size_t kw_session_charge(const kw_session *session) {
  const kw_stream *stream = NULL;
  size_t charge = sizeof *session + session->h2_bytes + kw_session_lines_room(session) +
                  kw_chain_charge(&session->out);
  while ((stream = kw_session_next(session, stream)) != NULL) {
    charge += sizeof *stream + kw_chain_charge(&stream->out) + kw_chain_charge(&stream->held);
    charge += stream->splitter.cap + (stream->kept == NULL ? 0 : stream->kept->len);
  }
  return charge;
}

/* }====== */

#endif
