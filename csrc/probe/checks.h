/* SPDX-License-Identifier: MIT
 *
 * checks: the invariants of stores, hubs and connections. Each function returns NULL if all hold, else the text of one
 * that does not.
 *
 * A file of csrc/probe that has the name of a file of the product stands in its place: it includes that file, and adds
 * what sees its private parts.
 */
#ifndef KW_PROBE_CHECKS_H
#define KW_PROBE_CHECKS_H

#include "h2/session.h"
#include "http/connection.h"

typedef struct kw_index kw_index;
typedef struct kw_log kw_log;
typedef struct kw_store kw_store;
typedef struct kw_outlet kw_outlet;
struct kw_outlet_totals;
typedef struct kw_watch_group kw_watch_group;
typedef struct kw_hub kw_hub;
typedef struct kw_client kw_client;
typedef struct kw_peer kw_peer;
typedef struct kw_server kw_server;

const char *kw_index_check(const kw_index *index);
const char *kw_log_check(const kw_log *log);
const char *kw_retention_check(const kw_store *store);
const char *kw_store_check(const kw_store *store);
const char *kw_outlet_check(const kw_outlet *outlet);

/* Adds what an outlet has to the totals of its hub. */
void kw_outlet_add_totals(const kw_outlet *outlet, struct kw_outlet_totals *totals);
const char *kw_watch_group_check(const kw_watch_group *group);
const char *kw_hub_check(const kw_hub *hub);
const char *kw_client_fault(const kw_client *client);
const char *kw_peer_fault(const kw_peer *peer);
const char *kw_server_fault(kw_server *server);

/* Between two calls into the session, or the connection. */
const char *kw_http_fault(const kw_http *http);
const char *kw_session_fault(const kw_session *session);

/* Returns the bytes that the session itself has charged to its account. Its owner has charged the rest. */
size_t kw_session_charge(const kw_session *session);

/* Returns the bytes that nghttp2 has allocated for a session. */
size_t kw_session_h2_bytes(const kw_session *session);

/* What is charged to a stream's account, or 0: for the call that Lua answers or intercepts, the read of its answer or
 * its deferred op, its list of leases, and the request that waits or is a long write. */
size_t kw_call_charge(const kw_stream *stream);
size_t kw_range_answer_charge(const kw_stream *stream);
size_t kw_lease_answer_charge(const kw_stream *stream);
size_t kw_write_queue_charge(const kw_stream *stream);

/* Set options of a hub. */
void kw_hub_set_walk_visits(kw_hub *hub, int64_t visits);
void kw_hub_set_long_bytes(kw_hub *hub, size_t bytes);

#endif
