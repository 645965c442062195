/* SPDX-License-Identifier: MIT */
#include "rpc/watch_call.h"

#include "base/map.h"
#include "base/mem.h"
#include "codec/keyvalue.h"
#include "codec/messages.h"
#include "model/error.h"

#define PATH "/etcdserverpb.Watch/Watch"
#define ALL (-1) /* the id of what concerns the whole call */

/* Something that was asked for and not answered: whose it is, or nobody's any more. */
typedef struct kw_creation {
  kw_subscription *sub;
  kw_link link;
} kw_creation;

struct kw_watch_call {
  kw_client *client;
  uint64_t number;
  kw_map ids;
  kw_link creations;
  kw_subscription *torn; /* whose answer is not complete */
  int64_t torn_last;     /* the last revision of what came of it */
  size_t max_torn;
  size_t n;          /* subscriptions */
  size_t unanswered; /* requests for progress, some of which may never be answered */
  uint64_t heard;
  bool is_held;
  bool is_trusted;
  bool is_over; /* to be freed as soon as nobody is busy with it */
  int busy;
};

static void enter(kw_watch_call *call) {
  call->busy++;
}

static void leave(kw_watch_call *call) {
  if (--call->busy == 0 && call->is_over) kw_free(call);
}

/* {====== Answers ====== */

typedef struct answer {
  kw_header header;
  kw_watch_response fields;
  size_t n; /* events */
  int64_t last;
  bool is_ordered;
} answer;

/* The revision of an event; 0 if it is malformed. */
static int64_t revision_of(kw_slice event) {
  kw_wire_reader reader = kw_wire_read(event);
  kw_wire_field field;
  kw_kv kv = {0}, prev;
  while (kw_wire_next(&reader, &field)) {
    if (field.number != 2 && field.number != 3) continue;
    if (field.type != KW_WIRE_BYTES) return 0;
    if (!kw_keyvalue_decode(field.bytes, field.number == 2 ? &kv : &prev)) return 0;
  }
  return reader.failed ? 0 : kv.mod_revision;
}

static bool read_header(kw_slice bytes, kw_header *header) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  int64_t *const places[] = {&header->cluster_id, &header->member_id, &header->revision,
                             &header->raft_term};
  while (kw_wire_next(&reader, &field)) {
    if (field.number >= 1 && field.number <= 4 && field.type == KW_WIRE_VARINT)
      *places[field.number - 1] = (int64_t)field.value;
  }
  return !reader.failed;
}

static bool read_number(const kw_wire_field *field, kw_watch_response *to) {
  int64_t v = (int64_t)field->value;
  if (field->type != KW_WIRE_VARINT) return false;
  switch (field->number) {
    case 2: to->watch_id = v; break;
    case 3: to->created = v != 0; break;
    case 4: to->canceled = v != 0; break;
    case 5: to->compact_revision = v; break;
    default: to->fragment = v != 0; break;
  }
  return true;
}

/* There is always a next one. */
static bool is_possible(int64_t revision) {
  return revision >= 0 && revision < INT64_MAX;
}

static bool read_field(const kw_wire_field *field, answer *to) {
  bool is_bytes = field->type == KW_WIRE_BYTES;
  switch (field->number) {
    case 1:
      return is_bytes && read_header(field->bytes, &to->header) && is_possible(to->header.revision);
    case 6: to->fields.cancel_reason = field->bytes; return is_bytes;
    case 11: {
      int64_t revision = is_bytes ? revision_of(field->bytes) : 0;
      to->is_ordered = to->is_ordered && revision >= to->last;
      to->last = revision;
      to->n++;
      return revision > 0 && is_possible(revision);
    }
    default: return field->number > 7 || read_number(field, &to->fields);
  }
}

/* Its events do not begin before `last`. */
static bool read_answer(kw_slice bytes, int64_t last, answer *to) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  *to = (answer){.is_ordered = true, .last = last};
  while (kw_wire_next(&reader, &field)) {
    if (!read_field(&field, to)) return false;
  }
  return !reader.failed && to->is_ordered;
}

/* }====== */

/* Memory is short: the call ends, and its subscriptions go on later, where they were. */
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

static void show(kw_watch_call *call, kw_subscription *sub) {
  if (kw_link_is_alone(&sub->ready))
    kw_link_add(kw_client_ready_watches(call->client), &sub->ready);
}

/* Another connection may be where it shows. */
static void move_ready(kw_watch_call *call, kw_subscription *sub) {
  kw_link_remove(&sub->ready);
  show(call, sub);
}

void kw_watch_call_wake(kw_subscription *sub) {
  bool has_come = sub->is_armed && kw_subscription_first(sub) != NULL;
  if (sub->call == NULL || !(has_come || sub->is_followed)) return;
  if (has_come) sub->is_armed = false;
  show(sub->call, sub);
}

/* It is on no call any more. */
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

/* The same for one of many: its id is no longer known, either. */
static void unbind(kw_subscription *sub) {
  if (sub->state == KW_SUBSCRIPTION_OPEN) kw_map_remove(&sub->call->ids, (uint64_t)sub->id);
  release(sub);
}

static void send_cancel(kw_watch_call *call, int64_t id) {
  send_request(call, &(kw_watch_request){.kind = KW_WATCH_CANCEL, .cancel = id});
}

void kw_watch_call_detach(kw_subscription *sub) {
  kw_watch_call *call = sub->call;
  if (call == NULL) return;
  bool is_open = sub->state == KW_SUBSCRIPTION_OPEN;
  enter(call);
  unbind(sub);
  if (is_open) send_cancel(call, sub->id);
  if (call->n == 0) kw_watch_call_relieve(call);
  leave(call);
}

static void fail(kw_subscription *sub, int64_t compact_revision, kw_slice reason, int error) {
  kw_watch_call *call = sub->call;
  unbind(sub);
  kw_subscription_fail(sub, compact_revision, reason, error);
  show(call, sub);
}

/* The same by our own doing, of one that is open: the server is told. */
static void reject(kw_subscription *sub, int error) {
  kw_watch_call *call = sub->call;
  fail(sub, 0, (kw_slice){0}, error);
  send_cancel(call, sub->id);
}

/* All subscriptions leave: with an error, or to be attached anew. */
static void release_all(kw_watch_call *call, int error) {
  size_t at = 0;
  kw_map ids = call->ids;
  kw_subscription *sub;
  call->ids = (kw_map){0};
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
    show(call, sub);
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
  sub->call = call;
  if (!kw_link_is_alone(&sub->ready)) move_ready(call, sub);
  sub->state = KW_SUBSCRIPTION_CREATING;
  sub->is_lagging = false;
  call->n++;
  enter(call);
  send_request(call, &(kw_watch_request){.kind = KW_WATCH_CREATE,
                                         .create = {.range = kw_subscription_range(sub),
                                                    .start_revision = sub->next,
                                                    .progress_notify = true,
                                                    .filters = {.items = filters, .n = n},
                                                    .prev_kv = sub->prev_kv,
                                                    .fragment = true}});
  leave(call);
  return true;
}

/* }====== */

/* {====== What comes ====== */

static bool is_of_other_cluster(const kw_subscription *sub, const kw_header *header) {
  return sub->has_cluster && header->cluster_id != sub->cluster;
}

static void open_sub(kw_watch_call *call, kw_subscription *sub, const answer *found) {
  const kw_header *header = &found->header;
  kw_map_put(&call->ids, (uint64_t)found->fields.watch_id, sub);
  sub->id = found->fields.watch_id;
  sub->state = KW_SUBSCRIPTION_OPEN;
  sub->was_created = true;
  sub->server = header->revision;
  sub->stale = call->unanswered;
  if (sub->next == 0) sub->next = header->revision + 1;
  if (is_of_other_cluster(sub, header)) {
    reject(sub, KW_ERR_CLUSTER_CHANGED);
    return;
  }
  sub->cluster = header->cluster_id;
  sub->has_cluster = true;
  if (header->revision < sub->seen) kw_subscription_doubt(sub);
  if (header->revision > sub->seen) sub->seen = header->revision;
  show(call, sub);
}

/* Room for the id was made when it was asked for: ids that are taken away leave theirs. */
static bool hear_created(kw_watch_call *call, const answer *found) {
  const kw_watch_response *fields = &found->fields;
  bool is_bad = fields->canceled || fields->watch_id == ALL;
  if (kw_link_is_alone(&call->creations) || found->n > 0) return false;
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

/* Without a reason it is to be attached anew. */
static void hear_canceled(kw_watch_call *call, kw_subscription *sub, const answer *found) {
  const kw_watch_response *fields = &found->fields;
  if (fields->compact_revision > 0 || fields->cancel_reason.len > 0) {
    fail(sub, fields->compact_revision, fields->cancel_reason, KW_ERR_UNKNOWN);
    if (fields->compact_revision > 0) send_cancel(call, sub->id);
  } else {
    unbind(sub);
    show(call, sub);
  }
}

/* Servers may say that a watch was created before they say how far others had come before that. What they say then is
 * not of it, unless it is of a later revision. */
static bool is_stale(kw_subscription *sub, int64_t revision) {
  if (sub->stale == 0) return false;
  sub->stale--;
  return revision <= sub->server;
}

static void hear_progress(kw_watch_call *call, const answer *found) {
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
    if (!is_stale(sub, revision) && kw_subscription_advance(sub, revision)) kw_watch_call_wake(sub);
  }
}

/* Nobody reads it: alone, it holds its call back; else it goes, so that others need not wait. */
static void hold_back(kw_watch_call *call, kw_subscription *sub) {
  if (call->n > 1) {
    kw_watch_call_detach(sub);
    sub->is_lagging = true;
    show(call, sub);
  } else if (!call->is_held) {
    call->is_held = true;
    kw_client_pause(call->client, call->number);
  }
}

static bool hear_events(kw_watch_call *call, kw_slice bytes, const answer *found) {
  bool has_more = found->fields.fragment;
  kw_subscription *sub = kw_map_get(&call->ids, (uint64_t)found->fields.watch_id);
  if (call->torn != NULL && call->torn != sub) return false;
  if (sub == NULL) return true; /* it has left */
  call->torn = has_more ? sub : NULL;
  call->torn_last = found->last;
  if (sub->torn + bytes.len > call->max_torn) {
    reject(sub, KW_ERR_RESOURCE_EXHAUSTED);
    return true;
  }
  if (!kw_subscription_push(sub, bytes, found->n, found->last, has_more)) {
    give_up(call);
    return true;
  }
  kw_watch_call_wake(sub);
  bool can_be_read = sub->pieces > sub->unfinished;
  if (can_be_read && kw_subscription_is_full(sub)) hold_back(call, sub);
  return true;
}

static bool hear(kw_watch_call *call, kw_slice bytes) {
  answer found;
  if (!read_answer(bytes, call->torn == NULL ? 0 : call->torn_last, &found)) return false;
  const kw_watch_response *fields = &found.fields;
  if (fields->created) return hear_created(call, &found);
  if (found.n > 0 && !hear_events(call, bytes, &found)) return false;
  if (fields->canceled) {
    kw_subscription *sub = kw_map_get(&call->ids, (uint64_t)fields->watch_id);
    if (sub != NULL) hear_canceled(call, sub, &found);
  } else if (found.n == 0 && found.header.revision > 0) {
    hear_progress(call, &found);
  }
  return true;
}

/* A server that says what makes no sense is not listened to any more, and all who did are told. */
static void on_message(void *ctx, kw_slice bytes) {
  kw_watch_call *call = ctx;
  call->heard++;
  enter(call);
  if (!hear(call, bytes)) {
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

uint64_t kw_watch_call_open(kw_client *client, const kw_header_field *lines, size_t n,
                            size_t max_torn) {
  kw_watch_call *call = kw_alloc_zeroed(sizeof *call);
  if (call == NULL) return 0;
  call->client = client;
  call->max_torn = max_torn;
  kw_link_init(&call->creations);
  call->number = kw_client_call(client, kw_slice_of(PATH, sizeof PATH - 1), lines, n, false,
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

void kw_watch_call_relieve(kw_watch_call *call) {
  if (!call->is_held) return;
  call->is_held = false;
  kw_client_resume(call->client, call->number);
}

kw_watch_call_info kw_watch_call_inspect(const kw_watch_call *call) {
  return (kw_watch_call_info){call->heard, call->n, call->is_held};
}
