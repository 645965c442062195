/* SPDX-License-Identifier: MIT */
#include "rpc/server.h"

#include "base/mem.h"
#include "base/process.h"
#include "codec/wire.h"
#include "rpc/call.h"
#include "rpc/fixed_answer.h"
#include "rpc/hosts.h"
#include "rpc/method.h"
#include "rpc/notes.h"
#include "rpc/peer.h"
#include "rpc/write_queue.h"
#include "store/snapshot.h"

kw_server_options kw_server_defaults(void) {
  kw_session_options session = kw_session_defaults();
  session.max_message = KW_DEFAULT_MAX_REQUEST_BYTES + KW_RECEIVE_SLACK;
  return (kw_server_options){.cluster_id = UINT64_C(0xcdf818194e3a8c32),
                             .member_id = UINT64_C(0x8e9e05c52164694d),
                             .raft_term = 2,
                             .max_fragment = session.max_message,
                             .outlet_bytes = KW_DEFAULT_OUTLET_BYTES,
                             .connection_quota = KW_DEFAULT_CONNECTION_QUOTA,
                             .session = session,
                             .http = kw_http_defaults()};
}

static bool add_methods(kw_server *server, const kw_method *methods) {
  for (; methods->path != NULL; methods++) {
    if (!kw_method_add(server, methods)) return false;
  }
  return true;
}

kw_server *kw_server_new(kw_store *store, kw_hub *hub, const kw_server_options *options) {
  kw_server *server = kw_alloc_zeroed(sizeof *server);
  if (server == NULL) return NULL;
  server->store = store;
  server->hub = hub;
  server->options = *options;
  server->pid = kw_process_id();
  server->reads = kw_work_of_turn();
  server->options.session.budget = server->options.http.budget = &server->budget;
  server->options.session.settings = &server->settings;
  server->options.session.discarded = &server->discarded;
  server->remaining.budget = server->abandoned.budget = &server->budget;
  server->discarded.account = &server->remaining;
  server->budget = (kw_budget){.max = options->connection_quota, .base = KW_CONNECTION_BASE};
  kw_link_init(&server->peers);
  kw_link_init(&server->news);
  kw_news_init(&server->closed_news);
  kw_link_init(&server->long_answers);
  kw_link_init(&server->writes);
  kw_link_init(&server->undurable);
  uint8_t *to = kw_wire_put_number(server->ids, 1, options->cluster_id);
  server->n_ids = (size_t)(kw_wire_put_number(to, 2, options->member_id) - server->ids);
  if (store == NULL ||
      (add_methods(server, kw_kv_methods) && add_methods(server, kw_lease_methods) &&
       add_methods(server, kw_watch_methods))) {
    return server;
  }
  kw_server_free(server);
  return NULL;
}

void kw_server_close(kw_server *server) {
  server->is_draining = server->is_closed = true;
  while (!kw_link_is_alone(&server->peers)) kw_peer_detach(kw_peer_at(server->peers.next));
  kw_write_queue_finish(server);
  kw_chain_drop(&server->discarded);
  if (server->hub != NULL) kw_hub_forget_account(server->hub, &server->abandoned);
  server->store = NULL;
  server->hub = NULL;
}

void kw_server_free(kw_server *server) {
  kw_server_close(server);
  unsigned news;
  int status;
  while (kw_call_next_news(server, &news, &status) != 0)
    continue; /* frees the calls that have ended together with their peers */
  for (size_t i = 0; i < server->n_own; i++) kw_free(server->own[i]);
  kw_free(server->own);
  kw_free(server->compactions);
  kw_map_drop(&server->methods);
  kw_map_drop(&server->calls);
  kw_arena_drop(&server->arena);
  kw_hosts_free(server);
  kw_fixed_answer_free(server);
  kw_notes_free(server);
  kw_free(server);
}

/* Returns the peer that holds the most memory, among the peers without progress since `since`; or NULL. */
static kw_peer *heaviest(kw_server *server, int64_t since) {
  kw_peer *found = NULL;
  for (kw_link *link = server->peers.next; link != &server->peers; link = link->next) {
    kw_peer *peer = kw_peer_at(link);
    bool is_heavier = found == NULL || kw_peer_held(peer) > kw_peer_held(found);
    if (is_heavier && peer->last_progress <= since) found = peer;
  }
  return found;
}

/* True if all peers together hold more memory than allowed. Watchers of closed streams, which the hub will free soon,
 * do not count: disconnecting a peer would not free them sooner. */
static bool is_over(const kw_server *server) {
  kw_budget budget = server->budget;
  budget.held -= server->abandoned.held;
  return kw_budget_is_over(&budget);
}

/* If memory was refused, frees answers that will not be sent; or if there are none, disconnects a stuck peer that holds
 * more than the refused one would have. While all peers together hold too much, frees answers that will not be sent,
 * and then disconnects the peer that holds the most. */
static void make_room(kw_server *server) {
  kw_budget *budget = &server->budget;
  if (budget->refused > 0 && server->discarded.first != NULL) {
    kw_chain_drop(&server->discarded);
    budget->refused = 0;
  }
  if (budget->refused > 0) {
    kw_peer *stuck = heaviest(server, server->now - KW_STUCK_MS);
    if (stuck != NULL && kw_peer_held(stuck) > budget->refused) kw_peer_cut(stuck);
    budget->refused = 0;
  }
  if (is_over(server)) kw_chain_drop(&server->discarded);
  while (server->n_peers > 0 && is_over(server)) {
    kw_peer_cut(heaviest(server, INT64_MAX));
    kw_chain_drop(&server->discarded);
  }
}

/* Frees answers that will not be sent, within the work of a turn. Returns true if there are more. */
static bool free_discarded(kw_server *server) {
  kw_work work = kw_work_of_turn();
  while (server->discarded.first != NULL && kw_work_is_left(&work))
    kw_work_spend(&work, kw_chain_drop_first(&server->discarded));
  return server->discarded.first != NULL;
}

/* Does the work of the store, and answers what has waited for it. Returns true if there is more. */
static bool step_store(kw_server *server) {
  int64_t time = kw_server_time(server);
  bool more = kw_hub_deadline(server->hub) <= time && kw_hub_step(server->hub, time);
  kw_store_flush(server->store);
  kw_store_poll(server->store);
  kw_service_step(server);
  return kw_kv_step(server) || more;
}

/* Watch streams are woken last, after everything that may fill their outlets. */
int64_t kw_server_step(kw_server *server, int64_t now) {
  server->now = now;
  if (server->is_closed) return INT64_MAX;
  bool more = server->store != NULL && step_store(server);
  more = free_discarded(server) || more;
  more = kw_watch_step(server) || more;
  make_room(server);
  int64_t deadline = server->hub == NULL ? INT64_MAX : kw_hub_deadline(server->hub);
  if (more || deadline == INT64_MIN) return now;
  return server->options.clock != NULL ? INT64_MAX : deadline;
}

void kw_server_set_bell(kw_server *server, const kw_bell *bell) {
  if (server->store != NULL) {
    kw_store_set_bell(server->store, *bell);
  } else {
    kw_bell_release(bell);
  }
}

bool kw_server_has_work(const kw_server *server) {
  const kw_ready *others = server->options.others;
  if (server->is_closed) return false;
  return kw_call_has_news(server) || kw_notes_wait(server) ||
         (others != NULL && others->first != NULL) ||
         (server->store != NULL && kw_snapshot_is_awaited(server->store));
}

void kw_server_drain(kw_server *server, int64_t ms, int64_t now) {
  server->is_draining = true;
  for (kw_link *link = server->peers.next; link != &server->peers; link = link->next)
    kw_peer_drain(kw_peer_at(link), ms, now);
}

const kw_server_counters *kw_server_get_counters(const kw_server *server) {
  return &server->counters;
}

size_t kw_server_get_methods(const kw_server *server, kw_method_metrics *to, size_t max) {
  const kw_method *method;
  size_t at = 0, n = 0;
  for (; (method = kw_map_next(&server->methods, &at)) != NULL; n++) {
    if (n < max)
      to[n] = (kw_method_metrics){.path = method->path,
                                  .is_unary = method->is_unary,
                                  .takes_one = method->takes_one,
                                  .counters = *method->counters};
  }
  return n;
}

size_t kw_server_count(const kw_server *server) {
  return server->n_peers;
}

size_t kw_server_held(const kw_server *server) {
  return server->budget.held - server->remaining.held - server->abandoned.held;
}
