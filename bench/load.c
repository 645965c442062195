/* SPDX-License-Identifier: MIT
 *
 * load: a load generator for etcd servers. It reports the cost for the server and for itself.
 *
 * It has one thread and a few sockets. Requests are made once; for each use only the stream id and the digits of the
 * key are written. An answer counts when its stream ends; an answer without a message is a gRPC error. A run prints
 * one line of name=value, and has exit status 0 if all answers and events came.
 */
#define _GNU_SOURCE
#include "answer.h"
#include "connection.h"
#include "handshakes.h"
#include "request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_REQUEST 1024
#define MAX_WAIT_MS 1000
#define MAX_OPENING 100 /* connections that open at the same time: fewer than any backlog */

static const char usage[] =
    "usage: load MODE [options]\n"
    "\n"
    "  fill         puts every key once, in order\n"
    "  put          puts of single keys\n"
    "  range        gets of single keys, which were filled before\n"
    "  txn          puts of keys that were filled before, if they have a mod_revision\n"
    "  watch        puts of one key, watched; counts events\n"
    "  catchup      puts of one key, then watchers from the first of them on; counts events\n"
    "  rest         requests of HTTP/2 to a path, the digits of a key in the place of #########\n"
    "  follow       answers to GETs of a path, one on each stream or HTTP/1.1 connection; waits "
    "for a "
    "line of each\n"
    "               and for one of the input, then sends requests as rest does, and waits for a "
    "line "
    "of each answer\n"
    "               for each request\n"
    "  idle         watchers of keys that nobody writes, and the server's memory\n"
    "  connections  connections that do nothing, and the server's memory\n"
    "  handshakes   connections that make a full TLS handshake, and end; --in-flight of them at a "
    "time\n"
    "  look         processor time and memory of the server so far\n"
    "  port         prints two free ports\n"
    "\n"
    "  -a, --address A        IPv4 address of the server (127.0.0.1)\n"
    "  -p, --port N           its port (2379)\n"
    "  -T, --tls              TLS, always by full handshakes; the certificate is not verified\n"
    "  -P, --pid N            its process; without it nothing is told of what it spends\n"
    "  -c, --connections N    connections (1)\n"
    "  -m, --in-flight N      requests in flight on each of them; creates on a watch stream (100)\n"
    "  -n, --number N         requests; puts of a watch and a catchup (100000)\n"
    "  -k, --keys N           keys that there are (10000)\n"
    "  -r, --random           keys at random and not in turn\n"
    "  -K, --key-size N       bytes of a key (32)\n"
    "  -V, --value-size N     bytes of a value (256)\n"
    "  -w, --watchers N       watchers (1000)\n"
    "  -s, --streams N        watch streams (1; idle: one for each 1000 watchers)\n"
    "  -W, --puts-in-flight N puts in flight of a watch and a catchup (1)\n"
    "  -l, --in-step          each put of a watch waits for all events of those before\n"
    "  -L, --latency N        one request at a time, each of which is timed, for so many ms\n"
    "  -M, --method M         of rest and follow (GET)\n"
    "  -u, --path P           of rest and follow, with its query\n"
    "  -b, --body TEXT        of rest and follow (none)\n"
    "  -y, --type T           the body's type (application/json)\n"
    "  -f, --follow P         path of the GETs of follow\n"
    "  -1, --http1            these GETs are on HTTP/1.1 connections of their own\n"
    "  -t, --timeout N        seconds after which a run has failed (60)\n";

static struct {
  const char *mode;
  const char *address;
  const char *method, *path, *body, *type; /* of a REST API */
  const char *followed;
  uint64_t port, pid;
  uint64_t connections, in_flight, number;
  uint64_t keys, key_size, value_size;
  uint64_t watchers, streams, puts_in_flight;
  uint64_t timeout; /* s */
  bool is_tls;
  bool is_random;
  bool is_in_step;
  bool is_http1;
  uint64_t latency; /* ms */
} options = {.address = "127.0.0.1",
             .method = "GET",
             .path = "/",
             .type = "application/json",
             .port = 2379,
             .connections = 1,
             .in_flight = 100,
             .number = 100000,
             .keys = 10000,
             .key_size = 32,
             .value_size = 256,
             .watchers = 1000,
             .puts_in_flight = 1,
             .timeout = 60};

static _Noreturn void misuse(void) {
  fputs(usage, stderr);
  exit(2);
}

/* What a run does, and how far it is
 * ------------------------------------------------------------------------------ */

typedef struct unary_load {
  request request;
  uint64_t n; /* requests in all; 0 until they may start */
  uint64_t n_started;
  uint64_t n_done;
  uint64_t n_errors;  /* answers without a message */
  uint64_t n_refused; /* answers that are not as expected */
  size_t min_answer;  /* bytes */
  uint64_t n_keys;
  bool is_random;
  bool is_txn;
  bool is_rest;
  int64_t revision; /* of the first answer */
  int64_t *times;   /* ns of each request, if they are timed */
  int64_t started;  /* start of the current request */
  int64_t until;    /* time after which no request starts */
} unary_load;

typedef struct watch_load {
  request request;
  uint64_t n;        /* watchers in all */
  uint64_t n_wanted; /* events in all */
  uint64_t n_keys;
  uint64_t next_key;
  watch_counts counts;
} watch_load;

typedef struct watch_stream {
  uint32_t n_wanted; /* watchers */
  uint32_t n_asked;
  uint64_t n_created;
  event_reader reader;
} watch_stream;

static unary_load unary;
static watch_load watch;
static connection *writer; /* puts the watched keys */

/* Requests on a connection
 * ---------------------------------------------------------------------------------------- */

static uint64_t next_key(void) {
  static uint64_t random = 0x9e3779b97f4a7c15;
  if (!unary.is_random) return unary.n_started % unary.n_keys;
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random % unary.n_keys;
}

static int64_t read_clock(clockid_t id) {
  struct timespec t;
  if (clock_gettime(id, &t) < 0) die("cannot read a clock: %s", strerror(errno));
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool has_step_ended(void) {
  return watch.counts.n_events >= unary.n_started * watch.n;
}

static bool start_request(connection *c) {
  if (unary.n_started == unary.n || c->n_open >= c->max_open) return false;
  if (options.is_in_step && !has_step_ended()) return false;
  c->key = next_key();
  request_write_path(&unary.request, c->key);
  c->sending =
      connection_start(c, unary.request.block, unary.request.block_len, unary.request.len == 0);
  c->sent = 0;
  unary.n_started++;
  if (unary.times != NULL) unary.started = read_clock(CLOCK_MONOTONIC);
  return true;
}

/* Several connections share one message: the key is written each time, even if a part of the message was sent. */
static void on_unary_room(connection *c) {
  while (connection_has_room(c) && (c->sending != NULL || start_request(c))) {
    request_write_key(&unary.request, c->key);
    if (!connection_send(c, c->sending, unary.request.message, unary.request.len, &c->sent, true))
      return;
    c->sending = NULL;
  }
}

static void push(connection *c) {
  c->hooks->on_room(c);
  connection_flush(c);
}

/* A refusal of a REST API is a Status of failure. */
static bool is_refusal(const uint8_t *bytes, size_t len) {
  static const char mark[] = "\"status\":\"Failure\"";
  return memmem(bytes, len, mark, sizeof mark - 1) != NULL;
}

/* A long answer may come in pieces, which are ignored. */
static void on_unary_data(connection *c, stream *s, const uint8_t *bytes, size_t len) {
  (void)c;
  if (unary.is_rest) {
    if (s->n_received == len && is_refusal(bytes, len)) unary.n_refused++;
    return;
  }
  if (s->n_received != len || len <= GRPC_PREFIX || len > MAX_GATHERED) return;
  const uint8_t *message = bytes + GRPC_PREFIX;
  len -= GRPC_PREFIX;
  if (unary.revision == 0) unary.revision = answer_revision(message, len);
  if (unary.is_txn && !answer_has_succeeded(message, len)) unary.n_refused++;
}

static void on_unary_end(connection *c, stream *s) {
  (void)c;
  if (unary.times != NULL) unary.times[unary.n_done] = read_clock(CLOCK_MONOTONIC) - unary.started;
  unary.n_done++;
  if (unary.times != NULL && read_clock(CLOCK_MONOTONIC) >= unary.until) unary.n = unary.n_done;
  if (s->n_received == 0)
    unary.n_errors++;
  else if (s->n_received < unary.min_answer)
    unary.n_refused++;
}

static const connection_hooks unary_hooks = {on_unary_data, on_unary_end, on_unary_room};

/* Watchers on a connection
 * ---------------------------------------------------------------------------------------- */

static bool wants_watcher(const watch_stream *w) {
  return w != NULL && w->n_asked < w->n_wanted && w->n_asked - w->n_created < options.in_flight;
}

static bool start_watcher(connection *c) {
  for (uint32_t i = 0; i <= c->mask; i++) {
    stream *s = &c->streams[(c->cursor + i) & c->mask];
    watch_stream *w = s->ctx;
    if (!wants_watcher(w)) continue;
    c->cursor = (c->cursor + i) & c->mask;
    c->sending = s;
    c->sent = 0;
    c->key = watch.next_key++ % watch.n_keys;
    w->n_asked++;
    return true;
  }
  return false;
}

static void on_watch_room(connection *c) {
  while (connection_has_room(c) && (c->sending != NULL || start_watcher(c))) {
    request_write_key(&watch.request, c->key);
    if (!connection_send(c, c->sending, watch.request.message, watch.request.len, &c->sent, false))
      return;
    c->sending = NULL;
  }
}

static void on_watch_data(connection *c, stream *s, const uint8_t *bytes, size_t len) {
  (void)c;
  watch_stream *w = s->ctx;
  uint64_t before = watch.counts.n_created;
  event_reader_feed(&w->reader, bytes, len, &watch.counts);
  w->n_created += watch.counts.n_created - before;
  if (options.is_in_step && writer != NULL && has_step_ended()) push(writer);
}

static void on_watch_end(connection *c, stream *s) {
  (void)c;
  die("the server ended watch stream %u", (unsigned)s->id);
}

static const connection_hooks watch_hooks = {on_watch_data, on_watch_end, on_watch_room};

/* Lines of answers that go on
 * ------------------------------------------------------------------------------------- */

/* A line ends with a line feed alone; the frame of a chunk has a carriage return before it. */
static void on_line_data(connection *c, stream *s, const uint8_t *bytes, size_t len) {
  (void)c;
  (void)s;
  const uint8_t *at = bytes, *end = bytes + len;
  while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
    if (at == bytes || at[-1] != '\r') watch.counts.n_events++;
    at++;
  }
  if (options.is_in_step && writer != NULL && has_step_ended()) push(writer);
}

static void on_line_room(connection *c) {
  (void)c;
}

static const connection_hooks line_hooks = {on_line_data, on_watch_end, on_line_room};

/* Measuring
 * ------------------------------------------------------------------------------------------------------- */

typedef struct moment {
  int64_t wall; /* ns, as are the others */
  int64_t server;
  int64_t own;
  int64_t resident; /* bytes of the server */
} moment;

static int64_t server_clock(void) {
  clockid_t id;
  if (options.pid == 0) return 0;
  int rc = clock_getcpuclockid((pid_t)options.pid, &id);
  if (rc != 0) die("no process %" PRIu64 ": %s", options.pid, strerror(rc));
  return read_clock(id);
}

static int64_t server_resident(void) {
  char path[64];
  long pages = 0;
  if (options.pid == 0) return 0;
  snprintf(path, sizeof path, "/proc/%" PRIu64 "/statm", options.pid);
  FILE *f = fopen(path, "r");
  if (f == NULL || fscanf(f, "%*d %ld", &pages) != 1) die("cannot read %s", path);
  fclose(f);
  return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static moment now(void) {
  return (moment){.wall = read_clock(CLOCK_MONOTONIC),
                  .server = server_clock(),
                  .own = read_clock(CLOCK_PROCESS_CPUTIME_ID),
                  .resident = server_resident()};
}

static int by_time(const void *a, const void *b) {
  int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
  return first < second ? -1 : first > second;
}

static void report_times(void) {
  if (unary.times == NULL) return;
  qsort(unary.times, unary.n, sizeof *unary.times, by_time);
  printf(" p50_us=%.0f p99_us=%.0f max_us=%.0f", (double)unary.times[unary.n / 2] / 1e3,
         (double)unary.times[unary.n * 99 / 100] / 1e3, (double)unary.times[unary.n - 1] / 1e3);
}

static void report(const char *what, uint64_t n, moment before, moment after) {
  double seconds = (double)(after.wall - before.wall) / 1e9;
  printf("mode=%s %s=%" PRIu64 " seconds=%.3f per_second=%.0f load_us=%.3f", options.mode, what, n,
         seconds, (double)n / seconds, (double)(after.own - before.own) / 1e3 / (double)n);
  if (options.pid != 0)
    printf(" server_us=%.3f server_rss=%" PRId64,
           (double)(after.server - before.server) / 1e3 / (double)n, after.resident);
  if (watch.counts.n_messages > 0)
    printf(" events_per_message=%.1f",
           (double)watch.counts.n_events / (double)watch.counts.n_messages);
  report_times();
  printf("\n");
}

static void report_memory(const char *what, uint64_t n, moment before, moment after) {
  printf("mode=%s %s=%" PRIu64 " seconds=%.3f", options.mode, what, n,
         (double)(after.wall - before.wall) / 1e9);
  if (options.pid != 0)
    printf(" server_rss_before=%" PRId64 " server_rss=%" PRId64 " bytes_each=%.0f", before.resident,
           after.resident, (double)(after.resident - before.resident) / (double)n);
  printf("\n");
}

/* Running
 * --------------------------------------------------------------------------------------------------------- */

static int64_t deadline;

static bool is_unary_done(void) {
  return unary.n_done == unary.n;
}

static bool are_watchers_created(void) {
  return watch.counts.n_created == watch.n;
}

static bool have_events_come(void) {
  return is_unary_done() && watch.counts.n_events >= watch.n_wanted;
}

static bool are_all_open(void) {
  return connections_opening() == 0;
}

static bool may_open_more(void) {
  return connections_opening() < MAX_OPENING;
}

static void tell_missing(const char *what, uint64_t came, uint64_t wanted) {
  if (came < wanted)
    fprintf(stderr, "load: %" PRIu64 " of %" PRIu64 " %s missing\n", wanted - came, wanted, what);
}

static _Noreturn void give_up(void) {
  tell_missing("answers", unary.n_done, unary.n);
  tell_missing("watchers", watch.counts.n_created, watch.n);
  tell_missing("events", watch.counts.n_events, watch.n_wanted);
  die("not done after %" PRIu64 " s, %u connections not open", options.timeout,
      connections_opening());
}

static void look_at_deadline(void) {
  if (read_clock(CLOCK_MONOTONIC) > deadline) give_up();
}

static void turn_until(bool (*is_done)(void)) {
  while (!is_done()) {
    int64_t left = deadline - read_clock(CLOCK_MONOTONIC);
    if (left <= 0) give_up();
    connections_turn(left < MAX_WAIT_MS * INT64_C(1000000) ? (int)(left / 1000000) + 1
                                                           : MAX_WAIT_MS);
  }
}

/* Opens n connections, a few at a time, and returns when all are open. */
static connection **open_connections(uint64_t n, uint64_t max_open, const connection_hooks *hooks) {
  connection **list = calloc(n, sizeof *list);
  if (list == NULL) die("no memory");
  for (uint64_t i = 0; i < n; i++) {
    turn_until(may_open_more);
    list[i] = connection_open(options.address, (int)options.port, options.is_tls,
                              (uint32_t)max_open, hooks);
  }
  turn_until(are_all_open);
  return list;
}

static request_form form_of(int64_t start_revision) {
  return (request_form){.address = options.address,
                        .port = options.port,
                        .is_tls = options.is_tls,
                        .key_size = options.key_size,
                        .value_size = options.value_size,
                        .start_revision = start_revision};
}

static void make_unary(void (*make)(request *r, const request_form *form), uint64_t n_keys) {
  request_form form = form_of(0);
  unary = (unary_load){.n_keys = n_keys, .min_answer = 1 + GRPC_PREFIX};
  make(&unary.request, &form);
}

static void start_unary(connection **list, uint64_t n_connections, uint64_t n) {
  unary.n = n;
  for (uint64_t i = 0; i < n_connections; i++) push(list[i]);
}

static void check_unary(void) {
  if (unary.n_errors > 0)
    die("%" PRIu64 " of %" PRIu64 " answers have no message: gRPC errors", unary.n_errors, unary.n);
  if (unary.n_refused > 0)
    die("%" PRIu64 " of %" PRIu64 " answers are refusals: were the keys filled?", unary.n_refused,
        unary.n);
}

static void measure_unary(uint64_t n) {
  connection **list = open_connections(options.connections, options.in_flight, &unary_hooks);
  moment before = now();
  if (options.latency > 0) {
    unary.times = calloc(n, sizeof *unary.times);
    unary.until = before.wall + (int64_t)options.latency * 1000000;
  }
  start_unary(list, options.connections, n);
  turn_until(is_unary_done);
  report("requests", unary.n, before, now());
  check_unary();
}

static void run_fill(void) {
  make_unary(request_make_put, options.keys);
  measure_unary(options.keys);
}

static void run_put(void) {
  make_unary(request_make_put, options.keys);
  unary.is_random = options.is_random;
  measure_unary(options.number);
}

static void run_range(void) {
  make_unary(request_make_range, options.keys);
  unary.is_random = options.is_random;
  unary.min_answer = GRPC_PREFIX + options.key_size + options.value_size;
  measure_unary(options.number);
}

static void run_txn(void) {
  make_unary(request_make_txn, options.keys);
  unary.is_random = options.is_random;
  unary.is_txn = true;
  measure_unary(options.number);
}

static watch_stream *new_watch_stream(uint64_t n_wanted) {
  watch_stream *w = calloc(1, sizeof *w);
  if (w == NULL) die("no memory");
  w->n_wanted = (uint32_t)n_wanted;
  return w;
}

/* Spreads streams over connections, and watchers over streams, as evenly as possible. */
static void start_streams(connection **list) {
  uint64_t n = options.streams;
  for (uint64_t i = 0; i < n; i++) {
    connection *c = list[i % options.connections];
    if (c->n_open >= c->max_open) die("the server allows %u streams only", (unsigned)c->max_open);
    stream *s =
        connection_start(c, watch.request.block, watch.request.block_len, watch.request.len == 0);
    s->ctx = new_watch_stream(watch.n / n + (i < watch.n % n));
  }
  for (uint64_t i = 0; i < options.connections; i++) push(list[i]);
}

static void make_watchers(uint64_t n_keys, uint64_t n_puts, int64_t start_revision) {
  request_form form = form_of(start_revision);
  watch =
      (watch_load){.n = options.watchers, .n_keys = n_keys, .n_wanted = options.watchers * n_puts};
  request_make_watch(&watch.request, &form);
}

static connection **open_watch_connections(void) {
  uint64_t n = options.connections;
  return open_connections(n, (options.streams + n - 1) / n, &watch_hooks);
}

static void run_watch(void) {
  make_watchers(1, options.number, 0);
  connection **list = open_watch_connections();
  start_streams(list);
  turn_until(are_watchers_created);
  writer = *open_connections(1, options.puts_in_flight, &unary_hooks);
  make_unary(request_make_put, 1);
  moment before = now();
  start_unary(&writer, 1, options.number);
  turn_until(have_events_come);
  report("events", watch.counts.n_events, before, now());
  check_unary();
}

/* Makes one put first: its answer has the revision to watch from. */
static int64_t put_history(void) {
  writer = *open_connections(1, options.puts_in_flight, &unary_hooks);
  make_unary(request_make_put, 1);
  start_unary(&writer, 1, 1);
  turn_until(is_unary_done);
  if (unary.revision == 0) die("the first put was not answered with a revision");
  start_unary(&writer, 1, options.number);
  turn_until(is_unary_done);
  check_unary();
  return unary.revision;
}

static void run_catchup(void) {
  int64_t start_revision = put_history();
  make_watchers(1, options.number, start_revision);
  connection **list = open_watch_connections();
  moment before = now();
  start_streams(list);
  turn_until(have_events_come);
  report("events", watch.counts.n_events, before, now());
}

static void make_rest(uint64_t n_keys) {
  request_form form = form_of(0);
  unary = (unary_load){.n_keys = n_keys, .min_answer = 1, .is_rest = true};
  request_make_rest(&unary.request, &form, options.method, options.path, options.type,
                    options.body);
}

static void run_rest(void) {
  make_rest(options.keys);
  unary.is_random = options.is_random;
  measure_unary(options.number);
}

static void follow_streams(void) {
  request_form form = form_of(0);
  uint64_t n = options.connections;
  connection **list = open_connections(n, (watch.n + n - 1) / n, &line_hooks);
  request_make_rest(&watch.request, &form, "GET", options.followed, options.type, NULL);
  options.streams = watch.n;
  start_streams(list);
}

static bool have_first_lines_come(void) {
  return watch.counts.n_events >= watch.n_wanted;
}

/* Opens connections a few at a time: the answers on these have begun. */
static void follow_connections(void) {
  char text[MAX_REQUEST];
  snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", options.followed,
           options.address);
  for (uint64_t i = 0; i < watch.n; i++) {
    connection_open_raw(options.address, (int)options.port, text, &line_hooks);
    watch.n_wanted = i + 1 < MAX_OPENING ? 0 : i + 1 - MAX_OPENING;
    turn_until(have_first_lines_come);
  }
}

/* Tells that all answers have begun, and waits for a line of the input: the caller may look at the server. */
static void pause_for_caller(void) {
  printf("mode=%s followers=%" PRIu64 "\n", options.mode, watch.n);
  fflush(stdout);
  if (getchar() == EOF) exit(0);
}

static void run_follow(void) {
  if (options.followed == NULL) misuse();
  watch = (watch_load){.n = options.watchers};
  if (options.is_http1)
    follow_connections();
  else
    follow_streams();
  watch.n_wanted = watch.n;
  turn_until(have_first_lines_come);
  pause_for_caller();
  watch.counts = (watch_counts){0};
  watch.n_wanted = watch.n * options.number;
  writer = *open_connections(1, options.puts_in_flight, &unary_hooks);
  make_rest(1000000);
  moment before = now();
  start_unary(&writer, 1, options.number);
  turn_until(have_events_come);
  report("events", watch.counts.n_events, before, now());
  check_unary();
}

static void run_idle(void) {
  make_watchers(UINT64_MAX, 0, 0);
  moment before = now();
  connection **list = open_watch_connections();
  start_streams(list);
  turn_until(are_watchers_created);
  report_memory("watchers", watch.n, before, now());
}

static void run_connections(void) {
  moment before = now();
  open_connections(options.connections, 0, &unary_hooks);
  report_memory("connections", options.connections, before, now());
}

static void run_handshakes(void) {
  moment before = now();
  handshakes_make(options.address, (int)options.port, options.number, options.in_flight,
                  look_at_deadline);
  report("handshakes", options.number, before, now());
}

static void run_look(void) {
  if (options.pid == 0) die("look needs --pid");
  printf("mode=look server_us=%.3f server_rss=%" PRId64 "\n", (double)server_clock() / 1e3,
         server_resident());
}

static int free_port(void) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t len = sizeof at;
  inet_pton(AF_INET, options.address, &at.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(fd, (struct sockaddr *)&at, len) < 0 ||
      getsockname(fd, (struct sockaddr *)&at, &len) < 0)
    die("no free port: %s", strerror(errno));
  return ntohs(at.sin_port);
}

static void run_port(void) {
  int first = free_port(); /* stays bound, so that the second port differs */
  printf("%d %d\n", first, free_port());
}

/* The command line
 * ------------------------------------------------------------------------------------------------ */

static const struct {
  const char *name;
  void (*run)(void);
} modes[] = {
    {"fill", run_fill},
    {"put", run_put},
    {"range", run_range},
    {"txn", run_txn},
    {"watch", run_watch},
    {"catchup", run_catchup},
    {"rest", run_rest},
    {"follow", run_follow},
    {"idle", run_idle},
    {"connections", run_connections},
    {"look", run_look},
    {"port", run_port},
    {"handshakes", run_handshakes},
};

static const struct option long_options[] = {
    {"address", required_argument, NULL, 'a'},
    {"port", required_argument, NULL, 'p'},
    {"pid", required_argument, NULL, 'P'},
    {"tls", no_argument, NULL, 'T'},
    {"connections", required_argument, NULL, 'c'},
    {"in-flight", required_argument, NULL, 'm'},
    {"number", required_argument, NULL, 'n'},
    {"keys", required_argument, NULL, 'k'},
    {"random", no_argument, NULL, 'r'},
    {"key-size", required_argument, NULL, 'K'},
    {"value-size", required_argument, NULL, 'V'},
    {"watchers", required_argument, NULL, 'w'},
    {"streams", required_argument, NULL, 's'},
    {"puts-in-flight", required_argument, NULL, 'W'},
    {"in-step", no_argument, NULL, 'l'},
    {"latency", required_argument, NULL, 'L'},
    {"method", required_argument, NULL, 'M'},
    {"path", required_argument, NULL, 'u'},
    {"body", required_argument, NULL, 'b'},
    {"type", required_argument, NULL, 'y'},
    {"follow", required_argument, NULL, 'f'},
    {"http1", no_argument, NULL, '1'},
    {"timeout", required_argument, NULL, 't'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static uint64_t *number_option(int letter) {
  switch (letter) {
    case 'p': return &options.port;
    case 'P': return &options.pid;
    case 'c': return &options.connections;
    case 'm': return &options.in_flight;
    case 'n': return &options.number;
    case 'k': return &options.keys;
    case 'K': return &options.key_size;
    case 'V': return &options.value_size;
    case 'w': return &options.watchers;
    case 's': return &options.streams;
    case 'W': return &options.puts_in_flight;
    case 'L': return &options.latency;
    case 't': return &options.timeout;
    default: misuse();
  }
}

static uint64_t parse_number(const char *text) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || v == 0 || v > 1000000000) {
    fprintf(stderr, "load: not a number from 1 to 1000000000: %s\n", text);
    exit(2);
  }
  return v;
}

static void take_option(int letter) {
  switch (letter) {
    case 'a': options.address = optarg; break;
    case 'T': options.is_tls = true; break;
    case 'r': options.is_random = true; break;
    case 'l': options.is_in_step = true; break;
    case 'M': options.method = optarg; break;
    case 'u': options.path = optarg; break;
    case 'b': options.body = optarg; break;
    case 'y': options.type = optarg; break;
    case 'f': options.followed = optarg; break;
    case '1': options.is_http1 = true; break;
    case 'h': fputs(usage, stdout); exit(0);
    default: *number_option(letter) = parse_number(optarg);
  }
}

static void parse(int argc, char **argv) {
  int letter;
  while ((letter = getopt_long(argc, argv, "a:p:P:Tc:m:n:k:rK:V:w:s:W:lL:M:u:b:y:f:1t:h",
                               long_options, NULL)) != -1) {
    if (letter == '?') misuse();
    take_option(letter);
  }
  if (optind != argc - 1) misuse();
  options.mode = argv[optind];
  if (options.key_size < request_min_key()) die("a key has at least %zu bytes", request_min_key());
  if (options.latency > 0) options.connections = options.in_flight = 1;
  if (options.streams == 0)
    options.streams = strcmp(options.mode, "idle") == 0 ? (options.watchers + 999) / 1000 : 1;
}

static void allow_many_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
  parse(argc, argv);
  allow_many_files();
  signal(SIGPIPE, SIG_IGN);
  deadline = read_clock(CLOCK_MONOTONIC) + (int64_t)options.timeout * 1000000000;
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    if (strcmp(modes[i].name, options.mode) == 0) {
      modes[i].run();
      return 0;
    }
  }
  misuse();
}
