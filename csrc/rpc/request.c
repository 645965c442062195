/* SPDX-License-Identifier: MIT */
#include "rpc/request.h"

#include "base/clock.h"
#include "http/head.h"
#include "rpc/call_state.h"
#include "rpc/fixed_answer.h"
#include "rpc/hosts.h"

#define HTTP_UNAVAILABLE 503

static const kw_method of_http = {.path = ""};

/* {====== The exchange of a request ====== */

/* Has the driver write the output, and continue with what waits. */
static void touch(const kw_call *c) {
  kw_driver_touch(&c->peer->driver);
}

static void resume(kw_server *server, kw_call *c) {
  (void)server;
  kw_exchange_resume(c->exchange);
  touch(c);
}

/* Touches an exchange that something was written to. Returns true if it has room. */
static bool note_written(kw_call *c) {
  bool has_room = kw_exchange_has_room(c->exchange);
  c->wants_room = !has_room;
  touch(c);
  return has_room;
}

static bool send_body(kw_server *server, kw_call *c, kw_slice bytes, bool *has_room) {
  (void)server;
  kw_exchange_write(c->exchange, bytes);
  *has_room = note_written(c);
  return true;
}

void kw_request_send_blob(kw_server *server, uint64_t id, kw_blob *blob, bool *has_room) {
  kw_call *c = kw_map_get(&server->calls, id);
  *has_room = false;
  if (c == NULL || c->exchange == NULL) return;
  kw_exchange_write_blob(c->exchange, blob, kw_blob_slice(blob));
  *has_room = note_written(c);
}

static void finish(kw_server *server, kw_call *c, int status, kw_slice text) {
  (void)text;
  c->ends_silently = !server->is_intercepting;
  if (status != KW_GRPC_OK || !kw_exchange_end(c->exchange, NULL, 0))
    kw_exchange_abort(c->exchange);
  touch(c);
}

static const kw_call_carrier exchange_carrier = {resume, send_body, finish};

bool kw_request_answer(kw_server *server, uint64_t id, const kw_http_answer *answer) {
  kw_call *c = kw_map_get(&server->calls, id);
  if (c == NULL || c->exchange == NULL) return true;
  if (!kw_exchange_answer(c->exchange, answer)) return false;
  c->has_answered = true;
  touch(c);
  return true;
}

bool kw_request_answer_all(kw_server *server, uint64_t id, const kw_http_answer *answer,
                           kw_slice body) {
  bool has_room;
  if (!kw_request_answer(server, id, answer)) return false;
  kw_call_send(server, id, body, &has_room);
  kw_call_finish(server, id, KW_GRPC_OK, (kw_slice){0});
  return true;
}

/* }====== */

/* {====== Hooks ====== */

/* Refuses a request since memory is short. */
static void refuse(kw_server *server, kw_exchange *exchange) {
  server->counters.over_memory++;
  if (kw_exchange_answer(exchange, &(kw_http_answer){.status = HTTP_UNAVAILABLE})) {
    kw_exchange_end(exchange, NULL, 0);
  } else {
    kw_exchange_abort(exchange);
  }
}

static kw_blob *metadata_of(const kw_peer *peer, const kw_http_request *request) {
  kw_slice scheme = kw_slice_text(peer->is_tls ? "https" : "http");
  kw_http_field fields[4 + KW_HEAD_FIELDS] = {{kw_slice_text(":method"), request->method},
                                              {kw_slice_text(":scheme"), scheme},
                                              {kw_slice_text(":authority"), request->authority},
                                              {kw_slice_text(":path"), request->path}};
  if (request->n_fields > 0)
    memcpy(fields + 4, request->fields, request->n_fields * sizeof *fields);
  return kw_call_metadata(fields, 4 + request->n_fields);
}

static void on_request(kw_exchange *exchange, const kw_http_request *request, void *ctx) {
  kw_peer *peer = ctx;
  kw_server *server = peer->server;
  kw_account *account = kw_peer_account(peer);
  peer->last_progress = server->now;
  bool is_served = kw_hosts_allow(peer, request->authority);
  bool has_memory = kw_account_ask(account, 0);
  if (has_memory && is_served && kw_fixed_answer_send(server, request, exchange)) return;
  kw_call *c = has_memory ? kw_call_new(server, peer, account, metadata_of(peer, request)) : NULL;
  if (c == NULL) {
    refuse(server, exchange);
    return;
  }
  c->is_misdirected = !is_served;
  c->carrier = &exchange_carrier;
  c->method = &of_http;
  c->exchange = exchange;
  exchange->owner = c;
  exchange->max_body = UINT64_MAX; /* Lua limits what it reads */
  kw_call_announce(server, c, KW_CALL_NEWS_OPEN);
}

static void on_body(kw_exchange *exchange, kw_slice bytes, void *ctx) {
  kw_peer *peer = ctx;
  kw_call *c = exchange->owner;
  if (c == NULL) return;
  peer->last_progress = peer->server->now;
  if (!kw_account_ask(c->account, kw_message_queue_cost(bytes.len)) ||
      !kw_message_queue_join(&c->messages, bytes)) {
    refuse(peer->server, exchange);
    return;
  }
  if (c->messages.charge >= KW_CALL_BYTES) kw_exchange_pause(exchange);
  kw_call_announce(peer->server, c, KW_CALL_NEWS_INPUT);
}

static void on_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n, void *ctx) {
  kw_call *c = exchange->owner;
  (void)trailers, (void)n;
  if (c == NULL) return;
  c->input_has_ended = true;
  kw_call_announce(((kw_peer *)ctx)->server, c, KW_CALL_NEWS_INPUT);
}

static void on_room(kw_exchange *exchange, void *ctx) {
  kw_call *c = exchange->owner;
  if (c == NULL || !c->wants_room || c->ends_silently) return;
  c->wants_room = false;
  kw_call_announce(((kw_peer *)ctx)->server, c, KW_CALL_NEWS_ROOM);
}

/* A client that has closed its side may wait for its answer. An answer that has begun may be a stream without an end,
 * for a client that is gone. */
static void on_gone(kw_exchange *exchange, void *ctx) {
  const kw_call *c = exchange->owner;
  (void)ctx;
  if (c != NULL && c->has_answered) kw_exchange_abort(exchange);
}

static void on_close(kw_exchange *exchange, const char *why, void *ctx) {
  kw_server *server = ((kw_peer *)ctx)->server;
  kw_call *c = exchange->owner;
  if (c == NULL) return;
  exchange->owner = NULL;
  kw_call_detach(c, why == NULL ? KW_GRPC_OK : KW_GRPC_CANCELLED);
  if (c->ends_silently) {
    kw_call_free(server, c);
  } else {
    kw_call_announce(server, c, KW_CALL_NEWS_END);
  }
}

static bool is_turn_over(void *ctx) {
  return kw_driver_is_turn_over(&((const kw_peer *)ctx)->driver);
}

/* The text is made once in a second. */
static kw_slice date(void *ctx) {
  kw_server *server = ((kw_peer *)ctx)->server;
  int64_t now = kw_clock_date();
  if (now != server->dated_at) kw_date_write(now, server->date);
  server->dated_at = now;
  return kw_slice_text(server->date);
}

const kw_exchange_hooks kw_request_hooks = {.on_request = on_request,
                                            .on_body = on_body,
                                            .on_end = on_end,
                                            .on_room = on_room,
                                            .on_gone = on_gone,
                                            .on_close = on_close,
                                            .is_turn_over = is_turn_over,
                                            .date = date};

/* }====== */
