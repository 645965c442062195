/* SPDX-License-Identifier: MIT
 *
 * client: a client connection, and a server that may send anything. The input is a script: each line is a letter and
 * its arguments. A call is given by its number, and a stream by the number of its call.
 *
 *   c path line how   begins a call, which has one answer if `how` is odd   w   begins a Watch call
 *   s call bytes  sends a message           h call   half-closes               r call n   asks for room to send
 *   x call        cancels the call          t n      takes n results
 *   q call        requests progress         u call   trusts the progress of the server
 *   n d k v a     see watches.h             i        takes the list of watches that are ready
 *   H call how ...          headers, then trailers        M call how bytes   a message
 *   m call how fields       a WatchResponse               e call how id revision n   the same, with events
 *   S W R P Y G F D B       see frames.h: call ...
 *   O n           takes n bytes of output                 A flag   from now on takes output at once, or not
 *   K n           from now on feeds n bytes at a time     E        feeds the end of the input
 *   L how         the connection ends, or is closed       N        opens another connection; the watches stay
 *   T n           lets time pass                          Z n      makes the n-th allocation of the next step fail
 *
 * Checked: a call has messages and then one end, and nothing after it was cancelled. Only a call that the client has
 * named has something to take. The driver is told every deadline. At the end all memory is free.
 */
#include "base/mem.h"
#include "codec/messages.h"
#include "frames.h"
#include "memory.h"
#include "probe/checks.h"
#include "probe/mem.h"
#include "reach.h"
#include "rpc/client.h"
#include "watches.h"

#define MAX_CALLS 256
#define MAX_STREAMS 256
#define MAX_PIECES 8
#define MAX_FED 256
#define MAX_EVENTS 64
#define MEMORY (8 << 20) /* bytes that may be in use, beside some times the bytes of the input */
#define MEMORY_FACTOR 500

int LLVMFuzzerInitialize(int *n, char ***args);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES, ENDS, OPEN_WATCHES, EVENTS };
static reach reached[] = {{"messages", 0}, {"ends", 0}, {"open watches", 0}, {"events", 0}, {0}};

typedef enum call_state { NO_CALL, CALLING, ENDED, CANCELLED } call_state;

typedef struct call {
  call_state state;
  bool is_unary;
  bool is_watch;
  int n; /* number of messages taken */
} call;

typedef struct world {
  kw_client *client; /* NULL: memory was short */
  bytes in;          /* sent by the server, and not yet wanted by the client */
  call calls[MAX_CALLS];
  uint64_t n_calls;
  uint64_t taking; /* a call that may have more to take; or 0 */
  watches watches;
  int64_t due; /* deadline that the driver was told */
  int64_t now;
  size_t piece;
  bool is_read_at_once;
  bool has_headers[MAX_STREAMS]; /* by half the id of the stream: the server has sent its headers */
  bool is_starved;               /* an allocation of this step may fail */
  size_t base;
  size_t came;
} world;

/* {====== The driver ====== */

static void take_output(world *w, size_t max) {
  struct iovec pieces[MAX_PIECES];
  while (max > 0) {
    size_t n = kw_dialed_face.pending(w->client, pieces, MAX_PIECES), sum = 0;
    for (size_t i = 0; i < n; i++) sum += pieces[i].iov_len;
    if (sum == 0) return;
    sum = kw_min_size(sum, max);
    kw_dialed_face.wrote(w->client, sum);
    max -= sum;
  }
}

/* Feeds bytes in pieces, but not in more than a few hundred. */
static size_t feed(world *w, kw_slice rest) {
  size_t len = kw_min_size(rest.len, w->piece + rest.len / MAX_FED);
  uint8_t *copy = bytes_exact(kw_slice_of(rest.data, len));
  kw_dialed_face.feed(w->client, copy, len, w->now);
  free(copy);
  return len;
}

static void take_input(world *w) {
  size_t at = 0;
  while (at < w->in.len && (kw_dialed_face.state(w->client) & KW_PEER_WANTS_BYTES)) {
    at += feed(w, kw_slice_of(w->in.data + at, w->in.len - at));
    if (w->is_read_at_once) take_output(w, SIZE_MAX);
  }
  bytes_skip(&w->in, at);
}

static void tick(world *w) {
  if (w->is_read_at_once) take_output(w, SIZE_MAX);
  take_input(w);
  if (w->is_read_at_once) take_output(w, SIZE_MAX);
  must((kw_dialed_face.state(w->client) & KW_PEER_IS_DONE) ||
           w->due <= kw_client_deadline(w->client),
       "the driver knows what is due");
  if (w->due > w->now) return;
  w->due = INT64_MAX;
  kw_dialed_face.step(w->client, w->now);
  must(kw_client_deadline(w->client) > w->now, "a step does what is due");
}

static void on_dirty(void *ctx) {
  (void)ctx;
}

static void on_deadline(void *ctx, int64_t when) {
  ((world *)ctx)->due = when;
}

static void connect(world *w) {
  kw_session_options options = kw_session_defaults();
  options.max_message = 24000;
  options.max_header_bytes = 4096;
  options.max_partial = 30000;
  options.max_framed = 8192;
  w->due = INT64_MAX;
  w->n_calls = w->taking = 0;
  memset(w->calls, 0, sizeof w->calls);
  memset(w->has_headers, 0, sizeof w->has_headers);
  w->client = kw_client_new(&options, kw_slice_of("localhost", 9), 20000, 0, w->now);
  if (w->client == NULL) return;
  kw_client_dial(w->client,
                 &(kw_peer_hooks){.on_dirty = on_dirty, .on_deadline = on_deadline, .ctx = w},
                 w->now);
  kw_client_opened(w->client, false, w->now);
  frame_add(&w->in, FRAME_SETTINGS, 0, 0, (kw_slice){0});
  frame_add(&w->in, FRAME_SETTINGS, FLAG_ACK, 0, (kw_slice){0});
}

static void disconnect(world *w) {
  kw_client_free(w->client);
  w->client = NULL;
  bytes_drop(&w->in);
}

/* }====== */

/* {====== The calls ====== */

static uint64_t pick_call(script_line *line) {
  return (uint64_t)line_number(line) % MAX_CALLS;
}

static void note_call(world *w, uint64_t number, bool is_unary, bool is_watch) {
  if (number == 0) return;
  must(number == ++w->n_calls, "calls are numbered");
  w->calls[number] = (call){.state = CALLING, .is_unary = is_unary, .is_watch = is_watch};
}

static void begin_call(world *w, script_line *line) {
  bytes path = {0}, value = {0};
  line_bytes(line, &path);
  line_bytes(line, &value);
  bool is_unary = line_flags(line) & 1;
  kw_http_field own = {kw_slice_of("hasleader", 9), bytes_slice(&value)};
  if (w->n_calls + 1 < MAX_CALLS)
    note_call(w, kw_client_call(w->client, bytes_slice(&path), &own, value.len > 0, is_unary, NULL),
              is_unary, false);
  bytes_drop(&value);
  bytes_drop(&path);
}

static void begin_watch_call(world *w) {
  if (w->n_calls + 1 < MAX_CALLS)
    note_call(w, kw_watch_call_open(w->client, NULL, 0, MAX_TORN), false, true);
}

static void send_message(world *w, script_line *line) {
  bytes message = {0};
  uint64_t number = pick_call(line);
  line_bytes(line, &message);
  kw_client_send(w->client, number, bytes_slice(&message));
  w->came += message.len;
  bytes_drop(&message);
}

static void cancel_call(world *w, script_line *line) {
  uint64_t number = pick_call(line);
  kw_client_cancel(w->client, number);
  if (w->calls[number].state != NO_CALL) w->calls[number].state = CANCELLED;
}

static void look_for_room(world *w, script_line *line) {
  uint64_t number = pick_call(line);
  kw_client_has_room(w->client, number, (size_t)line_byte(line));
}

/* Returns true if there was something to take. */
static bool take_return(world *w, uint64_t number) {
  call *c = &w->calls[number];
  kw_return what = kw_client_take(w->client, number);
  if (what.bytes != NULL) kw_blob_release(what.bytes);
  if (what.kind == KW_RETURN_NOTHING) return false;
  must(c->state == CALLING, "nothing follows an end");
  if (what.kind == KW_RETURN_END) c->state = ENDED;
  if (what.kind == KW_RETURN_MESSAGE) c->n++;
  reached[what.kind == KW_RETURN_END ? ENDS : MESSAGES].n++;
  must(c->n == 0 || !c->is_watch, "the messages of a watch are not returned");
  must(c->n <= 1 || !c->is_unary, "there is one answer");
  return true;
}

static void take_returns(world *w, int64_t n) {
  while (n > 0) {
    if (w->taking == 0) w->taking = kw_client_next_ready(w->client);
    if (w->taking == 0) return;
    must(w->taking < MAX_CALLS, "it is a call");
    if (take_return(w, w->taking)) {
      n--;
    } else {
      w->taking = 0;
    }
  }
}

/* Checks that a call that was not named has nothing to take. */
static void check_returns(world *w) {
  take_returns(w, INT64_MAX);
  for (uint64_t i = 1; i <= w->n_calls; i++) {
    if (w->calls[i].state == CALLING) must(!take_return(w, i), "what can be taken is named");
  }
}

static void ask(world *w, char letter, script_line *line) {
  kw_watch_call *found = kw_watch_call_find(w->client, pick_call(line));
  if (found == NULL) return;
  if (letter == 'q') {
    kw_watch_call_ask(found);
  } else {
    kw_watch_call_trust(found);
  }
}

/* }====== */

/* {====== The server ====== */

static uint32_t pick_stream(script_line *line) {
  uint8_t byte = line_byte(line);
  if (byte == '=') return 0;
  if (byte == '*') return 2;
  return 2u * (byte >= '1' && byte <= '9' ? byte - '0' : byte) - 1;
}

static kw_slice text(const char *words) {
  return kw_slice_of(words, strlen(words));
}

enum { HOW_END = 8, HOW_STATUS = 16, HOW_HTTP = 32, HOW_TEXT = 64, HOW_LINE = 128 };

static void add_value(bytes *block, int how, const char *name, script_line *line) {
  bytes value = {0};
  line_bytes(line, &value);
  frame_add_line(block, how, name, bytes_slice(&value));
  bytes_drop(&value);
}

static void add_type(bytes *block, int how) {
  frame_add_line(block, how, "content-type", text("application/grpc"));
}

/* Adds an HTTP status that the script gives, with the type of gRPC or without it. Returns false if other headers have
 * to follow. */
static bool add_given_status(bytes *block, int how, script_line *line) {
  static const char *const statuses[] = {"200", "100", "404", "503", "0", "", "abc", "1000"};
  uint64_t n = (uint64_t)line_number(line);
  const char *status = statuses[n % KW_LENGTH(statuses)];
  frame_add_line(block, how, ":status", text(status));
  if (n / KW_LENGTH(statuses) % 2 == 0) add_type(block, how);
  return strcmp(status, "100") != 0;
}

/* The first headers of a stream are those that a gRPC server sends, unless the script wants others. */
static void add_first_lines(world *w, uint32_t stream, bytes *block, int how, script_line *line) {
  bool *has_headers = &w->has_headers[stream / 2 % MAX_STREAMS];
  if (how & HOW_HTTP) {
    *has_headers = add_given_status(block, how, line) || *has_headers;
  } else if (!*has_headers) {
    frame_add_line(block, how, ":status", text("200"));
    add_type(block, how);
    *has_headers = true;
  }
}

static void add_headers(world *w, uint32_t stream, script_line *line) {
  static const char *const names[] = {
      "content-type", "grpc-encoding", "connection", ":path", "X", "", "grpc-status"};
  bytes block = {0};
  int how = line_flags(line);
  add_first_lines(w, stream, &block, how, line);
  if (how & HOW_STATUS) add_value(&block, how, "grpc-status", line);
  if (how & HOW_TEXT) add_value(&block, how, "grpc-message", line);
  if (how & HOW_LINE)
    add_value(&block, how, names[(uint64_t)line_number(line) % KW_LENGTH(names)], line);
  frame_add_headers(&w->in, how, how & HOW_END ? FLAG_END_STREAM : 0, stream, bytes_slice(&block));
  bytes_drop(&block);
}

static void add_message(world *w, uint32_t stream, script_line *line) {
  bytes message = {0};
  int how = line_flags(line);
  line_bytes(line, &message);
  frame_add_message(&w->in, how, stream, bytes_slice(&message));
  bytes_drop(&message);
}

/* {====== Answers of a Watch call ====== */

enum {
  HOW_FRAGMENT = 1,
  HOW_SAME = 2,
  HOW_LARGE = 4,
  HOW_CANCELED = 8,
  HOW_HEADER = 16,
  HOW_CREATED = 32
};

static void add_number(bytes *to, uint32_t field, int64_t v) {
  bytes_add_varint(to, KW_WIRE_TAG(field, KW_WIRE_VARINT));
  bytes_add_varint(to, (uint64_t)v);
}

static void add_inner(bytes *to, uint32_t field, bytes *inner) {
  bytes_add_varint(to, KW_WIRE_TAG(field, KW_WIRE_BYTES));
  bytes_add_varint(to, inner->len);
  bytes_add(to, bytes_slice(inner));
  bytes_drop(inner);
}

static void add_event(bytes *to, int64_t revision, bool is_large) {
  bytes event = {0}, kv = {0}, value = {0};
  if (is_large) memset(bytes_grow(&value, 1000), 'v', 1000);
  add_number(&kv, 3, revision);
  add_inner(&kv, 5, &value);
  add_inner(&event, 2, &kv);
  add_inner(to, 11, &event);
}

static void add_events(world *w, uint32_t stream, script_line *line) {
  bytes message = {0}, header = {0};
  int how = line_flags(line);
  int64_t id = line_number(line);
  uint64_t revision = (uint64_t)line_number(line), n = (uint64_t)line_number(line) % MAX_EVENTS;
  if (how & HOW_HEADER) {
    add_number(&header, 3, (int64_t)revision);
    add_inner(&message, 1, &header);
  }
  add_number(&message, 2, id);
  if (how & HOW_CREATED) add_number(&message, 3, 1);
  if (how & HOW_CANCELED) add_number(&message, 4, 1);
  if (how & HOW_FRAGMENT) add_number(&message, 7, 1);
  for (uint64_t i = 0; i < n; i++)
    add_event(&message, (int64_t)(revision + (how & HOW_SAME ? 0 : i)), how & HOW_LARGE);
  frame_add_message(&w->in, 0, stream, bytes_slice(&message));
  bytes_drop(&message);
}

static void add_response(world *w, uint32_t stream, script_line *line) {
  bytes message = {0};
  int how = line_flags(line);
  line_message(line, &kw_msg_watch_response, &message);
  frame_add_message(&w->in, how, stream, bytes_slice(&message));
  bytes_drop(&message);
}

/* }====== */

static void do_server(world *w, char letter, script_line *line) {
  size_t before = w->in.len;
  uint32_t stream = pick_stream(line);
  if (letter == 'H') {
    add_headers(w, stream, line);
  } else if (letter == 'M') {
    add_message(w, stream, line);
  } else if (letter == 'm') {
    add_response(w, stream, line);
  } else if (letter == 'e') {
    add_events(w, stream, line);
  } else {
    frame_add_common(&w->in, letter, stream, line);
  }
  w->came += w->in.len - before;
}

/* }====== */

static int64_t amount(script_line *line) {
  int64_t n = line_number(line);
  return n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : n;
}

static void end_connection(world *w, int how) {
  if (how & 1) {
    kw_client_end(w->client);
  } else {
    kw_dialed_face.close(w->client, "gone");
  }
}

static void do_step(world *w, char letter, script_line *line) {
  switch (letter) {
    case 'c': begin_call(w, line); break;
    case 'w': begin_watch_call(w); break;
    case 's': send_message(w, line); break;
    case 'h': kw_client_half_close(w->client, pick_call(line)); break;
    case 'r': look_for_room(w, line); break;
    case 'x': cancel_call(w, line); break;
    case 't': take_returns(w, amount(line)); break;
    case 'q':
    case 'u': ask(w, letter, line); break;
    case 'i': watches_hear(&w->watches, w->client); break;
    case 'O': take_output(w, (size_t)line_number(line)); break;
    case 'A': w->is_read_at_once = line_flags(line) & 1; break;
    case 'K': w->piece = (size_t)amount(line) + 1; break;
    case 'E': kw_dialed_face.feed(w->client, NULL, 0, w->now); break;
    case 'L': end_connection(w, line_flags(line)); break;
    case 'N':
      disconnect(w);
      connect(w);
      break;
    case 'T': w->now += amount(line); break;
    default:
      if (!watches_do(&w->watches, w->client, letter, line)) do_server(w, letter, line);
      break;
  }
}

static void do_line(world *w, script_line *line) {
  static const char letters[] = "cshxtHMSWRPYGFDBOAKETZwrquLNndkvaime";
  uint8_t byte = line_byte(line);
  char letter = letters[byte % (sizeof letters - 1)];
  if (byte != 0 && memchr(letters, byte, sizeof letters - 1) != NULL) letter = (char)byte;
  if (letter == 'Z') {
    kw_mem_fail_at((size_t)line_byte(line) + 1);
    w->is_starved = true;
    return;
  }
  do_step(w, letter, line);
  if (w->client == NULL) connect(w);
  if (w->client != NULL) tick(w);
  kw_mem_fail_at(0);
  if (w->client == NULL) connect(w);
  must_be_sound(kw_client_fault(w->client));
  watches_check(&w->watches, w->is_starved);
  w->is_starved = false;
  must(memory_used() < w->base + MEMORY + MEMORY_FACTOR * w->came, "memory is bounded");
}

int LLVMFuzzerInitialize(int *n, char ***args) {
  (void)n, (void)args;
  reach_report(reached);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  script s = {data, data + size};
  script_line line;
  size_t live = kw_mem_live();
  world w = {.now = 1000, .piece = INT32_MAX, .is_read_at_once = true, .base = memory_used()};
  connect(&w);
  while (script_next(&s, &line)) do_line(&w, &line);
  kw_mem_fail_at(0);
  watches_hear(&w.watches, w.client);
  watches_drop(&w.watches, 0);
  check_returns(&w);
  reached[OPEN_WATCHES].n += w.watches.n_opened;
  reached[EVENTS].n += w.watches.n_events;
  disconnect(&w);
  watches_check(&w.watches, false);
  watches_drop(&w.watches, 1);
  must(kw_mem_live() == live, "all memory is given back");
  return 0;
}
