/* SPDX-License-Identifier: MIT
 *
 * hosted: a server that a loop turns for, with its listeners and its connections. They have its pointer, so whoever
 * opened it keeps the server alive until it is closed.
 */
#ifndef KW_UV_HOSTED_H
#define KW_UV_HOSTED_H

#include "face/engine.h"
#include "uv/loop.h"

typedef struct kw_hosted {
  kw_loop *loop;
  const kw_engine *engine;
  kw_server *server;
  struct kw_hosted **owner; /* is set to NULL when it closes */

  kw_link link;        /* in the loop's list */
  kw_link listeners;   /* of kw_listener */
  kw_link connections; /* of kw_connection */
} kw_hosted;

/* Zero, or UV_ENOMEM. */
int kw_hosted_open(kw_hosted **owner, kw_loop *loop, const kw_engine *engine, kw_server *server);

/* Closes its listeners and its connections, at once; why, as of kw_connection_close. */
void kw_hosted_close(kw_hosted *hosted, const char *why);

/* The one of a server, or NULL. */
kw_hosted *kw_hosted_find(kw_loop *loop, const kw_server *server);

/* Whether it has neither listeners nor connections. */
bool kw_hosted_is_idle(const kw_hosted *hosted);

static inline int64_t kw_hosted_tend(kw_hosted *hosted, int64_t now) {
  return hosted->engine->tend(hosted->server, now);
}

static inline bool kw_hosted_has_work(const kw_hosted *hosted) {
  return hosted->engine->has_work(hosted->server);
}

static inline bool kw_hosted_is_busy(const kw_hosted *hosted) {
  return hosted->engine->is_busy(hosted->server);
}

#endif
