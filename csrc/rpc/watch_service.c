/* SPDX-License-Identifier: MIT
 *
 * watch_service: etcdserverpb.Watch.
 *
 * A stream has an outlet. What its watchers are told waits there until the stream can take more: then it is encoded,
 * header and watch id for each, and the events' bytes as they are. What answers a request goes into the stream at once.
 */
#include "base/mem.h"
#include "codec/event.h"
#include "codec/wire.h"
#include "model/error.h"
#include "rpc/service.h"

#define PULLED (32 * 1024) /* a stream is filled up to here, and goes on when that has gone out */
#define ALL_WATCHERS (-1)  /* the id of what concerns a whole stream, or no watcher */

enum { WATCH_ID = 2, FRAGMENT = 7 };

typedef struct watch_call {
  kw_outlet outlet;
  kw_stream *stream;
} watch_call;

/* {====== What is said ====== */

static bool say(kw_server *server, watch_call *call, int64_t revision,
                const kw_watch_response *response) {
  return kw_service_answer(server, call->stream, revision, &kw_msg_watch_response, response);
}

/* Some events of a batch for a watcher, `size` bytes that begin `at` bytes into its wire form. */
typedef struct portion {
  int64_t watch_id;
  int64_t revision;
  kw_batch *batch;
  uint32_t from;
  uint32_t to;
  bool is_fragment;
} portion;

static size_t events_size(const kw_batch *batch, uint32_t from, uint32_t to) {
  size_t size = 0;
  for (uint32_t i = from; i < to; i++) size += kw_event_size(&batch->events[i]);
  return size;
}

static size_t head_size(const kw_server *server, const portion *p) {
  return kw_service_header_size(server, p->revision) + kw_wire_number_size((uint64_t)p->watch_id) +
         (p->is_fragment ? 2 : 0);
}

static uint8_t *put_head(const kw_server *server, const portion *p, uint8_t *to) {
  to = kw_service_put_header(server, p->revision, to);
  to = kw_wire_put_number(to, WATCH_ID, (uint64_t)p->watch_id);
  return kw_wire_put_number(to, FRAGMENT, p->is_fragment);
}

static uint8_t *put_events(const portion *p, uint8_t *to) {
  for (uint32_t i = p->from; i < p->to; i++) to = kw_event_put(&p->batch->events[i], to);
  return to;
}

/* Encodes the events straight into the stream. */
static bool send_copied(kw_server *server, kw_stream *stream, const portion *p, size_t size) {
  size_t len = head_size(server, p) + size;
  uint8_t *to = kw_stream_begin(stream, len);
  if (to == NULL) return false;
  put_events(p, put_head(server, p, to));
  kw_stream_commit(stream, len);
  return true;
}

/* Takes them from what was encoded for all. */
static bool send_shared(kw_server *server, kw_stream *stream, const portion *p, size_t size) {
  kw_blob *wire = kw_batch_wire(p->batch);
  size_t head = head_size(server, p);
  if (wire == NULL || !kw_stream_begin_parts(stream, head + size)) return false;
  size_t before = p->from == 0 ? 0 : events_size(p->batch, 0, p->from);
  uint8_t *to = kw_chain_reserve(&stream->out, head);
  if (to == NULL) return false;
  put_head(server, p, to);
  kw_chain_commit(&stream->out, head);
  if (!kw_chain_add_blob(&stream->out, wire, kw_slice_of(wire->bytes + before, size))) return false;
  kw_stream_sent(stream);
  return true;
}

static bool send_portion(kw_server *server, kw_stream *stream, const portion *p) {
  bool is_whole = p->from == 0 && p->to == p->batch->n && p->batch->wire != NULL;
  size_t size = is_whole ? p->batch->wire->len : events_size(p->batch, p->from, p->to);
  bool is_shared = p->batch->wire != NULL || p->batch->refs > 1;
  return is_shared ? send_shared(server, stream, p, size) : send_copied(server, stream, p, size);
}

/* How many events, from `from` on, fit into one fragment: at least one. */
static uint32_t fragment_end(const kw_server *server, const portion *p) {
  size_t size = head_size(server, p);
  uint32_t to = p->from;
  do {
    size += kw_event_size(&p->batch->events[to++]);
  } while (to < p->batch->n &&
           size + kw_event_size(&p->batch->events[to]) < server->options.max_fragment);
  return to;
}

/* The parts of one answer follow each other: whoever reads them puts them together. */
static bool send_fragments(kw_server *server, kw_stream *stream, portion p) {
  bool ok = true;
  while (ok && p.from < p.batch->n) {
    p.is_fragment = true;
    p.to = fragment_end(server, &p);
    p.is_fragment = p.to < p.batch->n;
    ok = send_portion(server, stream, &p);
    p.from = p.to;
  }
  return ok;
}

static bool send_events(kw_server *server, watch_call *call, const kw_item *item) {
  portion p = {.watch_id = item->watcher->id,
               .revision = item->revision,
               .batch = item->batch,
               .from = item->from,
               .to = item->batch->n};
  bool may_split = item->watcher->fragment && p.to - p.from > 1;
  if (may_split &&
      head_size(server, &p) + events_size(p.batch, p.from, p.to) >= server->options.max_fragment) {
    return send_fragments(server, call->stream, p);
  }
  return send_portion(server, call->stream, &p);
}

/* Says that a watcher has failed, and why. */
static bool send_failure(kw_server *server, watch_call *call, const kw_item *item, int rc) {
  const char *text = kw_error_describe(rc)->text;
  return say(server, call, kw_store_revision(server->store),
             &(kw_watch_response){.watch_id = item->watcher->id,
                                  .canceled = true,
                                  .cancel_reason = kw_slice_of(text, strlen(text))});
}

static bool send_item(kw_server *server, watch_call *call, const kw_item *item) {
  switch (item->kind) {
    case KW_ITEM_EVENTS: return send_events(server, call, item);
    case KW_ITEM_PROGRESS:
      return say(server, call, item->revision,
                 &(kw_watch_response){.watch_id = item->watcher == NULL ? ALL_WATCHERS
                                                                        : item->watcher->id});
    case KW_ITEM_COMPACTED: /* without a revision in its header, as in etcd */
      return say(server, call, 0,
                 &(kw_watch_response){.watch_id = item->watcher->id,
                                      .canceled = true,
                                      .compact_revision = item->revision});
    case KW_ITEM_CORRUPT: return send_failure(server, call, item, KW_ERR_CORRUPT);
  }
  return false;
}

/* Whoever loses a message must not go on as if there had been none: the client opens another stream, and resumes. */
static void on_pull(kw_server *server, kw_stream *stream) {
  watch_call *call = stream->owner;
  kw_item item;
  while (stream->out.len < PULLED && kw_outlet_take(&call->outlet, &item)) {
    bool ok = send_item(server, call, &item);
    if (item.batch != NULL) kw_batch_release(item.batch);
    if (ok) continue;
    kw_stream_reset(stream, KW_RESET_INTERNAL);
    return;
  }
  kw_outlet_arm(&call->outlet);
}

/* }====== */

/* {====== What is asked ====== */

static void refuse(kw_server *server, watch_call *call, int rc) {
  const char *text = kw_error_describe(rc)->text;
  say(server, call, kw_store_revision(server->store),
      &(kw_watch_response){.watch_id = ALL_WATCHERS,
                           .created = true,
                           .canceled = true,
                           .cancel_reason = kw_slice_of(text, strlen(text))});
}

static void create(kw_server *server, watch_call *call, const kw_watch_create_request *asked) {
  kw_watcher *watcher;
  kw_watch_spec spec = {.range = asked->range,
                        .start_revision = asked->start_revision,
                        .id = asked->watch_id,
                        .prev_kv = asked->prev_kv,
                        .progress = asked->progress_notify,
                        .fragment = asked->fragment};
  const int *filters = asked->filters.items;
  for (size_t i = 0; i < asked->filters.n; i++) {
    spec.no_put |= filters[i] == 0;
    spec.no_delete |= filters[i] == 1;
  }
  int rc = kw_hub_watch(server->hub, &call->outlet, &spec, &watcher);
  if (rc != KW_OK) {
    refuse(server, call, rc);
    return;
  }
  kw_watch_response created = {.watch_id = watcher->id, .created = true};
  if (!say(server, call, kw_store_revision(server->store), &created))
    kw_hub_cancel(server->hub, watcher);
}

/* Nothing of the watcher may follow what is said here. An id that nobody has is nobody's: nothing is said. */
static void cancel(kw_server *server, watch_call *call, int64_t id) {
  kw_watcher *watcher = kw_outlet_find(&call->outlet, id);
  if (watcher == NULL) return;
  kw_hub_cancel(server->hub, watcher);
  say(server, call, kw_store_revision(server->store),
      &(kw_watch_response){.watch_id = id, .canceled = true});
}

static void on_request(kw_server *server, kw_stream *stream, const void *request) {
  const kw_watch_request *asked = request;
  watch_call *call = stream->owner;
  switch (asked->kind) {
    case KW_WATCH_CREATE: create(server, call, &asked->create); break;
    case KW_WATCH_CANCEL: cancel(server, call, asked->cancel); break;
    case KW_WATCH_PROGRESS:
      if (call->outlet.ids.n > 0) kw_hub_progress_all(server->hub, &call->outlet);
      break;
    default: break; /* says nothing, and is not answered */
  }
  kw_stream_wake(stream); /* for what may be in the outlet already */
}

/* }====== */

static void on_open(kw_server *server, kw_stream *stream) {
  watch_call *call = kw_alloc_zeroed(sizeof *call);
  if (call == NULL) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  call->stream = stream;
  stream->owner = call;
  kw_hub_open_outlet(server->hub, &call->outlet, &server->ready, server->options.outlet_bytes,
                     true);
  call->outlet.account = kw_session_account(stream->session);
  kw_account_charge(call->outlet.account, sizeof *call);
  kw_outlet_arm(&call->outlet);
}

/* Its watchers go on, if there are any. */
static void on_half_close(kw_server *server, kw_stream *stream) {
  const watch_call *call = stream->owner;
  (void)server;
  if (call->outlet.ids.n == 0) kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
}

static void on_drain(kw_server *server, kw_stream *stream) {
  (void)server;
  kw_service_fail(stream, KW_ERR_STOPPED);
}

static void on_close(kw_server *server, kw_stream *stream) {
  watch_call *call = stream->owner;
  (void)server;
  if (call == NULL) return;
  kw_outlet_close(&call->outlet);
  kw_account_credit(call->outlet.account, sizeof *call);
  kw_free(call);
}

void kw_watch_tend(kw_server *server) {
  kw_outlet *outlet;
  while ((outlet = kw_ready_next(&server->ready)) != NULL) {
    watch_call *call = KW_CONTAINER_OF(outlet, watch_call, outlet);
    kw_stream_wake(call->stream);
    kw_server_touch(call->stream);
  }
}

const kw_method kw_watch_methods[] = {
    {.path = "/etcdserverpb.Watch/Watch",
     .request = &kw_msg_watch_request,
     .on_open = on_open,
     .on_request = on_request,
     .on_half_close = on_half_close,
     .on_pull = on_pull,
     .on_drain = on_drain,
     .on_close = on_close},
    {0},
};
