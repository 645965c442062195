/* SPDX-License-Identifier: MIT
 *
 * call: a call at the server that Lua answers or intercepts.
 *
 *   mounted       Lua answers every call of the method       news: open -> input* -> end
 *   intercepted   Lua sees the call before its method does   news: open -> input* -> end
 *   HTTP          a request without a method                 see rpc/request.h
 *
 * Lua receives, sends and finishes a mounted call. It lets an intercepted call proceed to its own method, or finishes
 * it; the method gets the same bytes that Lua has seen. A unary mounted call has its first news, open and input
 * together, when its request has arrived.
 *
 * Both directions are bounded. While Lua has not received KW_CALL_BYTES or more, the stream is paused. kw_call_send
 * reports whether there is room for another message. Calls with news are in a list of the server, which Lua drains.
 *
 * Every function that takes an id does nothing for a call that is gone: Lua has received, or will receive, its end.
 */
#ifndef KW_RPC_CALL_H
#define KW_RPC_CALL_H

#include "rpc/server.h"

#define KW_CALL_BYTES (64 * 1024) /* limit in either direction; the last message may exceed it */

/* What has changed about a call, as bits. */
enum {
  KW_CALL_NEWS_OPEN = 1,  /* the call is new */
  KW_CALL_NEWS_INPUT = 2, /* something can be received: a message, or the end of input */
  KW_CALL_NEWS_ROOM = 4,  /* there is room to send, after there was none */
  KW_CALL_NEWS_END = 8    /* the call has ended, and its id is no longer valid */
};

typedef struct kw_call_info {
  const char *path;
  const char *remote; /* address of the client, or "" */
  kw_blob *identity;  /* of the client's certificate, see kw_tls.identity; or NULL */
  bool is_intercepted;
  bool is_misdirected; /* HTTP: the host that the request names is not served, see rpc/hosts.h */
  bool is_unary;
  int64_t deadline;  /* milliseconds of CLOCK_MONOTONIC; INT64_MAX: none */
  kw_blob *metadata; /* name, 0, value, 0, and so on */
} kw_call_info;

typedef enum kw_received {
  KW_RECEIVED_MESSAGE,
  KW_RECEIVED_NOTHING, /* nothing has arrived yet, or the call has ended */
  KW_RECEIVED_ALL      /* the client has half-closed, and all was received; not of a unary call */
} kw_received;

typedef enum kw_call_kind {
  KW_CALL_UNARY,  /* one request, one answer */
  KW_CALL_OF_ONE, /* one request, many answers */
  KW_CALL_OF_MANY /* many requests, many answers */
} kw_call_kind;

/* Mounts a method that Lua answers. The path is copied. `max_request` is the limit of each request in bytes; 0: the
 * default, see kw_method_begin. The method replaces one of the same path. Returns false if memory is short. */
bool kw_call_mount(kw_server *server, const char *path, kw_call_kind kind, size_t max_request);

/* Finds the next method of the server, in no particular order; *at begins as 0. *request is the name of the request's
 * message, or "" for a mounted method. The strings live as long as the server. Returns false after the last method. */
bool kw_call_next_method(const kw_server *server, size_t *at, const char **path,
                         const char **request);

/* From now on every call of a method in C is shown to Lua before it begins. */
void kw_call_intercept(kw_server *server);

/* The same for each message of the calls that are intercepted from now on and are not unary. */
void kw_call_inspect(kw_server *server);

/* Takes the news of one call: the one whose news is oldest, of the connection whose turn it is. Returns the call's id,
 * and *news as KW_CALL_NEWS_ bits; or returns 0 if no call has news. With KW_CALL_NEWS_END, *status is the gRPC status
 * of the end, and the id is no longer valid. */
uint64_t kw_call_next_news(kw_server *server, unsigned *news, int *status);

/* Returns the id of the newest call. Ids grow in the order of arrival. */
uint64_t kw_call_newest(const kw_server *server);

/* True if a call has news. */
bool kw_call_has_news(const kw_server *server);

/* Describes a call. What *info points to belongs to the call, and is valid until the call ends. Returns false if the
 * call is gone. */
bool kw_call_get_info(kw_server *server, uint64_t id, kw_call_info *info);

/* Takes the next message. The caller owns the reference in *message, which is set only with KW_RECEIVED_MESSAGE. With
 * `gathers`, since the caller waits for more and keeps the bytes, they are charged to the connection until the call
 * ends. */
kw_received kw_call_receive(kw_server *server, uint64_t id, bool gathers, kw_blob **message);

/* Returns in *message a reference to the message of an intercepted call that waits for kw_call_proceed; before the call
 * has proceeded, lets its first message arrive. *request is the name of the method's messages; *max_fields limits their
 * fields. With KW_RECEIVED_NOTHING, news of input or of the end follow. */
kw_received kw_call_request(kw_server *server, uint64_t id, kw_blob **message, const char **request,
                            size_t *max_fields);

/* Sends a message. *has_room becomes true if another one may follow at once; otherwise it becomes false, and news of
 * room or of the end follow. For a call that is gone, finished or intercepted, nothing is sent, and *has_room becomes
 * false. If too many answers wait on the connection, a unary call fails with KW_ERR_TOO_MANY_REQUESTS instead. Returns
 * false if memory is short: then the call has been reset. */
bool kw_call_send(kw_server *server, uint64_t id, kw_slice message, bool *has_room);

/* Ends a call with a status, which follows all sent messages. Does nothing for an intercepted call that has proceeded,
 * unless a message waits for kw_call_proceed. Unless calls are intercepted, an HTTP request then has no news of its
 * end, and its id is no longer valid. */
void kw_call_finish(kw_server *server, uint64_t id, int status, kw_slice text);

/* Lets an intercepted call proceed to its method, with the message that waits. If the call has proceeded, only lets the
 * next message proceed. Lua still receives the end of the call. Does nothing for a call that has its status already,
 * from Lua, from a drain of the server or after its deadline. */
void kw_call_proceed(kw_server *server, uint64_t id);

/* Returns header fields as the metadata of kw_call_info, their names in lower case. NULL if memory is short. */
kw_blob *kw_call_metadata(const kw_http_field *fields, size_t n);

#endif
