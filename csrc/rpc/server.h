/* SPDX-License-Identifier: MIT
 *
 * server: serves a store and its hub to etcd's clients. Its connections are peers (rpc/peer.h). Their calls are
 * answered by the services in C, or by Lua (rpc/call.h).
 */
#ifndef KW_RPC_SERVER_H
#define KW_RPC_SERVER_H

#include "face/engine.h"
#include "base/histogram.h"
#include "h2/session.h"
#include "http/connection.h"
#include "watch/hub.h"

/* How much larger a message may be than the limit of a request, as in etcd. */
#define KW_RECEIVE_SLACK (512 * 1024)

#define KW_DRAIN_MS 5000 /* default time for calls to end in a drain */

/* Default limit of the memory of all connections together, in bytes. */
#define KW_DEFAULT_CONNECTION_QUOTA (512 << 20)

/* Memory that each connection may hold in addition, in bytes: an idle one takes about 10 KiB. */
#define KW_CONNECTION_BASE (16 << 10)

/* A connection is stuck if nothing was written to it, and no message was received from it, for this time. When memory
 * is refused, the stuck connection that holds the most is cut, if it holds more than the refused one would have. */
#define KW_STUCK_MS 5000

typedef struct kw_server_options {
  uint64_t cluster_id;
  uint64_t member_id;
  uint64_t raft_term;
  size_t max_fragment;     /* bytes of a fragment, for watchers that take fragments */
  size_t outlet_bytes;     /* limit of a watch stream's outlet */
  size_t connection_quota; /* limit of the memory of all connections together, in bytes */
  const kw_ready *others;  /* ready list of the store's owner: work for Lua; or NULL */
  const int64_t *clock;    /* time of a store whose time is moved by hand; or NULL */
  bool measures_handling;  /* each method has a histogram of the time that its calls take */
  const bool *is_busy;     /* true while the store's owner is in the middle of a call; or NULL */

  /* `session.budget`, `session.settings` and `http.budget` are not used: the server has its own. */
  kw_session_options session;
  kw_http_options http;
} kw_server_options;

/* What a server counts for metrics, besides the counters of each method. */
typedef struct kw_server_counters {
  uint64_t accepted;        /* connections */
  uint64_t rejected;        /* connections that have ended before they spoke HTTP/2 */
  uint64_t cut;             /* connections that were disconnected since they held too much memory */
  uint64_t accept_failures; /* failed attempts of the driver to accept connections */
  uint64_t malformed;       /* refused HTTP/2 requests whose heads were not valid */
  uint64_t unknown;         /* refused calls of methods that do not exist */
  uint64_t over_memory;     /* refused calls of connections that held too much memory */
} kw_server_counters;

#define KW_GRPC_CODES 17 /* gRPC statuses: 0 to 16 */

/* The calls of a method. A call that has begun is handled when its stream is closed. */
typedef struct kw_method_counters {
  uint64_t started;
  uint64_t handled[KW_GRPC_CODES]; /* by status; CANCELLED: it had got none */
  uint64_t received;               /* messages */
  uint64_t received_bytes;         /* of these, without their prefixes */
  kw_sent sent;
  kw_histogram seconds; /* from its beginning until it was handled, in milliseconds; without
                           measures_handling all zero */
} kw_method_counters;

typedef struct kw_method_metrics {
  const char *path; /* "/package.Service/Method"; lives as long as the server */
  bool is_unary;
  bool takes_one; /* not unary, but of one request */
  kw_method_counters counters;
} kw_method_metrics;

/* Returns the default options. */
kw_server_options kw_server_defaults(void);

/* Makes a server of a store and its hub. Both, and all that the options point to, must live until the server is closed.
 * The options are copied. Without store and hub (NULL) the server has no methods in C. Returns NULL if memory is
 * short. */
kw_server *kw_server_new(kw_store *store, kw_hub *hub, const kw_server_options *options);

/* Ends all calls, and stops using the store and the hub. The peers stay until their drivers close them: they are done,
 * with their output still pending. */
void kw_server_close(kw_server *server);

/* Closes and frees a server. */
void kw_server_free(kw_server *server);

/* For the driver: the functions step_server, has_work, is_busy and set_bell of kw_engine, see face/engine.h. */
int64_t kw_server_step(kw_server *server, int64_t now);
bool kw_server_has_work(const kw_server *server);
bool kw_server_is_busy(const kw_server *server);
void kw_server_set_bell(kw_server *server, const kw_bell *bell);

/* Drains a server: it takes no new connections and streams, and calls have `ms` milliseconds to end. Calls of Watch and
 * LeaseKeepAlive, and calls answered by Lua that are not unary, end at once, so that clients resume elsewhere. */
void kw_server_drain(kw_server *server, int64_t ms, int64_t now);

/* Returns the number of the oldest request that waits for the end of a long write, see kw_store_take_number; or 0.
 * In the child after a fork no request waits: it would never be delivered. */
uint64_t kw_server_first_request(const kw_server *server);

/* Returns the counters of a server, valid until it is freed. */
const kw_server_counters *kw_server_get_counters(const kw_server *server);

/* Copies the metrics of the first `max` methods, in no order. Returns the number of all methods. */
size_t kw_server_get_methods(const kw_server *server, kw_method_metrics *to, size_t max);

/* Returns the number of connections. */
size_t kw_server_count(const kw_server *server);

/* Returns the memory that the connections hold, in bytes. */
size_t kw_server_held(const kw_server *server);

#endif
