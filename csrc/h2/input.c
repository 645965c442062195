/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "h2/input.h"
#include "model/error.h"

/* Whether nothing more of the stream concerns its owner. */
static bool is_deaf(const kw_stream *stream) {
  return stream->is_reset || (stream->is_finished && !stream->session->options.is_client);
}

static const char too_many[] = "etcdserver: too many requests";

#define LOOKED_AT 64 /* streams among which the one that holds most is looked for */

/* A server says so; a client ends the call, and says so to its owner. */
static void fail(kw_stream *stream, int status, const char *text) {
  kw_slice words = kw_slice_of(text, strlen(text));
  if (!stream->session->options.is_client) {
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

/* Something was done for the connection: it may have had its time. */
static void note_turn(kw_session *session) {
  if (session->hooks.is_late != NULL) session->is_late = session->hooks.is_late(session->hooks.ctx);
}

static void tell_message(kw_stream *stream, kw_slice message) {
  kw_session *session = stream->session;
  session->hooks.on_message(stream, message, session->hooks.ctx);
  note_turn(session);
}

/* It counts as torn until it is told. */
static void keep_message(kw_stream *stream, kw_slice message) {
  stream->kept = kw_blob_copy(message);
  if (stream->kept == NULL) {
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: out of memory");
  } else {
    stream->session->torn += message.len;
    kw_account_charge(&stream->session->account, message.len);
  }
}

/* The one message of a unary call is told when nothing can follow it. */
static void hear_message(kw_stream *stream, kw_slice message, bool is_last) {
  if (!stream->is_unary) {
    stream->has_one = true;
    tell_message(stream, message);
  } else if (stream->has_one) {
    fail(stream, KW_GRPC_INTERNAL, "keywatch: more than one message in a unary call");
  } else {
    stream->has_one = true;
    if (is_last) {
      stream->is_half_closed = stream->is_told = true;
      tell_message(stream, message);
    } else {
      keep_message(stream, message);
    }
  }
}

/* Whether the socket has to take answers before the stream is heard. */
static bool is_crowded_out(const kw_stream *stream) {
  return stream->is_unary && kw_session_is_crowded(stream->session);
}

static bool is_over_queue(const kw_stream *stream) {
  return stream->queued > stream->session->options.max_stream_queued;
}

/* Whether nothing more of it may be told now. */
static bool must_wait(const kw_stream *stream) {
  const kw_session *session = stream->session;
  if (stream->is_closing) return false;
  if (stream->is_paused || session->options.is_client) return stream->is_paused;
  return session->is_late || is_crowded_out(stream) || is_over_queue(stream);
}

/* What has come of a message that is not complete may be too much of it. */
static void check_torn(kw_stream *stream) {
  kw_session *session = stream->session;
  if (stream->splitter.n == 0 && stream->kept == NULL) return;
  if (session->torn > session->options.max_torn) {
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: too much of torn messages on a connection");
  } else if (!kw_account_ask(&session->account, 0)) {
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, too_many);
  } else {
    return;
  }
  kw_stream_forget_torn(stream);
}

/* Splits what came. Returns how much of it was used: all, unless the stream had to wait. */
static size_t hear(kw_stream *stream, kw_slice bytes, bool is_last) {
  kw_session *session = stream->session;
  kw_slice input = bytes, message;
  kw_grpc_split found = KW_GRPC_MESSAGE;
  while (found == KW_GRPC_MESSAGE && !is_deaf(stream) && !must_wait(stream)) {
    if (stream->takes_one && stream->has_one && input.len > 0) {
      fail(stream, KW_GRPC_INTERNAL, "keywatch: more than one message in a call that takes one");
      break;
    }
    size_t torn = stream->splitter.n, cap = stream->splitter.cap;
    found = kw_grpc_next(&stream->splitter, &input, &message);
    session->torn += stream->splitter.n - torn;
    kw_account_resize(&session->account, cap, stream->splitter.cap);
    if (found == KW_GRPC_MESSAGE) {
      hear_message(stream, message, is_last && input.len == 0);
    } else if (found != KW_GRPC_MORE) {
      refuse_split(stream, found);
    }
  }
  if (is_deaf(stream)) return bytes.len;
  check_torn(stream);
  return found == KW_GRPC_MORE ? bytes.len : bytes.len - input.len;
}

/* Opens both windows again. */
static void consume(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  if (n == 0) return;
  stream->uncredited -= n;
  session->uncredited -= n;
  kw_session_check(session, nghttp2_session_consume(session->h2, stream->id, n));
}

/* Opens the stream's window again. */
static void credit_stream(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  stream->uncredited -= n;
  kw_session_check(session, nghttp2_session_consume_stream(session->h2, stream->id, n));
}

/* Opens the connection's window again. */
static void credit_session(kw_session *session, size_t n) {
  session->uncredited -= n;
  kw_session_check(session, nghttp2_session_consume_connection(session->h2, n));
}

/* {====== Input that waits ====== */

/* Forgets the first bytes of what is held: the stream's window opens again for them. */
static void skip_held(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  session->held_bytes -= n;
  kw_chain_skip(&stream->held, n);
  if (stream->held.len == 0) kw_link_remove(&stream->holding);
  if (n > 0 && !stream->is_closing) credit_stream(stream, n);
}

void kw_input_forget(kw_stream *stream) {
  skip_held(stream, stream->held.len);
}

/* Of the streams that have held something for longest the one that holds most; or NULL. */
static kw_stream *heaviest_holder(const kw_session *session) {
  kw_stream *found = NULL;
  size_t n = 0;
  for (kw_link *at = session->holders.next; at != &session->holders && n < LOOKED_AT; n++) {
    kw_stream *stream = KW_CONTAINER_OF(at, kw_stream, holding);
    if (found == NULL || stream->held.len > found->held.len) found = stream;
    at = at->next;
  }
  return found;
}

/* Whether the stream may hold `n` bytes more: if all together hold too much, one that holds more than it has to go. */
static bool make_room(kw_stream *stream, size_t n) {
  const kw_session *session = stream->session;
  while (!session->options.is_client && session->held_bytes + n > session->options.max_held) {
    kw_stream *heaviest = heaviest_holder(session);
    if (heaviest == NULL || heaviest->held.len <= stream->held.len) return false;
    fail(heaviest, KW_GRPC_RESOURCE_EXHAUSTED, too_many);
    kw_input_forget(heaviest);
  }
  return true;
}

/* The connection's window opens again at once. False if memory is short. */
static bool hold(kw_stream *stream, kw_slice bytes) {
  kw_session *session = stream->session;
  if (!kw_chain_add(&stream->held, bytes)) return false;
  if (kw_link_is_alone(&stream->holding)) kw_link_add(&session->holders, &stream->holding);
  session->held_bytes += bytes.len;
  credit_session(session, bytes.len);
  return true;
}

static bool is_parked(const kw_stream *stream) {
  if (stream->is_paused && !stream->is_closing) return true;
  return stream->is_choked || !kw_link_is_alone(&stream->parked);
}

/* A stream that is paused goes on when its owner says so, one with too many answers when they have left, all others in
 * turn. */
static void park(kw_stream *stream) {
  kw_session *session = stream->session;
  if (is_parked(stream)) return;
  stream->is_choked = is_over_queue(stream);
  if (stream->is_choked) return;
  kw_link_add(is_crowded_out(stream) ? &session->crowded : &session->parked, &stream->parked);
}

void kw_input_take(kw_stream *stream, kw_slice bytes, bool is_last) {
  stream->uncredited += bytes.len;
  stream->session->uncredited += bytes.len;
  size_t used = is_parked(stream) && !is_deaf(stream) ? 0 : hear(stream, bytes, is_last);
  kw_slice rest = kw_slice_of(bytes.data + used, bytes.len - used);
  consume(stream, used);
  if (rest.len == 0) return;
  bool may_hold =
      kw_account_ask(&stream->session->account, rest.len) && make_room(stream, rest.len);
  if (may_hold && hold(stream, rest)) {
    park(stream);
    return;
  }
  fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, may_hold ? "keywatch: out of memory" : too_many);
  consume(stream, rest.len);
  kw_input_forget(stream);
}

/* }====== */

static void tell_kept(kw_stream *stream) {
  kw_blob *kept = stream->kept;
  stream->kept = NULL;
  stream->session->torn -= kept->len;
  kw_account_credit(&stream->session->account, kept->len);
  tell_message(stream, kw_blob_slice(kept));
  kw_blob_release(kept);
}

void kw_input_end(kw_stream *stream) {
  kw_session *session = stream->session;
  stream->is_half_closed = true;
  if (is_parked(stream) || stream->is_told) return;
  if (!is_deaf(stream) && must_wait(stream)) {
    park(stream);
    return;
  }
  stream->is_told = true;
  if (is_deaf(stream)) return;
  if (!kw_grpc_is_between(&stream->splitter)) {
    fail(stream, KW_GRPC_INTERNAL, "unexpected EOF");
  } else if (session->options.is_client) {
    if (!stream->is_finished && !stream->is_closing)
      kw_stream_reset(stream, NGHTTP2_NO_ERROR); /* nobody hears it any more */
  } else if (!stream->is_unary) {
    session->hooks.on_half_close(stream, session->hooks.ctx);
  } else if (stream->kept != NULL) {
    tell_kept(stream);
  } else {
    fail(stream, KW_GRPC_INTERNAL, "EOF");
  }
}

static void resume_one(kw_stream *stream) {
  struct iovec part;
  while (!is_parked(stream) && kw_chain_peek(&stream->held, &part, 1) > 0) {
    kw_slice bytes = kw_slice_of(part.iov_base, part.iov_len);
    size_t used = hear(stream, bytes, false);
    skip_held(stream, used);
    if (used < bytes.len) park(stream);
  }
  if (!is_parked(stream) && stream->is_half_closed) kw_input_end(stream);
}

void kw_input_finish(kw_stream *stream) {
  stream->is_closing = true;
  kw_link_remove(&stream->parked);
  resume_one(stream);
}

void kw_stream_pause(kw_stream *stream) {
  kw_link_remove(&stream->parked);
  stream->is_paused = true;
}

void kw_stream_resume(kw_stream *stream) {
  if (!stream->is_paused) return;
  stream->is_paused = false;
  resume_one(stream);
}

static kw_stream *take_first(kw_link *list) {
  kw_stream *stream = KW_CONTAINER_OF(list->next, kw_stream, parked);
  kw_link_remove(&stream->parked);
  return stream;
}

static bool has_next(const kw_session *session, const kw_link *list) {
  return !session->is_late && !session->is_over && !kw_link_is_alone(list);
}

/* Those that have waited too long. */
static void refuse_deferred(kw_session *session) {
  while (!kw_link_is_alone(&session->deferred)) {
    kw_stream *first = KW_CONTAINER_OF(session->deferred.next, kw_stream, parked);
    if (first->read + KW_DEFERRED_MS > session->now) return;
    kw_link_remove(&first->parked);
    fail(first, KW_GRPC_RESOURCE_EXHAUSTED, too_many);
  }
}

void kw_input_resume(kw_session *session) {
  if (session->is_resuming) return;
  session->is_resuming = true;
  while (has_next(session, &session->parked)) resume_one(take_first(&session->parked));
  while (has_next(session, &session->crowded) && !kw_session_is_crowded(session))
    resume_one(take_first(&session->crowded));
  while (has_next(session, &session->deferred) && kw_session_make_room(session)) {
    session->hooks.on_room(take_first(&session->deferred), session->hooks.ctx);
    note_turn(session);
  }
  refuse_deferred(session);
  session->is_resuming = false;
}
