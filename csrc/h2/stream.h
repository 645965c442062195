/* SPDX-License-Identifier: MIT
 *
 * stream: one gRPC call inside of a session, in either role.
 *
 *   server   on_open -> on_message* -> on_half_close       send* -> finish
 *   client   request, send*, half_close                    on_message* -> on_end
 *
 * and at last, whatever happened, on_close, after which the stream is gone.
 */
#ifndef KW_H2_STREAM_H
#define KW_H2_STREAM_H

#include "base/chain.h"
#include "base/heap.h"
#include "base/link.h"
#include "codec/grpc.h"

#define KW_RESET_INTERNAL 2 /* HTTP/2's codes INTERNAL_ERROR and CANCEL */
#define KW_RESET_CANCEL 8

/* A stream with answers of which less than that is read in this time may lose them; and how long a request waits for
 * that, before it is refused. */
#define KW_STALL_MS 5000
#define KW_DEFERRED_MS 30000
#define KW_STALL_BYTES (64 * 1024)

typedef struct kw_session kw_session;
typedef struct kw_stream kw_stream;

struct kw_stream {
  kw_session *session;
  int32_t id;
  bool is_unary : 1; /* its owner wants one message, and only once the other side has half-closed */
  bool takes_one : 1;        /* the same, but at once: anything that follows ends the call */
  bool has_answered : 1;     /* headers were submitted */
  bool is_finished : 1;      /* a status was given: what is queued goes out, then the trailers */
  bool is_half_closed : 1;   /* the other side sends no more */
  bool has_reported_end : 1; /* its owner has heard of the half-close, or of the end */
  bool is_reset : 1;         /* the other side has lost interest */
  bool needs_resume : 1;     /* its data is deferred until there is something */
  bool is_paused : 1;        /* its owner wants to hear nothing for now */
  bool is_parked_by_answers : 1; /* it is heard no further until its own answers have left */
  bool is_framed : 1;            /* nghttp2 is about to send the first of its data */
  bool has_trailers : 1;         /* they were submitted */
  bool has_message : 1;          /* its only message has come */
  bool has_deadline : 1;         /* in the session's heap */
  bool has_status : 1;           /* it was given, or has come */
  bool is_plus_proto : 1;        /* the client says application/grpc+proto */
  bool is_sent : 1;              /* a client's: it has left, or is about to */
  bool is_refused : 1;           /* a client's: the server has not looked at it, and never will */
  bool is_closing : 1;           /* what was held is told now, or never */
  bool is_reset_unsent : 1;      /* a client's: it was reset before it has left */
  bool has_answer_headers : 1;   /* a client's: the headers of the answer have come */
  uint16_t http_status;          /* of an answer that is not 200; or 0 */
  uint8_t status;                /* kw_grpc_status, given or received */
  kw_grpc_splitter splitter;
  kw_chain out;              /* what is to be sent */
  size_t counted;            /* how much of it the session knows of */
  size_t queued;             /* how much of that are answers */
  size_t sendable;           /* how much of them its window lets out; at most max_stream_queued */
  size_t sent_while_waiting; /* bytes that were sent since `read` */
  int64_t
      waiting_since; /* when that was; or when the first answer came to wait, or the stream was deferred */
  kw_chain input;         /* what came while it was parked */
  size_t uncredited;      /* what has come, and its window is still shut for */
  kw_blob *unary_message; /* unary: its message, if it came before the half-close */
  kw_blob *text;          /* of the status, or NULL */
  kw_heap_node deadline;
  kw_link link;         /* among the streams of the session */
  kw_link parked_link;  /* among those whose input, or whose request, waits */
  kw_link input_link;   /* among those that hold input */
  kw_link answers_link; /* among those whose answers wait */
  const void *role;     /* these are its owner's own */
  void *owner;
  void *watched;
  kw_link waiting;
  uint64_t ticket;
  int failure;
};

/* Begins a message of `len` bytes: room for them, behind a prefix; NULL if memory is short. When it has been filled in
 * it is committed. */
uint8_t *kw_stream_begin(kw_stream *stream, size_t len);
void kw_stream_commit(kw_stream *stream, size_t len);

/* The same for a message whose parts are added to stream->out one by one: first the prefix, for `len` bytes to follow;
 * false if memory is short. At last kw_stream_sent is told. */
bool kw_stream_begin_parts(kw_stream *stream, size_t len);
void kw_stream_sent(kw_stream *stream);

/* Counts what was added to stream->out of an answer that is not complete; and throws away one that never will be. */
void kw_stream_count(kw_stream *stream);
void kw_stream_forget(kw_stream *stream);

/* A server's: whether an answer of `len` bytes may wait on the stream: its window lets all of it out, or no more than
 * max_waiting bytes of answers wait on the connection. Where more do, streams that are not read lose theirs. */
bool kw_stream_has_room(kw_stream *stream, size_t len);

/* A server's: on_room is told when the answers that wait are fewer; or the call ends with status 8. */
void kw_stream_defer(kw_stream *stream);

/* Lets what comes wait, held back by flow control, and lets it go on. */
void kw_stream_pause(kw_stream *stream);
void kw_stream_resume(kw_stream *stream);

/* Its owner has more to add: it will be asked for it by on_pull. */
void kw_stream_wake(kw_stream *stream);

/* A server's: ends the stream with a status and its text, once all that was sent has gone out. The second is for what
 * is refused before gRPC begins. */
void kw_stream_finish(kw_stream *stream, int status, kw_slice text);
void kw_stream_refuse(kw_stream *stream, int http_status, int status, kw_slice text);

/* Ends it for both sides at once; its owner is told when that has gone out. */
void kw_stream_reset(kw_stream *stream, uint32_t code);

/* A client's: no more will be sent. */
void kw_stream_half_close(kw_stream *stream);

#endif
