/* SPDX-License-Identifier: MIT
 *
 * serve: a server with two connections, driven by clients, sockets, time and Lua. The input is a script: each line
 * is a letter and its arguments, in most cases first the connection. A stream is given by its age, 0 for the newest.
 *
 *   H conn how method ...   headers, which open a stream    M conn stream how message   a message of the stream
 *   U conn how method message   both at once                S W R P Y G F D B           see frames.h: conn stream ...
 *   O conn n     takes n bytes of output                    A conn flag    from now on takes output at once, or not
 *   K n          from now on feeds n bytes at a time        E conn how     the connection ends, or is opened again
 *   T n          lets time pass                             X n            the server drains
 *   I            calls are intercepted                      N what         Lua takes news, and does something
 *   L id what    Lua does something                         Q first n      Lua puts n keys into the store
 *   Z n          makes the n-th allocation of the next step fail
 *
 * Checked: the invariants of store and hub hold, answers are well-formed, memory is bounded by the bytes that have
 * come, and at the end all memory is free.
 */
#include "answers.h"
#include "base/mem.h"
#include "codec/messages.h"
#include "frames.h"
#include "memory.h"
#include "probe/checks.h"
#include "probe/mem.h"
#include "reach.h"
#include "rpc/call.h"
#include "rpc/peer.h"
#include "rpc/request.h"

#define CONNS 2
#define MAX_PIECES 8
#define MAX_FED 256
#define CHECKED 8 /* steps between two invariant checks: a check costs as much as the steps */
#define MAX_ROUNDS 10000  /* after which nothing may be due any more */
#define MEMORY (16 << 20) /* bytes that may be in use, beside some times the bytes of the input */
#define MEMORY_FACTOR 500

int LLVMFuzzerInitialize(int *n, char ***args);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWERS, WATCH_ANSWERS, CALLS, BODIES };
static reach reached[] = {
    {"answers", 0}, {"answers to watches", 0}, {"calls of Lua", 0}, {"bodies of HTTP", 0}, {0}};

typedef struct method {
  const char *path;
  const kw_message *request;
  const kw_message *response;
} method;

static const method methods[] = {
    {"/etcdserverpb.KV/Range", &kw_msg_range_request, &kw_msg_range_response},
    {"/etcdserverpb.KV/Put", &kw_msg_put_request, &kw_msg_put_response},
    {"/etcdserverpb.KV/DeleteRange", &kw_msg_delete_range_request, &kw_msg_delete_range_response},
    {"/etcdserverpb.KV/Txn", &kw_msg_txn_request, &kw_msg_txn_response},
    {"/etcdserverpb.KV/Compact", &kw_msg_compaction_request, &kw_msg_compaction_response},
    {"/etcdserverpb.Watch/Watch", &kw_msg_watch_request, &kw_msg_watch_response},
    {"/etcdserverpb.Lease/LeaseGrant", &kw_msg_lease_grant_request, &kw_msg_lease_grant_response},
    {"/etcdserverpb.Lease/LeaseRevoke", &kw_msg_lease_revoke_request,
     &kw_msg_lease_revoke_response},
    {"/etcdserverpb.Lease/LeaseKeepAlive", &kw_msg_lease_keep_alive_request,
     &kw_msg_lease_keep_alive_response},
    {"/etcdserverpb.Lease/LeaseTimeToLive", &kw_msg_lease_time_to_live_request,
     &kw_msg_lease_time_to_live_response},
    {"/etcdserverpb.Lease/LeaseLeases", &kw_msg_lease_leases_request,
     &kw_msg_lease_leases_response},
    {"/lua.Lua/Unary", &kw_msg_put_request, NULL},
    {"/lua.Lua/Stream", &kw_msg_put_request, NULL},
    {"/etcdserverpb.KV/None", &kw_msg_put_request, NULL},
    {"/none/None", &kw_msg_put_request, NULL},
    {"none", &kw_msg_put_request, NULL},
    {"", &kw_msg_put_request, NULL},
    {NULL, &kw_msg_put_request, NULL}, /* a request without a path */
    {"/etcdserverpb.KV/RangeStream", &kw_msg_range_request, &kw_msg_range_stream_response},
};

typedef struct open_stream {
  uint32_t id;
  const method *method;
} open_stream;

/* A connection: the client and the driver of it. */
typedef struct conn {
  kw_peer *peer; /* NULL: memory was short */
  bytes in;      /* sent by the client, and not yet wanted by the server */
  open_stream *streams;
  size_t n_streams;
  uint32_t next_id;
  bytes said; /* sent by the server since the last check */
  answers answers;
  bool is_http; /* the HTTP/2 preface was sent */
  bool is_read_at_once;
  int64_t due;
} conn;

typedef struct world {
  kw_store *store;
  kw_hub *hub;
  kw_server *server;
  conn conns[CONNS];
  int64_t now;
  size_t piece; /* bytes that are fed at a time */
  size_t base;  /* memory in use at the start */
  size_t came;
  size_t steps;
} world;

/* {====== The driver ====== */

static void on_dirty(void *ctx) {
  (void)ctx;
}

static void on_deadline(void *ctx, int64_t when) {
  ((conn *)ctx)->due = when;
}

/* Opens windows of 1 MiB for each stream and 16 MiB for the connection, and acknowledges the settings of the
 * server. */
static void add_preface(bytes *to) {
  bytes_add_text(to, PREFACE);
  frame_add(to, FRAME_SETTINGS, 0, 0, kw_slice_of("\0\4\0\x10\0\0", 6));
  frame_add(to, FRAME_WINDOW_UPDATE, 0, 0, kw_slice_of("\1\0\0\0", 4));
  frame_add(to, FRAME_SETTINGS, FLAG_ACK, 0, (kw_slice){0});
}

static void begin(world *w, conn *c, bool is_http) {
  kw_peer_hooks hooks = {
      .on_dirty = on_dirty, .on_deadline = on_deadline, .ctx = c, .remote = "127.0.0.1:1"};
  *c = (conn){.next_id = 1, .is_http = is_http, .is_read_at_once = true, .due = INT64_MAX};
  c->peer = kw_peer_open(w->server, &hooks, w->now);
  if (is_http) add_preface(&c->in);
}

static void end(conn *c) {
  if (c->peer != NULL) kw_accepted_face.close(c->peer, NULL);
  bytes_drop(&c->in);
  bytes_drop(&c->said);
  free(c->streams);
  answers_drop(&c->answers);
  *c = (conn){0};
}

/* Takes at most `max` bytes of the output. */
static void take_output(conn *c, size_t max) {
  struct iovec pieces[MAX_PIECES];
  while (max > 0 && c->peer != NULL) {
    size_t n = kw_accepted_face.pending(c->peer, pieces, MAX_PIECES), sum = 0;
    for (size_t i = 0; i < n && sum < max; i++) {
      size_t len = kw_min_size(pieces[i].iov_len, max - sum);
      bytes_add(&c->said, kw_slice_of(pieces[i].iov_base, len));
      sum += len;
    }
    if (sum == 0) return;
    kw_accepted_face.wrote(c->peer, sum);
    max -= sum;
  }
}

/* Feeds bytes in pieces, but not in more than a few hundred. */
static size_t feed(world *w, conn *c, kw_slice rest) {
  size_t len = kw_min_size(rest.len, w->piece + rest.len / MAX_FED);
  uint8_t *copy = bytes_exact(kw_slice_of(rest.data, len));
  kw_accepted_face.feed(c->peer, copy, len, w->now);
  free(copy);
  return len;
}

static void take_input(world *w, conn *c) {
  size_t at = 0;
  while (at < c->in.len && kw_accepted_face.state(c->peer) & KW_PEER_WANTS_BYTES) {
    at += feed(w, c, kw_slice_of(c->in.data + at, c->in.len - at));
    if (c->is_read_at_once) take_output(c, SIZE_MAX);
  }
  bytes_skip(&c->in, at);
  if (kw_accepted_face.state(c->peer) & KW_PEER_IS_DONE) c->in.len = 0;
}

static void tick_conn(world *w, conn *c) {
  if (c->peer == NULL) return;
  if (c->is_read_at_once) take_output(c, SIZE_MAX);
  take_input(w, c);
  if (c->due > w->now) return;
  c->due = INT64_MAX;
  kw_accepted_face.step(c->peer, w->now);
  must(c->due > w->now, "a step does what is due");
}

static void tick(world *w) {
  for (size_t i = 0; i < CONNS; i++) tick_conn(w, &w->conns[i]);
  kw_server_step(w->server, w->now);
  for (size_t i = 0; i < CONNS; i++) {
    if (w->conns[i].is_read_at_once) take_output(&w->conns[i], SIZE_MAX);
  }
}

static void do_what_is_due(world *w) {
  int rounds = 0;
  while (kw_server_step(w->server, w->now) <= w->now)
    must(++rounds < MAX_ROUNDS, "there is an end to what is due");
}

/* }====== */

/* {====== The clients ====== */

static conn *pick_conn(world *w, script_line *line) {
  return &w->conns[line_byte(line) % CONNS];
}

static const method *pick_method(script_line *line) {
  uint8_t byte = line_byte(line);
  return &methods[(byte >= 'A' ? byte - 'A' : byte) % KW_LENGTH(methods)];
}

/* Returns the id of a stream by its age, 0 for the newest. Some bytes give the id of a stream that was never
 * opened. */
static open_stream pick_stream(const conn *c, script_line *line) {
  uint8_t byte = line_byte(line);
  if (byte == '=' || c->n_streams == 0) return (open_stream){0, &methods[0]};
  if (byte == '+') return (open_stream){c->next_id, &methods[0]};
  if (byte == '*') return (open_stream){2, &methods[0]};
  size_t age = (size_t)(byte >= '0' ? byte - '0' : byte) % c->n_streams;
  return c->streams[c->n_streams - 1 - age];
}

static uint32_t add_stream(conn *c, const method *m) {
  uint32_t id = c->next_id;
  c->next_id += 2;
  c->streams = realloc(c->streams, (c->n_streams + 1) * sizeof *c->streams);
  if (c->streams == NULL) abort();
  c->streams[c->n_streams++] = (open_stream){id, m};
  answers_expect(&c->answers, id, m->response);
  return id;
}

static kw_slice text(const char *words) {
  return kw_slice_of(words, strlen(words));
}

enum { HOW_END = 8, HOW_TIMEOUT = 16, HOW_LINE = 32, HOW_NO_TYPE = 64, HOW_GET = 128 };

/* Returns true if the line may change a call to an HTTP request. */
static bool add_odd_line(script_line *line, int how, bytes *block) {
  static const char *const names[] = {
      "grpc-encoding", "content-type", ":path", "te",  "connection", "hasleader",      "X",
      "grpc-timeout",  ":authority",   "",      "a b", "token",      "content-length", "expect",
      "host"};
  bytes value = {0};
  const char *name = names[line_byte(line) % KW_LENGTH(names)];
  line_bytes(line, &value);
  frame_add_line(block, how, name, bytes_slice(&value));
  bytes_drop(&value);
  return strcmp(name, "content-type") == 0;
}

static uint32_t open_call(conn *c, int how, const method *m, script_line *line) {
  bytes block = {0}, timeout = {0};
  uint32_t id = add_stream(c, m);
  bool is_http = how & (HOW_NO_TYPE | HOW_GET);
  frame_add_line(&block, how, ":method", text(how & HOW_GET ? "GET" : "POST"));
  frame_add_line(&block, how, ":scheme", text("http"));
  frame_add_line(&block, how, ":authority", text("localhost"));
  if (m->path != NULL) frame_add_line(&block, how, ":path", text(m->path));
  if (!(how & HOW_NO_TYPE)) frame_add_line(&block, how, "content-type", text("application/grpc"));
  if (how & HOW_TIMEOUT) line_bytes(line, &timeout);
  if (how & HOW_TIMEOUT) frame_add_line(&block, how, "grpc-timeout", bytes_slice(&timeout));
  if (how & HOW_LINE) is_http |= add_odd_line(line, how, &block);
  if (is_http) answers_expect_http(&c->answers);
  frame_add_headers(&c->in, how, how & HOW_END ? FLAG_END_STREAM : 0, id, bytes_slice(&block));
  bytes_drop(&timeout);
  bytes_drop(&block);
  return id;
}

static void add_message(conn *c, open_stream stream, int how, script_line *line) {
  bytes message = {0};
  line_message(line, stream.method->request, &message);
  frame_add_message(&c->in, how, stream.id, bytes_slice(&message));
  bytes_drop(&message);
}

/* Does a step of a client. Returns false if the letter is for something else. */
static bool do_client(world *w, char letter, script_line *line) {
  if (memchr("HUMSWRPYGFDB", letter, 12) == NULL) return false;
  conn *c = pick_conn(w, line);
  size_t before = c->in.len;
  if (letter == 'H') {
    int how = line_flags(line);
    open_call(c, how, pick_method(line), line);
  } else if (letter == 'U') {
    int how = line_flags(line);
    const method *m = pick_method(line);
    add_message(c, (open_stream){open_call(c, 0, m, line), m}, how ^ 1, line);
  } else {
    open_stream stream = pick_stream(c, line);
    if (letter == 'F' || letter == 'B') c->answers.is_wild = true;
    if (letter == 'M') {
      int how = line_flags(line);
      add_message(c, stream, how, line);
    } else {
      frame_add_common(&c->in, letter, stream.id, line);
    }
  }
  w->came += c->in.len - before;
  return true;
}

/* }====== */

/* {====== Lua ====== */

enum { LUA_RECEIVE = 1, LUA_SEND = 2, LUA_FINISH = 4, LUA_PROCEED = 8, LUA_ANSWER = 16 };

static void receive(world *w, uint64_t id) {
  kw_blob *message;
  bool gathers = id % 2 == 0;
  while (kw_call_receive(w->server, id, gathers, &message) == KW_RECEIVED_MESSAGE)
    kw_blob_release(message);
}

/* Lua may do anything with any call, in any order. */
static void do_lua(world *w, uint64_t id, script_line *line) {
  bytes message = {0};
  kw_call_info info;
  kw_http_answer answer = {.status = 200, .length = -1};
  bool has_room;
  int what = line_flags(line);
  line_bytes(line, &message);
  w->came += message.len;
  if (kw_call_get_info(w->server, id, &info))
    must(info.path != NULL && info.metadata->len > 0, "a call has a path and metadata");
  if (what & LUA_PROCEED) kw_call_proceed(w->server, id);
  if (what & LUA_ANSWER) kw_request_answer(w->server, id, &answer);
  if (what & LUA_RECEIVE) receive(w, id);
  if (what & LUA_SEND) kw_call_send(w->server, id, bytes_slice(&message), &has_room);
  if (what & LUA_FINISH)
    kw_call_finish(w->server, id, (int)line_number(line), bytes_slice(&message));
  bytes_drop(&message);
}

/* Puts keys without telling the server: Lua is a writer like any other. */
static void do_puts(world *w, int first, int n) {
  kw_arena arena = {0};
  kw_reply reply;
  for (int i = first; i < first + n; i++) {
    uint8_t key[] = {'A' + i / 64 % 26, 'A' + i % 64};
    kw_op op = {.kind = KW_OP_PUT, .put.key = kw_slice_of(key, sizeof key)};
    if (kw_store_apply(w->store, &op, &arena, &reply) == KW_OK) kw_store_commit(w->store);
  }
  kw_arena_drop(&arena);
}

static void do_news(world *w, script_line *line) {
  unsigned news;
  int status;
  uint64_t id = kw_call_next_news(w->server, &news, &status);
  must(id == 0 || news != 0, "news are about something");
  reached[CALLS].n += id != 0;
  if (id != 0) do_lua(w, id, line);
}

/* }====== */

static void do_conn(world *w, char letter, script_line *line) {
  conn *c = pick_conn(w, line);
  int how;
  switch (letter) {
    case 'O': take_output(c, (size_t)line_number(line)); break;
    case 'A': c->is_read_at_once = line_flags(line) & 1; break;
    case 'E':
      how = line_flags(line);
      if (how & 1 && c->peer != NULL) kw_accepted_face.feed(c->peer, NULL, 0, w->now);
      if (how & 2) end(c);
      if (how & 2) begin(w, c, !(how & 4));
      break;
  }
}

static int64_t amount(script_line *line) {
  int64_t n = line_number(line);
  return n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : n;
}

static void do_other(world *w, char letter, script_line *line) {
  int first;
  switch (letter) {
    case 'K': w->piece = (size_t)amount(line) + 1; break;
    case 'T':
      w->now += amount(line);
      do_what_is_due(w);
      break;
    case 'X': kw_server_drain(w->server, amount(line), w->now); break;
    case 'I': kw_call_intercept(w->server); break;
    case 'Q':
      first = line_byte(line);
      do_puts(w, first, line_byte(line));
      break;
    case 'N': do_news(w, line); break;
    case 'L': do_lua(w, (uint64_t)line_number(line), line); break;
    default: do_conn(w, letter, line); break;
  }
}

/* Runs after the step, since the checks allocate, too. */
static void check_answers(conn *c) {
  if (c->is_http) answers_take(&c->answers, bytes_slice(&c->said));
  c->said.len = 0;
  reached[ANSWERS].n += c->answers.n_messages;
  reached[WATCH_ANSWERS].n += c->answers.n_of_watches;
  reached[BODIES].n += c->answers.n_body;
  c->answers.n_messages = c->answers.n_of_watches = c->answers.n_body = 0;
}

static void check_sound(const world *w) {
  must_be_sound(kw_store_check(w->store));
  must_be_sound(kw_hub_check(w->hub));
}

static void check(world *w) {
  for (size_t i = 0; i < CONNS; i++) check_answers(&w->conns[i]);
  must_be_sound(kw_server_fault(w->server));
  if (++w->steps % CHECKED == 0) check_sound(w);
  must(memory_used() < w->base + MEMORY + MEMORY_FACTOR * w->came, "memory is bounded");
}

static void do_line(world *w, script_line *line) {
  static const char letters[] = "HUMSWRPYGFDBOAKETXINLQZ";
  uint8_t byte = line_byte(line);
  char letter = letters[byte % (sizeof letters - 1)];
  if (byte != 0 && memchr(letters, byte, sizeof letters - 1) != NULL) letter = (char)byte;
  if (letter == 'Z') {
    kw_mem_fail_at((size_t)line_byte(line) + 1);
    return;
  }
  if (!do_client(w, letter, line)) do_other(w, letter, line);
  tick(w);
  kw_mem_fail_at(0);
  check(w);
}

/* All limits are small, so that a short script reaches them. */
static void open_world(world *w) {
  kw_store_options store = kw_store_defaults();
  kw_hub_options hub = kw_hub_defaults();
  kw_server_options server = kw_server_defaults();
  store.max_request_bytes = 24000;
  store.max_txn_ops = 16;
  store.quota = 200000;
  store.step_records = 4;
  hub.walk_revisions = 4;
  hub.walk_bytes = 2048;
  hub.walk_watchers = 2;
  hub.progress_ms = 1000;
  server.max_fragment = 1024;
  server.outlet_bytes = 4096;
  server.session.max_streams = 20;
  server.session.max_message = 30000;
  server.session.max_header_bytes = 4096;
  server.session.max_partial = 24000;
  server.session.max_framed = 8192;
  kw_session_set_queue(&server.session, 24000);
  server.session.max_waiting = server.session.max_input = 48000;
  *w = (world){.now = 1000, .piece = INT32_MAX};
  w->base = memory_used();
  char why[KW_REASON_ROOM];
  must(kw_store_open(&store, 0, &w->store, why) == KW_OK, "there is memory");
  w->hub = kw_hub_new(w->store, &hub);
  w->server = kw_server_new(w->store, w->hub, &server);
  kw_call_mount(w->server, "/lua.Lua/Unary", KW_CALL_UNARY, 0);
  kw_call_mount(w->server, "/lua.Lua/Stream", KW_CALL_OF_MANY, 0);
  for (size_t i = 0; i < CONNS; i++) begin(w, &w->conns[i], true);
}

/* Closes connections before the server, or after it. */
static void close_world(world *w) {
  end(&w->conns[0]);
  kw_server_close(w->server);
  take_output(&w->conns[1], SIZE_MAX);
  check_answers(&w->conns[1]);
  end(&w->conns[1]);
  kw_server_free(w->server);
  kw_hub_free(w->hub);
  kw_store_free(w->store);
}

int LLVMFuzzerInitialize(int *n, char ***args) {
  (void)n, (void)args;
  reach_report(reached);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  world w;
  script s = {data, data + size};
  script_line line;
  size_t live = kw_mem_live();
  open_world(&w);
  while (script_next(&s, &line)) do_line(&w, &line);
  kw_mem_fail_at(0);
  check_sound(&w);
  close_world(&w);
  must(kw_mem_live() == live, "all memory is given back");
  return 0;
}
