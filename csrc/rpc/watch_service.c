/* SPDX-License-Identifier: MIT
 *
 * watch_service: etcdserverpb.Watch.
 *
 * A watch stream has an outlet. The items of its watchers wait there until the stream can take more. Then they are
 * encoded: for each watcher a header and its watch id, then the bytes of the events, which are encoded once for all
 * watchers. Answers to requests are added to the stream at once.
 *
 * A long batch is encoded while its bytes are sent: as one message, whose length is known in advance, or as fragments,
 * one at a time. Nothing else may be sent before its end, so until then the stream takes no requests.
 */
#include "base/mem.h"
#include "codec/event.h"
#include "codec/wire.h"
#include "model/error.h"
#include "rpc/service.h"
#include "watch/scroll.h"

#define PULLED (32 * 1024) /* bytes in a stream above which nothing more is added to it */
#define ALL_WATCHERS (-1)  /* watch id of an answer about the whole stream, or about no watcher */

enum { WATCH_ID = 2, FRAGMENT = 7 };

/* The server's side of one Watch call: the owner of its kw_stream. */
typedef struct watch_stream {
  kw_outlet outlet;
  kw_stream *stream;
  kw_scroll scroll; /* reads the long batch that is being sent */
  kw_chain
      fragment; /* events of its next fragment; always empty if the watcher takes no fragments */
} watch_stream;

/* {====== Sending ====== */

static bool say(kw_server *server, watch_stream *watch, int64_t revision,
                const kw_watch_response *response) {
  return kw_service_answer(server, watch->stream, revision, &kw_msg_watch_response, response);
}

/* One WatchResponse: the events [from, to) of a batch, for one watcher. */
typedef struct portion {
  int64_t watch_id;
  int64_t revision; /* of the header */
  kw_batch *batch;
  uint32_t from;
  uint32_t to;
  bool is_fragment; /* more of the same answer follows */
} portion;

static size_t head_size(const kw_server *server, const portion *p) {
  return kw_service_header_size(server, p->revision) + kw_wire_number_size((uint64_t)p->watch_id) +
         (p->is_fragment ? 2 : 0);
}

static uint8_t *put_head(const kw_server *server, const portion *p, uint8_t *to) {
  to = kw_service_put_header(server, p->revision, to);
  to = kw_wire_put_number(to, WATCH_ID, (uint64_t)p->watch_id);
  return kw_wire_put_number(to, FRAGMENT, p->is_fragment);
}

/* Begins a message: writes its head, which `size` bytes follow. Returns false if memory is short. */
static bool begin_message(kw_server *server, kw_stream *stream, const portion *p, size_t size) {
  size_t head = head_size(server, p);
  if (!kw_stream_begin_parts(stream, head + size)) return false;
  uint8_t *to = kw_chain_reserve(&stream->out, head);
  if (to == NULL) return false;
  put_head(server, p, to);
  kw_chain_commit(&stream->out, head);
  return true;
}

/* Encodes the events into the stream. */
static bool send_copied(kw_server *server, kw_stream *stream, const portion *p, size_t size) {
  size_t len = head_size(server, p) + size;
  uint8_t *to = kw_stream_begin(stream, len);
  if (to == NULL) return false;
  kw_batch_put(p->batch, p->from, p->to, put_head(server, p, to));
  kw_stream_commit(stream, len);
  return true;
}

/* Takes the events from the batch's wire form, which is encoded once for all watchers. */
static bool send_shared(kw_server *server, kw_stream *stream, const portion *p, size_t size) {
  kw_blob *wire = kw_batch_wire(p->batch);
  if (wire == NULL || !begin_message(server, stream, p, size)) return false;
  size_t before = p->from == 0 ? 0 : kw_batch_size(p->batch, 0, p->from);
  if (!kw_chain_add_blob(&stream->out, wire, kw_slice_of(wire->bytes + before, size))) return false;
  kw_stream_sent(stream);
  return true;
}

static bool send_portion(kw_server *server, kw_stream *stream, const portion *p) {
  bool is_whole = p->from == 0 && p->to == p->batch->n && p->batch->wire != NULL;
  size_t size = is_whole ? p->batch->wire->len : kw_batch_size(p->batch, p->from, p->to);
  bool is_shared = p->batch->wire != NULL || p->batch->refs > 1;
  return is_shared ? send_shared(server, stream, p, size) : send_copied(server, stream, p, size);
}

/* Returns the end of the events, from p->from on, that fit into one fragment: at least one does. */
static uint32_t fragment_end(const kw_server *server, const portion *p) {
  size_t size = head_size(server, p);
  uint32_t to = p->from;
  do {
    size += kw_event_size(&p->batch->events[to++]);
  } while (to < p->batch->n &&
           size + kw_event_size(&p->batch->events[to]) < server->options.max_fragment);
  return to;
}

/* Sends one answer in fragments, with nothing between them: the client joins them. */
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

/* {------ Long batches ------ */

static portion portion_of(const kw_scroll *scroll) {
  return (portion){.watch_id = scroll->watcher->id, .revision = scroll->batch->long_revision};
}

static bool is_in_fragments(const kw_server *server, const kw_scroll *scroll) {
  portion p = portion_of(scroll);
  const kw_batch *batch = scroll->batch;
  return scroll->watcher->fragment && batch->long_n > 1 &&
         head_size(server, &p) + batch->long_size >= server->options.max_fragment;
}

/* Sends the events of a fragment. */
static bool send_fragment(kw_server *server, watch_stream *watch, bool has_more) {
  portion p = portion_of(&watch->scroll);
  p.is_fragment = has_more;
  if (!begin_message(server, watch->stream, &p, watch->fragment.len)) return false;
  kw_chain_append(&watch->stream->out, &watch->fragment);
  return true;
}

/* Adds an event to the next fragment. Sends the fragment first if the event does not fit in. */
static bool add_to_fragment(kw_server *server, watch_stream *watch, const kw_event *event) {
  portion p = portion_of(&watch->scroll);
  p.is_fragment = true;
  size_t size = kw_event_size(event), len = watch->fragment.len;
  bool fits = len == 0 || head_size(server, &p) + len + size < server->options.max_fragment;
  if (!fits && !send_fragment(server, watch, true)) return false;
  uint8_t *to = kw_chain_reserve(&watch->fragment, size);
  if (to == NULL) return false;
  kw_event_put(event, to);
  kw_chain_commit(&watch->fragment, size);
  return watch->scroll.left > 0 || send_fragment(server, watch, false);
}

/* Adds an event to the message. */
static bool add_to_message(kw_stream *stream, const kw_event *event) {
  size_t size = kw_event_size(event);
  uint8_t *to = kw_chain_reserve(&stream->out, size);
  if (to == NULL) return false;
  kw_event_put(event, to);
  kw_chain_commit(&stream->out, size);
  return true;
}

/* Wakes the stream in the next turn. */
static void wake_later(watch_stream *watch) {
  kw_outlet_arm(&watch->outlet);
  kw_ready_add(&watch->outlet);
}

/* Sends more of a long batch. Returns KW_OK; KW_UNFINISHED if this turn has done enough; or an error, after which the
 * message cannot be completed. */
static int send_more(kw_server *server, watch_stream *watch) {
  kw_stream *stream = watch->stream;
  kw_work work = kw_work_of_turn();
  bool is_split = is_in_fragments(server, &watch->scroll);
  kw_event event;
  if (!kw_scroll_seek(&watch->scroll)) return KW_ERR_COMPACTED;
  while (stream->out.len < PULLED && watch->scroll.left > 0) {
    int rc = kw_scroll_next(&watch->scroll, &work, &event);
    if (rc == KW_UNFINISHED && watch->fragment.len > 0)
      return send_fragment(server, watch, true) ? KW_OK : KW_ERR_NO_MEMORY;
    if (rc != KW_OK) return rc;
    bool ok = is_split ? add_to_fragment(server, watch, &event) : add_to_message(stream, &event);
    if (!ok) return KW_ERR_NO_MEMORY;
  }
  if (watch->scroll.left > 0) return KW_OK;
  kw_scroll_close(&watch->scroll);
  wake_later(watch); /* kw_watch_step lets requests in again */
  return KW_OK;
}

/* Begins to send a long batch. If the history has changed, the hub delivers the revision again. */
static bool begin_long(kw_server *server, watch_stream *watch, const kw_item *item) {
  kw_scroll *scroll = &watch->scroll;
  kw_scroll_open(scroll, server->hub, item);
  portion p = portion_of(scroll);
  size_t len = head_size(server, &p) + item->batch->long_size;
  bool is_valid = kw_scroll_seek(scroll), is_split = is_in_fragments(server, scroll);
  if (is_valid && (is_split || len <= KW_MAX_ANSWER)) {
    kw_stream_pause(watch->stream);
    return is_split || begin_message(server, watch->stream, &p, item->batch->long_size);
  }
  kw_scroll_close(scroll);
  if (!is_valid) kw_hub_deliver_again(server->hub, item->watcher, item->revision);
  if (is_valid) kw_service_refuse_size(watch->stream, len);
  return true;
}

/* }------ */

static bool send_events(kw_server *server, watch_stream *watch, const kw_item *item) {
  if (item->batch->long_revision != 0) return begin_long(server, watch, item);
  portion p = {.watch_id = item->watcher->id,
               .revision = item->revision,
               .batch = item->batch,
               .from = item->from,
               .to = item->batch->n};
  bool may_split = item->watcher->fragment && p.to - p.from > 1;
  if (may_split && head_size(server, &p) + kw_batch_size(p.batch, p.from, p.to) >=
                       server->options.max_fragment) {
    return send_fragments(server, watch->stream, p);
  }
  return send_portion(server, watch->stream, &p);
}

/* Reports that a watcher is canceled, and why. */
static bool send_failure(kw_server *server, watch_stream *watch, const kw_item *item, int rc) {
  return say(server, watch, kw_store_revision(server->store),
             &(kw_watch_response){.watch_id = item->watcher->id,
                                  .canceled = true,
                                  .cancel_reason = kw_service_text(rc)});
}

static bool send_item(kw_server *server, watch_stream *watch, const kw_item *item) {
  switch (item->kind) {
    case KW_ITEM_EVENTS: return send_events(server, watch, item);
    case KW_ITEM_PROGRESS:
      return say(server, watch, item->revision,
                 &(kw_watch_response){.watch_id = item->watcher == NULL ? ALL_WATCHERS
                                                                        : item->watcher->id});
    case KW_ITEM_COMPACTED: /* without a revision in its header, as in etcd */
      return say(server, watch, 0,
                 &(kw_watch_response){.watch_id = item->watcher->id,
                                      .canceled = true,
                                      .compact_revision = item->revision});
    case KW_ITEM_CORRUPT: return send_failure(server, watch, item, KW_ERR_CORRUPT);
  }
  return false;
}

/* Fills the stream from its outlet. If a message cannot be sent, the stream is reset: the client opens a new stream,
 * and resumes without a gap. */
static void on_pull(kw_server *server, kw_stream *stream) {
  watch_stream *watch = stream->owner;
  kw_item item;
  int rc = KW_OK;
  while (rc == KW_OK && stream->out.len < PULLED && !stream->is_finished) {
    if (watch->scroll.batch != NULL) {
      rc = send_more(server, watch);
      kw_stream_sent(stream);
      continue;
    }
    if (!kw_outlet_take(&watch->outlet, &item)) break;
    if (!send_item(server, watch, &item)) rc = KW_ERR_NO_MEMORY;
    if (item.batch != NULL) kw_batch_release(item.batch);
  }
  if (rc < 0) {
    kw_stream_reset(stream, KW_RESET_INTERNAL);
  } else if (rc == KW_UNFINISHED) {
    wake_later(watch);
  } else {
    kw_outlet_arm(&watch->outlet);
  }
}

/* }====== */

/* {====== Requests ====== */

static void refuse(kw_server *server, watch_stream *watch, int rc) {
  say(server, watch, kw_store_revision(server->store),
      &(kw_watch_response){.watch_id = ALL_WATCHERS,
                           .created = true,
                           .canceled = true,
                           .cancel_reason = kw_service_text(rc)});
}

static void create(kw_server *server, watch_stream *watch, const kw_watch_create_request *asked) {
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
  int rc = kw_hub_watch(server->hub, &watch->outlet, &spec, &watcher);
  if (rc != KW_OK) {
    refuse(server, watch, rc);
    return;
  }
  kw_watch_response created = {.watch_id = watcher->id, .created = true};
  if (!say(server, watch, kw_store_revision(server->store), &created))
    kw_hub_cancel(server->hub, watcher);
}

/* Cancels a watcher. No event of the watcher follows the answer. A request with an unknown id is not answered. */
static void cancel(kw_server *server, watch_stream *watch, int64_t id) {
  kw_watcher *watcher = kw_outlet_find(&watch->outlet, id);
  if (watcher == NULL) return;
  kw_hub_cancel(server->hub, watcher);
  say(server, watch, kw_store_revision(server->store),
      &(kw_watch_response){.watch_id = id, .canceled = true});
}

static void on_request(kw_server *server, kw_stream *stream, const void *request) {
  const kw_watch_request *asked = request;
  watch_stream *watch = stream->owner;
  switch (asked->kind) {
    case KW_WATCH_CREATE: create(server, watch, &asked->create); break;
    case KW_WATCH_CANCEL: cancel(server, watch, asked->cancel); break;
    case KW_WATCH_PROGRESS:
      if (watch->outlet.ids.n > 0) kw_hub_progress_all(server->hub, &watch->outlet);
      break;
    default: break; /* an empty request is not answered */
  }
  kw_stream_wake(stream); /* the outlet may have items already */
}

/* }====== */

static void free_watch_stream(kw_outlet *outlet) {
  kw_free(KW_CONTAINER_OF(outlet, watch_stream, outlet));
}

static void on_open(kw_server *server, kw_stream *stream) {
  watch_stream *watch = kw_alloc_zeroed(sizeof *watch);
  if (watch == NULL) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  watch->stream = stream;
  stream->owner = watch;
  kw_hub_open_outlet(server->hub, &watch->outlet, &server->ready, server->options.outlet_bytes,
                     true);
  watch->outlet.account = watch->fragment.account = kw_session_account(stream->session);
  watch->outlet.on_closed = free_watch_stream;
  kw_account_charge(watch->outlet.account, sizeof *watch);
  kw_outlet_arm(&watch->outlet);
}

/* A stream with watchers stays open after the client has half-closed it. */
static void on_half_close(kw_server *server, kw_stream *stream) {
  const watch_stream *watch = stream->owner;
  (void)server;
  if (watch->outlet.ids.n == 0) kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
}

/* A long batch is being sent: nothing may be written between its parts. */
static bool is_busy(const kw_stream *stream) {
  const watch_stream *watch = stream->owner;
  return watch != NULL && watch->scroll.batch != NULL;
}

static void on_close(kw_server *server, kw_stream *stream) {
  watch_stream *watch = stream->owner;
  if (watch == NULL) return;
  kw_scroll_close(&watch->scroll);
  kw_chain_drop(&watch->fragment);
  kw_account_credit(watch->outlet.account, sizeof *watch);
  kw_outlet_abandon(&watch->outlet, &server->abandoned);
}

/* A stream in the middle of a long batch is woken only when its next event is found: many events that the watcher does
 * not want may come before. */
bool kw_watch_step(kw_server *server) {
  kw_work work = kw_work_of_turn();
  kw_outlet *outlet;
  while ((outlet = kw_ready_next(&server->ready)) != NULL) {
    watch_stream *watch = KW_CONTAINER_OF(outlet, watch_stream, outlet);
    bool is_long = watch->scroll.batch != NULL;
    if (is_long && !kw_scroll_skip(&watch->scroll, &work)) {
      wake_later(watch);
      return true;
    }
    kw_stream_wake(watch->stream);
    kw_server_touch(watch->stream);
    if (!is_long) kw_call_let_in(watch->stream);
  }
  return false;
}

const kw_method kw_watch_methods[] = {
    {.path = "/etcdserverpb.Watch/Watch",
     .request = &kw_msg_watch_request,
     .on_open = on_open,
     .on_request = on_request,
     .on_half_close = on_half_close,
     .is_busy = is_busy,
     .on_pull = on_pull,
     .on_drain = kw_service_stop,
     .on_close = on_close},
    {0},
};
