/* SPDX-License-Identifier: MIT
 *
 * tls: a client's and a server's channel, and a network between them that may do anything to the bytes. The input is a
 * script: each line is a letter and its arguments. A side is 0 for the client and 1 for the server; its network is what
 * it has sent and the other side has not got yet.
 *
 *   N version client   opens two other channels, in TLS 1.2 if `version` is odd; with a certificate of the client if
 *                      `client` is odd
 *   S side        steps                       H          lets the handshake go on as far as it goes
 *   W side n      writes n bytes              R side n   reads up to n bytes
 *   P side        puts what is pending into the network
 *   M side n      moves n bytes of the network to the other side; 0: all
 *   X side n m    alters a byte of the network, the n-th, by m
 *   D side n      drops n bytes of the network          I side bytes   feeds bytes that nobody has sent
 *   E side        feeds the end of the input            F side         finishes
 *   Z n           makes the n-th allocation of the next step fail
 *
 * Checked: what is read is a beginning of what was written. Work that is announced can be done. What is queued and
 * what is pending is bounded. A channel that is done stays done. OpenSSL's queue of errors is empty. At the end all
 * memory of ours is free.
 */
#include "base/mem.h"
#include "probe/mem.h"
#include "reach.h"
#include "script.h"
#include "tls/certificate.h"
#include "tls/channel.h"

#define SIDES 2
#define MAX_LINES 300
#define MAX_READ 4096
#define MAX_PENDING (KW_TLS_OUTPUT + 20000) /* one record and a few alerts more */
#define ROUNDS 8 /* of moving all bytes both ways: a handshake needs three */

int LLVMFuzzerInitialize(int *n, char ***args);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPEN, RESUMED, READ, FAILED, ENDED };
static reach reached[] = {{"open channels", 0},   {"resumed", 0}, {"bytes read", 0},
                          {"failed channels", 0}, {"ended", 0},   {0}};

typedef struct side {
  kw_tls_channel *channel; /* NULL: memory was short */
  bytes network;
  uint64_t written; /* bytes: the n-th one is pattern(n) */
  uint64_t read;
  bool was_open;
  bool was_done;
} side;

typedef struct world {
  side sides[SIDES];
  kw_tls_context *clients[4]; /* by `version`, and twice `client`; NULL: not used yet */
  kw_tls_context *servers[2]; /* by `client` */
} world;

static kw_tls_pair pair; /* the certificate of all */

static uint8_t pattern(uint64_t n) {
  return (uint8_t)(n * 31 + n / 251);
}

/* {====== Contexts ====== */

static kw_slice text_of(BIO *bio) {
  char *text;
  long len = BIO_get_mem_data(bio, &text);
  return kw_slice_of(text, (size_t)len);
}

/* Makes a context that is not there yet. It stays away if memory is short. */
static kw_tls_context *use(kw_tls_context **context, kw_tls_options options) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  if (*context == NULL) *context = kw_tls_context_new(&options, &failure);
  must(*context != NULL || failure.fault == KW_TLS_MEMORY, "only a lack of memory keeps it away");
  return *context;
}

static kw_tls_context *use_client(world *w, int version, int client) {
  kw_tls_options options = {.ca = text_of(pair.certificate)};
  if (version == 1) options.max_version = kw_slice_text("TLS1.2");
  if (client == 1) options.cert = text_of(pair.certificate);
  if (client == 1) options.key = text_of(pair.key);
  return use(&w->clients[version + 2 * client], options);
}

static kw_tls_context *use_server(world *w, int client) {
  kw_tls_options options = {
      .is_server = true, .cert = text_of(pair.certificate), .key = text_of(pair.key)};
  if (client == 1) options.ca = text_of(pair.certificate);
  return use(&w->servers[client], options);
}

int LLVMFuzzerInitialize(int *n, char ***args) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  (void)n, (void)args;
  must(kw_tls_pair_init(&pair, kw_slice_text("localhost"), 1, &failure), failure.text);
  reach_report(reached);
  return 0;
}

/* }====== */

/* {====== Channels ====== */

static void close_side(side *s) {
  if (s->channel != NULL) kw_tls_channel_close(s->channel);
  bytes_drop(&s->network);
  *s = (side){.channel = NULL};
}

static void open_sides(world *w, int version, int client) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  for (int i = 0; i < SIDES; i++) close_side(&w->sides[i]);
  kw_tls_context *ours = use_client(w, version, client), *theirs = use_server(w, client);
  if (ours == NULL || theirs == NULL) return;
  w->sides[0].channel = kw_tls_channel_connect(ours, "localhost", "place", &failure);
  w->sides[1].channel = kw_tls_channel_accept(theirs, &failure);
}

static void close_world(world *w) {
  for (int i = 0; i < SIDES; i++) close_side(&w->sides[i]);
  for (size_t i = 0; i < KW_LENGTH(w->clients); i++)
    if (w->clients[i] != NULL) kw_tls_context_release(w->clients[i]);
  for (size_t i = 0; i < KW_LENGTH(w->servers); i++)
    if (w->servers[i] != NULL) kw_tls_context_release(w->servers[i]);
}

static void check_side(side *s) {
  struct iovec piece = {NULL, 0};
  if (s->channel == NULL) return;
  unsigned state = kw_tls_channel_state(s->channel);
  bool is_done = (state & KW_TLS_IS_DONE) != 0, is_open = (state & KW_TLS_IS_OPEN) != 0;
  bool has_failed = kw_tls_channel_failure(s->channel)->fault != KW_TLS_NONE;
  must(is_done || !s->was_done, "a channel that is done stays done");
  must(!has_failed || is_done, "a channel that has failed is done");
  must(!has_failed || kw_tls_channel_failure(s->channel)->text[0] != 0, "a failure has a text");
  must(!is_done || (state & (KW_TLS_HAS_WORK | KW_TLS_MAY_READ | KW_TLS_WANTS_TEXT)) == 0,
       "a channel that is done has nothing to do");
  kw_tls_channel_pending(s->channel, &piece, 1);
  must(piece.iov_len <= MAX_PENDING, "what is pending is bounded");
  must(ERR_peek_error() == 0, "the queue of errors is empty");
  if (is_open && !s->was_open) {
    reached[OPEN].n++;
    if (kw_tls_channel_info(s->channel).is_resumed) reached[RESUMED].n++;
  }
  if (has_failed && !s->was_done) reached[FAILED].n++;
  if (state & KW_TLS_GOT_END) reached[ENDED].n++;
  s->was_open = is_open;
  s->was_done = is_done;
}

static void step(side *s) {
  if (s->channel == NULL) return;
  unsigned before = kw_tls_channel_state(s->channel);
  kw_tls_channel_step(s->channel);
  unsigned after = kw_tls_channel_state(s->channel);
  must((before & KW_TLS_HAS_WORK) != 0 || before == after, "a step without work changes nothing");
  must((after & KW_TLS_HAS_WORK) == 0, "one step does all the work that there is");
}

static void put(side *s) {
  struct iovec piece = {NULL, 0};
  if (s->channel == NULL || kw_tls_channel_pending(s->channel, &piece, 1) == 0) return;
  bytes_add(&s->network, kw_slice_of(piece.iov_base, piece.iov_len));
  kw_tls_channel_wrote(s->channel, piece.iov_len);
}

static void move(side *from, side *to, size_t n) {
  if (n == 0 || n > from->network.len) n = from->network.len;
  if (n == 0 || to->channel == NULL) return;
  size_t taken = kw_tls_channel_feed(to->channel, from->network.data, n);
  must(taken <= n, "no more is taken than there is");
  must(taken == n || (kw_tls_channel_state(to->channel) & KW_TLS_WANTS_BYTES) == 0,
       "what is not taken is not wanted");
  bytes_skip(&from->network, taken);
}

static void write_some(side *s, size_t n) {
  if (s->channel == NULL) return;
  uint8_t *text = malloc(n + 1);
  for (size_t i = 0; i < n; i++) text[i] = pattern(s->written + i);
  s->written += kw_tls_channel_write(s->channel, text, n);
  free(text);
}

static size_t read_some(side *s, const side *other, size_t cap) {
  uint8_t text[MAX_READ];
  if (s->channel == NULL) return 0;
  size_t n = kw_tls_channel_read(s->channel, text, kw_min_size(cap, sizeof text));
  must(s->read + n <= other->written, "nothing is read that was not written");
  for (size_t i = 0; i < n; i++)
    must(text[i] == pattern(s->read + i), "what is read is what was written");
  s->read += n;
  reached[READ].n += n;
  return n;
}

static void shake(world *w) {
  for (int i = 0; i < ROUNDS; i++) {
    for (int from = 0; from < SIDES; from++) {
      side *a = &w->sides[from], *b = &w->sides[1 - from];
      step(a);
      put(a);
      move(a, b, 0);
      step(b);
    }
  }
}

/* }====== */

static void run_line(world *w, script_line *line, uint8_t letter) {
  int from = (int)(line_number(line) & 1);
  side *a = &w->sides[from], *b = &w->sides[1 - from];
  int64_t number = letter == 'I' ? 0 : line_number(line);
  size_t n = number < 0 || number > 100000 ? 100000 : (size_t)number;
  bytes given = {0};
  switch (letter) {
    case 'N': open_sides(w, from, (int)(number & 1)); break;
    case 'S': step(a); break;
    case 'H': shake(w); break;
    case 'W': write_some(a, n); break;
    case 'R': read_some(a, b, n); break;
    case 'P': put(a); break;
    case 'M': move(a, b, n); break;
    case 'X':
      if (n < a->network.len) a->network.data[n] ^= (uint8_t)line_number(line);
      break;
    case 'D': bytes_skip(&a->network, kw_min_size(n, a->network.len)); break;
    case 'I':
      line_bytes(line, &given);
      if (a->channel != NULL && given.len > 0)
        kw_tls_channel_feed(a->channel, given.data, given.len);
      break;
    case 'E':
      if (a->channel != NULL) kw_tls_channel_feed(a->channel, "", 0);
      break;
    case 'F':
      if (a->channel != NULL) kw_tls_channel_finish(a->channel);
      break;
    default: break;
  }
  bytes_drop(&given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  script s = {data, data + size};
  script_line line;
  world w = {0};
  size_t base = kw_mem_live();
  open_sides(&w, 0, 0);
  for (int i = 0; i < MAX_LINES && script_next(&s, &line); i++) {
    uint8_t letter = line_byte(&line);
    if (letter == 'Z') {
      kw_mem_fail_at((size_t)(line_number(&line) & 63));
      continue;
    }
    run_line(&w, &line, letter);
    kw_mem_fail_at(0);
    for (int j = 0; j < SIDES; j++) check_side(&w.sides[j]);
  }
  kw_mem_fail_at(0);
  close_world(&w);
  must(kw_mem_live() == base, "all memory is free");
  return 0;
}
