/* SPDX-License-Identifier: MIT
 *
 * fault: the invariants of a session between two calls, checked in probe builds.
 *
 *   - The sums that the session keeps are those of its streams.
 *   - The connection's flow-control window was given back for all DATA that came.
 *   - A stream's flow-control window is reduced only by the input that waits.
 *   - nghttp2 knows of every stream that has something to send.
 *   - Every stream that waits waits for something that will come: a window, the socket, the next step, its owner or a
 *     deadline.
 */
#include "h2/carrier.h"
#include "probe/checks.h"

/* Sums over all streams. */
typedef struct sums {
  size_t n;
  size_t queued;
  size_t sendable;
  size_t input_bytes;
  size_t partial_bytes;
  size_t n_with_answers;
  size_t n_with_input;
  size_t n_waiting;
} sums;

static size_t count_links(const kw_link *list) {
  size_t n = 0;
  for (const kw_link *at = list->next; at != list; at = at->next) n++;
  return n;
}

static size_t partial_of(const kw_stream *stream) {
  return stream->splitter.n + (stream->unary_message == NULL ? 0 : stream->unary_message->len);
}

static void add_stream(sums *all, const kw_stream *stream) {
  all->n++;
  all->queued += stream->queued;
  all->sendable += stream->sendable;
  all->input_bytes += stream->input.len;
  all->partial_bytes += partial_of(stream);
  all->n_with_answers += !kw_link_is_alone(&stream->answers_link);
  all->n_with_input += !kw_link_is_alone(&stream->input_link);
  all->n_waiting += stream->wait != KW_WAIT_NOTHING;
}

/* {====== One stream ====== */

static const char *output_fault(const kw_stream *stream) {
  const kw_session *session = stream->session;
  bool is_sent = stream->queued > 0 && stream->has_answered;
  if (stream->counted > stream->out.len || stream->queued > stream->counted)
    return "a stream counts more than it has to send";
  if (stream->is_reset || session->options.is_client) return NULL;
  if (is_sent == kw_link_is_alone(&stream->answers_link))
    return "a stream with answers is not in the list of these";
  int32_t window = nghttp2_session_get_stream_remote_window_size(session->h2, stream->id);
  size_t sendable = kw_min_size(stream->queued, window < 0 ? 0 : (size_t)window);
  sendable = is_sent ? kw_min_size(sendable, session->options.max_stream_queued) : 0;
  if (stream->sendable != sendable) return "a stream's window is not as it was counted";
  return NULL;
}

static const char *input_fault(const kw_stream *stream) {
  const kw_session *session = stream->session;
  int32_t id = stream->id;
  if (stream->uncredited != stream->input.len)
    return "the window of a stream is not reduced by just the input that waits";
  if ((stream->input.len > 0) == kw_link_is_alone(&stream->input_link))
    return "a stream with input is not in the list of these";
  if (stream->is_half_closed || stream->is_reset || stream->has_trailers) return NULL;
  int32_t shut = nghttp2_session_get_stream_effective_recv_data_length(session->h2, id);
  bool is_sent = shut >= 0; /* else the request was not sent yet */
  if (is_sent && shut - (int32_t)stream->input.len > KW_STREAM_WINDOW / 2)
    return "nghttp2 sends no WINDOW_UPDATE for a stream";
  return NULL;
}

static const char *progress_fault(const kw_stream *stream) {
  const kw_session *session = stream->session;
  bool has_output = stream->out.len > 0 && stream->has_answered;
  if (stream->is_reset) return NULL;
  if (has_output && stream->needs_resume)
    return "a stream has output that nghttp2 does not know of";
  if (stream->wait == KW_WAIT_ANSWERS && stream->queued <= session->options.max_stream_queued / 2)
    return "a stream waits for answers that were sent";
  if (stream->input.len > 0 && stream->wait == KW_WAIT_NOTHING)
    return "input waits, but its stream does not";
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
  size_t waiting = 0;
  for (int wait = 1; wait < KW_WAITS; wait++) waiting += count_links(&session->waiting[wait]);
  if (all->n != session->count) return "the streams are not as many as were counted";
  if (all->queued != session->queued) return "the answers are not what was counted";
  if (all->sendable != session->sendable) return "the sendable bytes are not what was counted";
  if (all->input_bytes != session->input_bytes)
    return "the input that waits is not what was counted";
  if (all->partial_bytes != session->partial_bytes)
    return "the bytes of partial messages are not what was counted";
  if (all->n_with_answers != count_links(&session->with_answers))
    return "a stream with answers is not in the list of these";
  if (all->n_with_input != count_links(&session->with_input))
    return "a stream with input is not in the list of these";
  if (all->n_waiting != waiting) return "a stream that waits is in none of the lists";
  return NULL;
}

static const char *order_fault(const kw_session *session) {
  int64_t last = INT64_MIN;
  for (const kw_link *at = session->with_answers.next; at != &session->with_answers;
       at = at->next) {
    const kw_stream *stream = KW_CONTAINER_OF(at, const kw_stream, answers_link);
    if (stream->waiting_since < last)
      return "streams with answers are not in the order in which they began to wait";
    last = stream->waiting_since;
  }
  return NULL;
}

/* While output waits for the socket, kw_session_wrote is sure to come. */
static const char *wait_fault(const kw_session *session) {
  const kw_stream *deferred = kw_session_first(session, KW_WAIT_ROOM);
  bool will_resume = session->is_turn_over || session->out.len > 0;
  if (session->is_turn_over && kw_session_deadline(session) > session->now)
    return "the turn is over, but no step is due";
  if (deferred != NULL && kw_session_deadline(session) > deferred->waiting_since + KW_DEFERRED_MS)
    return "a request is deferred, but no step is due";
  if (will_resume) return NULL;
  if (kw_session_first(session, KW_WAIT_TURN) != NULL)
    return "a stream waits for the next turn, but none will begin";
  if (kw_session_first(session, KW_WAIT_OUTPUT) != NULL && !kw_session_has_enough_output(session))
    return "a stream waits for output, but there is room";
  if (deferred != NULL && session->queued <= session->options.max_waiting)
    return "a request is deferred, but there is room";
  return NULL;
}

static const char *window_fault(const kw_session *session) {
  bool has_window = nghttp2_session_get_remote_window_size(session->h2) > 0;
  if (session->uncredited > 0) return "bytes were not given back to the window of the connection";
  if (nghttp2_session_get_effective_recv_data_length(session->h2) > KW_SESSION_WINDOW / 2)
    return "nghttp2 sends no WINDOW_UPDATE for the connection";
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
  size_t charge = sizeof *session + kw_session_h2_bytes(session) + kw_session_fields_room(session) +
                  kw_chain_charge(&session->out);
  while ((stream = kw_session_next(session, stream)) != NULL) {
    charge += sizeof *stream + kw_carrier_charge(stream) + kw_chain_charge(&stream->out) +
              kw_chain_charge(&stream->input);
    charge +=
        stream->splitter.cap + (stream->unary_message == NULL ? 0 : stream->unary_message->len);
  }
  return charge;
}

/* }====== */
