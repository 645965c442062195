/* SPDX-License-Identifier: MIT
 *
 * send: messages that are sent: answers of a server, requests of a client, and refusals.
 */
#include "http/state.h"

#include "http/target.h"
#include "http/write.h"

/* The output begins to wait for the socket. The next kw_receive knows the time. */
static void note_output(kw_http *http) {
  if (http->out.len == 0) http->last_wrote = KW_HTTP_NEVER;
}

/* Returns true if memory was there; else the connection ends. */
static bool check_memory(kw_http *http, bool has_memory) {
  if (!has_memory) kw_http_end_without_memory(http);
  return has_memory;
}

/* {====== Answers ====== */

static bool write_answer(kw_http *http, const kw_http_answer *answer, kw_write_extra extra) {
  note_output(http);
  extra.date = kw_write_date(answer, http->hooks, http->ctx);
  return check_memory(http, kw_write_answer(&http->out, answer, &extra));
}

static bool is_interim(const kw_http_answer *answer) {
  return answer->status < 200 && answer->status != 101;
}

/* True if the request offers other protocols, and has no body, or no more of it. */
static bool may_switch(const kw_http *http, kw_slice protocol) {
  bool is_complete = http->in == KW_IN_END || (http->in == KW_IN_BODY && http->body.left == 0 &&
                                               http->body.kind == KW_BODY_LENGTH);
  return http->may_upgrade && is_complete && protocol.len > 0 && kw_text_is_value(protocol);
}

static bool may_answer(const kw_http *http, const kw_http_answer *answer) {
  if (http->options->is_client || http->is_over || !http->is_open) return false;
  if (http->sends != KW_SENDS_HEAD || answer->status < 100 || answer->status > 599) return false;
  if (answer->length < -1 || !kw_write_allows(answer->fields, answer->n_fields)) return false;
  return answer->status != 101 || may_switch(http, answer->upgrade);
}

/* True if the connection will end because the owner has answered before the body has arrived. An owner that does not
 * know the length of its answer yet may still read the body. */
static bool will_linger(const kw_http *http, const kw_http_answer *answer) {
  return answer->length >= 0 && kw_http_has_long_rest(http);
}

/* Returns how the head says where the body ends, and sets how the body is written. */
static kw_write_extra frame_answer(kw_http *http, const kw_http_answer *answer) {
  int status = answer->status;
  kw_write_extra extra = {.length = answer->length};
  http->is_dropped = http->is_head || status == 204 || status == 304;
  http->is_chunked = !http->is_dropped && answer->length < 0 && !http->is_http10 && status != 101;
  if (answer->length >= 0 && status != 204 && status != 101) extra.framing = KW_WRITE_LENGTH;
  if (http->is_chunked) extra.framing = KW_WRITE_CHUNKED;
  bool is_until_close = extra.framing == KW_WRITE_NOTHING && !http->is_dropped;
  http->left = status == 101 ? -1 : answer->length;
  http->keeps_alive = http->keeps_alive && !http->is_draining && !http->expects &&
                      !is_until_close && !will_linger(http, answer) &&
                      http->n_exchanges + 1 < http->options->max_requests;
  if (!http->keeps_alive) extra.connection = "close";
  if (http->keeps_alive && http->is_http10) extra.connection = "keep-alive";
  if (status == 101) extra.connection = "upgrade";
  return extra;
}

static bool send_answer(kw_exchange *exchange, const kw_http_answer *answer) {
  kw_http *http = kw_http_of(exchange);
  kw_http_answer sent = *answer;
  if (!may_answer(http, answer)) return false;
  if (answer->status != 101) sent.upgrade = (kw_slice){0};
  if (answer->status == 100) http->expects = false;
  if (is_interim(answer)) return http->is_http10 || write_answer(http, &sent, (kw_write_extra){0});
  bool is_switch = answer->status == 101;
  if (is_switch) http->in = KW_IN_RAW;
  http->sends = is_switch ? KW_SENDS_RAW : KW_SENDS_BODY;
  return write_answer(http, &sent, frame_answer(http, answer));
}

void kw_send_continue(kw_http *http) {
  static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
  note_output(http);
  check_memory(http, kw_chain_add(&http->out, kw_slice_of(text, sizeof text - 1)));
}

static void answer_refusal(kw_http *http, kw_refusal refusal) {
  static const kw_http_field type = {{(const uint8_t *)"content-type", 12},
                                     {(const uint8_t *)"text/plain", 10}};
  kw_http_answer answer = {.status = refusal.status, .fields = &type, .n_fields = 1};
  kw_write_extra extra = {.framing = KW_WRITE_LENGTH,
                          .length = (int64_t)strlen(refusal.text) + 1,
                          .connection = "close"};
  if (!write_answer(http, &answer, extra) || http->is_head) return;
  if (kw_chain_add(&http->out, kw_slice_text(refusal.text)))
    kw_chain_add(&http->out, kw_slice_of("\n", 1));
}

void kw_send_refusal(kw_http *http, kw_refusal refusal) {
  if (http->options->is_client) {
    kw_http_note_why(http, "the answer is refused: %s", refusal.text);
    http->exchange.fate = KW_FATE_MALFORMED;
  } else {
    kw_http_note_why(http, "%s", refusal.text);
    if (http->sends == KW_SENDS_HEAD) answer_refusal(http, refusal);
    kw_http_linger(http);
  }
  kw_http_finish(http);
}

/* }====== */

/* {====== Bodies ====== */

static bool may_write(const kw_http *http) {
  return http->is_open && !http->is_over &&
         (http->sends == KW_SENDS_BODY || http->sends == KW_SENDS_RAW);
}

static bool send_body(kw_exchange *exchange, kw_blob *blob, kw_slice bytes) {
  kw_http *http = kw_http_of(exchange);
  kw_chain *out = &http->out;
  bool has_memory;
  if (!may_write(http) || (http->left >= 0 && bytes.len > (uint64_t)http->left)) return false;
  if (http->left >= 0) http->left -= (int64_t)bytes.len;
  if (http->is_dropped || bytes.len == 0) return true;
  note_output(http);
  if (http->is_chunked) {
    has_memory = kw_body_add_chunk(out, blob, bytes);
  } else {
    has_memory = blob == NULL ? kw_chain_add(out, bytes) : kw_chain_add_own_blob(out, blob, bytes);
  }
  http->wants_room |= kw_http_is_full(http);
  return check_memory(http, has_memory);
}

static bool send_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n) {
  kw_http *http = kw_http_of(exchange);
  if (!may_write(http) || !kw_write_allows(trailers, n)) return false;
  if (http->left > 0 && !http->is_dropped) {
    kw_http_note_why(http, "the body that was sent is shorter than its length");
    kw_http_finish(http);
    return false;
  }
  http->sends = KW_SENDS_END;
  http->wants_room = false;
  note_output(http);
  return !http->is_chunked || check_memory(http, kw_write_trailers(&http->out, trailers, n));
}

static void pause(kw_exchange *exchange, bool is_paused) {
  kw_http *http = kw_http_of(exchange);
  if (http->is_paused && !is_paused) http->last_received = KW_HTTP_NEVER;
  http->is_paused = is_paused && http->is_open;
}

static void abort_exchange(kw_exchange *exchange) {
  kw_http *http = kw_http_of(exchange);
  if (!http->is_open || http->is_over) return;
  kw_http_note_why(http, "the exchange was aborted");
  kw_http_finish(http);
}

static bool has_room(const kw_exchange *exchange) {
  return !kw_http_is_full(kw_http_of(exchange));
}

static size_t unsent(const kw_exchange *exchange) {
  return kw_http_of(exchange)->out.len;
}

const kw_exchange_carrier kw_http_carrier = {send_answer,    send_body, send_end, pause,
                                             abort_exchange, has_room,  unsent};

/* }====== */

/* {====== Requests ====== */

static bool may_request(const kw_http *http, const kw_http_request *request) {
  if (!http->options->is_client || http->is_open || http->is_over) return false;
  return !http->has_eof && !http->is_draining && kw_write_allows_request(request);
}

static kw_write_extra frame_request(kw_http *http, const kw_http_request *request) {
  kw_write_extra extra = {.length = request->length};
  http->is_chunked = request->length < 0;
  if (kw_write_has_length(request)) extra.framing = KW_WRITE_LENGTH;
  if (http->is_chunked) extra.framing = KW_WRITE_CHUNKED;
  if (request->upgrade.len > 0) extra.connection = "upgrade";
  return extra;
}

kw_exchange *kw_http_request_begin(kw_http *http, const kw_http_request *request, void *owner) {
  if (!may_request(http, request)) return NULL;
  kw_write_extra extra = frame_request(http, request);
  note_output(http);
  if (!kw_write_request(&http->out, request, &extra)) return NULL;
  http->is_open = true;
  http->is_head = kw_slice_is(request->method, "HEAD");
  http->may_upgrade = request->upgrade.len > 0;
  http->left = request->length;
  http->sends = request->length == 0 ? KW_SENDS_END : KW_SENDS_BODY;
  http->exchange.owner = owner;
  http->exchange.max_body = http->options->max_body;
  return &http->exchange;
}

/* }====== */
