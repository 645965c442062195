/* SPDX-License-Identifier: MIT
 *
 * server: a store and its hub, as etcd's clients see them. It has peers, the connections; their calls are answered by
 * the services in C, or by Lua, see rpc/call.h.
 */
#ifndef KW_RPC_SERVER_H
#define KW_RPC_SERVER_H

#include "face/engine.h"
#include "h2/session.h"
#include "watch/hub.h"

#define KW_RECEIVE_SLACK                                                                           \
  (512 * 1024) /* what a message may be above the limit of a request, as in etcd */
#define KW_DRAIN_MS 5000

/* What all connections together may hold, and each beside that: an idle one takes about 10 KiB. */
#define KW_DEFAULT_CONNECTION_QUOTA (512 << 20)
#define KW_CONNECTION_BASE (16 << 10)

/* Without a move: where there is no room, the one that holds most and is stuck so long has to go. */
#define KW_STUCK_MS 5000

typedef struct kw_server_options {
  uint64_t cluster_id;
  uint64_t member_id;
  uint64_t raft_term;
  size_t max_fragment;     /* of an answer to a watcher that takes fragments */
  size_t outlet_bytes;     /* that wait for a watch stream, at most, beside its connection's */
  size_t connection_quota; /* that all connections together may hold */
  const kw_ready *others;  /* watches of the store's owner, for whom readiness is work; or NULL */
  const int64_t *clock;    /* of a store whose time is moved by hand; or NULL */
  const bool *is_busy;     /* whether the store's owner is in the middle of a call; or NULL */
  kw_session_options session;
} kw_server_options;

kw_server_options kw_server_defaults(void);

/* Over a store and its hub. NULL if memory is short. */
kw_server *kw_server_new(kw_store *store, kw_hub *hub, const kw_server_options *options);

/* Lets go of the store. Its peers stay, with what they have to write, and are done; nobody is served any more. */
void kw_server_close(kw_server *server);
void kw_server_free(kw_server *server);

/* As in face/engine.h. */
int64_t kw_server_tend(kw_server *server, int64_t now);
bool kw_server_has_work(const kw_server *server);
bool kw_server_is_busy(const kw_server *server);
void kw_server_set_bell(kw_server *server, kw_bell bell);

/* No new connections and streams are taken; what there is may end, at most for `ms`. Watch streams are ended so that
 * clients resume elsewhere. */
void kw_server_drain(kw_server *server, int64_t ms, int64_t now);
size_t kw_server_count(const kw_server *server);

/* What its connections hold, in bytes. */
size_t kw_server_held(const kw_server *server);

#ifdef KW_PROBE
/* What of its connections is not as it must be; or NULL. */
const char *kw_server_fault(kw_server *server);
#endif

#endif
