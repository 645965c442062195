/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "h2/carrier.h"

#include "base/mem.h"
#include "h2/input.h"
#include "http/connection.h"
#include "http/head.h"
#include "http/text.h"
#include "http/write.h"

#define EXTRA_FIELDS 3   /* of an answer: status, date and content-length */
#define REQUEST_FIELDS 5 /* of a request: four pseudo-header fields and content-length */
#define NUMBER_TEXT 24   /* bytes of a number in decimal */
#define LINGER_MS 1000   /* for the rest of a request that was answered */
#define MALFORMED (-400) /* as the status of a refusal: the stream is reset */

/* {====== Life ====== */

static kw_carrier *carrier_of(const kw_stream *stream) {
  return kw_carrier_of(stream->exchange);
}

static const kw_exchange_hooks *hooks_of(const kw_stream *stream) {
  return stream->session->hooks.exchange;
}

static void *ctx_of(const kw_stream *stream) {
  return stream->session->hooks.ctx;
}

static const kw_exchange_carrier carrier_functions;

/* Makes the carrier of a stream. Returns NULL if memory is short. */
static kw_carrier *carrier_new(kw_stream *stream) {
  kw_session *session = stream->session;
  kw_carrier *c = kw_alloc(sizeof *c);
  if (c == NULL) return NULL;
  *c = (kw_carrier){
      .exchange = {.carrier = &carrier_functions, .max_body = session->options.max_body},
      .stream = stream,
      .length = -1,
      .left = -1};
  kw_account_charge(&session->account, sizeof *c);
  stream->exchange = &c->exchange;
  return c;
}

static void close_exchange(kw_carrier *c, const char *why) {
  if (!c->is_open) return;
  c->is_open = false;
  kw_stream_clear_deadline(c->stream);
  hooks_of(c->stream)->on_close(&c->exchange, why, ctx_of(c->stream));
}

static size_t size_of(const kw_kept_fields *kept) {
  return kept == NULL ? 0 : kept->size;
}

/* Frees fields that were kept. */
static void drop_fields(const kw_stream *stream, kw_kept_fields **kept) {
  kw_account_credit(&stream->session->account, size_of(*kept));
  kw_free(*kept);
  *kept = NULL;
}

/* Sets what a client knows about the answer of an exchange that ends with its stream. */
static void note_fate(kw_carrier *c, bool is_broken, bool is_refused) {
  kw_fate *fate = &c->exchange.fate;
  if (is_broken) {
    *fate = KW_FATE_MALFORMED;
  } else if (*fate == KW_FATE_UNANSWERED && (is_refused || !c->stream->is_sent)) {
    *fate = KW_FATE_UNPROCESSED;
  }
}

size_t kw_carrier_charge(const kw_stream *stream) {
  const kw_carrier *c = stream->exchange == NULL ? NULL : carrier_of(stream);
  return c == NULL ? 0 : sizeof *c + size_of(c->trailers) + size_of(c->trailers_after);
}

void kw_carrier_free(kw_stream *stream) {
  kw_carrier *c = carrier_of(stream);
  const char *why = stream->session->why;
  if (c->why != NULL) why = c->why;
  note_fate(c, stream->session->is_broken, false);
  close_exchange(c, why[0] == 0 ? "the connection is closed" : why);
  drop_fields(stream, &c->trailers);
  drop_fields(stream, &c->trailers_after);
  kw_account_credit(&stream->session->account, sizeof *c);
  kw_free(c);
  stream->exchange = NULL;
}

/* Writes why nghttp2 has closed a stream of a client with `code`. Returns true if the server is to blame. */
static bool explain_end(const kw_stream *stream, uint32_t code, char *text, size_t room) {
  const kw_session *session = stream->session;
  bool is_ours = !stream->got_reset && !stream->is_reset && code != NGHTTP2_NO_ERROR;
  if (is_ours && code == NGHTTP2_REFUSED_STREAM && session->got_goaway) {
    snprintf(text, room, "%s", session->why);
  } else if (is_ours) {
    snprintf(text, room, "the server breaks the rules of HTTP/2: %s", nghttp2_http2_strerror(code));
    return true;
  } else {
    snprintf(text, room, "the %s has reset the stream: %s", stream->is_reset ? "client" : "server",
             nghttp2_http2_strerror(code));
  }
  return false;
}

void kw_carrier_end(kw_stream *stream, uint32_t code) {
  kw_carrier *c = carrier_of(stream);
  char text[KW_SESSION_WHY];
  if (stream->session->options.is_client) {
    bool is_broken = explain_end(stream, code, text, sizeof text);
    note_fate(c, is_broken, code == NGHTTP2_REFUSED_STREAM);
  } else {
    snprintf(text, sizeof text, "the %s has reset the stream: %s",
             stream->is_reset ? "server" : "client", nghttp2_http2_strerror(code));
  }
  close_exchange(c, c->why != NULL ? c->why : text);
}

bool kw_carrier_detach(kw_stream *stream, uint32_t code) {
  const kw_session *session = stream->session;
  bool is_kept = session->options.is_client && code == NGHTTP2_NO_ERROR && !stream->is_reset &&
                 stream->is_half_closed && !stream->has_reported_end;
  if (!is_kept) return false;
  nghttp2_session_set_stream_user_data(session->h2, stream->id, NULL);
  stream->is_detached = true;
  return true;
}

void kw_carrier_finish(kw_stream *stream) {
  if (!stream->is_reset) kw_carrier_take_end(stream);
  kw_stream_free(stream);
}

/* Lets the next step continue with the input of the stream, at once. */
static void resume(kw_stream *stream) {
  kw_stream_wait_for(stream, KW_WAIT_TURN);
  stream->session->is_turn_over = true;
}

static void reset(kw_carrier *c, const char *why, uint32_t code) {
  if (c->why == NULL) c->why = why;
  kw_stream_reset(c->stream, code);
  if (c->stream->is_detached) resume(c->stream);
}

void kw_carrier_fail(kw_stream *stream, const char *why, uint32_t code) {
  kw_carrier *c = carrier_of(stream);
  close_exchange(c, why);
  reset(c, why, code);
}

/* Does what kw_carrier_fail does, because the peer breaks the rules of HTTP. */
static void blame(kw_stream *stream, const char *why, uint32_t code) {
  carrier_of(stream)->exchange.fate = KW_FATE_MALFORMED;
  kw_carrier_fail(stream, why, code);
}

/* Copies fields. Returns NULL if memory is short. */
static kw_kept_fields *keep_fields(kw_stream *stream, const kw_http_field *fields, size_t n) {
  size_t size = sizeof(kw_kept_fields) + n * sizeof *fields;
  for (size_t i = 0; i < n; i++) size += fields[i].name.len + fields[i].value.len;
  kw_kept_fields *kept = kw_alloc(size);
  if (kept == NULL) return NULL;
  kept->size = size;
  kept->n = n;
  uint8_t *to = (uint8_t *)(kept->fields + n);
  for (size_t i = 0; i < n; i++) {
    const kw_slice *from[] = {&fields[i].name, &fields[i].value};
    kw_slice *copies[] = {&kept->fields[i].name, &kept->fields[i].value};
    for (int part = 0; part < 2; part++) {
      *copies[part] = kw_slice_of(to, from[part]->len);
      if (from[part]->len > 0) memcpy(to, from[part]->data, from[part]->len);
      to += from[part]->len;
    }
  }
  kw_account_charge(&stream->session->account, size);
  return kept;
}

/* }====== */

/* {====== Messages that are sent ====== */

static nghttp2_nv line_of(kw_slice name, kw_slice value) {
  return (nghttp2_nv){(uint8_t *)name.data, (uint8_t *)value.data, name.len, value.len,
                      NGHTTP2_NV_FLAG_NONE};
}

static size_t add_lines(nghttp2_nv *to, const kw_http_field *fields, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = line_of(fields[i].name, fields[i].value);
  return n;
}

static bool is_interim(const kw_http_answer *answer) {
  return answer->status < 200;
}

static bool is_allowed(const kw_http_field *fields, size_t n) {
  return n <= KW_HEAD_FIELDS && kw_write_allows(fields, n);
}

static bool may_answer(const kw_stream *stream, const kw_http_answer *answer) {
  if (stream->session->options.is_client || stream->is_reset || stream->has_answered) return false;
  if (answer->status < 100 || answer->status > 599 || answer->status == 101) return false;
  return answer->length >= -1 && is_allowed(answer->fields, answer->n_fields);
}

/* Returns true if memory was there; else the exchange fails. */
static bool check_memory(kw_carrier *c, bool has_memory) {
  if (!has_memory) reset(c, "there is not enough memory", KW_RESET_INTERNAL);
  return has_memory;
}

/* Sends the head of an answer. */
static bool submit_answer(kw_carrier *c, const kw_http_answer *answer) {
  kw_stream *stream = c->stream;
  kw_session *session = stream->session;
  char status[NUMBER_TEXT], length[NUMBER_TEXT];
  nghttp2_nv lines[KW_HEAD_FIELDS + EXTRA_FIELDS];
  nghttp2_data_provider data = kw_stream_data(stream);
  size_t n = 0;
  snprintf(status, sizeof status, "%d", answer->status);
  snprintf(length, sizeof length, "%lld", (long long)answer->length);
  lines[n++] = line_of(kw_slice_text(":status"), kw_slice_text(status));
  n += add_lines(lines + n, answer->fields, answer->n_fields);
  kw_slice date = kw_write_date(answer, hooks_of(stream), ctx_of(stream));
  if (date.len > 0) lines[n++] = line_of(kw_slice_text("date"), date);
  if (!is_interim(answer) && answer->length >= 0 && answer->status != 204)
    lines[n++] = line_of(kw_slice_text("content-length"), kw_slice_text(length));
  int rc = is_interim(answer) ? nghttp2_submit_headers(session->h2, NGHTTP2_FLAG_NONE, stream->id,
                                                       NULL, lines, n, NULL)
                              : nghttp2_submit_response(session->h2, stream->id, lines, n, &data);
  kw_session_check(session, rc);
  return check_memory(c, rc >= 0);
}

static bool send_answer(kw_exchange *exchange, const kw_http_answer *answer) {
  kw_carrier *c = kw_carrier_of(exchange);
  if (!may_answer(c->stream, answer)) return false;
  if (answer->status == 100) c->expects = false;
  if (!is_interim(answer)) {
    c->stream->has_answered = true;
    c->is_dropped = c->is_head || answer->status == 204 || answer->status == 304;
    c->left = answer->length;
  }
  return submit_answer(c, answer);
}

/* A client that waits for status 100 gets it once the owner waits for the body. */
static void send_continue(kw_carrier *c) {
  if (c->expects && c->stream->wait != KW_WAIT_OWNER)
    send_answer(&c->exchange, &(kw_http_answer){.status = 100});
}

static bool is_full(const kw_stream *stream) {
  return stream->out.len >= stream->session->options.max_stream_queued;
}

static bool may_write(const kw_stream *stream) {
  return stream->has_answered && !stream->is_finished && !stream->is_reset;
}

static bool send_body(kw_exchange *exchange, kw_blob *blob, kw_slice bytes) {
  kw_carrier *c = kw_carrier_of(exchange);
  kw_stream *stream = c->stream;
  kw_chain *out = &stream->out;
  if (!may_write(stream) || (c->left >= 0 && bytes.len > (uint64_t)c->left)) return false;
  if (c->left >= 0) c->left -= (int64_t)bytes.len;
  if (c->is_dropped || bytes.len == 0) return true;
  bool has_memory =
      blob == NULL ? kw_chain_add(out, bytes) : kw_chain_add_own_blob(out, blob, bytes);
  if (!check_memory(c, has_memory)) return false;
  kw_stream_sent(stream);
  c->wants_room |= is_full(stream);
  kw_session_make_room(stream->session);
  return true;
}

static bool send_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n) {
  kw_carrier *c = kw_carrier_of(exchange);
  kw_stream *stream = c->stream;
  if (!may_write(stream) || !is_allowed(trailers, n)) return false;
  if (c->left > 0 && !c->is_dropped) {
    reset(c, "the body that was sent is shorter than its length", KW_RESET_INTERNAL);
    return false;
  }
  if (c->is_dropped) n = 0;
  if (n > 0) c->trailers_after = keep_fields(stream, trailers, n);
  if (n > 0 && !check_memory(c, c->trailers_after != NULL)) return false;
  c->wants_room = false;
  kw_stream_half_close(stream);
  return true;
}

void kw_carrier_submit_trailers(kw_stream *stream) {
  kw_carrier *c = carrier_of(stream);
  nghttp2_nv lines[KW_HEAD_FIELDS];
  size_t n = add_lines(lines, c->trailers_after->fields, c->trailers_after->n);
  kw_session_check(stream->session,
                   nghttp2_submit_trailer(stream->session->h2, stream->id, lines, n));
  drop_fields(stream, &c->trailers_after);
}

void kw_carrier_pull(kw_stream *stream) {
  kw_carrier *c = carrier_of(stream);
  if (!c->wants_room) return;
  c->wants_room = false;
  if (hooks_of(stream)->on_room != NULL) hooks_of(stream)->on_room(&c->exchange, ctx_of(stream));
}

static bool has_room(const kw_exchange *exchange) {
  return !is_full(kw_carrier_of(exchange)->stream);
}

static size_t unsent(const kw_exchange *exchange) {
  return kw_carrier_of(exchange)->stream->out.len;
}

static void abort_exchange(kw_exchange *exchange) {
  const kw_stream *stream = kw_carrier_of(exchange)->stream;
  reset(kw_carrier_of(exchange), "the exchange was aborted",
        stream->session->options.is_client ? KW_RESET_CANCEL : KW_RESET_INTERNAL);
}

/* Server: answers with the status if no answer has begun, or resets the stream. */
static void refuse(kw_carrier *c, kw_refusal refusal) {
  static const kw_http_field type = {{(const uint8_t *)"content-type", 12},
                                     {(const uint8_t *)"text/plain", 10}};
  kw_http_answer answer = {.status = refusal.status, .fields = &type, .n_fields = 1};
  answer.length = (int64_t)strlen(refusal.text) + 1;
  close_exchange(c, refusal.text);
  if (!send_answer(&c->exchange, &answer) ||
      !send_body(&c->exchange, NULL, kw_slice_text(refusal.text)) ||
      !send_body(&c->exchange, NULL, kw_slice_of("\n", 1)) || !send_end(&c->exchange, NULL, 0))
    reset(c, refusal.text, KW_RESET_CANCEL);
}

/* }====== */

/* {====== Messages that arrive ====== */

/* Begins the time for the next part of the body. */
static void await_body(kw_carrier *c) {
  kw_stream *stream = c->stream;
  const kw_session *session = stream->session;
  kw_stream_clear_deadline(stream);
  if (session->options.body_ms > 0 && c->is_open && !stream->is_half_closed &&
      stream->wait != KW_WAIT_OWNER)
    kw_stream_set_deadline(stream, session->now + session->options.body_ms);
}

static void check_size(kw_carrier *c, uint64_t n) {
  if (n > c->exchange.max_body) refuse(c, (kw_refusal){413, "the body is too large"});
}

static void pause(kw_exchange *exchange, bool is_paused) {
  kw_carrier *c = kw_carrier_of(exchange);
  kw_stream *stream = c->stream;
  if (!c->is_open) return;
  if (is_paused) {
    kw_stream_pause(stream);
  } else if (stream->wait == KW_WAIT_OWNER) {
    resume(stream);
    send_continue(c);
  }
  await_body(c);
}

static const kw_exchange_carrier carrier_functions = {send_answer,    send_body, send_end, pause,
                                                      abort_exchange, has_room,  unsent};

/* True if HTTP/2 allows the field behind the pseudo-header fields, see also kw_known_note. */
static bool is_well_formed(const kw_http_field *field) {
  if (field->name.data[0] == ':' || kw_text_trim(field->value).len != field->value.len)
    return false;
  return !kw_slice_is(field->name, "te") || kw_slice_is(field->value, "trailers");
}

static bool are_well_formed(const kw_http_field *fields, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!is_well_formed(&fields[i])) return false;
  return true;
}

/* Takes the pseudo-header fields of a request, which come first. Returns their number; 0: they are malformed. */
static size_t take_pseudo(const kw_http_field *fields, size_t n, kw_http_request *request) {
  static const char *const names[] = {":method", ":scheme", ":authority", ":path"};
  kw_slice *const values[] = {&request->method, &request->scheme, &request->authority,
                              &request->path};
  size_t taken = 0;
  for (; taken < n && fields[taken].name.data[0] == ':'; taken++) {
    size_t i = 0;
    while (i < KW_LENGTH(names) && !kw_slice_is(fields[taken].name, names[i])) i++;
    if (i == KW_LENGTH(names) || values[i]->data != NULL) return 0;
    *values[i] = fields[taken].value;
  }
  bool is_connect = kw_slice_is(request->method, "CONNECT");
  bool is_path =
      request->path.len > 0 && (request->path.data[0] == '/' || kw_slice_is(request->path, "*"));
  return is_connect || (request->method.len > 0 && request->scheme.len > 0 && is_path) ? taken : 0;
}

/* Parses the header block that is being received. */
static kw_refusal parse_request(const kw_session *session, bool ends, kw_head *head) {
  static const kw_refusal malformed = {MALFORMED, "the request is malformed"};
  kw_http_request *request = &head->request;
  *request = (kw_http_request){0};
  size_t n = take_pseudo(session->fields, session->n_fields, request);
  const kw_http_field *fields = session->fields + n;
  if (n == 0 || !are_well_formed(fields, session->n_fields - n)) return malformed;
  kw_refusal refusal = kw_head_take_request(fields, session->n_fields - n, head);
  if (refusal.status != 0 || !ends) return refusal;
  if (request->length > 0) return malformed;
  request->length = 0;
  return refusal;
}

static void refuse_request(kw_carrier *c, kw_refusal refusal) {
  kw_stream *stream = c->stream;
  const kw_session_hooks *hooks = &stream->session->hooks;
  refuse(c, refusal);
  kw_stream_set_status(stream, KW_GRPC_INTERNAL, kw_slice_text(refusal.text));
  if (hooks->on_refused != NULL) hooks->on_refused(stream, stream->session->known.path, hooks->ctx);
}

static void begin_request(kw_carrier *c, const kw_head *head) {
  c->is_open = true;
  c->expects = head->expects;
  c->length = head->request.length;
  hooks_of(c->stream)->on_request(&c->exchange, &head->request, ctx_of(c->stream));
  if (!c->stream->is_finished && !c->stream->is_reset)
    check_size(c, c->length < 0 ? 0 : (uint64_t)c->length);
  send_continue(c);
  await_body(c);
  kw_input_check_turn(c->stream->session);
}

void kw_carrier_take_request(kw_stream *stream, bool ends) {
  kw_head head;
  kw_refusal refusal = parse_request(stream->session, ends, &head);
  kw_carrier *c = refusal.status == MALFORMED ? NULL : carrier_new(stream);
  if (c == NULL) {
    kw_stream_reset(stream,
                    refusal.status == MALFORMED ? NGHTTP2_PROTOCOL_ERROR : KW_RESET_INTERNAL);
    return;
  }
  c->is_head = kw_slice_is(head.request.method, "HEAD");
  if (refusal.status != 0) {
    refuse_request(c, refusal);
  } else {
    begin_request(c, &head);
  }
}

void kw_carrier_take_trailers(kw_stream *stream, bool ends) {
  const kw_session *session = stream->session;
  kw_carrier *c = carrier_of(stream);
  kw_head head;
  if (!ends || session->known.is_malformed || c->trailers != NULL ||
      !are_well_formed(session->fields, session->n_fields) ||
      kw_head_take_trailers(session->fields, session->n_fields, &head).status != 0) {
    blame(stream, "the trailers are malformed", NGHTTP2_PROTOCOL_ERROR);
    return;
  }
  c->trailers = keep_fields(stream, head.fields, head.n_fields);
  check_memory(c, c->trailers != NULL);
}

void kw_carrier_take_body(kw_stream *stream, kw_slice bytes) {
  kw_carrier *c = carrier_of(stream);
  c->expects = false;
  c->n_body += bytes.len;
  if (stream->session->options.is_client && !stream->has_answer_headers) {
    blame(stream, "the body precedes the head", NGHTTP2_PROTOCOL_ERROR);
    return;
  }
  if (c->length >= 0 && c->n_body > (uint64_t)c->length) {
    blame(stream, "the body is longer than its length", NGHTTP2_PROTOCOL_ERROR);
    return;
  }
  check_size(c, c->n_body);
  if (c->is_open) hooks_of(stream)->on_body(&c->exchange, bytes, ctx_of(stream));
  await_body(c);
}

void kw_carrier_take_end(kw_stream *stream) {
  kw_carrier *c = carrier_of(stream);
  const kw_kept_fields *trailers = c->trailers;
  kw_stream_clear_deadline(stream);
  if (c->length >= 0 && c->n_body < (uint64_t)c->length) {
    blame(stream, "the body is shorter than its length", NGHTTP2_PROTOCOL_ERROR);
    return;
  }
  if (c->is_open)
    hooks_of(stream)->on_end(&c->exchange, trailers == NULL ? NULL : trailers->fields,
                             trailers == NULL ? 0 : trailers->n, ctx_of(stream));
  drop_fields(stream, &c->trailers);
  if (!stream->session->options.is_client) return;
  close_exchange(c, c->why);
  if (!stream->is_finished) kw_stream_reset(stream, NGHTTP2_NO_ERROR);
}

void kw_carrier_sent(kw_stream *stream) {
  kw_carrier *c = carrier_of(stream);
  c->is_sent = true;
  close_exchange(c, NULL);
  if (!stream->is_half_closed) kw_stream_set_deadline(stream, stream->session->now + LINGER_MS);
}

void kw_carrier_expire(kw_stream *stream) {
  kw_carrier *c = carrier_of(stream);
  if (c->is_sent) {
    kw_stream_reset(stream, NGHTTP2_NO_ERROR);
  } else if (stream->wait == KW_WAIT_NOTHING && !stream->is_half_closed) {
    refuse(c, (kw_refusal){408, "the body did not arrive in time"});
  } else {
    await_body(c);
  }
}

/* }====== */

/* {====== Of clients ====== */

static bool may_request(const kw_session *session, const kw_http_request *request) {
  return session->options.is_client && !session->is_over && !session->got_goaway &&
         request->upgrade.len == 0 && request->n_fields <= KW_HEAD_FIELDS &&
         kw_write_allows_request(request);
}

/* Sends the head of a request. Returns false if memory is short, or the server takes no more streams. */
static bool submit_request(kw_carrier *c, const kw_http_request *request) {
  kw_stream *stream = c->stream;
  kw_session *session = stream->session;
  char length[NUMBER_TEXT];
  nghttp2_nv lines[KW_HEAD_FIELDS + REQUEST_FIELDS];
  nghttp2_data_provider data = kw_stream_data(stream);
  const char *scheme = session->options.is_tls ? "https" : "http";
  size_t n = 0;
  snprintf(length, sizeof length, "%lld", (long long)request->length);
  lines[n++] = line_of(kw_slice_text(":method"), request->method);
  lines[n++] = line_of(kw_slice_text(":scheme"), kw_slice_text(scheme));
  lines[n++] = line_of(kw_slice_text(":authority"), request->authority);
  lines[n++] = line_of(kw_slice_text(":path"), request->path);
  n += add_lines(lines + n, request->fields, request->n_fields);
  if (kw_write_has_length(request))
    lines[n++] = line_of(kw_slice_text("content-length"), kw_slice_text(length));
  stream->id = nghttp2_submit_request(session->h2, NULL, lines, n,
                                      request->length == 0 ? NULL : &data, stream);
  kw_session_check(session, stream->id);
  return stream->id > 0;
}

kw_exchange *kw_session_exchange(kw_session *session, const kw_http_request *request, void *owner) {
  kw_stream *stream = may_request(session, request) ? kw_stream_new(session, 0) : NULL;
  kw_carrier *c = stream == NULL ? NULL : carrier_new(stream);
  if (c == NULL || !submit_request(c, request)) {
    if (stream != NULL) kw_stream_free(stream);
    return NULL;
  }
  stream->has_answered = true;
  stream->is_finished = request->length == 0;
  c->is_open = true;
  c->is_head = kw_slice_is(request->method, "HEAD");
  c->left = request->length;
  c->exchange.owner = owner;
  return &c->exchange;
}

/* Parses the header block of an answer. Returns why it is refused; or NULL. */
static const char *parse_answer(const kw_session *session, bool ends, kw_head *head) {
  const kw_http_field *fields = session->fields;
  size_t n = session->n_fields;
  int status = session->known.http_status;
  if (session->header_bytes > session->options.max_header_bytes)
    return "the head of the answer is too large";
  if (session->known.is_malformed || n == 0 || !kw_slice_is(fields->name, ":status") ||
      fields->value.len != 3 || status < 100 || status > 599 || status == 101 ||
      (ends && status < 200) || !are_well_formed(fields + 1, n - 1))
    return "the head of the answer is malformed";
  head->answer = (kw_http_answer){.status = status};
  return kw_head_take_answer(fields + 1, n - 1, head).text;
}

static void begin_interim(kw_carrier *c, const kw_http_answer *answer) {
  if (++c->n_interim > KW_HTTP_INTERIM) {
    blame(c->stream, "there are too many interim answers", KW_RESET_CANCEL);
  } else {
    hooks_of(c->stream)->on_answer(&c->exchange, answer, ctx_of(c->stream));
  }
}

static void begin_answer(kw_carrier *c, kw_http_answer *answer, bool ends) {
  kw_stream *stream = c->stream;
  bool is_empty = c->is_head || answer->status == 204 || answer->status == 304;
  stream->has_answer_headers = true;
  if (!is_empty && ends && answer->length > 0) {
    blame(stream, "the body is shorter than its length", NGHTTP2_PROTOCOL_ERROR);
    return;
  }
  if (is_empty || ends) answer->length = 0;
  c->length = answer->length;
  hooks_of(stream)->on_answer(&c->exchange, answer, ctx_of(stream));
  if (!stream->is_reset) check_size(c, c->length < 0 ? 0 : (uint64_t)c->length);
  await_body(c);
}

void kw_carrier_take_answer(kw_stream *stream, bool ends) {
  kw_carrier *c = carrier_of(stream);
  kw_head head;
  if (stream->is_reset) return;
  if (stream->has_answer_headers) {
    kw_carrier_take_trailers(stream, ends);
    return;
  }
  const char *why = parse_answer(stream->session, ends, &head);
  c->exchange.fate = KW_FATE_ANSWERED;
  if (why != NULL) {
    blame(stream, why, NGHTTP2_PROTOCOL_ERROR);
  } else if (is_interim(&head.answer)) {
    begin_interim(c, &head.answer);
  } else {
    begin_answer(c, &head.answer, ends);
  }
}

/* }====== */

void kw_session_end_exchanges(kw_session *session) {
  kw_link *at = session->streams.next;
  while (at != &session->streams) {
    kw_stream *stream = KW_CONTAINER_OF(at, kw_stream, link);
    at = at->next;
    if (stream->exchange == NULL) continue;
    if (kw_session_is_done(session)) {
      kw_carrier_free(stream);
    } else if (session->got_goaway && !stream->is_sent) {
      note_fate(carrier_of(stream), false, true);
      kw_carrier_fail(stream, "the server has sent GOAWAY", KW_RESET_CANCEL);
    }
  }
}
