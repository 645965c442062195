/* SPDX-License-Identifier: MIT */
#include "h2/carrier.h"

#include "base/mem.h"

#define MAX_RESET_UNSENT 1000 /* each takes about 1 KiB */

/* Bytes above which messages are not freed at once. */
#define DISCARD_BYTES KW_LIMIT(1 << 20, 256)

kw_stream *kw_stream_new(kw_session *session, int32_t id) {
  kw_stream *stream = kw_alloc_zeroed(sizeof *stream);
  if (stream == NULL) return NULL;
  stream->session = session;
  stream->id = id;
  stream->splitter.max_len = session->options.max_message;
  stream->out.account = stream->input.account = &session->account;
  kw_account_charge(&session->account, sizeof *stream);
  kw_link_init(&stream->wait_link);
  kw_link_init(&stream->input_link);
  kw_link_init(&stream->answers_link);
  kw_link_init(&stream->undurable_link);
  kw_link_init(&stream->link);
  kw_link_add(&session->streams, &stream->link);
  session->count++;
  return stream;
}

void kw_stream_wait_for(kw_stream *stream, kw_stream_wait wait) {
  stream->wait = wait;
  kw_link_remove(&stream->wait_link);
  if (wait != KW_WAIT_NOTHING) kw_link_add(&stream->session->waiting[wait], &stream->wait_link);
}

void kw_stream_set_deadline(kw_stream *stream, int64_t when) {
  kw_session *session = stream->session;
  if (!kw_heap_reserve(&session->deadlines)) return;
  stream->deadline.when = when;
  stream->deadline.rank = stream->id;
  kw_heap_add(&session->deadlines, &stream->deadline);
  stream->has_deadline = true;
}

void kw_stream_clear_deadline(kw_stream *stream) {
  if (stream->has_deadline) kw_heap_remove(&stream->session->deadlines, &stream->deadline);
  stream->has_deadline = false;
}

void kw_stream_drop_partial(kw_stream *stream) {
  kw_session *session = stream->session;
  session->partial_bytes -= stream->splitter.n;
  kw_account_credit(&session->account, stream->splitter.cap);
  kw_grpc_drop(&stream->splitter);
  if (stream->unary_message == NULL) return;
  session->partial_bytes -= stream->unary_message->len;
  kw_account_credit(&session->account, stream->unary_message->len);
  kw_blob_release(stream->unary_message);
  stream->unary_message = NULL;
}

void kw_stream_free(kw_stream *stream) {
  kw_session *session = stream->session;
  bool is_fetch = stream->exchange != NULL && session->options.is_client;
  if (stream->exchange != NULL) kw_carrier_free(stream);
  if (!is_fetch) session->hooks.on_close(stream, session->hooks.ctx);
  session->n_reset_unsent -= stream->is_reset_unsent;
  session->input_bytes -= stream->input.len;
  kw_stream_wait_for(stream, KW_WAIT_NOTHING);
  kw_link_remove(&stream->input_link);
  kw_link_remove(&stream->undurable_link);
  kw_link_remove(&stream->link);
  kw_stream_clear_deadline(stream);
  kw_stream_drop_partial(stream);
  kw_stream_forget(stream);
  kw_chain_drop(&stream->input);
  if (stream->text != NULL) kw_blob_release(stream->text);
  session->count--;
  if (!session->options.is_client) kw_flood_forget_stream(session, stream->id);
  kw_account_credit(&session->account, sizeof *stream);
  kw_free(stream);
}

/* {====== Waiting answers ====== */

static size_t window_of(const kw_stream *stream) {
  int32_t window = nghttp2_session_get_stream_remote_window_size(stream->session->h2, stream->id);
  return window > 0 ? (size_t)window : 0;
}

static void set_sendable(kw_stream *stream, size_t n) {
  stream->session->sendable += n - stream->sendable;
  stream->sendable = n;
}

void kw_stream_note_window(kw_stream *stream) {
  size_t most = stream->has_answered ? stream->session->options.max_stream_queued : 0;
  size_t n = kw_min_size(stream->queued, most);
  set_sendable(stream, n == 0 ? 0 : kw_min_size(n, window_of(stream)));
}

static void set_queued(kw_stream *stream, size_t n) {
  stream->session->queued += n - stream->queued;
  stream->queued = n;
  if (n == 0) kw_link_remove(&stream->answers_link);
}

/* Restarts the stall time of the stream. */
static void restart_wait(kw_stream *stream) {
  kw_session *session = stream->session;
  stream->waiting_since = session->now;
  stream->sent_while_waiting = 0;
  kw_link_remove(&stream->answers_link);
  kw_link_add(&session->with_answers, &stream->answers_link);
}

/* Called when bytes have left stream->out. nghttp2 subtracts them from the window later, see on_frame_send. */
static void note_sent(kw_stream *stream, size_t n) {
  kw_session *session = stream->session;
  if (stream->queued == 0) return;
  set_queued(stream, stream->queued - kw_min_size(n, stream->queued));
  set_sendable(stream, kw_min_size(stream->sendable, stream->queued));
  stream->sent_while_waiting += n;
  if (stream->queued > 0 && stream->sent_while_waiting >= KW_STALL_BYTES) restart_wait(stream);
  if (stream->wait == KW_WAIT_ANSWERS && stream->queued <= session->options.max_stream_queued / 2)
    kw_stream_wait_for(stream, KW_WAIT_TURN);
}

/* Counts the bytes that were added to the answers. Returns their number. */
static inline size_t count(kw_stream *stream) {
  const kw_session *session = stream->session;
  size_t added = stream->out.len - stream->counted;
  stream->counted = stream->out.len;
  if (!session->is_pulling && !session->options.is_client && !stream->is_paced)
    set_queued(stream, stream->queued + added);
  return added;
}

void kw_stream_count(kw_stream *stream) {
  stream->begun_bytes += count(stream);
}

/* Freeing many bytes takes long, so the owner frees them in several turns. */
static void discard(kw_stream *stream) {
  kw_chain *discarded = stream->session->options.discarded;
  if (discarded != NULL && stream->out.len > DISCARD_BYTES) {
    kw_chain_append(discarded, &stream->out);
  } else {
    kw_chain_drop(&stream->out);
  }
}

void kw_stream_forget(kw_stream *stream) {
  set_queued(stream, 0);
  set_sendable(stream, 0);
  stream->counted = 0;
  stream->begun = 0;
  stream->begun_bytes = 0;
  discard(stream);
}

/* Resets a stream, and frees its answers at once: the stream exists until its RST_STREAM is sent, which may never
 * happen. The exception is the one stream whose DATA frame nghttp2 has begun: its answers stay. */
static void drop_answers(kw_stream *stream) {
  if (stream->is_framed) {
    set_queued(stream, 0);
    set_sendable(stream, 0);
  } else {
    kw_stream_forget(stream);
  }
  kw_stream_reset(stream, NGHTTP2_ENHANCE_YOUR_CALM);
}

bool kw_session_make_room(kw_session *session) {
  while (session->queued > session->options.max_waiting &&
         !kw_link_is_alone(&session->with_answers)) {
    kw_stream *first = KW_CONTAINER_OF(session->with_answers.next, kw_stream, answers_link);
    if (first->waiting_since + KW_STALL_MS > session->now) return false;
    if (first->sendable == first->queued && !first->is_reset) {
      restart_wait(first);
    } else {
      drop_answers(first);
    }
  }
  return session->queued <= session->options.max_waiting;
}

bool kw_stream_has_room(kw_stream *stream, size_t len) {
  const kw_session *session = stream->session;
  return session->queued <= session->options.max_waiting || len <= window_of(stream) ||
         kw_session_make_room(stream->session);
}

void kw_stream_defer(kw_stream *stream) {
  stream->waiting_since = stream->session->now;
  kw_stream_wait_for(stream, KW_WAIT_ROOM);
}

/* }====== */

/* {====== Sending ====== */

/* True if trailers follow the last bytes. */
static bool ends_with_trailers(const kw_stream *stream) {
  if (stream->exchange != NULL) return kw_carrier_of(stream->exchange)->trailers_after != NULL;
  return !stream->session->options.is_client;
}

/* Adds the trailers, which close the stream from this side. */
static void submit_trailers(kw_stream *stream) {
  if (stream->has_trailers) return;
  stream->has_trailers = true;
  if (stream->exchange != NULL) {
    kw_carrier_submit_trailers(stream);
    return;
  }
  uint8_t text[KW_STATUS_ROOM];
  nghttp2_nv fields[2];
  size_t n = kw_trailer_fields(stream, text, fields);
  kw_session_check(stream->session,
                   nghttp2_submit_trailer(stream->session->h2, stream->id, fields, n));
}

/* Lets the owner add more. */
static void pull(kw_stream *stream) {
  kw_session *session = stream->session;
  if (stream->exchange != NULL) {
    kw_carrier_pull(stream);
    return;
  }
  session->is_pulling = true;
  session->hooks.on_pull(stream, session->hooks.ctx);
  session->is_pulling = false;
}

/* Returns how many bytes of the stream go into the next DATA frame. kw_stream_on_send_data moves them. */
static ssize_t on_read_data(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                            uint32_t *flags, nghttp2_data_source *source, void *ctx) {
  kw_stream *stream = source->ptr;
  (void)h2, (void)id, (void)buf, (void)ctx;
  if (stream->is_reset) return NGHTTP2_ERR_DEFERRED;
  if (stream->out.len < length && !stream->is_finished) pull(stream);
  size_t n = kw_min_size(length, stream->out.len);
  stream->is_framed = n > 0;
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (stream->is_finished && n == stream->out.len) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (ends_with_trailers(stream)) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      submit_trailers(stream);
    }
    return (ssize_t)n;
  }
  if (n > 0) return (ssize_t)n;
  stream->needs_resume = true;
  return NGHTTP2_ERR_DEFERRED;
}

int kw_stream_on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head,
                           size_t length, nghttp2_data_source *source, void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream = source->ptr;
  (void)h2, (void)frame;
  if (kw_session_is_full(session)) return NGHTTP2_ERR_WOULDBLOCK;
  if (!kw_chain_add(&session->out, kw_slice_of(head, 9)) ||
      !kw_chain_move(&stream->out, length, &session->out)) {
    kw_session_end_without_memory(session);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  stream->is_framed = false;
  stream->counted -= length;
  note_sent(stream, length);
  return 0;
}

nghttp2_data_provider kw_stream_data(kw_stream *stream) {
  return (nghttp2_data_provider){.source.ptr = stream, .read_callback = on_read_data};
}

static void answer(kw_stream *stream) {
  nghttp2_data_provider data = kw_stream_data(stream);
  bool has_data = !stream->is_finished || stream->out.len > 0;
  uint8_t text[KW_STATUS_ROOM];
  nghttp2_nv fields[4];
  size_t n = kw_answer_fields(stream, fields);
  if (!has_data) n += kw_trailer_fields(stream, text, fields + n);
  stream->has_answered = true;
  kw_session_check(stream->session, nghttp2_submit_response(stream->session->h2, stream->id, fields,
                                                            n, has_data ? &data : NULL));
}

void kw_stream_wake(kw_stream *stream) {
  if (stream->is_reset) return;
  if (!stream->has_answered) {
    answer(stream);
  } else if (stream->needs_resume) {
    stream->needs_resume = false;
    kw_session_check(stream->session, nghttp2_session_resume_data(stream->session->h2, stream->id));
  }
}

uint8_t *kw_stream_begin(kw_stream *stream, size_t len) {
  uint8_t *to = kw_chain_reserve(&stream->out, KW_GRPC_PREFIX + len);
  if (to == NULL) return NULL;
  stream->begun++;
  return kw_grpc_put_prefix(to, len);
}

void kw_stream_commit(kw_stream *stream, size_t len) {
  kw_chain_commit(&stream->out, KW_GRPC_PREFIX + len);
  kw_stream_sent(stream);
}

bool kw_stream_begin_parts(kw_stream *stream, size_t len) {
  uint8_t prefix[KW_GRPC_PREFIX];
  kw_grpc_put_prefix(prefix, len);
  stream->begun++;
  return kw_chain_add(&stream->out, kw_slice_of(prefix, sizeof prefix));
}

void kw_stream_sent(kw_stream *stream) {
  size_t added = count(stream);
  if (stream->sent != NULL) {
    stream->sent->messages += stream->begun;
    stream->sent->bytes += stream->begun_bytes + added;
  }
  stream->begun = 0;
  stream->begun_bytes = 0;
  kw_stream_wake(stream);
  if (stream->queued == 0 || stream->is_reset) return;
  kw_stream_note_window(stream);
  if (kw_link_is_alone(&stream->answers_link)) restart_wait(stream);
}

void kw_stream_set_status(kw_stream *stream, int status, kw_slice text) {
  stream->status = (uint8_t)status;
  stream->has_status = true;
  if (stream->text != NULL) kw_blob_release(stream->text);
  stream->text = text.len == 0 ? NULL : kw_blob_copy(text); /* NULL if memory is short */
}

void kw_stream_finish(kw_stream *stream, int status, kw_slice text) {
  if (stream->is_finished) return;
  stream->is_finished = true;
  kw_stream_set_status(stream, status, text);
  kw_stream_clear_deadline(stream);
  if (stream->has_answered && stream->out.len == 0 && !stream->is_reset) {
    submit_trailers(stream); /* trailers need no window */
  } else {
    kw_stream_wake(stream);
  }
}

void kw_stream_refuse(kw_stream *stream, int http_status, int status, kw_slice text) {
  stream->http_status = (uint16_t)http_status;
  kw_stream_finish(stream, status, text);
}

/* nghttp2 keeps an unsent request until the server accepts another stream, even after the stream was reset. Frees the
 * messages of the request at once. Ends the connection if there are too many such requests. */
static void note_reset_unsent(kw_stream *stream) {
  kw_session *session = stream->session;
  stream->is_reset_unsent = true;
  kw_stream_forget(stream);
  if (++session->n_reset_unsent > MAX_RESET_UNSENT) kw_session_end(session);
}

void kw_stream_reset(kw_stream *stream, uint32_t code) {
  if (stream->is_reset) return;
  stream->is_reset = true;
  if (stream->is_closing) return;
  if (stream->session->options.is_client && !stream->is_sent) note_reset_unsent(stream);
  kw_session_check(stream->session, nghttp2_submit_rst_stream(stream->session->h2,
                                                              NGHTTP2_FLAG_NONE, stream->id, code));
}

void kw_stream_half_close(kw_stream *stream) {
  stream->is_finished = true;
  kw_stream_wake(stream);
}

/* }====== */
