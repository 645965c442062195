/* SPDX-License-Identifier: MIT */
#include "rpc/fetch.h"

#include "base/mem.h"
#include "rpc/call.h"
#include "rpc/message_queue.h"

typedef struct kw_fetch {
  uint64_t number;
  kw_fetches *fetches;
  kw_exchange *exchange; /* NULL: it is closed */
  int status;            /* of the answer */
  kw_blob *head;         /* fields of the answer that were not taken; or NULL */
  kw_message_queue body; /* that was not taken */
  kw_blob *trailers;
  kw_blob *why;     /* the exchange has failed; NULL: memory is short */
  uint64_t n_moved; /* bytes of the bodies that were written and received; and 1 for each head */
  bool has_failed;
  kw_fate fate; /* at the end of the exchange */
  bool has_end; /* the answer is complete, and its end was not taken */
  bool is_paused;
  bool wants_room;
  kw_link ready;
} kw_fetch;

/* {====== Life ====== */

void kw_fetches_init(kw_fetches *fetches, const kw_http_options *options) {
  *fetches = (kw_fetches){.options = *options};
  kw_link_init(&fetches->ready);
}

static kw_fetch *new_fetch(kw_fetches *fetches) {
  kw_fetch *fetch = kw_alloc_zeroed(sizeof *fetch);
  if (fetch == NULL) return NULL;
  fetch->number = fetches->last + 1;
  fetch->fetches = fetches;
  kw_message_queue_init(&fetch->body, NULL);
  kw_link_init(&fetch->ready);
  return fetch;
}

static void release(kw_blob *blob) {
  if (blob != NULL) kw_blob_release(blob);
}

static void free_fetch(kw_fetch *fetch) {
  kw_message_queue_clear(&fetch->body);
  release(fetch->head);
  release(fetch->trailers);
  release(fetch->why);
  kw_link_remove(&fetch->ready);
  kw_free(fetch);
}

/* Frees a fetch, and forgets its number. */
static void forget(kw_fetch *fetch) {
  kw_map *all = &fetch->fetches->all;
  kw_map_remove(all, fetch->number);
  kw_map_shrink(all, 0);
  free_fetch(fetch);
}

void kw_fetches_drop(kw_fetches *fetches) {
  size_t at = 0;
  kw_fetch *fetch;
  if (fetches->http != NULL) kw_http_free(fetches->http);
  fetches->http = NULL;
  if (fetches->session != NULL) {
    kw_session_end(fetches->session);
    kw_session_end_exchanges(fetches->session);
    kw_session_free(fetches->session);
  }
  fetches->session = NULL;
  while ((fetch = kw_map_next(&fetches->all, &at)) != NULL) free_fetch(fetch);
  kw_map_drop(&fetches->all);
}

/* }====== */

/* {====== Hooks ====== */

static void announce(kw_fetch *fetch) {
  if (kw_link_is_alone(&fetch->ready)) kw_link_add(&fetch->fetches->ready, &fetch->ready);
}

static void on_answer(kw_exchange *exchange, const kw_http_answer *answer, void *ctx) {
  kw_fetch *fetch = exchange->owner;
  (void)ctx;
  if (fetch != NULL) fetch->n_moved++;
  if (fetch == NULL || answer->status < 200) return;
  fetch->status = answer->status;
  fetch->head = kw_call_metadata(answer->fields, answer->n_fields);
  if (fetch->head == NULL) {
    kw_exchange_abort(exchange);
  } else {
    announce(fetch);
  }
}

static void on_body(kw_exchange *exchange, kw_slice bytes, void *ctx) {
  kw_fetch *fetch = exchange->owner;
  (void)ctx;
  if (fetch == NULL) return;
  fetch->n_moved += bytes.len;
  if (!kw_message_queue_add(&fetch->body, bytes)) {
    kw_exchange_abort(exchange);
    return;
  }
  if (fetch->body.charge >= KW_FETCH_BYTES) {
    fetch->is_paused = true;
    kw_exchange_pause(exchange);
  }
  announce(fetch);
}

static void on_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n, void *ctx) {
  kw_fetch *fetch = exchange->owner;
  (void)ctx;
  if (fetch == NULL) return;
  if (n > 0 && (fetch->trailers = kw_call_metadata(trailers, n)) == NULL)
    kw_exchange_abort(exchange);
  fetch->has_end = true;
  announce(fetch);
}

static void on_room(kw_exchange *exchange, void *ctx) {
  kw_fetch *fetch = exchange->owner;
  (void)ctx;
  if (fetch == NULL || !fetch->wants_room) return;
  fetch->wants_room = false;
  announce(fetch);
}

static void on_close(kw_exchange *exchange, const char *why, void *ctx) {
  static const char unknown[] = "the connection has ended";
  kw_fetch *fetch = exchange->owner;
  (void)ctx;
  if (fetch == NULL) return;
  if (why != NULL && why[0] == 0) why = unknown;
  if (why != NULL) fetch->why = kw_blob_copy(kw_slice_text(why));
  fetch->has_failed = why != NULL;
  fetch->fate = exchange->fate;
  fetch->exchange = exchange->owner = NULL;
  announce(fetch);
}

const kw_exchange_hooks kw_fetch_hooks = {.on_answer = on_answer,
                                          .on_body = on_body,
                                          .on_end = on_end,
                                          .on_room = on_room,
                                          .on_close = on_close};

/* }====== */

/* {====== Requests ====== */

bool kw_fetches_take_more(const kw_fetches *fetches) {
  if (fetches->session != NULL) return kw_session_takes_more(fetches->session);
  return fetches->http != NULL && kw_http_is_idle(fetches->http);
}

uint64_t kw_fetch_begin(kw_fetches *fetches, const kw_http_request *request) {
  if (!kw_fetches_take_more(fetches) || !kw_map_reserve(&fetches->all)) return 0;
  kw_fetch *fetch = new_fetch(fetches);
  if (fetch == NULL) return 0;
  fetch->exchange = fetches->session != NULL ? kw_session_exchange(fetches->session, request, fetch)
                                             : kw_http_request_begin(fetches->http, request, fetch);
  if (fetch->exchange == NULL) {
    free_fetch(fetch);
    return 0;
  }
  kw_map_put(&fetches->all, fetch->number, fetch);
  return fetches->last = fetch->number;
}

/* Returns NULL if the exchange is closed. */
static kw_exchange *find_exchange(const kw_fetches *fetches, uint64_t number) {
  const kw_fetch *fetch = kw_map_get(&fetches->all, number);
  return fetch == NULL ? NULL : fetch->exchange;
}

bool kw_fetch_write(kw_fetches *fetches, uint64_t number, kw_slice bytes, bool *has_room) {
  kw_exchange *exchange = find_exchange(fetches, number);
  *has_room = false;
  if (exchange == NULL || !kw_exchange_write(exchange, bytes)) return false;
  kw_fetch *fetch = exchange->owner;
  *has_room = kw_exchange_has_room(exchange);
  fetch->wants_room = !*has_room;
  fetch->n_moved += bytes.len;
  return true;
}

uint64_t kw_fetch_moved(const kw_fetches *fetches, uint64_t number) {
  const kw_fetch *fetch = kw_map_get(&fetches->all, number);
  if (fetch == NULL || fetch->exchange == NULL) return 0;
  return fetch->n_moved - kw_exchange_unsent(fetch->exchange);
}

bool kw_fetch_end(kw_fetches *fetches, uint64_t number) {
  kw_exchange *exchange = find_exchange(fetches, number);
  return exchange != NULL && kw_exchange_end(exchange, NULL, 0);
}

void kw_fetch_drop(kw_fetches *fetches, uint64_t number) {
  kw_fetch *fetch = kw_map_get(&fetches->all, number);
  if (fetch == NULL) return;
  if (fetch->exchange != NULL) {
    fetch->exchange->owner = NULL;
    kw_exchange_resume(fetch->exchange);
    kw_exchange_abort(fetch->exchange);
  }
  forget(fetch);
}

/* }====== */

/* {====== Answers ====== */

static kw_fetched take_body(kw_fetch *fetch) {
  kw_blob *bytes = kw_message_queue_take(&fetch->body);
  if (fetch->is_paused && fetch->body.charge <= KW_FETCH_BYTES / 2) {
    fetch->is_paused = false;
    if (fetch->exchange != NULL) kw_exchange_resume(fetch->exchange);
  }
  return (kw_fetched){.kind = KW_FETCHED_BODY, .bytes = bytes};
}

static kw_fetched take_head(kw_fetch *fetch) {
  kw_fetched taken = {.kind = KW_FETCHED_HEAD, .status = fetch->status, .bytes = fetch->head};
  fetch->head = NULL;
  return taken;
}

static kw_fetched take_end(kw_fetch *fetch) {
  kw_fetched taken = {.kind = KW_FETCHED_END, .bytes = fetch->trailers};
  fetch->trailers = NULL;
  fetch->has_end = false;
  return taken;
}

static kw_fetched take_close(kw_fetch *fetch) {
  kw_fetched taken = {.kind = KW_FETCHED_CLOSED,
                      .has_failed = fetch->has_failed,
                      .fate = fetch->fate,
                      .bytes = fetch->why};
  fetch->why = NULL;
  forget(fetch);
  return taken;
}

kw_fetched kw_fetch_take(kw_fetches *fetches, uint64_t number) {
  kw_fetch *fetch = kw_map_get(&fetches->all, number);
  if (fetch == NULL) return (kw_fetched){.kind = KW_FETCHED_NOTHING};
  if (fetch->head != NULL) return take_head(fetch);
  if (!kw_message_queue_is_empty(&fetch->body)) return take_body(fetch);
  if (fetch->has_end) return take_end(fetch);
  if (fetch->exchange == NULL) return take_close(fetch);
  return (kw_fetched){.kind = KW_FETCHED_NOTHING};
}

uint64_t kw_fetch_next_ready(kw_fetches *fetches) {
  if (kw_link_is_alone(&fetches->ready)) return 0;
  kw_fetch *fetch = KW_CONTAINER_OF(fetches->ready.next, kw_fetch, ready);
  kw_link_remove(&fetch->ready);
  return fetch->number;
}

/* }====== */
