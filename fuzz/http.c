/* SPDX-License-Identifier: MIT
 *
 * http: an HTTP/1.1 connection, as server or as client. The same bytes in one piece and in many pieces give the same
 * events and answers.
 *
 *   role    one byte: odd for a client
 *   owner   one byte: what the owner does, see below
 *   fail    one byte: the allocation that fails after each feed; 0: none. Then only invariants are checked
 *   n       one byte, then n bytes: the lengths of the pieces, used in turn
 *   bytes   the rest
 *
 * Checked: the invariants of the connection hold, on_close is the last event of each exchange, memory is bounded by the
 * bytes that have come, and at the end all memory is free.
 */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>

#include "bytes.h"
#include "http/first_bytes.h"
#include "http/target.h"
#include "probe/checks.h"
#include "probe/mem.h"
#include "reach.h"

#define MEMORY                                                                                     \
  65536 /* bytes that a connection may hold, beside some times the bytes of the input */
#define MEMORY_FACTOR 8
#define MAX_TICKS 2000

int LLVMFuzzerInitialize(int *n, char ***args);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the owner does; they are bits. The answer follows the end of the request, unless it is an early one. */
enum { EARLY = 1, PAUSES = 2, CHUNKS = 4, ABORTS = 8, SWITCHES = 16, HAS_BODY = 32, IS_HEAD = 64 };

enum { REQUESTS, BODIES, TRAILERS, REFUSALS, ANSWERS, INTERIM, SWITCHED, KEPT };
static reach reached[] = {{"requests", 0}, {"bodies", 0},    {"trailers", 0},
                          {"refusals", 0}, {"answers", 0},   {"interim answers", 0},
                          {"switches", 0}, {"kept open", 0}, {0}};

typedef struct run {
  kw_http *http;
  kw_exchange *exchange; /* NULL: none is open */
  int owner;
  bool is_client;
  bool is_due;    /* the owner has to answer */
  bool in_body;   /* the last event is a part of a body */
  bool switched;  /* to another protocol */
  unsigned n;     /* exchanges */
  size_t body_at; /* where it begins in `events` */
  bytes events;
  bytes out;
  bytes echo;
  char why[160];
} run;

/* {====== The owner ====== */

static void note(run *r, const char *what, kw_slice text) {
  bytes_add_byte(&r->events, '\n');
  bytes_add_text(&r->events, what);
  bytes_add(&r->events, text);
  r->in_body = false;
}

static void note_fields(run *r, const kw_http_field *fields, size_t n) {
  for (size_t i = 0; i < n; i++) {
    note(r, "name ", fields[i].name);
    note(r, "value ", fields[i].value);
  }
}

static void answer(run *r) {
  bool has_chunks = r->owner & CHUNKS;
  kw_http_field field = {kw_slice_text("x"), kw_slice_text("y")};
  kw_http_answer head = {
      .status = 200, .fields = &field, .n_fields = 1, .upgrade = kw_slice_text("z")};
  head.length = has_chunks ? -1 : (int64_t)r->echo.len;
  r->is_due = false;
  if (r->owner & SWITCHES) {
    head.status = 101;
    r->switched = kw_exchange_answer(r->exchange, &head);
    reached[SWITCHED].n += r->switched;
    if (r->switched) return;
    head.status = 200;
  }
  if (!kw_exchange_answer(r->exchange, &head)) return;
  kw_exchange_write(r->exchange, bytes_slice(&r->echo));
  kw_exchange_end(r->exchange, &field, has_chunks);
}

static void on_request(kw_exchange *exchange, const kw_http_request *request, void *ctx) {
  run *r = ctx;
  kw_slice path, query, part, value;
  must(r->exchange == NULL, "there is one exchange at a time");
  r->exchange = exchange;
  r->echo.len = 0;
  reached[REQUESTS].n++;
  note(r, "method ", request->method);
  note(r, "authority ", request->authority);
  note(r, "path ", request->path);
  note_fields(r, request->fields, request->n_fields);
  kw_path_split(request->path, &path, &query);
  must(kw_slice_is(path, "*") || kw_path_fault(path) == NULL, "a path that is delivered is valid");
  while (kw_path_next(&path, &part)) {
  }
  while (kw_query_next(&query, &part, &value)) {
  }
  if (r->owner & PAUSES) kw_exchange_pause(exchange);
  if (r->owner & ABORTS && r->n > 2) kw_exchange_abort(exchange);
  if (r->owner & EARLY) answer(r);
}

static void on_answer(kw_exchange *exchange, const kw_http_answer *head, void *ctx) {
  run *r = ctx;
  char status[16];
  snprintf(status, sizeof status, "%d", head->status);
  note(r, "status ", kw_slice_text(status));
  note_fields(r, head->fields, head->n_fields);
  must(exchange->fate == KW_FATE_ANSWERED, "an answer has arrived");
  r->switched = head->status == 101;
  reached[head->status == 101 ? SWITCHED : head->status < 200 ? INTERIM : ANSWERS].n++;
}

static void on_body(kw_exchange *exchange, kw_slice piece, void *ctx) {
  run *r = ctx;
  must(exchange == r->exchange && piece.len > 0, "a part of a body is one of an exchange");
  if (!r->in_body) r->body_at = r->events.len;
  if (!r->in_body) note(r, "body ", (kw_slice){0});
  r->in_body = true;
  bytes_add(&r->events, piece);
  bytes_add(&r->echo, piece);
  reached[BODIES].n++;
}

static void on_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n, void *ctx) {
  run *r = ctx;
  must(exchange == r->exchange, "the end is one of an exchange");
  note(r, "end", (kw_slice){0});
  note_fields(r, trailers, n);
  reached[TRAILERS].n += n > 0;
  r->is_due = !r->is_client && !(r->owner & EARLY);
}

/* How much of a body has arrived before a failure depends on the pieces. */
static void on_close(kw_exchange *exchange, const char *why, void *ctx) {
  run *r = ctx;
  must(exchange == r->exchange, "an exchange is closed once");
  if (why != NULL && r->in_body) r->events.len = r->body_at;
  note(r, "close ", kw_slice_text(why == NULL ? "" : why));
  r->exchange = NULL;
  r->is_due = r->switched = false;
  r->n++;
}

static const kw_exchange_hooks hooks = {.on_request = on_request,
                                        .on_answer = on_answer,
                                        .on_body = on_body,
                                        .on_end = on_end,
                                        .on_close = on_close};

/* }====== */

/* {====== The driver ====== */

static void check(const run *r, size_t came) {
  const char *fault = kw_http_fault(r->http);
  must_be_sound(fault);
  must(kw_http_account(r->http)->held < MEMORY + MEMORY_FACTOR * came, "memory is bounded");
}

static void take_output(run *r) {
  struct iovec part;
  while (kw_chain_peek(kw_http_out(r->http), &part, 1) > 0) {
    bytes_add(&r->out, kw_slice_of(part.iov_base, part.iov_len));
    kw_chain_skip(kw_http_out(r->http), part.iov_len);
    kw_http_wrote(r->http, 0);
  }
}

/* Sends one request: bytes that follow its answer are too many, whether or not another request was sent. */
static void request(run *r) {
  kw_http_request head = {.method = kw_slice_text(r->owner & IS_HEAD ? "HEAD" : "PUT"),
                          .authority = kw_slice_text("h"),
                          .path = kw_slice_text("/"),
                          .upgrade = kw_slice_text(r->owner & SWITCHES ? "z" : ""),
                          .length = r->owner & HAS_BODY ? -1 : 0};
  kw_exchange *exchange = kw_http_request_begin(r->http, &head, NULL);
  if (exchange == NULL) return;
  r->exchange = exchange;
  r->echo.len = 0;
  if (!(r->owner & HAS_BODY)) return;
  kw_exchange_write(exchange, kw_slice_text("hello"));
  if (!(r->owner & EARLY)) kw_exchange_end(exchange, NULL, 0);
}

/* Lets the owner and the socket do all that they can do. */
static void tick(run *r) {
  for (int i = 0; i < MAX_TICKS; i++) {
    size_t before = r->events.len + r->out.len;
    if (r->is_client && r->exchange == NULL && r->n == 0) request(r);
    if (r->exchange != NULL && r->owner & PAUSES) kw_exchange_resume(r->exchange);
    if (r->exchange != NULL && r->is_due) answer(r);
    kw_http_flush(r->http, 0);
    take_output(r);
    if (before == r->events.len + r->out.len) return;
  }
  must(false, "there is an end to what can be done");
}

static void feed(run *r, kw_slice piece, int fail) {
  uint8_t *copy = bytes_exact(piece);
  kw_mem_fail_at((size_t)fail);
  kw_http_feed(r->http, kw_slice_of(copy, piece.len), 0);
  free(copy);
  tick(r);
  kw_mem_fail_at(0);
}

/* Lets the peer close its side, and then time pass. */
static void finish(run *r) {
  if (!kw_http_is_done(r->http)) reached[KEPT].n++;
  kw_http_feed(r->http, (kw_slice){0}, 0);
  tick(r);
  if (r->exchange != NULL && r->switched) kw_exchange_end(r->exchange, NULL, 0);
  tick(r);
  for (int i = 0; i < 4 && kw_http_deadline(r->http) != INT64_MAX; i++)
    kw_http_step(r->http, kw_http_deadline(r->http));
  must_be_sound(kw_http_fault(r->http));
}

static void converse(run *r, kw_slice lengths, kw_slice input, int fail) {
  size_t came = 0;
  tick(r);
  for (size_t i = 0; input.len > 0; i++) {
    size_t len = lengths.len == 0 ? input.len : lengths.data[i % lengths.len] + 1u;
    kw_slice piece = kw_slice_of(input.data, kw_min_size(len, input.len));
    if (!kw_http_wants_bytes(r->http)) break;
    feed(r, piece, fail);
    input = kw_slice_of(input.data + piece.len, input.len - piece.len);
    came += piece.len;
    check(r, came);
  }
}

/* Lengths are used in turn; without lengths all bytes are one piece. */
static void play(run *r, kw_slice lengths, kw_slice input, int fail) {
  kw_http_options options = kw_http_defaults();
  options.is_client = r->is_client;
  options.max_line = 100;
  options.max_head = 300;
  options.max_body = 200;
  options.max_out = 400;
  options.max_requests = 20;
  r->http = kw_http_new(&options, &hooks, r, 0);
  converse(r, lengths, input, fail);
  finish(r);
  snprintf(r->why, sizeof r->why, "%s", kw_http_why(r->http));
  kw_http_free(r->http);
  must(r->exchange == NULL, "each exchange is closed");
}

/* }====== */

/* Removes status 100 from what was sent: whether it is sent depends on the pieces. */
static void remove_continue(bytes *b) {
  static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
  uint8_t *at;
  while (b->len > 0 && (at = memmem(b->data, b->len, text, sizeof text - 1)) != NULL) {
    size_t rest = (size_t)(b->data + b->len - at) - (sizeof text - 1);
    memmove(at, at + sizeof text - 1, rest);
    b->len -= sizeof text - 1;
  }
}

static void drop_run(run *r) {
  bytes_drop(&r->events);
  bytes_drop(&r->out);
  bytes_drop(&r->echo);
}

static void play_both_ways(bool is_client, int owner, kw_slice lengths, kw_slice input) {
  run whole = {.is_client = is_client, .owner = owner}, torn = whole;
  play(&whole, (kw_slice){0}, input, 0);
  play(&torn, lengths, input, 0);
  remove_continue(&whole.out);
  remove_continue(&torn.out);
  must(kw_slice_equal(bytes_slice(&whole.events), bytes_slice(&torn.events)),
       "events are the same");
  must(kw_slice_equal(bytes_slice(&whole.out), bytes_slice(&torn.out)), "answers are the same");
  must(strcmp(whole.why, torn.why) == 0, "the end is the same");
  static const char refused[] = "\r\ncontent-type: text/plain\r\n";
  if (whole.out.len > 0 &&
      memmem(whole.out.data, whole.out.len, refused, sizeof refused - 1) != NULL)
    reached[REFUSALS].n++;
  drop_run(&whole);
  drop_run(&torn);
}

/* What the first bytes say does not change with more bytes. */
static void check_first_bytes(kw_slice input) {
  kw_first last = KW_FIRST_UNKNOWN;
  for (size_t i = 0; i <= input.len && i < KW_FIRST_BYTES + 8; i++) {
    kw_first now = kw_first_bytes(kw_slice_of(input.data, i));
    must(last == KW_FIRST_UNKNOWN || now == last, "the first bytes do not change their meaning");
    must(now != KW_FIRST_UNKNOWN || i < KW_FIRST_BYTES, "enough bytes have a meaning");
    last = now;
  }
}

static kw_slice take(kw_slice *from, size_t max) {
  kw_slice taken = kw_slice_of(from->data, kw_min_size(from->len, max));
  *from = kw_slice_of(from->data + taken.len, from->len - taken.len);
  return taken;
}

int LLVMFuzzerInitialize(int *n, char ***args) {
  (void)n, (void)args;
  reach_report(reached);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kw_slice input = kw_slice_of(data, size);
  kw_slice how = take(&input, 4);
  size_t live = kw_mem_live();
  if (how.len < 4) return 0;
  bool is_client = how.data[0] & 1;
  kw_slice lengths = take(&input, how.data[3]);
  check_first_bytes(input);
  if (how.data[2] == 0) {
    play_both_ways(is_client, how.data[1], lengths, input);
  } else {
    run r = {.is_client = is_client, .owner = how.data[1]};
    play(&r, lengths, input, how.data[2]);
    drop_run(&r);
  }
  must(kw_mem_live() == live, "all memory is given back");
  return 0;
}
