/* SPDX-License-Identifier: MIT
 *
 * stream: one gRPC call in a session, on either side.
 *
 *   server   on_open -> on_message* -> on_half_close       send* -> finish
 *   client   request, send*, half_close                    on_message* -> on_end
 *
 * on_close is always the last call. Then the stream is freed.
 *
 * An *answer* is a message that a server queues although the client may not read it now. Answers are counted, and
 * bounded, as `queued`. Messages that are added in on_pull (events of a watch), and those of a stream with is_paced,
 * are added only when the flow-control window has space for them, so they are not counted.
 *
 * A stream *stalls* if its client takes fewer than KW_STALL_BYTES of its waiting answers within KW_STALL_MS. When more
 * than max_waiting bytes of answers wait on the connection, stalled streams are reset, oldest first, and lose their
 * answers. A stream whose window has space for all its answers does not stall: it waits for the connection, not for its
 * client.
 */
#ifndef KW_H2_STREAM_H
#define KW_H2_STREAM_H

#include "base/chain.h"
#include "base/heap.h"
#include "base/link.h"
#include "codec/grpc.h"
#include "http/exchange.h"

#define KW_RESET_INTERNAL 2 /* HTTP/2's error code INTERNAL_ERROR */
#define KW_RESET_CANCEL 8   /* HTTP/2's error code CANCEL */

#define KW_STALL_MS 5000
#define KW_STALL_BYTES (64 * 1024)
#define KW_DEFERRED_MS 30000 /* how long a deferred request waits for space before it is refused */

typedef struct kw_session kw_session;
typedef struct kw_stream kw_stream;

/* The messages that streams have sent, and their bytes, with the prefix of each. */
typedef struct kw_sent {
  uint64_t messages;
  uint64_t bytes;
} kw_sent;

/* Condition for the delivery of more input of a stream. Until then the input waits, see input.h. */
typedef enum kw_stream_wait {
  KW_WAIT_NOTHING,
  KW_WAIT_TURN,    /* server: the next turn of the connection begins */
  KW_WAIT_OUTPUT,  /* server: the socket takes answers; of a unary call */
  KW_WAIT_ANSWERS, /* server: enough of the stream's own answers are sent */
  KW_WAIT_ROOM,    /* server: there is space for the answer, see kw_stream_defer */
  KW_WAIT_OWNER,   /* kw_stream_resume is called */
  KW_WAITS
} kw_stream_wait;

struct kw_stream {
  kw_session *session;
  int32_t id;

  /* Set by the owner */
  bool is_unary : 1;  /* one message, delivered once the client has half-closed */
  bool takes_one : 1; /* one message, delivered at once; a second one ends the call */
  bool is_paced : 1;  /* server: the owner adds a message only after on_pull has asked for one */

  /* Receiving */
  bool has_message : 1;        /* a message was received */
  bool is_half_closed : 1;     /* the peer sends no more */
  bool has_reported_end : 1;   /* the owner was notified of the half-close, or need not be */
  bool is_closing : 1;         /* nghttp2 closes the stream: input is delivered now or never */
  bool has_answer_headers : 1; /* client: the headers of the answer were received */

  /* Sending */
  bool has_answered : 1; /* our headers were submitted */
  bool is_finished : 1;  /* no more messages are added to `out`; a server's trailers follow it */
  bool has_trailers : 1; /* the trailers were submitted */
  bool needs_resume : 1; /* nghttp2 asks for data again only after nghttp2_session_resume_data */
  bool is_framed : 1;    /* nghttp2 has begun a DATA frame with the first bytes of `out` */
  bool is_sent : 1;      /* client: nghttp2 has sent the request */

  /* The end */
  bool
      has_status : 1; /* the call has its status: of the owner (server), received or ours (client) */
  bool is_reset : 1;  /* either side has reset the stream, or it is closed: nothing more is sent */
  bool got_reset : 1;       /* client: the server has reset the stream */
  bool is_reset_unsent : 1; /* client: reset before the request was sent */
  bool is_detached : 1; /* client: nghttp2 has closed the stream, but its input was not delivered */
  bool is_refused : 1;  /* client: the server has not processed the request and never will */

  bool has_deadline : 1;  /* `deadline` is in the session's heap */
  bool is_plus_proto : 1; /* the client's content-type is application/grpc+proto */
  uint16_t http_status;   /* HTTP status of a refusal; or 0, which means 200 */
  uint8_t status;         /* kw_grpc_status */
  kw_blob *text;          /* text of the status; or NULL */

  kw_exchange *exchange;     /* carried by the stream, see carrier.h; NULL: a gRPC call */
  kw_grpc_splitter splitter; /* has the bytes of a message that is not complete */
  kw_stream_wait wait;       /* changed only by kw_stream_wait_for */
  kw_link wait_link;         /* in the session's list of the streams with the same `wait` */
  kw_chain input;            /* DATA that arrived while the stream waited */
  size_t uncredited;         /* DATA bytes that no WINDOW_UPDATE of the stream has returned yet */
  kw_blob *unary_message;    /* message of a unary call that waits for the half-close; or NULL */

  kw_chain out;       /* gRPC frames to be sent as DATA */
  size_t counted;     /* bytes of `out` that kw_stream_count has counted */
  size_t begun;       /* messages that were begun, and that `sent` does not count yet */
  size_t begun_bytes; /* bytes of these messages that kw_stream_count has counted */
  size_t queued;      /* bytes of `out` that are answers */
  size_t sendable; /* the part of `queued` that the window has space for, up to max_stream_queued */
  int64_t waiting_since; /* when the stall time of the answers began, or the call was deferred */
  size_t sent_while_waiting; /* bytes sent since then */

  kw_heap_node deadline; /* of the call, as the client set it */
  kw_link link;          /* in session->streams */
  kw_link input_link;    /* in session->with_input */
  kw_link answers_link;  /* in session->with_answers */

  /* For the owner. A client uses only `owner`. The session initializes `undurable_link`, and removes it from its
   * list when the stream is freed. */
  const void *method;     /* server: the kw_method of the call; NULL if it has none */
  kw_sent *sent;          /* server: counts what the stream sends; or NULL */
  int64_t opened_at;      /* server: when the call has begun, if `sent` is set */
  void *owner;            /* the state of the method, or of the client, for the call */
  void *proceeded_call;   /* server: a call that Lua let proceed, see rpc/call.c; or NULL */
  kw_link undurable_link; /* server: in the list of streams whose answers are not durable yet */
  uint64_t ticket;        /* server: the store's ticket that the answer waits for */
  int failure;            /* server: the error with which the call then ends; or KW_OK */
};

/* {====== Messages ====== */

/* Begins a message of `len` bytes. Returns a buffer for them. The caller must fill it and call kw_stream_commit before
 * it calls any other function of the stream. Returns NULL, with nothing begun, if memory is short. */
uint8_t *kw_stream_begin(kw_stream *stream, size_t len);

/* Sends the message that kw_stream_begin has begun; `len` is the same. */
void kw_stream_commit(kw_stream *stream, size_t len);

/* Begins a message of `len` bytes whose parts the caller adds to stream->out. Then the caller calls kw_stream_sent or
 * kw_stream_forget. Returns false, with nothing begun, if memory is short. */
bool kw_stream_begin_parts(kw_stream *stream, size_t len);

/* Sends the bytes that were added to stream->out. Called when the parts of a message are complete. */
void kw_stream_sent(kw_stream *stream);

/* Counts the bytes that were added to stream->out as queued, without sending them. For an answer that is made in
 * several steps: kw_stream_sent sends all of them. */
void kw_stream_count(kw_stream *stream);

/* Drops all of stream->out, for example an answer that was begun and cannot be completed. */
void kw_stream_forget(kw_stream *stream);

/* Server: true if an answer of `len` bytes may be queued: the stream's window has space for all of it, or at most
 * max_waiting bytes of answers wait on the connection. To make space, stalled streams are reset. */
bool kw_stream_has_room(kw_stream *stream, size_t len);

/* Server: defers the call, after kw_stream_has_room was false. on_room is called when there is space. After
 * KW_DEFERRED_MS without space the call ends with status 8. */
void kw_stream_defer(kw_stream *stream);

/* Notes that the owner has something to send: kw_session_flush will call on_pull when the flow-control window has
 * space. */
void kw_stream_wake(kw_stream *stream);

/* Stops the delivery of messages. Further DATA waits, and flow control stops the peer. Must not be called for a
 * deferred call, which would no longer be resumed. */
void kw_stream_pause(kw_stream *stream);

/* Resumes the delivery. Delivers waiting messages before it returns, as far as the turn and the output allow. Does
 * nothing if the stream is not paused. */
void kw_stream_resume(kw_stream *stream);

/* }====== */

/* {====== The end ====== */

/* Server: ends the call with a status and its text, which are sent after all earlier messages. A second call of this
 * function does nothing. */
void kw_stream_finish(kw_stream *stream, int status, kw_slice text);

/* Server: like kw_stream_finish, with an HTTP status, for a call that is not valid gRPC: 200, 400 or 431. Nothing may
 * have been sent. */
void kw_stream_refuse(kw_stream *stream, int http_status, int status, kw_slice text);

/* Half-closes the stream: no more is sent after stream->out. Of a server only for exchanges. */
void kw_stream_half_close(kw_stream *stream);

/* Resets the stream: ends it for both sides at once. `code` is an HTTP/2 error code. on_close, and before it a
 * client's on_end, follow once RST_STREAM was sent. A second call does nothing. */
void kw_stream_reset(kw_stream *stream, uint32_t code);

/* }====== */

#endif
