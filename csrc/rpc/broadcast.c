/* SPDX-License-Identifier: MIT */
#include "rpc/broadcast.h"

#include "rpc/call_state.h"

static kw_call *find(const kw_server *server, uint64_t id) {
  return kw_map_get(&server->calls, id);
}

static kw_call *member_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_call, member);
}

void kw_broadcast_drop(kw_broadcast *broadcast) {
  while (!kw_link_is_alone(&broadcast->members)) kw_link_remove(broadcast->members.next);
}

static void leave(kw_call *c) {
  kw_link_remove(&c->member);
  c->lags = false;
}

bool kw_broadcast_join(kw_broadcast *broadcast, kw_server *server, uint64_t id) {
  kw_call *c = find(server, id);
  if (c == NULL || c->exchange == NULL || !c->has_answered) return false;
  leave(c);
  kw_link_add(&broadcast->members, &c->member);
  return true;
}

/* Lua is notified once there is room. */
static void leave_behind(kw_call *c, int64_t at) {
  kw_link_remove(&c->member);
  c->lags = c->wants_room = true;
  c->lags_at = at;
}

size_t kw_broadcast_publish(kw_broadcast *broadcast, kw_blob *blob, int64_t at) {
  size_t n = 0;
  for (kw_link *link = broadcast->members.next, *next; link != &broadcast->members; link = next) {
    kw_call *c = member_at(link);
    next = link->next;
    if (!kw_exchange_has_room(c->exchange)) {
      leave_behind(c, at);
      continue;
    }
    kw_exchange_write_blob(c->exchange, blob, kw_blob_slice(blob));
    kw_driver_touch(&c->peer->driver);
    n++;
  }
  return n;
}

void kw_broadcast_absorb(kw_broadcast *broadcast, kw_broadcast *other) {
  kw_link *to = &broadcast->members, *first = other->members.next, *last = other->members.prev;
  if (kw_link_is_alone(&other->members)) return;
  first->prev = to->prev;
  to->prev->next = first;
  last->next = to;
  to->prev = last;
  kw_link_init(&other->members);
}

bool kw_broadcast_lag(const kw_server *server, uint64_t id, int64_t *at) {
  const kw_call *c = find(server, id);
  if (c == NULL || !c->lags) return false;
  *at = c->lags_at;
  return true;
}

void kw_broadcast_leave(kw_server *server, uint64_t id) {
  kw_call *c = find(server, id);
  if (c != NULL) leave(c);
}
