/* SPDX-License-Identifier: MIT
 *
 * call_state: the inside of a call that Lua answers or intercepts, shared by the files for the two kinds of calls:
 * rpc/call.c for gRPC, and rpc/request.c for HTTP. Included by no other file.
 */
#ifndef KW_RPC_CALL_STATE_H
#define KW_RPC_CALL_STATE_H

#include "http/exchange.h"
#include "rpc/call.h"
#include "rpc/message_queue.h"
#include "rpc/service.h"

typedef struct kw_call kw_call;

/* The functions of the carrier of a call, a stream or an exchange. Called only while it is open. `send` and `finish` do
 * what kw_call_send and kw_call_finish do. */
typedef struct kw_call_carrier {
  void (*resume)(kw_server *server, kw_call *call); /* there is room for more input */
  bool (*send)(kw_server *server, kw_call *call, kw_slice bytes, bool *has_room);
  void (*finish)(kw_server *server, kw_call *call, int status, kw_slice text);
} kw_call_carrier;

struct kw_call {
  uint64_t id;
  const kw_call_carrier *carrier;
  const kw_method *method;
  kw_peer *peer;
  kw_stream *stream;         /* of gRPC; NULL: the stream is closed */
  kw_exchange *exchange;     /* of HTTP; NULL: the exchange is closed */
  kw_account *account;       /* of the connection; NULL: the stream or the exchange is closed */
  kw_blob *metadata;         /* as in kw_call_info; NULL with the account */
  kw_message_queue messages; /* that Lua has not received yet */
  size_t gathered;           /* bytes that Lua has received and keeps; charged, too */
  unsigned news;             /* KW_CALL_NEWS_ bits that Lua has not taken */
  int status;                /* the gRPC status of the end */
  bool is_intercepted;
  bool is_inspected;    /* intercepted: Lua sees each message before the method does */
  bool is_due;          /* Lua has seen the message that waits, and the method was busy */
  bool input_has_ended; /* no more messages will arrive */
  bool is_misdirected;  /* HTTP: as in kw_call_info */
  bool has_answered;    /* HTTP: the head of the answer was sent */
  bool ends_silently;   /* HTTP: Lua has finished it, and gets no news of its end */
  bool wants_room;      /* Lua waits until it can send */
  bool lags;            /* HTTP: a broadcast has left it out, since the publish `lags_at` */
  int64_t lags_at;
  kw_link member; /* HTTP: in a broadcast, see rpc/broadcast.h */
  kw_link link;   /* among the calls of its connection that have news */
};

/* Makes a call. The caller sets the carrier, the method, and the stream or the exchange. Takes over the reference to
 * the metadata. Charges the account. Returns NULL if memory is short, also if `metadata` is NULL. */
kw_call *kw_call_new(kw_server *server, kw_peer *peer, kw_account *account, kw_blob *metadata);

/* Adds news for Lua. */
void kw_call_announce(kw_server *server, kw_call *call, unsigned news);

/* Ends a call: detaches it from its connection, which may close next, and drops its messages. The caller announces the
 * end next, or frees the call. */
void kw_call_detach(kw_call *call, int status);

/* Frees a call that was detached. */
void kw_call_free(kw_server *server, kw_call *call);

#endif
