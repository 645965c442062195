/* SPDX-License-Identifier: MIT
 *
 * tls_peer: a connection of a server with TLS, as a driver has it: a client's channel, a network that may do anything
 * to the bytes, and a peer of a real server behind a kw_tls_peer. The input is a script: each line is a letter and its
 * arguments.
 *
 *   N version     begins another connection, in TLS 1.2 if `version` is odd
 *   H             lets the handshake go on as far as it goes
 *   C how bytes   the client encrypts bytes, after the HTTP/2 preface if `how` is odd
 *   G             the client encrypts a request
 *   P             puts what the client has pending into the network
 *   M n           moves n bytes of the network to the server, if it wants them; 0: all
 *   X n m         alters a byte of the network, the n-th, by m       D n   drops n bytes of the network
 *   I bytes       puts bytes into the network that nobody has sent
 *   E             the client has closed its end                      F     the client finishes
 *   O n           the socket takes n bytes of the server; 0: all     K     the loop works for the connection
 *   U             the turn of the connection is over at once, from now on; or not any more
 *   T n           lets time pass                                     Z n   the n-th allocation of the next step fails
 *
 * Checked: a peer is done, or something can make it go on. What is pending is bounded. A peer that is done stays done.
 * At the end all memory is free.
 */
#include "base/mem.h"
#include "frames.h"
#include "probe/mem.h"
#include "reach.h"
#include "rpc/peer.h"
#include "script.h"
#include "tls/certificate.h"
#include "tls/channel.h"
#include "uv/tls_peer.h"

#define MAX_LINES 300
#define MAX_PENDING (2 * KW_TLS_OUTPUT + 40000) /* answers of TLS, and two records */
#define MAX_WORK 10000                          /* records and flights of one read of the socket */
#define ROUNDS 8

int LLVMFuzzerInitialize(int *n, char ***args);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPEN, ANSWERS, REFUSED, WAITING, DONE };
static reach reached[] = {{"handshakes", 0}, {"bytes of answers", 0},
                          {"refused", 0},    {"turns that end", 0},
                          {"done", 0},       {0}};

typedef struct world {
  kw_store *store;
  kw_hub *hub;
  kw_server *server;
  kw_loop *loop;
  kw_tls_context *clients[2]; /* by `version`; NULL: not used yet */
  kw_tls_channel *client;
  kw_tls_peer *peer; /* NULL: memory was short, or the connection was closed */
  bytes network;
  uint32_t next_id;
  bool has_preface;
  bool got_eof;
  bool was_done;
} world;

static kw_tls_pair pair;        /* the certificate of the server */
static kw_tls_context *context; /* of the server, for all inputs: it is slow to make */
static bool is_hurried;         /* turns are over at once */

static const kw_tls functions = {.version = KW_TLS_VERSION,
                                 .feed = kw_tls_channel_feed,
                                 .step = kw_tls_channel_step,
                                 .read_from = kw_tls_channel_read_from,
                                 .write = kw_tls_channel_write,
                                 .finish = kw_tls_channel_finish,
                                 .pending = kw_tls_channel_pending,
                                 .wrote = kw_tls_channel_wrote,
                                 .state = kw_tls_channel_state,
                                 .failure = kw_tls_channel_failure,
                                 .identity = kw_tls_channel_identity,
                                 .close = kw_tls_channel_close};

/* {====== The loop ====== */

int64_t kw_loop_now(kw_loop *loop) {
  return loop->now;
}

static void on_dirty(void *ctx) {
  (void)ctx;
}

static void on_deadline(void *ctx, int64_t when) {
  (void)ctx, (void)when;
}

/* }====== */

/* {====== The connection ====== */

static kw_slice text_of(BIO *bio) {
  char *text;
  long len = BIO_get_mem_data(bio, &text);
  return kw_slice_of(text, (size_t)len);
}

static kw_tls_context *use_client(world *w, int version) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  kw_tls_options options = {.ca = text_of(pair.certificate)};
  if (version == 1) options.max_version = kw_slice_text("TLS1.2");
  if (w->clients[version] == NULL) w->clients[version] = kw_tls_context_new(&options, &failure);
  return w->clients[version];
}

static void close_connection(world *w) {
  if (w->peer != NULL) {
    if (kw_tls_peer_refusal(w->peer) != NULL) {
      reached[REFUSED].n++;
      kw_peer_refuse(w->peer->inner, kw_tls_peer_refusal(w->peer));
    }
    kw_tls_peer_face.close(w->peer, NULL);
  }
  if (w->client != NULL) kw_tls_channel_close(w->client);
  w->peer = NULL;
  w->client = NULL;
  bytes_drop(&w->network);
  w->has_preface = w->got_eof = w->was_done = false;
  w->next_id = 1;
}

static void open_connection(world *w, int version) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  kw_peer_hooks hooks = {.on_dirty = on_dirty, .on_deadline = on_deadline, .ctx = w};
  close_connection(w);
  kw_tls_context *ours = use_client(w, version);
  if (ours == NULL) return;
  w->client = kw_tls_channel_connect(ours, "localhost", "place", &failure);
  kw_tls_channel *channel = kw_tls_channel_accept(context, &failure);
  if (channel == NULL) return;
  w->peer = kw_tls_peer_new(w->loop, &functions, channel, &kw_accepted_face);
  if (w->peer == NULL) {
    kw_tls_channel_close(channel);
    return;
  }
  w->peer->inner = kw_peer_open(w->server, &hooks, w->loop->now);
  if (w->peer->inner != NULL) return;
  kw_tls_peer_free(w->peer);
  w->peer = NULL;
}

static unsigned state_of(const world *w) {
  return kw_tls_peer_face.state(w->peer);
}

static void work(world *w) {
  if (w->peer == NULL || !kw_tls_peer_has_work(w->peer)) return;
  if (kw_tls_peer_work(w->peer)) reached[OPEN].n++;
}

/* The client reads what has come. */
static void read_client(world *w) {
  uint8_t text[4096];
  size_t n;
  kw_tls_channel_step(w->client);
  while ((kw_tls_channel_state(w->client) & KW_TLS_MAY_READ) != 0) {
    n = kw_tls_channel_read(w->client, text, sizeof text);
    reached[ANSWERS].n += n;
  }
}

/* The socket takes bytes of the server, and gives them to the client. */
static void take_output(world *w, size_t max) {
  struct iovec piece;
  if (w->peer == NULL || kw_tls_peer_face.pending(w->peer, &piece, 1) == 0) return;
  must(piece.iov_len <= MAX_PENDING, "what is pending is bounded");
  size_t n = max == 0 ? piece.iov_len : kw_min_size(piece.iov_len, max);
  if (w->client != NULL) {
    kw_tls_channel_feed(w->client, piece.iov_base, n);
    read_client(w);
  }
  kw_tls_peer_face.wrote(w->peer, n);
}

static void put(world *w) {
  struct iovec piece;
  if (w->client == NULL || kw_tls_channel_pending(w->client, &piece, 1) == 0) return;
  bytes_add(&w->network, kw_slice_of(piece.iov_base, piece.iov_len));
  kw_tls_channel_wrote(w->client, piece.iov_len);
}

/* The loop reads the socket, as it does if the peer wants that. */
static void move(world *w, size_t n) {
  if (n == 0 || n > w->network.len) n = w->network.len;
  n = kw_min_size(n, KW_READ_BYTES);
  if (n == 0 || w->peer == NULL || w->got_eof) return;
  if ((state_of(w) & KW_PEER_WANTS_BYTES) == 0) return;
  uint8_t *exact = bytes_exact(kw_slice_of(w->network.data, n));
  kw_tls_peer_face.feed(w->peer, exact, n, w->loop->now);
  free(exact);
  bytes_skip(&w->network, n);
}

static void end_input(world *w) {
  if (w->peer == NULL || w->got_eof || (state_of(w) & KW_PEER_WANTS_BYTES) == 0) return;
  w->got_eof = true;
  kw_tls_peer_face.feed(w->peer, NULL, 0, w->loop->now);
}

static void say(world *w, bool with_preface, kw_slice text) {
  bytes all = {0};
  if (w->client == NULL) return;
  if (with_preface && !w->has_preface) {
    bytes_add_text(&all, PREFACE);
    frame_add(&all, FRAME_SETTINGS, 0, 0, (kw_slice){0});
    w->has_preface = true;
  }
  bytes_add(&all, text);
  if (all.len > 0) kw_tls_channel_write(w->client, all.data, all.len);
  bytes_drop(&all);
}

/* A range of one key, with its headers in full. */
static void ask(world *w) {
  static const char head[] = "\x83\x86\0\5:path\x16/etcdserverpb.KV/Range\0\14content-type"
                             "\20application/grpc";
  bytes all = {0};
  frame_add(&all, FRAME_HEADERS, 4, w->next_id, kw_slice_of(head, sizeof head - 1));
  frame_add(&all, FRAME_DATA, 1, w->next_id, kw_slice_of("\0\0\0\0\3\n\1a", 8));
  w->next_id += 2;
  say(w, true, bytes_slice(&all));
  bytes_drop(&all);
}

static void shake(world *w) {
  for (int i = 0; i < ROUNDS; i++) {
    if (w->client != NULL) kw_tls_channel_step(w->client);
    put(w);
    move(w, 0);
    work(w);
    take_output(w, 0);
  }
}

/* }====== */

/* A peer that waits for nothing would stay forever. */
static void check(world *w) {
  struct iovec piece;
  if (w->peer == NULL) return;
  bool is_done = (state_of(w) & KW_PEER_IS_DONE) != 0;
  must(is_done || !w->was_done, "a peer that is done stays done");
  must(ERR_peek_error() == 0, "the queue of errors is empty");
  if (is_done && !w->was_done) reached[DONE].n++;
  w->was_done = is_done;
  if (is_done) return;
  bool is_held =
      w->peer->is_open && (kw_accepted_face.state(w->peer->inner) & KW_PEER_WANTS_BYTES) == 0;
  if (is_hurried && kw_tls_peer_has_work(w->peer)) reached[WAITING].n++;
  must(w->got_eof || is_held || kw_tls_peer_has_work(w->peer) ||
           (state_of(w) & KW_PEER_WANTS_BYTES) != 0 ||
           kw_tls_peer_face.pending(w->peer, &piece, 1) > 0,
       "something makes the peer go on");
}

static void run_line(world *w, script_line *line, uint8_t letter) {
  bytes given = {0};
  int64_t number = letter == 'I' ? 0 : line_number(line);
  size_t n = number < 0 || number > 100000 ? 100000 : (size_t)number;
  switch (letter) {
    case 'N': open_connection(w, (int)(number & 1)); break;
    case 'H': shake(w); break;
    case 'C':
      line_rest(line, &given);
      say(w, (number & 1) != 0, bytes_slice(&given));
      break;
    case 'G': ask(w); break;
    case 'P': put(w); break;
    case 'M': move(w, n); break;
    case 'X':
      if (n < w->network.len) w->network.data[n] ^= (uint8_t)line_number(line);
      break;
    case 'D': bytes_skip(&w->network, kw_min_size(n, w->network.len)); break;
    case 'I':
      line_bytes(line, &given);
      bytes_add(&w->network, bytes_slice(&given));
      break;
    case 'E': end_input(w); break;
    case 'F':
      if (w->client != NULL) kw_tls_channel_finish(w->client);
      break;
    case 'O': take_output(w, n); break;
    case 'K': work(w); break;
    case 'U':
      is_hurried = !is_hurried;
      w->loop->turn_until = is_hurried ? 0 : INT64_MAX;
      break;
    case 'T':
      w->loop->now += (int64_t)n;
      if (w->peer != NULL) kw_tls_peer_face.step(w->peer, w->loop->now);
      break;
    default: break;
  }
  bytes_drop(&given);
  kw_server_step(w->server, w->loop->now);
}

static void open_world(world *w) {
  kw_store_options store = kw_store_defaults();
  kw_hub_options hub = kw_hub_defaults();
  kw_server_options server = kw_server_defaults();
  char why[KW_REASON_ROOM];
  server.session.max_framed = 8192;
  server.session.max_input = 48000;
  *w = (world){.next_id = 1};
  w->loop = calloc(1, sizeof *w->loop);
  w->loop->now = 1000;
  w->loop->turn_until = INT64_MAX;
  must(kw_store_open(&store, 0, &w->store, why) == KW_OK, "there is memory");
  w->hub = kw_hub_new(w->store, &hub);
  w->server = kw_server_new(w->store, w->hub, &server);
  open_connection(w, 0);
}

static void close_world(world *w) {
  for (int i = 0; i < MAX_WORK && w->peer != NULL && kw_tls_peer_has_work(w->peer); i++) work(w);
  must(w->peer == NULL || !kw_tls_peer_has_work(w->peer), "work comes to an end");
  close_connection(w);
  for (size_t i = 0; i < KW_LENGTH(w->clients); i++)
    if (w->clients[i] != NULL) kw_tls_context_release(w->clients[i]);
  kw_server_close(w->server);
  kw_server_free(w->server);
  kw_hub_free(w->hub);
  kw_store_free(w->store);
  free(w->loop);
}

int LLVMFuzzerInitialize(int *n, char ***args) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  (void)n, (void)args;
  must(kw_tls_pair_init(&pair, kw_slice_text("localhost"), 1, &failure), failure.text);
  kw_tls_options options = {
      .is_server = true, .cert = text_of(pair.certificate), .key = text_of(pair.key)};
  context = kw_tls_context_new(&options, &failure);
  must(context != NULL, failure.text);
  reach_report(reached);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  script s = {data, data + size};
  script_line line;
  world w;
  size_t base = kw_mem_live();
  is_hurried = false;
  open_world(&w);
  for (int i = 0; i < MAX_LINES && script_next(&s, &line); i++) {
    uint8_t letter = line_byte(&line);
    if (letter == 'Z') {
      kw_mem_fail_at((size_t)(line_number(&line) & 63));
      continue;
    }
    run_line(&w, &line, letter);
    kw_mem_fail_at(0);
    check(&w);
  }
  kw_mem_fail_at(0);
  close_world(&w);
  must(kw_mem_live() == base, "all memory is free");
  return 0;
}
