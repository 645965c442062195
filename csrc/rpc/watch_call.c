/* SPDX-License-Identifier: MIT */
#include "rpc/watch_call.h"

#include "base/map.h"
#include "base/mem.h"
#include "codec/messages.h"
#include "model/error.h"
#include "rpc/feed.h"
#include "rpc/watch_answer.h"

#define PATH "/etcdserverpb.Watch/Watch"
#define ALL (-1) /* watch id of an answer about the whole call */

/* A create request that the server has not answered. */
typedef struct kw_creation {
  kw_subscription *sub; /* NULL: it has left the call */
  kw_link link;
} kw_creation;

struct kw_watch_call {
  kw_client *client;
  uint64_t number;
  kw_map ids;            /* open subscriptions by watch id */
  kw_link creations;     /* kw_creation, oldest first */
  kw_subscription *torn; /* the subscription whose last answer is incomplete so far; or NULL */
  int64_t torn_last;     /* last revision of the received part */
  size_t max_torn;       /* see kw_watch_call_open */
  size_t n;              /* number of attached subscriptions */
  size_t unanswered;     /* number of unanswered progress requests; some may never be answered */
  uint64_t n_answers;    /* number of received answers */
  bool is_paused;        /* paused by flow control */
  bool is_trusted;       /* progress of the whole call is used */
  bool is_over;          /* freed when `busy` becomes 0 */
  int busy;              /* number of functions of this file that are using the watch call */
};

/* Keeps the watch call alive until `leave`: sending or failing may end the client's call, and on_end frees the watch
 * call. */
static void enter(kw_watch_call *call) {
  call->busy++;
}

static void leave(kw_watch_call *call) {
  if (--call->busy == 0 && call->is_over) kw_free(call);
}

/* Ends the call because memory is short. Its subscriptions become idle, and can be attached again. */
static void give_up(kw_watch_call *call) {
  kw_client_fail(call->client, call->number, KW_GRPC_UNAVAILABLE, "keywatch: out of memory");
}

static void send_request(kw_watch_call *call, const kw_watch_request *request) {
  uint8_t room[64], *bytes = room;
  size_t size = kw_message_size(&kw_msg_watch_request, request);
  if (size > sizeof room) bytes = kw_alloc(size);
  if (bytes == NULL) {
    give_up(call);
    return;
  }
  kw_message_put(&kw_msg_watch_request, request, bytes);
  if (!kw_client_send(call->client, call->number, kw_slice_of(bytes, size))) give_up(call);
  if (bytes != room) kw_free(bytes);
}

/* {====== Subscriptions ====== */

static void enter_ready(kw_watch_call *call, kw_subscription *sub) {
  if (kw_link_is_alone(&sub->ready))
    kw_link_add(kw_client_ready_watches(call->client), &sub->ready);
}

/* Makes a subscription ready because its state has changed. */
static void announce_change(kw_watch_call *call, kw_subscription *sub) {
  sub->has_changed = true;
  enter_ready(call, sub);
}

/* Moves a ready subscription to the ready list of the connection that it is attached to now. */
static void move_ready(kw_watch_call *call, kw_subscription *sub) {
  kw_link_remove(&sub->ready);
  enter_ready(call, sub);
}

/* Lets the feed of a subscription take its queued notices. That may end the call. */
static void pull(kw_watch_call *call, kw_subscription *sub) {
  enter(call);
  if (kw_feed_pull(sub->feed, kw_client_now(call->client))) enter_ready(call, sub);
  leave(call);
}

void kw_watch_call_wake(kw_subscription *sub) {
  if (sub->feed != NULL) {
    if (sub->call != NULL) pull(sub->call, sub);
    return;
  }
  bool has_notice = sub->is_armed && kw_subscription_first(sub) != NULL;
  if (sub->call == NULL || !(has_notice || sub->announces_progress)) return;
  if (has_notice) sub->is_armed = false;
  enter_ready(sub->call, sub);
}

/* Detaches a subscription from its call, but leaves it in the call's map. */
static void release(kw_subscription *sub) {
  kw_watch_call *call = sub->call;
  if (call->torn == sub) call->torn = NULL;
  if (sub->asked != NULL) sub->asked->sub = NULL;
  sub->asked = NULL;
  kw_subscription_forget_torn(sub);
  kw_subscription_retract(sub);
  sub->call = NULL;
  call->n--;
  if (sub->state != KW_SUBSCRIPTION_FAILED) sub->state = KW_SUBSCRIPTION_IDLE;
}

/* Detaches a subscription from its call, and removes it from the call's map. */
static void unbind(kw_subscription *sub) {
  if (sub->state == KW_SUBSCRIPTION_OPEN) kw_map_remove(&sub->call->ids, (uint64_t)sub->id);
  release(sub);
}

static void send_cancel(kw_watch_call *call, int64_t id) {
  send_request(call, &(kw_watch_request){.kind = KW_WATCH_CANCEL, .cancel = id});
}

/* Resumes a paused call. */
static void resume(kw_watch_call *call) {
  if (!call->is_paused) return;
  call->is_paused = false;
  kw_client_resume(call->client, call->number);
}

void kw_watch_call_detach(kw_subscription *sub) {
  kw_watch_call *call = sub->call;
  if (call == NULL) return;
  bool is_open = sub->state == KW_SUBSCRIPTION_OPEN;
  enter(call);
  unbind(sub);
  if (is_open) send_cancel(call, sub->id);
  if (call->n == 0) resume(call);
  leave(call);
}

void kw_watch_call_drop(kw_subscription *sub) {
  if (sub->feed != NULL) kw_feed_part(sub->feed);
  kw_watch_call_detach(sub);
  kw_subscription_drop(sub);
}

/* Detaches a subscription from its call, and fails it. */
static void fail(kw_subscription *sub, int64_t compact_revision, kw_slice reason, int error) {
  kw_watch_call *call = sub->call;
  unbind(sub);
  kw_subscription_fail(sub, compact_revision, reason, error);
  announce_change(call, sub);
}

/* Fails an open subscription because of a local error, and cancels it at the server. */
static void reject(kw_subscription *sub, int error) {
  kw_watch_call *call = sub->call;
  fail(sub, 0, (kw_slice){0}, error);
  send_cancel(call, sub->id);
}

/* Detaches all subscriptions from the call. Fails them with the error; with KW_OK, makes them idle. */
static void release_all(kw_watch_call *call, int error) {
  size_t at = 0;
  kw_map ids = call->ids;
  kw_subscription *sub;
  call->ids = (kw_map){.seed = ids.seed};
  while (!kw_link_is_alone(&call->creations)) {
    kw_creation *asked = KW_CONTAINER_OF(call->creations.next, kw_creation, link);
    sub = asked->sub;
    if (sub != NULL && error != KW_OK) fail(sub, 0, (kw_slice){0}, error);
    if (sub != NULL && error == KW_OK) release(sub);
    kw_link_remove(&asked->link);
    kw_free(asked);
  }
  while ((sub = kw_map_next(&ids, &at)) != NULL) {
    release(sub);
    if (error == KW_OK) continue;
    kw_subscription_fail(sub, 0, (kw_slice){0}, error);
    announce_change(call, sub);
  }
  kw_map_drop(&ids);
}

bool kw_watch_call_attach(kw_watch_call *call, kw_subscription *sub) {
  int filters[2];
  size_t n = 0;
  kw_creation *asked = kw_alloc(sizeof *asked);
  if (asked == NULL || !kw_map_reserve(&call->ids)) {
    kw_free(asked);
    return false;
  }
  asked->sub = sub;
  sub->asked = asked;
  kw_link_init(&asked->link);
  kw_link_add(&call->creations, &asked->link);
  if (sub->no_put) filters[n++] = 0;
  if (sub->no_delete) filters[n++] = 1;
  int64_t start = sub->overlaps && sub->next > 1 ? sub->next - 1 : sub->next;
  sub->call = call;
  sub->on_room = resume;
  if (!kw_link_is_alone(&sub->ready)) move_ready(call, sub);
  sub->state = KW_SUBSCRIPTION_CREATING;
  sub->is_lagging = false;
  call->n++;
  enter(call);
  send_request(call, &(kw_watch_request){.kind = KW_WATCH_CREATE,
                                         .create = {.range = kw_subscription_range(sub),
                                                    .start_revision = start,
                                                    .progress_notify = true,
                                                    .filters = {.items = filters, .n = n},
                                                    .prev_kv = sub->prev_kv,
                                                    .fragment = true}});
  leave(call);
  return true;
}

/* }====== */

/* {====== Answers ====== */

static bool is_of_other_cluster(const kw_subscription *sub, const kw_header *header) {
  return sub->has_cluster && header->cluster_id != sub->cluster;
}

static void open_sub(kw_watch_call *call, kw_subscription *sub, const kw_watch_answer *found) {
  const kw_header *header = &found->header;
  kw_map_put(&call->ids, (uint64_t)found->fields.watch_id, sub);
  sub->id = found->fields.watch_id;
  sub->state = KW_SUBSCRIPTION_OPEN;
  sub->was_created = true;
  sub->server_revision = header->revision;
  sub->stale = call->unanswered;
  if (sub->next == 0) sub->next = header->revision + 1;
  if (is_of_other_cluster(sub, header)) {
    reject(sub, KW_ERR_CLUSTER_CHANGED);
    return;
  }
  sub->cluster = header->cluster_id;
  sub->has_cluster = true;
  if (header->revision < sub->seen) kw_subscription_suspect(sub);
  if (header->revision > sub->seen) sub->seen = header->revision;
  announce_change(call, sub);
}

/* Handles the answer to the oldest create request. Returns false if the answer is invalid. */
static bool on_created(kw_watch_call *call, const kw_watch_answer *found) {
  const kw_watch_response *fields = &found->fields;
  bool is_bad = fields->canceled || fields->watch_id == ALL;
  if (kw_link_is_alone(&call->creations) || found->n_events > 0) return false;
  if (!is_bad && kw_map_get(&call->ids, (uint64_t)fields->watch_id) != NULL) return false;
  if (!is_bad && !kw_map_reserve(&call->ids)) {
    give_up(call);
    return true;
  }
  kw_creation *asked = KW_CONTAINER_OF(call->creations.next, kw_creation, link);
  kw_subscription *sub = asked->sub;
  kw_link_remove(&asked->link);
  kw_free(asked);
  if (sub != NULL) sub->asked = NULL;
  if (sub == NULL) {
    if (!is_bad) send_cancel(call, fields->watch_id);
  } else if (is_bad) {
    fail(sub, fields->compact_revision, fields->cancel_reason, KW_ERR_UNKNOWN);
  } else {
    open_sub(call, sub, found);
  }
  return true;
}

/* Handles the cancellation of a subscription by the server. Without a reason the subscription becomes idle, and can be
 * attached again. */
static void on_canceled(kw_watch_call *call, kw_subscription *sub, const kw_watch_answer *found) {
  const kw_watch_response *fields = &found->fields;
  if (fields->compact_revision > 0 || fields->cancel_reason.len > 0) {
    fail(sub, fields->compact_revision, fields->cancel_reason, KW_ERR_UNKNOWN);
    if (fields->compact_revision > 0) send_cancel(call, sub->id);
  } else {
    unbind(sub);
    announce_change(call, sub);
  }
}

/* True if progress of the whole call may be older than the subscription. A server may answer a create request before
 * an earlier request for progress: that progress does not cover the new watch, unless its revision is later. */
static bool is_stale(kw_subscription *sub, int64_t revision) {
  if (sub->stale == 0) return false;
  sub->stale--;
  return revision <= sub->server_revision;
}

static void on_progress(kw_watch_call *call, const kw_watch_answer *found) {
  int64_t id = found->fields.watch_id, revision = found->header.revision;
  kw_subscription *sub;
  size_t at = 0;
  if (id != ALL) {
    sub = kw_map_get(&call->ids, (uint64_t)id);
    if (sub != NULL && kw_subscription_tick(sub, revision)) kw_watch_call_wake(sub);
    return;
  }
  if (call->unanswered > 0) call->unanswered--;
  while (call->is_trusted && (sub = kw_map_next(&call->ids, &at)) != NULL) {
    if (is_stale(sub, revision)) continue;
    if (kw_subscription_confirm(sub, revision, kw_client_now(call->client)))
      kw_watch_call_wake(sub);
  }
}

/* Stops a subscription whose queue is full. If it is alone on its call, the call is paused. Otherwise it leaves the
 * call, so that the other subscriptions need not wait. */
static void hold_back(kw_watch_call *call, kw_subscription *sub) {
  if (call->n > 1) {
    kw_watch_call_detach(sub);
    sub->is_lagging = true;
    announce_change(call, sub);
  } else if (!call->is_paused) {
    call->is_paused = true;
    kw_client_pause(call->client, call->number);
  }
}

/* Passes a complete answer to the feed of a subscription. Returns false if there is no feed, or if the answer has to be
 * queued. */
static bool feed(kw_watch_call *call, kw_subscription *sub, kw_slice bytes,
                 const kw_watch_answer *found) {
  bool is_news = false;
  if (sub->feed == NULL || found->fields.fragment) return false;
  const kw_event_fields *only = found->n_events == 1 ? &found->event : NULL;
  kw_feed_answer answer = {.bytes = bytes, .only = only, .last = found->last_revision};
  bool is_fed = kw_feed_receive(sub->feed, &answer, kw_client_now(call->client), &is_news);
  if (is_news) enter_ready(call, sub);
  return is_fed;
}

static bool on_events(kw_watch_call *call, kw_slice bytes, const kw_watch_answer *found) {
  bool has_more = found->fields.fragment;
  kw_subscription *sub = kw_map_get(&call->ids, (uint64_t)found->fields.watch_id);
  if (call->torn != NULL && call->torn != sub) return false;
  if (sub == NULL) return true; /* the subscription has left the call */
  call->torn = has_more ? sub : NULL;
  call->torn_last = found->last_revision;
  if (sub->torn + bytes.len > call->max_torn) {
    reject(sub, KW_ERR_ANSWER_TOO_LARGE);
    return true;
  }
  if (feed(call, sub, bytes, found)) return true;
  if (!kw_subscription_push(sub, bytes, found->n_events, found->last_revision, has_more)) {
    give_up(call);
    return true;
  }
  kw_watch_call_wake(sub);
  bool can_be_read = sub->pieces > sub->unfinished;
  if (can_be_read && kw_subscription_is_full(sub)) hold_back(call, sub);
  return true;
}

static bool on_answer(kw_watch_call *call, kw_slice bytes) {
  kw_watch_answer found;
  if (!kw_watch_answer_read(bytes, call->torn == NULL ? 0 : call->torn_last, &found)) return false;
  const kw_watch_response *fields = &found.fields;
  if (fields->created) return on_created(call, &found);
  if (found.n_events > 0 && !on_events(call, bytes, &found)) return false;
  if (fields->canceled) {
    kw_subscription *sub = kw_map_get(&call->ids, (uint64_t)fields->watch_id);
    if (sub != NULL) on_canceled(call, sub, &found);
  } else if (found.n_events == 0 && found.header.revision > 0) {
    on_progress(call, &found);
  }
  return true;
}

/* Handles a WatchResponse. An invalid one ends the call, and fails all its subscriptions. */
static void on_message(void *ctx, kw_slice bytes) {
  kw_watch_call *call = ctx;
  call->n_answers++;
  enter(call);
  if (!on_answer(call, bytes)) {
    release_all(call, KW_ERR_MALFORMED_ANSWER);
    kw_client_fail(call->client, call->number, KW_GRPC_INTERNAL,
                   "keywatch: the server's answer is malformed");
  }
  leave(call);
}

static void on_end(void *ctx) {
  kw_watch_call *call = ctx;
  enter(call);
  release_all(call, KW_OK);
  call->is_over = true;
  leave(call);
}

/* }====== */

uint64_t kw_watch_call_open(kw_client *client, const kw_http_field *metadata, size_t n,
                            size_t max_torn) {
  kw_watch_call *call = kw_alloc_zeroed(sizeof *call);
  if (call == NULL) return 0;
  call->client = client;
  call->max_torn = max_torn;
  call->ids.seed = kw_client_hash_seed(client);
  kw_link_init(&call->creations);
  call->number = kw_client_call(client, kw_slice_of(PATH, sizeof PATH - 1), metadata, n, false,
                                &(kw_call_hooks){on_message, on_end, call});
  if (call->number == 0) {
    kw_free(call);
    return 0;
  }
  return call->number;
}

kw_watch_call *kw_watch_call_find(const kw_client *client, uint64_t number) {
  const kw_call_hooks *hooks = kw_client_hooks(client, number);
  return hooks == NULL || hooks->on_message != on_message ? NULL : hooks->ctx;
}

void kw_watch_call_ask(kw_watch_call *call) {
  enter(call);
  call->unanswered++;
  send_request(call, &(kw_watch_request){.kind = KW_WATCH_PROGRESS});
  leave(call);
}

void kw_watch_call_trust(kw_watch_call *call) {
  call->is_trusted = true;
}

kw_watch_call_info kw_watch_call_inspect(const kw_watch_call *call) {
  return (kw_watch_call_info){call->n_answers, call->n, call->is_paused};
}
