/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "h2/input.h"
#include "model/error.h"

/* Whether nothing more of the stream concerns its owner. */
static bool is_deaf(const kw_stream *stream) {
  return stream->is_reset || (stream->is_finished && !stream->session->options.is_client);
}

static const char too_many[] = "etcdserver: too many requests";

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

static void tell_message(kw_stream *stream, kw_slice message) {
  kw_session *session = stream->session;
  session->hooks.on_message(stream, message, session->hooks.ctx);
  if (session->hooks.is_late != NULL) session->is_late = session->hooks.is_late(session->hooks.ctx);
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

/* Whether nothing more of it may be told now. */
static bool must_wait(const kw_stream *stream) {
  const kw_session *session = stream->session;
  if (stream->is_closing) return false;
  return stream->is_paused || (!session->options.is_client && kw_session_must_wait(session));
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

static void consume(kw_stream *stream, size_t n) {
  if (n > 0)
    kw_session_check(stream->session, nghttp2_session_consume(stream->session->h2, stream->id, n));
}

/* What a client holds keeps nobody else from being heard: only its own stream's window stays shut for it. */
static void hold(kw_stream *stream, size_t n) {
  if (stream->session->options.is_client)
    kw_session_check(stream->session, nghttp2_session_consume_connection(stream->session->h2, n));
}

static void consume_held(kw_stream *stream, size_t n) {
  if (!stream->session->options.is_client) {
    consume(stream, n);
  } else if (n > 0 && !stream->is_closing) {
    kw_session_check(stream->session,
                     nghttp2_session_consume_stream(stream->session->h2, stream->id, n));
  }
}

static bool is_parked(const kw_stream *stream) {
  return (stream->is_paused && !stream->is_closing) || !kw_link_is_alone(&stream->parked);
}

/* Who is paused goes on when its owner says so, all others in turn. */
static void park(kw_stream *stream) {
  if (!is_parked(stream)) kw_link_add(&stream->session->parked, &stream->parked);
}

void kw_input_take(kw_stream *stream, kw_slice bytes, bool is_last) {
  size_t used = is_parked(stream) ? 0 : hear(stream, bytes, is_last);
  consume(stream, used);
  if (used == bytes.len) return;
  bool may_hold = kw_account_ask(&stream->session->account, bytes.len - used);
  if (may_hold && kw_chain_add(&stream->held, kw_slice_of(bytes.data + used, bytes.len - used))) {
    hold(stream, bytes.len - used);
    park(stream);
  } else {
    consume(stream, bytes.len - used);
    fail(stream, KW_GRPC_RESOURCE_EXHAUSTED, may_hold ? "keywatch: out of memory" : too_many);
  }
}

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
    kw_chain_skip(&stream->held, used);
    consume_held(stream, used);
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

void kw_input_resume(kw_session *session) {
  if (session->is_resuming) return;
  session->is_resuming = true;
  while (!kw_link_is_alone(&session->parked) && !kw_session_must_wait(session)) {
    kw_stream *stream = KW_CONTAINER_OF(session->parked.next, kw_stream, parked);
    kw_link_remove(&stream->parked);
    resume_one(stream);
  }
  session->is_resuming = false;
}
