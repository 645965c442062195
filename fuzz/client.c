/* SPDX-License-Identifier: MIT
 *
 * client: a client's connection, and what a server may say on it. The input is a script; in each line a letter and what
 * belongs to it. A call is given by its number, a stream by that of the call.
 *
 *   c path        a call begins             s call bytes  it sends              h call      it sends no more
 *   x call        it is cancelled           t n           so many returns are taken
 *   H call how status ...   headers, or trailers          M call how bytes   a message
 *   S W R P Y G F D B       see frames.h: call ...
 *   O n           so much of the output is taken          A flag   it is taken at once, or not
 *   K n           bytes come in such pieces               E        the connection ends
 *   T n           time goes on                            Z n      the n-th allocation of the next step fails
 *
 * A call has messages and then one end, and nothing after it was cancelled. At the end all memory is given back.
 */
#include "base/mem.h"
#include "frames.h"
#include "memory.h"
#include "rpc/client.h"

#define MAX_CALLS 256
#define MAX_PIECES 8
#define MAX_FED 256
#define MEMORY (8 << 20) /* that may be in use, and so many times what has come */
#define MEMORY_FACTOR 500

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef enum call_state { NO_CALL, CALLING, ENDED, CANCELLED } call_state;

typedef struct world {
  kw_client *client;
  bytes in; /* what the server has sent and the client did not want yet */
  call_state calls[MAX_CALLS];
  uint64_t n_calls;
  int64_t now;
  size_t piece;
  bool is_read_at_once;
  size_t base;
  size_t came;
} world;

/* {====== The driver ====== */

static void take_output(world *w, size_t max) {
  struct iovec pieces[MAX_PIECES];
  while (max > 0) {
    size_t n = kw_client_pending(w->client, pieces, MAX_PIECES), sum = 0;
    for (size_t i = 0; i < n; i++) sum += pieces[i].iov_len;
    if (sum == 0) return;
    sum = kw_min_size(sum, max);
    kw_client_wrote(w->client, sum);
    max -= sum;
  }
}

/* Bytes come in pieces, but in no more than a few hundred. */
static size_t feed(world *w, kw_slice rest) {
  size_t len = kw_min_size(rest.len, w->piece + rest.len / MAX_FED);
  uint8_t *copy = bytes_exact(kw_slice_of(rest.data, len));
  kw_client_feed(w->client, kw_slice_of(copy, len), w->now);
  free(copy);
  return len;
}

static void take_input(world *w) {
  size_t at = 0;
  while (at < w->in.len && kw_client_wants_bytes(w->client)) {
    at += feed(w, kw_slice_of(w->in.data + at, w->in.len - at));
    if (w->is_read_at_once) take_output(w, SIZE_MAX);
  }
  bytes_skip(&w->in, at);
}

static void tick(world *w) {
  if (w->is_read_at_once) take_output(w, SIZE_MAX);
  take_input(w);
  if (kw_client_deadline(w->client) > w->now) return;
  kw_client_step(w->client, w->now);
  must(kw_client_deadline(w->client) > w->now, "a step does what is due");
}

/* }====== */

/* {====== The calls ====== */

static uint64_t pick_call(script_line *line) {
  return (uint64_t)line_number(line) % MAX_CALLS;
}

static void begin_call(world *w, script_line *line) {
  bytes path = {0}, value = {0};
  line_bytes(line, &path);
  line_bytes(line, &value);
  kw_field_line own = {kw_slice_of("hasleader", 9), bytes_slice(&value)};
  uint64_t call = w->n_calls + 1 < MAX_CALLS
                      ? kw_client_call(w->client, bytes_slice(&path), &own, value.len > 0)
                      : 0;
  if (call != 0) {
    must(call == ++w->n_calls, "calls are numbered");
    w->calls[call] = CALLING;
  }
  bytes_drop(&value);
  bytes_drop(&path);
}

static void send_message(world *w, script_line *line) {
  bytes message = {0};
  uint64_t call = pick_call(line);
  line_bytes(line, &message);
  if (!kw_client_send(w->client, call, bytes_slice(&message)) && w->calls[call] == CALLING)
    w->calls[call] = CANCELLED;
  w->came += message.len;
  bytes_drop(&message);
}

static void cancel_call(world *w, script_line *line) {
  uint64_t call = pick_call(line);
  kw_client_cancel(w->client, call);
  if (w->calls[call] != NO_CALL) w->calls[call] = CANCELLED;
}

static void take_returns(world *w, int64_t n) {
  kw_return what;
  while (n-- > 0 && kw_client_take(w->client, &what)) {
    must(what.call > 0 && what.call < MAX_CALLS, "a return is of a call");
    must(w->calls[what.call] == CALLING, "nothing follows an end");
    if (what.kind == KW_RETURN_END) w->calls[what.call] = ENDED;
    if (what.bytes != NULL) kw_blob_release(what.bytes);
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

static void add_headers(world *w, uint32_t stream, script_line *line) {
  static const char *const statuses[] = {"200", "100", "404", "503", "0", "", "abc", "1000"};
  static const char *const names[] = {
      "content-type", "grpc-encoding", "connection", ":path", "X", "", "grpc-status"};
  bytes block = {0};
  int how = line_flags(line);
  if (how & HOW_HTTP)
    frame_add_line(&block, how, ":status",
                   text(statuses[(uint64_t)line_number(line) % KW_LENGTH(statuses)]));
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

static void do_server(world *w, char letter, script_line *line) {
  size_t before = w->in.len;
  uint32_t stream = pick_stream(line);
  if (letter == 'H') {
    add_headers(w, stream, line);
  } else if (letter == 'M') {
    add_message(w, stream, line);
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

static void do_step(world *w, char letter, script_line *line) {
  switch (letter) {
    case 'c': begin_call(w, line); break;
    case 's': send_message(w, line); break;
    case 'h': kw_client_half_close(w->client, pick_call(line)); break;
    case 'x': cancel_call(w, line); break;
    case 't': take_returns(w, amount(line)); break;
    case 'O': take_output(w, (size_t)line_number(line)); break;
    case 'A': w->is_read_at_once = line_flags(line) & 1; break;
    case 'K': w->piece = (size_t)amount(line) + 1; break;
    case 'E': kw_client_feed(w->client, (kw_slice){0}, w->now); break;
    case 'T': w->now += amount(line); break;
    default: do_server(w, letter, line); break;
  }
}

static void do_line(world *w, script_line *line) {
  static const char letters[] = "cshxtHMSWRPYGFDBOAKETZ";
  uint8_t byte = line_byte(line);
  char letter = letters[byte % (sizeof letters - 1)];
  if (byte != 0 && memchr(letters, byte, sizeof letters - 1) != NULL) letter = (char)byte;
  if (letter == 'Z') {
    kw_mem_fail_at((size_t)line_byte(line) + 1);
    return;
  }
  do_step(w, letter, line);
  tick(w);
  kw_mem_fail_at(0);
  must(memory_used() < w->base + MEMORY + MEMORY_FACTOR * w->came, "memory is bounded");
}

static void open_world(world *w) {
  kw_session_options options = kw_session_defaults();
  options.max_message = 24000;
  options.max_header_bytes = 4096;
  options.max_torn = 30000;
  options.max_framed = 8192;
  *w = (world){.now = 1000, .piece = INT32_MAX, .is_read_at_once = true};
  w->base = memory_used();
  w->client = kw_client_new(&options, text("localhost"), 20000, w->now);
  frame_add(&w->in, FRAME_SETTINGS, 0, 0, (kw_slice){0});
  frame_add(&w->in, FRAME_SETTINGS, FLAG_ACK, 0, (kw_slice){0});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  world w;
  script s = {data, data + size};
  script_line line;
  size_t live = kw_mem_live();
  open_world(&w);
  while (script_next(&s, &line)) do_line(&w, &line);
  kw_mem_fail_at(0);
  take_returns(&w, INT64_MAX);
  kw_client_free(w.client);
  bytes_drop(&w.in);
  must(kw_mem_live() == live, "all memory is given back");
  return 0;
}
