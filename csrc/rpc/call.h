/* SPDX-License-Identifier: MIT
 *
 * call: a call that Lua has to do with: of a method that was mounted, or, where calls are intercepted, of any method
 * before it begins.
 *
 *   mounted       news: open -> input* -> end           received, sent, finished from Lua
 *   intercepted   news: open -> end                     goes on to its own method, or is finished, from Lua
 *
 * What Lua has not received yet is bounded: beyond it the stream is paused. What it sends is bounded by its asking
 * whether there is room. Calls that have news stand in a list, to be drained.
 */
#ifndef KW_RPC_CALL_H
#define KW_RPC_CALL_H

#include "rpc/server.h"

#define KW_CALL_BYTES (64 * 1024) /* that wait in either direction, but for the last message */

enum {
  KW_NEWS_OPEN = 1,  /* it is new */
  KW_NEWS_INPUT = 2, /* something may be received */
  KW_NEWS_ROOM = 4,  /* there is room to send, after there was none */
  KW_NEWS_END = 8    /* its stream is gone, and with this the call */
};

typedef struct kw_call_info {
  const char *path;
  const char *remote; /* who calls; or "" */
  bool is_intercepted;
  bool is_unary;
  int64_t deadline; /* INT64_MAX: none */
  kw_blob *lines;   /* its metadata: name, 0, value, 0, and so on */
} kw_call_info;

typedef enum kw_received {
  KW_RECEIVED_MESSAGE,
  KW_RECEIVED_NOTHING, /* yet; or the call is gone, of which there is, or was, news */
  KW_RECEIVED_ALL      /* the client has said all */
} kw_received;

/* Adds a method that Lua answers, and that takes one request or many; false if memory is short. */
typedef enum kw_call_kind { KW_CALL_UNARY, KW_CALL_OF_ONE, KW_CALL_OF_MANY } kw_call_kind;
bool kw_call_mount(kw_server *server, kw_slice path, kw_call_kind kind);

/* From now on every call of the services in C is shown to Lua first. */
void kw_call_intercept(kw_server *server);

/* A call that has news, and which; 0 if there is none. `status` is the one that it ended with. */
uint64_t kw_call_next_news(kw_server *server, unsigned *news, int *status);
bool kw_call_has_news(const kw_server *server);

/* False if there is no such call any more; here and below, such a call is nobody's loss. */
bool kw_call_get_info(kw_server *server, uint64_t id, kw_call_info *info);

/* The next message, which the caller releases. */
kw_received kw_call_receive(kw_server *server, uint64_t id, kw_blob **message);

/* Sends a message; *has_room tells whether another one may follow at once, else news will: of room, or of the end.
 * False if memory is short, and then the call has been reset. */
bool kw_call_send(kw_server *server, uint64_t id, kw_slice message, bool *has_room);

void kw_call_finish(kw_server *server, uint64_t id, int status, kw_slice text);

/* Lets an intercepted call go on to its method. */
void kw_call_proceed(kw_server *server, uint64_t id);

#endif
