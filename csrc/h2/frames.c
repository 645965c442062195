/* SPDX-License-Identifier: MIT
 *
 * frames: the callbacks that nghttp2 calls for received frames and for sent frames.
 *
 * nghttp2 parses and checks the frames, and keeps the flow-control windows. These callbacks pass the content of frames
 * to the streams. They submit frames, but never send or receive: nghttp2 does not allow that inside a callback.
 */
#include <stdio.h>

#include "h2/carrier.h"
#include "h2/input.h"

#define RESET_BURST 10000 /* streams that a peer may reset at once... */
#define RESET_RATE 1000   /* ...and then in each second */

/* {====== Sent frames ====== */

static ssize_t on_send(nghttp2_session *h2, const uint8_t *data, size_t length, int flags,
                       void *ctx) {
  kw_session *session = ctx;
  (void)h2, (void)flags;
  if (kw_session_is_full(session)) return NGHTTP2_ERR_WOULDBLOCK;
  if (!kw_chain_add(&session->out, kw_slice_of(data, length))) {
    kw_session_end_without_memory(session);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return (ssize_t)length;
}

/* Notes the reason of our own GOAWAY with an error: usually the peer has broken the rules of HTTP/2. */
static void note_goaway(kw_session *session, uint32_t code) {
  if (!session->options.is_client) {
    kw_session_note_why(session, "the server ends the connection with the HTTP/2 error %s",
                        nghttp2_http2_strerror(code));
  } else if (session->has_peer_settings) {
    kw_session_note_broken(session);
  } else {
    kw_session_note_why(session, "it does not speak HTTP/2");
  }
}

/* Notes a sent frame. A server that has sent the whole answer of a call does not wait for the rest of the request: it
 * resets the stream with NO_ERROR. */
static int on_frame_send(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx) {
  kw_session *session = ctx;
  uint8_t type = frame->hd.type;
  if (type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
    note_goaway(session, frame->goaway.error_code);
  if (type != NGHTTP2_HEADERS && type != NGHTTP2_DATA) return 0;
  session->sent_since_ping = true;
  kw_stream *stream = kw_session_find(session, frame->hd.stream_id);
  if (stream != NULL) stream->is_sent = true;
  if (type == NGHTTP2_DATA && stream != NULL && stream->queued > 0) kw_stream_note_window(stream);
  if (session->options.is_client || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
  if (stream != NULL && stream->exchange != NULL) {
    kw_carrier_sent(stream);
  } else if (stream != NULL && !stream->is_half_closed) {
    kw_session_check(
        session, nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR));
  }
  return 0;
}

/* }====== */

/* {====== Received frames ====== */

static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *head, void *ctx) {
  kw_session *session = ctx;
  (void)h2;
  session->frame_left = head->length;
  session->frame_ends = head->type == NGHTTP2_DATA && head->flags & NGHTTP2_FLAG_END_STREAM;
  return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream = kw_session_find(session, id);
  (void)flags;
  session->frame_left -= len;
  session->data_bytes += len;
  if (stream == NULL) {
    kw_session_check(session, nghttp2_session_consume(h2, id, len));
  } else {
    kw_input_take(stream, kw_slice_of(data, len), session->frame_ends && session->frame_left == 0);
  }
  return 0;
}

/* Called for the answer to a PING. A drain sends one with its first GOAWAY: when it is answered, all requests that the
 * client sent before it received that GOAWAY have arrived. A second GOAWAY names the last of them. */
static void finish_drain_notice(kw_session *session) {
  if (!session->is_draining) return;
  int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
  kw_session_check(session, nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last,
                                                  NGHTTP2_NO_ERROR, NULL, 0));
}

/* The text in GOAWAY comes from the peer: unprintable bytes are replaced by question marks. */
static void take_goaway(kw_session *session, const nghttp2_goaway *goaway) {
  char words[64];
  size_t n = kw_min_size(goaway->opaque_data_len, sizeof words - 1);
  for (size_t i = 0; i < n; i++) {
    uint8_t c = goaway->opaque_data[i];
    words[i] = (char)(c >= ' ' && c <= '~' ? c : '?');
  }
  words[n] = 0;
  session->got_goaway = true;
  if (goaway->error_code == NGHTTP2_ENHANCE_YOUR_CALM) session->got_enhance_your_calm = true;
  if (session->options.is_client) session->why[0] = 0; /* the server's reason replaces ours */
  kw_session_note_why(session, "the %s has sent GOAWAY: %s%s%s", kw_session_peer(session),
                      nghttp2_http2_strerror(goaway->error_code), n > 0 ? ", " : "", words);
}

static int take_settings(kw_session *session, bool is_ack) {
  session->has_peer_settings = true;
  if (is_ack) return 0;
  session->windows_changed = true;
  return kw_flood_note_settings(session);
}

static void take_window(kw_session *session, int32_t id) {
  kw_stream *stream = id == 0 ? NULL : kw_session_find(session, id);
  if (stream != NULL && stream->queued > 0) kw_stream_note_window(stream);
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream;
  (void)h2;
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS: kw_headers_take(session, frame); break;
    case NGHTTP2_DATA:
      if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) break;
      stream = kw_session_find(session, frame->hd.stream_id);
      if (stream != NULL) kw_input_end(stream);
      break;
    case NGHTTP2_SETTINGS: return take_settings(session, frame->hd.flags & NGHTTP2_FLAG_ACK);
    case NGHTTP2_WINDOW_UPDATE: take_window(session, frame->hd.stream_id); break;
    case NGHTTP2_RST_STREAM:
      stream = kw_session_find(session, frame->hd.stream_id);
      if (stream != NULL) stream->got_reset = true;
      break;
    case NGHTTP2_GOAWAY: take_goaway(session, &frame->goaway); break;
    case NGHTTP2_PING:
      if (frame->hd.flags & NGHTTP2_FLAG_ACK) {
        finish_drain_notice(session);
      } else if (!session->options.is_client) {
        kw_flood_note_ping(session);
      }
      break;
    default: break;
  }
  return 0;
}

/* Called for a frame that breaks the rules. Of such a SETTINGS frame nghttp2 has applied the values before the wrong
 * one. */
static int on_invalid_frame(nghttp2_session *h2, const nghttp2_frame *frame, int error, void *ctx) {
  kw_session *session = ctx;
  (void)h2, (void)error;
  if (frame->hd.type == NGHTTP2_SETTINGS) session->windows_changed = true;
  return 0;
}

/* }====== */

/* {====== The end of a stream ====== */

static void set_status_of_reset(kw_stream *stream, uint32_t code) {
  char text[96];
  if (code == NGHTTP2_NO_ERROR) {
    snprintf(text, sizeof text, "keywatch: the answer has no status");
  } else {
    snprintf(text, sizeof text, "keywatch: the server has reset the call: %s",
             nghttp2_http2_strerror(code));
  }
  kw_stream_set_status(stream, kw_status_of_reset(code), kw_slice_of(text, strlen(text)));
}

/* A client reports the received status, or a status for the code of the reset. */
static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code, void *ctx) {
  kw_session *session = ctx;
  kw_stream *stream = kw_session_find(session, id);
  (void)h2;
  if (stream == NULL) return 0;
  if (stream->exchange != NULL) {
    if (kw_carrier_detach(stream, code)) return 0;
    kw_carrier_end(stream, code);
  } else if (session->options.is_client) {
    if (code == NGHTTP2_NO_ERROR) kw_input_finish(stream);
    if (!stream->has_status) set_status_of_reset(stream, code);
    stream->is_refused = !stream->is_sent || code == NGHTTP2_REFUSED_STREAM;
    session->hooks.on_end(stream, session->hooks.ctx);
  }
  stream->is_reset = true;
  kw_stream_free(stream);
  if (session->is_draining && session->count == 0)
    kw_session_check(session, nghttp2_session_terminate_session(session->h2, NGHTTP2_NO_ERROR));
  return 0;
}

/* }====== */

/* {====== Opening ====== */

static int make_h2(kw_session *session, nghttp2_session_callbacks *calls, nghttp2_option *option) {
  nghttp2_mem memory = kw_session_memory(session);
  nghttp2_session_callbacks_set_send_callback(calls, on_send);
  nghttp2_session_callbacks_set_send_data_callback(calls, kw_stream_on_send_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_frame_send);
  nghttp2_session_callbacks_set_on_begin_headers_callback(calls, kw_headers_on_begin);
  nghttp2_session_callbacks_set_on_header_callback2(calls, kw_headers_on_field);
  nghttp2_session_callbacks_set_on_begin_frame_callback(calls, on_begin_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(calls, on_invalid_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_stream_close);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_no_http_messaging(option, 1); /* see kw_known_note */
  nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESET_RATE);
  nghttp2_option_set_peer_max_concurrent_streams(option,
                                                 100); /* until the server's SETTINGS arrive */
  return session->options.is_client
             ? nghttp2_session_client_new3(&session->h2, calls, session, option, &memory)
             : nghttp2_session_server_new3(&session->h2, calls, session, option, &memory);
}

static bool open_h2(kw_session *session) {
  nghttp2_session_callbacks *calls = NULL;
  nghttp2_option *option = NULL;
  bool ok = nghttp2_session_callbacks_new(&calls) == 0 && nghttp2_option_new(&option) == 0 &&
            make_h2(session, calls, option) == 0;
  if (calls != NULL) nghttp2_session_callbacks_del(calls);
  if (option != NULL) nghttp2_option_del(option);
  return ok;
}

static bool submit_settings(kw_session *session) {
  nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, session->options.max_streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, KW_STREAM_WINDOW},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)session->options.max_header_bytes}};
  if (session->options.is_client)
    settings[0] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  return nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings, KW_LENGTH(settings)) ==
             0 &&
         nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0,
                                               KW_SESSION_WINDOW) == 0;
}

bool kw_frames_open(kw_session *session) {
  return open_h2(session) && submit_settings(session);
}

/* }====== */
