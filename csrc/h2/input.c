/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "h2/carrier.h"
#include "h2/input.h"
#include "model/error.h"

/* True if the owner gets no more input of the stream. */
static bool ignores_input(const kw_stream *stream) {
  return stream->is_reset || (stream->is_finished && !stream->session->options.is_client);
}

static const char too_many[] = "etcdserver: too many requests";

#define MAX_COMPARED 64 /* streams that largest_input compares, to bound its time */

/* Ends the call with a status: a server sends the status, a client reports it to its owner and resets the stream. That
 * of an exchange is reset. */
static void fail(kw_stream *stream, int status, const char *text) {
  kw_slice words = kw_slice_of(text, strlen(text));
  if (stream->exchange != NULL) {
    kw_carrier_fail(stream, text, KW_RESET_INTERNAL);
  } else if (!stream->session->options.is_client) {
    kw_stream_finish(stream, status, words);
  } else {
    kw_stream_set_status(stream, status, words);
    kw_stream_reset(stream, KW_RESET_CANCEL);
  }
}

static void refuse_split(kw_stream *stream, kw_grpc_split why) {
  char text[96];
  switch (why) {
    case KW_GRPC_TOO_LARGE:
      if (stream->session->options.is_client) {
        fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, kw_error_describe(KW_ERR_ANSWER_TOO_LARGE)->text);
        return;
      }
      snprintf(text, sizeof text, "grpc: received message larger than max (%u vs. %zu)",
               (unsigned)stream->splitter.len, stream->splitter.max_len);
      fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, text);
      return;
    case KW_GRPC_COMPRESSED:
      fail(stream, KW_GRPC_INTERNAL, "grpc: compressed flag set with identity or empty encoding");
      return;
    default: fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: out of memory"); return;
  }
}

void kw_input_check_turn(kw_session *session) {
  if (session->hooks.is_turn_over != NULL && session->hooks.is_turn_over(session->hooks.ctx))
    session->is_turn_over = true;
}

static void deliver_message(kw_stream *stream, kw_slice message) {
  kw_session *session = stream->session;
  session->hooks.on_message(stream, message, session->hooks.ctx);
  kw_input_check_turn(session);
}

/* Stores the message of a unary call, which counts as partial until it is delivered. */
static void keep_unary_message(kw_stream *stream, kw_slice message) {
  stream->unary_message = kw_blob_copy(message);
  if (stream->unary_message == NULL) {
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: out of memory");
  } else {
    stream->session->partial_bytes += message.len;
    kw_account_charge(&stream->session->account, message.len);
  }
}

/* Delivers a message. That of a unary call is stored until the half-close, unless it is the last of the stream. */
static void take_message(kw_stream *stream, kw_slice message, bool is_last) {
  if (!stream->is_unary) {
    stream->has_message = true;
    deliver_message(stream, message);
  } else if (stream->has_message) {
    fail(stream, KW_GRPC_INTERNAL, "keywatch: more than one message in a unary call");
  } else {
    stream->has_message = true;
    if (is_last) {
      stream->is_half_closed = stream->has_reported_end = true;
      deliver_message(stream, message);
    } else {
      keep_unary_message(stream, message);
    }
  }
}

/* True if the stream has to wait until the socket has taken answers. */
static bool must_wait_for_output(const kw_stream *stream) {
  return stream->is_unary && kw_session_has_enough_output(stream->session);
}

static bool is_over_queue(const kw_stream *stream) {
  return stream->queued > stream->session->options.max_stream_queued;
}

/* True if no input of the stream may be delivered now. */
static bool must_wait(const kw_stream *stream) {
  const kw_session *session = stream->session;
  if (stream->is_closing) return false;
  if (stream->wait == KW_WAIT_OWNER || session->options.is_client)
    return stream->wait == KW_WAIT_OWNER;
  return session->is_turn_over || must_wait_for_output(stream) || is_over_queue(stream);
}

/* Ends the call if partial messages need too much memory. */
static void check_partial(kw_stream *stream) {
  kw_session *session = stream->session;
  if (stream->splitter.n == 0 && stream->unary_message == NULL) return;
  if (session->partial_bytes > session->options.max_partial) {
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED,
         "keywatch: too many bytes of incomplete messages on a connection");
  } else if (!kw_account_ask(&session->account, 0)) {
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, too_many);
  } else {
    return;
  }
  kw_stream_drop_partial(stream);
}

/* Delivers a part of the body of an exchange. Returns how many bytes were used: all, or none if the stream has to
 * wait. */
static size_t deliver_body(kw_stream *stream, kw_slice bytes) {
  if (ignores_input(stream)) return bytes.len;
  if (must_wait(stream)) return 0;
  kw_carrier_take_body(stream, bytes);
  kw_input_check_turn(stream->session);
  return bytes.len;
}

/* Splits bytes into messages and delivers them. Returns how many bytes were used: all, unless the stream has to
 * wait. */
static size_t split_input(kw_stream *stream, kw_slice bytes, bool is_last) {
  kw_session *session = stream->session;
  kw_slice input = bytes, message;
  kw_grpc_split found = KW_GRPC_MESSAGE;
  if (stream->exchange != NULL) return deliver_body(stream, bytes);
  while (found == KW_GRPC_MESSAGE && !ignores_input(stream) && !must_wait(stream)) {
    if (stream->takes_one && stream->has_message && input.len > 0) {
      fail(stream, KW_GRPC_INTERNAL, "keywatch: more than one message in a call that takes one");
      break;
    }
    size_t partial = stream->splitter.n, cap = stream->splitter.cap;
    found = kw_grpc_next(&stream->splitter, &input, &message);
    session->partial_bytes += stream->splitter.n - partial;
    kw_account_resize(&session->account, cap, stream->splitter.cap);
    if (found == KW_GRPC_MESSAGE) {
      take_message(stream, message, is_last && input.len == 0);
    } else if (found != KW_GRPC_MORE) {
      refuse_split(stream, found);
    }
  }
  if (ignores_input(stream)) return bytes.len;
  check_partial(stream);
  return found == KW_GRPC_MORE ? bytes.len : bytes.len - input.len;
}

/* Returns bytes to both flow-control windows. */
static void consume(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  if (n == 0) return;
  stream->uncredited -= n;
  session->uncredited -= n;
  kw_session_check(session, nghttp2_session_consume(session->h2, stream->id, n));
}

/* Returns bytes to the stream's window. */
static void credit_stream(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  stream->uncredited -= n;
  kw_session_check(session, nghttp2_session_consume_stream(session->h2, stream->id, n));
}

/* Returns bytes to the connection's window. */
static void credit_session(kw_session *session, size_t n) {
  session->uncredited -= n;
  kw_session_check(session, nghttp2_session_consume_connection(session->h2, n));
}

/* {====== Waiting input ====== */

/* Removes the first bytes of stream->input and returns them to the stream's window. */
static void skip_input(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  session->input_bytes -= n;
  kw_chain_skip(&stream->input, n);
  if (stream->input.len == 0) kw_link_remove(&stream->input_link);
  if (stream->is_detached) {
    stream->uncredited -= n;
  } else if (n > 0 && !stream->is_closing) {
    credit_stream(stream, n);
  }
}

void kw_input_drop(kw_stream *stream) {
  skip_input(stream, stream->input.len);
}

/* Returns the stream with the most input among the first MAX_COMPARED streams, whose input is oldest; or NULL. */
static kw_stream *largest_input(const kw_session *session) {
  kw_stream *found = NULL;
  size_t n = 0;
  for (kw_link *at = session->with_input.next; at != &session->with_input && n < MAX_COMPARED;
       n++) {
    kw_stream *stream = KW_CONTAINER_OF(at, kw_stream, input_link);
    if (found == NULL || stream->input.len > found->input.len) found = stream;
    at = at->next;
  }
  return found;
}

/* True if `n` more bytes may wait on the stream. To stay within max_input, ends streams that have more input. */
static bool make_input_room(kw_stream *stream, size_t n) {
  const kw_session *session = stream->session;
  while (!session->options.is_client && session->input_bytes + n > session->options.max_input) {
    kw_stream *largest = largest_input(session);
    if (largest == NULL || largest->input.len <= stream->input.len) return false;
    fail(largest, KW_GRPC_RESOURCE_EXHAUSTED, too_many);
    kw_input_drop(largest);
  }
  return true;
}

/* Appends bytes to stream->input, and returns them to the connection's window at once. Returns false if memory is
 * short. */
static bool add_input(kw_stream *stream, kw_slice bytes) {
  kw_session *session = stream->session;
  if (!kw_chain_add(&stream->input, bytes)) return false;
  if (kw_link_is_alone(&stream->input_link)) kw_link_add(&session->with_input, &stream->input_link);
  session->input_bytes += bytes.len;
  credit_session(session, bytes.len);
  return true;
}

static bool waits(const kw_stream *stream) {
  return stream->wait != KW_WAIT_NOTHING;
}

/* Makes the stream wait, because no input may be delivered now. */
static void begin_wait(kw_stream *stream) {
  if (waits(stream)) return;
  kw_stream_wait_for(stream, is_over_queue(stream)          ? KW_WAIT_ANSWERS
                             : must_wait_for_output(stream) ? KW_WAIT_OUTPUT
                                                            : KW_WAIT_TURN);
}

void kw_input_take(kw_stream *stream, kw_slice bytes, bool is_last) {
  stream->uncredited += bytes.len;
  stream->session->uncredited += bytes.len;
  size_t used = waits(stream) && !ignores_input(stream) ? 0 : split_input(stream, bytes, is_last);
  kw_slice rest = kw_slice_of(bytes.data + used, bytes.len - used);
  consume(stream, used);
  if (rest.len == 0) return;
  bool may_wait =
      kw_account_ask(&stream->session->account, rest.len) && make_input_room(stream, rest.len);
  if (may_wait && add_input(stream, rest)) {
    begin_wait(stream);
    return;
  }
  fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, may_wait ? "keywatch: out of memory" : too_many);
  consume(stream, rest.len);
  kw_input_drop(stream);
}

/* }====== */

static void deliver_unary_message(kw_stream *stream) {
  kw_blob *message = stream->unary_message;
  stream->unary_message = NULL;
  stream->session->partial_bytes -= message->len;
  kw_account_credit(&stream->session->account, message->len);
  deliver_message(stream, kw_blob_slice(message));
  kw_blob_release(message);
}

void kw_input_end(kw_stream *stream) {
  kw_session *session = stream->session;
  stream->is_half_closed = true;
  if (waits(stream) || stream->has_reported_end) return;
  if (!ignores_input(stream) && must_wait(stream)) {
    begin_wait(stream);
    return;
  }
  stream->has_reported_end = true;
  if (stream->is_detached) {
    kw_carrier_finish(stream);
    return;
  }
  if (ignores_input(stream)) return;
  if (stream->exchange != NULL) {
    kw_carrier_take_end(stream);
  } else if (!kw_grpc_is_between(&stream->splitter)) {
    fail(stream, KW_GRPC_INTERNAL, "unexpected EOF");
  } else if (session->options.is_client) {
    if (!stream->is_finished && !stream->is_closing)
      kw_stream_reset(stream, NGHTTP2_NO_ERROR); /* the server ignores the rest of the request */
  } else if (stream->unary_message != NULL) {
    deliver_unary_message(stream);
  } else if (stream->is_unary || (stream->takes_one && !stream->has_message)) {
    fail(stream, KW_GRPC_INTERNAL, "EOF");
  } else {
    session->hooks.on_half_close(stream, session->hooks.ctx);
  }
}

static void resume_one(kw_stream *stream) {
  struct iovec part;
  while (!waits(stream) && kw_chain_peek(&stream->input, &part, 1) > 0) {
    kw_slice bytes = kw_slice_of(part.iov_base, part.iov_len);
    size_t used = split_input(stream, bytes, false);
    skip_input(stream, used);
    if (used < bytes.len) begin_wait(stream);
  }
  if (!waits(stream) && stream->is_half_closed) kw_input_end(stream);
}

void kw_input_finish(kw_stream *stream) {
  stream->is_closing = true;
  kw_stream_wait_for(stream, KW_WAIT_NOTHING);
  resume_one(stream);
}

void kw_stream_pause(kw_stream *stream) {
  if (!stream->is_closing) kw_stream_wait_for(stream, KW_WAIT_OWNER);
}

void kw_stream_resume(kw_stream *stream) {
  if (stream->wait != KW_WAIT_OWNER) return;
  kw_stream_wait_for(stream, KW_WAIT_NOTHING);
  resume_one(stream);
}

static bool has_next(const kw_session *session, kw_stream_wait wait) {
  return !session->is_turn_over && !session->is_over && kw_session_first(session, wait) != NULL;
}

static kw_stream *take_first(const kw_session *session, kw_stream_wait wait) {
  kw_stream *stream = kw_session_first(session, wait);
  kw_stream_wait_for(stream, KW_WAIT_NOTHING);
  return stream;
}

/* Refuses requests that were deferred for too long. */
static void refuse_deferred(kw_session *session) {
  kw_stream *first;
  while ((first = kw_session_first(session, KW_WAIT_ROOM)) != NULL &&
         first->waiting_since + KW_DEFERRED_MS <= session->now) {
    kw_stream_wait_for(first, KW_WAIT_NOTHING);
    fail(first, KW_GRPC_RESOURCE_EXHAUSTED, too_many);
  }
}

void kw_input_resume(kw_session *session) {
  if (session->is_resuming) return;
  session->is_resuming = true;
  while (has_next(session, KW_WAIT_TURN)) resume_one(take_first(session, KW_WAIT_TURN));
  while (has_next(session, KW_WAIT_OUTPUT) && !kw_session_has_enough_output(session))
    resume_one(take_first(session, KW_WAIT_OUTPUT));
  while (has_next(session, KW_WAIT_ROOM) && kw_session_make_room(session)) {
    session->hooks.on_room(take_first(session, KW_WAIT_ROOM), session->hooks.ctx);
    kw_input_check_turn(session);
  }
  refuse_deferred(session);
  session->is_resuming = false;
}
