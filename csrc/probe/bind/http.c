/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "probe/bind.h"

#include "bind/lua_value.h"
#include "face/module.h"
#include "h2/session.h"
#include "http/connection.h"
#include "http/date.h"
#include "http/first_bytes.h"
#include "http/target.h"
#include "probe/checks.h"

#define HTTP_NAME "keywatch.core.probe.http"
#define MAX_FIELDS 120

/* A growing text. Its memory is not counted, and never made to fail. */
typedef struct text {
  char *data;
  size_t len;
} text;

typedef struct http {
  kw_http *http;       /* NULL: freed, or of HTTP/2 */
  kw_session *session; /* NULL: freed, or of HTTP/1.1 */
  kw_http_options options;
  kw_exchange_hooks hooks;
  kw_budget budget;
  kw_exchange *exchange; /* NULL: none is open */
  text *events;
  size_t n_events;
  bool in_body; /* the last event is a part of a body */
  bool echoes, pauses, switches;
  int refusal; /* status of answers without a body, given at once; or 0 */
  text body;   /* for the echo */
  int64_t turn, turn_left;
  text date;
} http;

/* {====== Events ====== */

static void add(text *to, const void *bytes, size_t len) {
  to->data = realloc(to->data, to->len + len + 1);
  if (to->data == NULL) abort();
  if (len > 0) memcpy(to->data + to->len, bytes, len);
  to->len += len;
}

static void add_slice(text *to, const char *before, kw_slice bytes) {
  add(to, before, strlen(before));
  add(to, bytes.data, bytes.len);
}

static text *begin_event(http *self, const char *what) {
  self->events = realloc(self->events, (self->n_events + 1) * sizeof *self->events);
  if (self->events == NULL) abort();
  text *event = &self->events[self->n_events++];
  *event = (text){0};
  self->in_body = false;
  add_slice(event, what, (kw_slice){0});
  return event;
}

static void add_fields(text *to, const kw_http_field *fields, size_t n) {
  for (size_t i = 0; i < n; i++) {
    add_slice(to, "\n", fields[i].name);
    add_slice(to, ": ", fields[i].value);
  }
}

static void add_length(text *to, int64_t length, kw_slice upgrade) {
  char digits[32];
  snprintf(digits, sizeof digits, " length %lld", (long long)length);
  add_slice(to, digits, (kw_slice){0});
  if (upgrade.len > 0) add_slice(to, " upgrade ", upgrade);
}

static void on_request(kw_exchange *exchange, const kw_http_request *request, void *ctx) {
  http *self = ctx;
  text *event = begin_event(self, "");
  self->exchange = exchange;
  self->body.len = 0;
  add_slice(event, "", request->method);
  add_slice(event, " ", request->scheme);
  add_slice(event, " ", request->authority);
  add_slice(event, " ", request->path);
  add_length(event, request->length, request->upgrade);
  add_fields(event, request->fields, request->n_fields);
  self->turn_left--;
  if (self->pauses) kw_exchange_pause(exchange);
  kw_http_answer change = {.status = 101, .upgrade = request->upgrade};
  if (self->switches) kw_exchange_answer(exchange, &change);
  kw_http_answer refusal = {.status = self->refusal};
  if (self->refusal > 0 && kw_exchange_answer(exchange, &refusal))
    kw_exchange_end(exchange, NULL, 0);
}

static void on_answer(kw_exchange *exchange, const kw_http_answer *answer, void *ctx) {
  char status[16];
  (void)exchange;
  snprintf(status, sizeof status, "%d", answer->status);
  text *event = begin_event(ctx, status);
  add_length(event, answer->length, answer->upgrade);
  add_fields(event, answer->fields, answer->n_fields);
}

static void on_body(kw_exchange *exchange, kw_slice bytes, void *ctx) {
  http *self = ctx;
  (void)exchange;
  text *event = self->in_body ? &self->events[self->n_events - 1] : begin_event(self, "body ");
  self->in_body = true;
  add(event, bytes.data, bytes.len);
  if (self->echoes) add(&self->body, bytes.data, bytes.len);
}

static void on_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n, void *ctx) {
  http *self = ctx;
  add_fields(begin_event(self, "end"), trailers, n);
  if (!self->echoes || self->options.is_client) return;
  kw_http_answer answer = {.status = 200, .length = (int64_t)self->body.len};
  kw_slice body = kw_slice_of(self->body.data, self->body.len);
  if (kw_exchange_answer(exchange, &answer) && kw_exchange_write(exchange, body))
    kw_exchange_end(exchange, NULL, 0);
}

static void on_room(kw_exchange *exchange, void *ctx) {
  (void)exchange;
  begin_event(ctx, "room");
}

static void on_gone(kw_exchange *exchange, void *ctx) {
  (void)exchange;
  begin_event(ctx, "gone");
}

static void on_close(kw_exchange *exchange, const char *why, void *ctx) {
  http *self = ctx;
  (void)exchange;
  text *event = begin_event(self, "close");
  if (why != NULL) add_slice(event, ": ", kw_slice_text(why));
  self->exchange = NULL;
}

static bool is_turn_over(void *ctx) {
  return ((http *)ctx)->turn_left <= 0;
}

static kw_slice date_of(void *ctx) {
  return kw_slice_of(((http *)ctx)->date.data, ((http *)ctx)->date.len);
}

/* }====== */

/* {====== Life ====== */

static void drop_events(http *self) {
  for (size_t i = 0; i < self->n_events; i++) free(self->events[i].data);
  free(self->events);
  self->events = NULL;
  self->n_events = 0;
  self->in_body = false;
}

static int l_free(lua_State *L) {
  http *self = luaL_checkudata(L, 1, HTTP_NAME);
  if (self->http == NULL && self->session == NULL) return 0;
  if (self->http != NULL) kw_http_free(self->http);
  if (self->session != NULL) kw_session_free(self->session);
  self->http = NULL;
  self->session = NULL;
  drop_events(self);
  free(self->body.data);
  free(self->date.data);
  return 0;
}

static http *check_http(lua_State *L) {
  http *self = luaL_checkudata(L, 1, HTTP_NAME);
  luaL_argcheck(L, self->http != NULL || self->session != NULL, 1, "closed");
  return self;
}

static http *check_open(lua_State *L) {
  http *self = check_http(L);
  luaL_argcheck(L, self->exchange != NULL, 1, "no exchange");
  return self;
}

static int64_t option(lua_State *L, const char *name, int64_t usual) {
  lua_getfield(L, 1, name);
  int64_t value = (int64_t)luaL_optnumber(L, -1, (lua_Number)usual);
  lua_pop(L, 1);
  return value;
}

static bool has_option(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  bool is_set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is_set;
}

static kw_http_options read_options(lua_State *L) {
  kw_http_options o = kw_http_defaults();
  o.is_client = has_option(L, "is_client");
  o.is_tls = has_option(L, "is_tls");
  o.max_line = (size_t)option(L, "max_line", (int64_t)o.max_line);
  o.max_head = (size_t)option(L, "max_head", (int64_t)o.max_head);
  o.max_body = (uint64_t)option(L, "max_body", (int64_t)o.max_body);
  o.max_out = (size_t)option(L, "max_out", (int64_t)o.max_out);
  o.max_requests = (uint32_t)option(L, "max_requests", o.max_requests);
  o.first_byte_ms = option(L, "first_byte_ms", o.first_byte_ms);
  o.head_ms = option(L, "head_ms", o.head_ms);
  o.body_ms = option(L, "body_ms", o.body_ms);
  o.idle_ms = option(L, "idle_ms", o.idle_ms);
  o.stall_ms = option(L, "stall_ms", o.stall_ms);
  o.linger_ms = option(L, "linger_ms", o.linger_ms);
  o.gone_ms = option(L, "gone_ms", o.gone_ms);
  return o;
}

static void on_stream_close(kw_stream *stream, void *ctx) {
  (void)stream, (void)ctx;
}

/* An HTTP/2 connection. */
static kw_session *new_session(http *self, int64_t now) {
  kw_session_options o = kw_session_defaults();
  kw_session_hooks hooks = {.on_close = on_stream_close, .exchange = &self->hooks, .ctx = self};
  o.is_client = self->options.is_client;
  o.is_tls = self->options.is_tls;
  o.max_stream_queued = self->options.max_out;
  o.max_body = self->options.max_body;
  o.body_ms = self->options.body_ms;
  o.budget = self->options.budget;
  if (self->turn > 0) hooks.is_turn_over = is_turn_over;
  return kw_session_new(&o, &hooks, now);
}

/* connection(options): a connection, of HTTP/2 with the option h2; or nil if memory is short. */
static int l_connection(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  http *self = kw_new_object(L, HTTP_NAME, sizeof *self, 0);
  self->options = read_options(L);
  self->hooks = (kw_exchange_hooks){on_request, on_answer, on_body, on_end, on_room,
                                    on_gone,    on_close,  NULL,    NULL};
  self->echoes = has_option(L, "echo");
  self->pauses = has_option(L, "pause");
  self->switches = has_option(L, "switch");
  self->refusal = (int)option(L, "refuse", 0);
  self->turn = self->turn_left = option(L, "turn", 0);
  self->budget = (kw_budget){.base = (size_t)option(L, "budget", 0)};
  if (self->turn > 0) self->hooks.is_turn_over = is_turn_over;
  if (self->budget.base > 0) self->options.budget = &self->budget;
  lua_getfield(L, 1, "date");
  if (!lua_isnil(L, -1)) {
    self->hooks.date = date_of;
    add_slice(&self->date, luaL_checkstring(L, -1), (kw_slice){0});
  }
  lua_pop(L, 1);
  int64_t now = option(L, "now", 0);
  if (has_option(L, "h2")) {
    self->session = new_session(self, now);
  } else {
    self->http = kw_http_new(&self->options, &self->hooks, self, now);
  }
  if (self->http != NULL || self->session != NULL) return 1;
  free(self->date.data);
  lua_pushnil(L);
  return 1;
}

/* }====== */

/* {====== Methods ====== */

/* The bytes are in a block of their very size, so that sanitizers see every access beyond it. */
static int l_feed(lua_State *L) {
  http *self = check_http(L);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  int64_t now = (int64_t)luaL_optnumber(L, 3, 0);
  uint8_t *copy = malloc(bytes.len + (bytes.len == 0));
  if (copy == NULL) abort();
  memcpy(copy, bytes.data, bytes.len);
  if (self->session != NULL) {
    kw_session_feed(self->session, kw_slice_of(copy, bytes.len), now);
  } else {
    kw_http_feed(self->http, kw_slice_of(copy, bytes.len), now);
  }
  free(copy);
  return 0;
}

static int l_note_gone(lua_State *L) {
  const http *self = check_http(L);
  kw_http_note_gone(self->http, (int64_t)luaL_checknumber(L, 2));
  return 0;
}

static int l_flush(lua_State *L) {
  const http *self = check_http(L);
  if (self->session != NULL) {
    kw_session_flush(self->session);
  } else {
    kw_http_flush(self->http, (int64_t)luaL_optnumber(L, 2, 0));
  }
  return 0;
}

static int l_step(lua_State *L) {
  http *self = check_http(L);
  int64_t now = (int64_t)luaL_checknumber(L, 2);
  self->turn_left = self->turn;
  if (self->session != NULL) {
    kw_session_step(self->session, now);
  } else {
    kw_http_step(self->http, now);
  }
  return 0;
}

static int l_drain(lua_State *L) {
  const http *self = check_http(L);
  int64_t ms = (int64_t)luaL_checknumber(L, 2), now = (int64_t)luaL_checknumber(L, 3);
  if (self->session != NULL) {
    kw_session_drain(self->session, ms, now);
  } else {
    kw_http_drain(self->http, ms, now);
  }
  return 0;
}

static int l_stop(lua_State *L) {
  const http *self = check_http(L);
  const char *why = luaL_checkstring(L, 2);
  if (self->session != NULL) {
    kw_session_end(self->session);
  } else {
    kw_http_end(self->http, why);
  }
  return 0;
}

static int l_check(lua_State *L) {
  const http *self = check_http(L);
  const char *fault = NULL;
  if (self->http != NULL) {
    fault = kw_http_fault(self->http);
  } else if (kw_session_account(self->session)->held != kw_session_charge(self->session)) {
    fault = "a session holds more or less than is charged";
  } else {
    fault = kw_session_fault(self->session);
  }
  return fault == NULL ? 0 : luaL_error(L, "invariant: %s", fault);
}

static kw_chain *out_of(const http *self) {
  return self->http != NULL ? kw_http_out(self->http) : kw_session_out(self->session);
}

static int l_take(lua_State *L) {
  http *self = check_http(L);
  size_t max = (size_t)luaL_optnumber(L, 2, 1 << 30), n = 0;
  int64_t now = (int64_t)luaL_optnumber(L, 3, 0);
  struct iovec part;
  text taken = {0};
  if (self->session != NULL) kw_session_flush(self->session);
  while (n < max && kw_chain_peek(out_of(self), &part, 1) > 0) {
    size_t len = kw_min_size(part.iov_len, max - n);
    add(&taken, part.iov_base, len);
    kw_chain_skip(out_of(self), len);
    n += len;
  }
  if (n > 0 && self->http != NULL) kw_http_wrote(self->http, now);
  if (n > 0 && self->session != NULL) kw_session_wrote(self->session);
  lua_pushlstring(L, taken.data == NULL ? "" : taken.data, taken.len);
  free(taken.data);
  return 1;
}

static int l_events(lua_State *L) {
  http *self = check_http(L);
  lua_createtable(L, (int)self->n_events, 0);
  for (size_t i = 0; i < self->n_events; i++) {
    lua_pushlstring(L, self->events[i].data, self->events[i].len);
    lua_rawseti(L, -2, (int)i + 1);
  }
  drop_events(self);
  return 1;
}

static int l_state(lua_State *L) {
  const http *self = check_http(L);
  const kw_session *session = self->session;
  bool is_h2 = session != NULL;
  int64_t due = is_h2 ? kw_session_deadline(session) : kw_http_deadline(self->http);
  kw_account *account = is_h2 ? kw_session_account(self->session) : kw_http_account(self->http);
  lua_pushboolean(L, is_h2 ? kw_session_wants_bytes(session) : kw_http_wants_bytes(self->http));
  lua_pushboolean(L, is_h2 ? kw_session_is_done(session) : kw_http_is_done(self->http));
  lua_pushstring(L, is_h2 ? kw_session_why(session) : kw_http_why(self->http));
  if (due == INT64_MAX) lua_pushnil(L);
  if (due != INT64_MAX) kw_bind_push_int(L, due);
  kw_bind_push_int(L, (int64_t)account->held);
  kw_bind_push_int(L, (int64_t)out_of(self)->len);
  return 6;
}

/* Reads a list of pairs of strings, which stay on the stack. */
static size_t read_fields(lua_State *L, int at, kw_http_field fields[MAX_FIELDS]) {
  size_t n = 0;
  if (lua_isnoneornil(L, at)) return 0;
  luaL_checktype(L, at, LUA_TTABLE);
  luaL_checkstack(L, 2 * MAX_FIELDS, NULL);
  for (; n < MAX_FIELDS && n < lua_rawlen(L, at) / 2; n++) {
    lua_rawgeti(L, at, (int)(2 * n + 1));
    fields[n].name = kw_bind_check_bytes(L, lua_gettop(L));
    lua_rawgeti(L, at, (int)(2 * n + 2));
    fields[n].value = kw_bind_check_bytes(L, lua_gettop(L));
  }
  return n;
}

/* Reads the field of a table at index 2, a string that stays on the stack. */
static kw_slice read_slice(lua_State *L, const char *name, const char *usual) {
  lua_getfield(L, 2, name);
  return lua_isnil(L, -1) ? kw_slice_text(usual) : kw_bind_check_bytes(L, lua_gettop(L));
}

static int64_t read_length(lua_State *L) {
  lua_getfield(L, 2, "length");
  return (int64_t)luaL_optnumber(L, -1, 0);
}

static int l_answer(lua_State *L) {
  http *self = check_open(L);
  kw_http_field fields[MAX_FIELDS];
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_getfield(L, 2, "status");
  kw_http_answer answer = {.status = (int)luaL_checkinteger(L, -1), .fields = fields};
  answer.length = read_length(L);
  answer.upgrade = read_slice(L, "upgrade", "");
  lua_getfield(L, 2, "fields");
  answer.n_fields = read_fields(L, lua_gettop(L), fields);
  lua_pushboolean(L, kw_exchange_answer(self->exchange, &answer));
  return 1;
}

static int l_request(lua_State *L) {
  http *self = check_http(L);
  kw_http_field fields[MAX_FIELDS];
  luaL_checktype(L, 2, LUA_TTABLE);
  kw_http_request request = {.fields = fields, .length = read_length(L)};
  request.method = read_slice(L, "method", "GET");
  request.authority = read_slice(L, "authority", "host");
  request.path = read_slice(L, "path", "/");
  request.upgrade = read_slice(L, "upgrade", "");
  lua_getfield(L, 2, "fields");
  request.n_fields = read_fields(L, lua_gettop(L), fields);
  kw_exchange *exchange = self->session != NULL ? kw_session_exchange(self->session, &request, NULL)
                                                : kw_http_request_begin(self->http, &request, NULL);
  if (exchange != NULL) self->exchange = exchange;
  lua_pushboolean(L, exchange != NULL);
  return 1;
}

static int l_write(lua_State *L) {
  http *self = check_open(L);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  if (!lua_toboolean(L, 3)) {
    lua_pushboolean(L, kw_exchange_write(self->exchange, bytes));
    return 1;
  }
  kw_blob *blob = kw_blob_copy(bytes);
  lua_pushboolean(L, blob != NULL &&
                         kw_exchange_write_blob(self->exchange, blob, kw_blob_slice(blob)));
  if (blob != NULL) kw_blob_release(blob);
  return 1;
}

static int l_finish(lua_State *L) {
  http *self = check_open(L);
  kw_http_field trailers[MAX_FIELDS];
  size_t n = read_fields(L, 2, trailers);
  lua_pushboolean(L, kw_exchange_end(self->exchange, trailers, n));
  return 1;
}

static int l_pause(lua_State *L) {
  kw_exchange_pause(check_open(L)->exchange);
  return 0;
}

static int l_resume(lua_State *L) {
  kw_exchange_resume(check_open(L)->exchange);
  return 0;
}

static int l_abort(lua_State *L) {
  kw_exchange_abort(check_open(L)->exchange);
  return 0;
}

static int l_has_room(lua_State *L) {
  lua_pushboolean(L, kw_exchange_has_room(check_open(L)->exchange));
  return 1;
}

static int l_is_unanswered(lua_State *L) {
  const http *self = check_http(L);
  lua_pushboolean(L, self->exchange != NULL && self->exchange->fate == KW_FATE_UNANSWERED);
  return 1;
}

static int l_limit(lua_State *L) {
  check_open(L)->exchange->max_body = (uint64_t)luaL_checknumber(L, 2);
  return 0;
}

/* }====== */

/* {====== Functions ====== */

static int l_first_bytes(lua_State *L) {
  static const char *const names[] = {"unknown", "http1", "http2", "tls", "foreign"};
  lua_pushstring(L, names[kw_first_bytes(kw_bind_check_bytes(L, 1))]);
  return 1;
}

static int l_date(lua_State *L) {
  char date[KW_DATE_TEXT];
  kw_date_write((int64_t)luaL_checknumber(L, 1), date);
  lua_pushstring(L, date);
  return 1;
}

/* Adds a decoded part to the list on top of the stack; false: it cannot be decoded. */
static void add_decoded(lua_State *L, kw_slice part, bool has_plus) {
  uint8_t *to = malloc(part.len + 1);
  if (to == NULL) abort();
  ptrdiff_t len = kw_percent_decode(part, has_plus, to);
  if (len >= 0) lua_pushlstring(L, (const char *)to, (size_t)len);
  if (len < 0) lua_pushboolean(L, 0);
  free(to);
  lua_rawseti(L, -2, (int)lua_rawlen(L, -2) + 1);
}

static int l_segments(lua_State *L) {
  kw_slice path, query, segment;
  kw_path_split(kw_bind_check_bytes(L, 1), &path, &query);
  const char *fault = kw_path_fault(path);
  lua_newtable(L);
  while (fault == NULL && kw_path_next(&path, &segment)) add_decoded(L, segment, false);
  if (fault == NULL) return 1;
  lua_pushnil(L);
  lua_pushstring(L, fault);
  return 2;
}

static int l_parameters(lua_State *L) {
  kw_slice path, query, name, value;
  kw_path_split(kw_bind_check_bytes(L, 1), &path, &query);
  lua_newtable(L);
  while (kw_query_next(&query, &name, &value)) {
    add_decoded(L, name, true);
    add_decoded(L, value, true);
  }
  return 1;
}

/* }====== */

static const luaL_Reg functions[] = {{"first_bytes", l_first_bytes}, {"date", l_date},
                                     {"segments", l_segments},       {"parameters", l_parameters},
                                     {"connection", l_connection},   {NULL, NULL}};

static const luaL_Reg methods[] = {{"feed", l_feed},
                                   {"note_gone", l_note_gone},
                                   {"flush", l_flush},
                                   {"step", l_step},
                                   {"drain", l_drain},
                                   {"stop", l_stop},
                                   {"check", l_check},
                                   {"take", l_take},
                                   {"events", l_events},
                                   {"state", l_state},
                                   {"answer", l_answer},
                                   {"write", l_write},
                                   {"finish", l_finish},
                                   {"request", l_request},
                                   {"pause", l_pause},
                                   {"abort", l_abort},
                                   {"resume", l_resume},
                                   {"has_room", l_has_room},
                                   {"is_unanswered", l_is_unanswered},
                                   {"limit", l_limit},
                                   {"free", l_free},
                                   {NULL, NULL}};

static const luaL_Reg meta[] = {{"__gc", l_free}, {NULL, NULL}};

void kw_bind_push_probe_http(lua_State *L) {
  kw_add_class(L, HTTP_NAME, meta, methods);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
}
