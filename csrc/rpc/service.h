/* SPDX-License-Identifier: MIT
 *
 * service: methods, the inside of a server, and the functions with which services answer calls. For this folder only.
 */
#ifndef KW_RPC_SERVICE_H
#define KW_RPC_SERVICE_H

#include "base/link.h"
#include "base/map.h"
#include "codec/messages.h"
#include "http/connection.h"
#include "http/date.h"
#include "http/first_bytes.h"
#include "rpc/driver.h"
#include "rpc/server.h"

typedef struct kw_method kw_method;
typedef struct kw_host kw_host;
typedef struct kw_fixed_answer kw_fixed_answer;

/* A method, and its functions for the events of a call, see kw_session_hooks. A NULL function means that nothing is
 * done. on_request must be set. */
struct kw_method {
  const char *path;
  kw_method_counters *counters; /* of a server's own method; NULL in the tables below */
  const kw_message *request; /* how requests are decoded; NULL: they are kw_slices of the bytes */
  size_t max_request;        /* limit of a request in bytes, see kw_method_begin; 0: the default */
  bool is_unary;
  bool takes_one; /* not unary, but of one request */
  bool waits; /* unary: a request waits while the store does a long write, see rpc/write_queue.h */
  /* Of a method that waits: true if a request need not wait, since it only reads. Or NULL. */
  bool (*only_reads)(const void *request);
  void (*on_open)(kw_server *server, kw_stream *stream);
  void (*on_request)(kw_server *server, kw_stream *stream, const void *request);
  void (*on_half_close)(kw_server *server, kw_stream *stream);
  /* True if a message that Lua has seen must wait for kw_call_let_in. NULL: never. */
  bool (*is_busy)(const kw_stream *stream);
  void (*on_pull)(kw_server *server, kw_stream *stream);
  void (*on_room)(kw_server *server, kw_stream *stream); /* needed by a method that defers calls */
  void (*on_timeout)(kw_server *server, kw_stream *stream); /* the call has got its status */
  void (*on_drain)(kw_server *server, kw_stream *stream);   /* see kw_server_drain */
  void (*on_close)(kw_server *server, kw_stream *stream);
};

/* A unary method without state of its calls. */
#define KW_UNARY_METHOD(name, message, fn)                                                         \
  {                                                                                                \
    .path = name, .request = &kw_msg_##message, .is_unary = true, .on_request = fn,                \
    .on_timeout = kw_service_abandon                                                               \
  }

/* A unary method whose requests wait while the store does a long write. */
#define KW_WAITING_METHOD(name, message, fn)                                                       \
  {                                                                                                \
    .path = name, .request = &kw_msg_##message, .is_unary = true, .waits = true, .on_request = fn, \
    .on_timeout = kw_service_abandon, .on_close = kw_write_queue_close                             \
  }

/* The methods of a service. The last entry has no path. */
extern const kw_method kw_kv_methods[];
extern const kw_method kw_lease_methods[];
extern const kw_method kw_watch_methods[];

/* The calls of one connection that have news for Lua. Connections take turns: one with many calls delays no others. */
typedef struct kw_news {
  kw_link calls; /* those with news, oldest first */
  kw_link link;  /* among the kw_news of the server that have calls, the next one first */
} kw_news;

struct kw_server {
  kw_store *store; /* NULL: closed, or a server without a store */
  kw_hub *hub;     /* the same */
  kw_server_options options;
  pid_t pid;        /* the process that opened the server */
  kw_arena arena;   /* emptied after each request */
  kw_slice message; /* bytes of the request that is being delivered */
  kw_work work;     /* left in this turn for that request, if it may write */
  kw_work reads; /* left in this turn for all reads; a read that needs more becomes a long answer */
  int64_t asked_at; /* when the last request arrived */
  int64_t now;      /* milliseconds, as last given by a driver */
  uint8_t ids[24];  /* cluster and member id, encoded for every header */
  size_t n_ids;

  kw_map methods;  /* by the hash of the path */
  kw_method **own; /* all methods: also those that were replaced, since calls may still use them */
  size_t n_own;
  size_t cap_own;
  kw_server_counters counters;

  kw_host *hosts;                 /* that HTTP requests may name, see rpc/hosts.h */
  kw_fixed_answer *fixed_answers; /* to HTTP requests */
  int64_t dated_at;               /* seconds since 1970 that `date` shows; 0: none yet */
  char date[KW_DATE_TEXT];        /* of HTTP answers */

  kw_link peers;
  size_t n_peers;
  kw_budget budget;  /* memory of all peers */
  kw_meter settings; /* SETTINGS frames of all peers */
  bool is_draining;
  bool is_closed;

  kw_link long_answers; /* answers that are being made, page by page */
  kw_link writes;       /* requests that wait for the end of a long write, oldest first */
  struct kw_write_job *long_write; /* of this server; or NULL */
  kw_chain discarded;              /* answers that will not be sent, to be freed in turns */
  kw_account remaining;            /* memory of `discarded`: uses the budget, but has no share */
  kw_account abandoned; /* the same, of watchers whose streams are closed, cancelled in turns */
  kw_link undurable; /* streams whose answers wait until their tickets are settled, oldest first */
  kw_ready ready;    /* outlets of watch streams that have something to send */
  kw_stream **compactions; /* streams whose answers wait for the end of a compaction */
  size_t n_compactions;
  size_t cap_compactions;

  kw_map calls; /* calls that Lua answers or intercepts, by id */
  uint64_t last_call;
  kw_link news;        /* the kw_news that have calls */
  kw_news closed_news; /* of calls without a connection */
  bool is_intercepting;
  bool is_inspecting;     /* Lua sees each message of intercepted streams */
  struct kw_notes *notes; /* for the log, see rpc/notes.h; NULL: there are none */
  bool takes_notes;       /* all of them, for a debug log */
  unsigned trouble;       /* kw_store_trouble, as of the last KW_NOTE_TROUBLE */
};

/* The KV service's work of one turn: makes pages of long answers, delivers writes that have waited, and answers calls
 * whose compaction has ended. Returns true if it wants another turn at once. */
bool kw_kv_step(kw_server *server);

/* The Watch service's work of one turn: wakes the watch streams that have something to send. Returns true if it wants
 * another turn at once. */
bool kw_watch_step(kw_server *server);

/* Returns the time of the store: the server's, unless the store's time is moved by hand. */
static inline int64_t kw_server_time(const kw_server *server) {
  return server->options.clock != NULL ? *server->options.clock : server->now;
}

/* {====== The connection of a stream ====== */

/* See rpc/peer.h. */
struct kw_peer {
  kw_server *server;   /* NULL: detached; only `left` is still to be written */
  kw_session *session; /* NULL: detached, or the client speaks HTTP/1.1 */
  kw_http *http;       /* NULL: detached, or the client speaks HTTP/2, or nothing yet */
  kw_chain left;       /* output of the session or the HTTP connection that has ended */
  kw_driver driver;
  kw_blob *identity;     /* of the client's certificate, see kw_tls.identity; or NULL */
  int64_t last_progress; /* when bytes were last written, or a message was last received */
  kw_link link;          /* among the peers of the server */
  kw_news news;
  uint8_t first[KW_FIRST_BYTES]; /* the first bytes, until they show the protocol */
  uint8_t n_first;
  bool has_protocol; /* the protocol is known */
  bool is_tls;
};

static inline void kw_news_init(kw_news *news) {
  kw_link_init(&news->calls);
  kw_link_init(&news->link);
}

/* Returns the account of a peer's connection. The peer must not be detached. */
kw_account *kw_peer_account(const kw_peer *peer);

static inline kw_peer *kw_peer_of(const kw_stream *stream) {
  return kw_session_ctx(stream->session);
}

/* Notifies the driver of the stream's connection that there may be something to write, or another deadline. */
void kw_server_touch(kw_stream *stream);

/* }====== */

/* Shows a new call to Lua, if calls are intercepted and the call is not one that Lua answers. Returns true if the call
 * was shown, or has failed for lack of memory: the caller then must not begin it. */
bool kw_call_begin_intercepted(kw_server *server, kw_stream *stream, const kw_method *method);

/* Keeps a message of an intercepted call for Lua, see kw_call_request. Returns false if the method gets it. */
bool kw_call_hold(kw_server *server, kw_stream *stream, kw_slice message);

/* Resumes a stream whose method was busy, unless a message of the stream waits for Lua. */
void kw_call_let_in(kw_stream *stream);

/* Notifies Lua of the end of a call that Lua has let proceed. Does nothing for any other call. */
void kw_call_end_intercepted(kw_server *server, kw_stream *stream);

/* {====== Answers ====== */

#define KW_MAX_ANSWER INT32_MAX /* bytes; as in etcd: a small transaction can ask for any amount */

/* True if an answer of `len` bytes may be queued on a stream, see kw_stream_has_room. `held` of the bytes need memory:
 * the connection's account is asked for them, but not charged. */
bool kw_service_may_answer(kw_stream *stream, size_t len, size_t held);

/* Returns the text of an error, a static string. */
kw_slice kw_service_text(int rc);

/* Ends a call with the status and the text of an error. */
void kw_service_fail(kw_stream *stream, int rc);

/* Ends a call whose answer of `len` bytes is too large to be sent, with gRPC's text. */
void kw_service_refuse_size(kw_stream *stream, size_t len);

/* The on_drain of methods: ends a stream, so that the client resumes elsewhere. A unary call continues. */
void kw_service_stop(kw_server *server, kw_stream *stream);

/* Returns the size of an answer's header, as a field of its message. */
size_t kw_service_header_size(const kw_server *server, int64_t revision);

/* Encodes an answer's header. Returns the end of what was written. */
uint8_t *kw_service_put_header(const kw_server *server, int64_t revision, uint8_t *to);

/* Room for the message of an answer. */
typedef struct kw_answer_room {
  kw_stream *stream;
  uint8_t *to; /* where the rest is written, after the header */
  size_t len;  /* of the message */
} kw_answer_room;

/* Begins an answer whose header is followed by `rest` bytes, and writes the header. Returns false, with nothing
 * begun, if memory is short: the caller fails the call. Otherwise the caller writes the rest, and calls one of the send
 * functions before anything else is sent. */
bool kw_service_begin(kw_server *server, kw_stream *stream, int64_t revision, size_t rest,
                      kw_answer_room *room);

/* Sends an answer that was begun. A unary call ends with it. */
void kw_service_send(kw_answer_room *room);

/* Sends the answer of a unary call that has committed something, or has read something that may not be durable yet. The
 * answer is sent when the store's current ticket is settled. If the commit group fails, the call ends with that error
 * instead. */
void kw_service_send_durable(kw_server *server, kw_answer_room *room);

/* Does what kw_service_send_durable does, for an answer whose parts were added to the stream, and for a ticket that was
 * taken before. */
void kw_service_send_parts(kw_server *server, kw_stream *stream, uint64_t ticket);

/* Ends a unary call with an error, when the store's current ticket is settled. */
void kw_service_fail_durable(kw_server *server, kw_stream *stream, int rc);

/* Ends the calls whose tickets are settled. */
void kw_service_step(kw_server *server);

/* The on_timeout of unary methods, after the call got its status: calls the method's on_close, and drops the answer. */
void kw_service_abandon(kw_server *server, kw_stream *stream);

/* Makes room for a small answer, so that a change that cannot be undone can be answered. Returns false if memory is
 * short: then the call has failed, and the change must not be made. */
bool kw_service_make_room(kw_stream *stream);

/* Answers a call with a record, encoded by its message description. The answer of a unary call is sent with
 * kw_service_send_durable. If it is large, and kw_service_may_answer is false, the call fails with
 * KW_ERR_TOO_MANY_REQUESTS, and true is returned. Returns false if memory is short: then the call has failed. */
bool kw_service_answer(kw_server *server, kw_stream *stream, int64_t revision,
                       const kw_message *message, const void *record);

/* }====== */

#endif
