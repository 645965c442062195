/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "http/state.h"

#include "base/mem.h"

kw_http_options kw_http_defaults(void) {
  return (kw_http_options){.max_line = 8192,
                           .max_head = 64 << 10,
                           .max_body = 2 << 20,
                           .max_out = 256 << 10,
                           .max_requests = UINT32_MAX,
                           .first_byte_ms = 60 * 1000,
                           .head_ms = 30 * 1000,
                           .body_ms = 60 * 1000,
                           .idle_ms = 5 * 60 * 1000,
                           .stall_ms = 2 * 60 * 1000,
                           .linger_ms = 1000,
                           .gone_ms = 30 * 1000};
}

/* {====== Life ====== */

kw_http *kw_http_new(const kw_http_options *options, const kw_exchange_hooks *hooks, void *ctx,
                     int64_t now) {
  kw_http *http = kw_alloc(sizeof *http);
  if (http == NULL) return NULL;
  *http = (kw_http){.exchange = {.carrier = &kw_http_carrier},
                    .options = options,
                    .hooks = hooks,
                    .ctx = ctx,
                    .now = now,
                    .idle_since = now,
                    .head_since = KW_HTTP_NEVER,
                    .last_received = now,
                    .last_wrote = now,
                    .gone_since = KW_HTTP_NEVER,
                    .end_deadline = KW_HTTP_NEVER,
                    .keeps_alive = true};
  kw_account_init(&http->account, options->budget);
  kw_account_charge(&http->account, sizeof *http);
  http->out.account = &http->account;
  return http;
}

void kw_http_free(kw_http *http) {
  kw_http_end(http, "the connection is closed");
  kw_chain_drop(&http->out);
  kw_account_drop(&http->account);
  kw_free(http);
}

void kw_http_reset(kw_http *http) {
  http->in = KW_IN_HEAD;
  http->sends = KW_SENDS_HEAD;
  http->search = (kw_head_search){0};
  http->n_body = http->n_dropped = 0;
  http->head_since = KW_HTTP_NEVER;
  http->idle_since = http->now;
  http->has_skipped_line = false;
}

void kw_http_close_exchange(kw_http *http, const char *why) {
  http->is_open = http->is_head = http->is_http10 = http->is_paused = false;
  http->may_upgrade = http->is_dropped = http->is_chunked = false;
  http->wants_room = http->knows_gone = false;
  http->gone_since = KW_HTTP_NEVER;
  http->n_interim = 0;
  http->n_exchanges++;
  http->hooks->on_close(&http->exchange, why, http->ctx);
  http->exchange = (kw_exchange){.carrier = &kw_http_carrier};
}

/* }====== */

/* {====== Bytes ====== */

/* Drops what arrives after a refusal, up to a limit. */
static void drop_bytes(kw_http *http, kw_slice bytes) {
  http->n_dropped += bytes.len;
  if (bytes.len == 0 || http->n_dropped > KW_HTTP_LINGER) http->is_lingering = false;
}

void kw_http_note_gone(kw_http *http, int64_t now) {
  http->now = now;
  http->is_gone = !http->options->is_client;
  if (http->is_open && http->is_gone && http->gone_since == KW_HTTP_NEVER) http->gone_since = now;
}

void kw_http_feed(kw_http *http, kw_slice bytes, int64_t now) {
  http->now = now;
  if (http->is_over) {
    drop_bytes(http, bytes);
    return;
  }
  if (bytes.len > 0) {
    http->last_received = now;
  } else {
    http->has_eof = true;
    kw_http_note_gone(http, now);
  }
  kw_receive(http, bytes);
}

void kw_http_note_cut(kw_http *http) {
  http->is_cut = true;
}

void kw_http_flush(kw_http *http, int64_t now) {
  http->now = now;
  kw_receive(http, (kw_slice){0});
}

kw_chain *kw_http_out(kw_http *http) {
  return &http->out;
}

void kw_http_wrote(kw_http *http, int64_t now) {
  http->now = http->last_wrote = now;
  if (!http->is_open) http->idle_since = now;
  bool has_room = http->out.len <= http->options->max_out / 2;
  if (http->wants_room && has_room && !http->is_over) {
    http->wants_room = false;
    if (http->hooks->on_room != NULL) http->hooks->on_room(&http->exchange, http->ctx);
  }
  kw_receive(http, (kw_slice){0});
}

/* A server stops reading while the client does not read. A client always reads: if both stopped, there would be a
 * deadlock. */
bool kw_http_wants_bytes(const kw_http *http) {
  if (http->is_over) return http->is_lingering;
  if (http->has_eof || http->is_turn_over) return false;
  if (!http->options->is_client && kw_http_is_full(http)) return false;
  if (http->in == KW_IN_HEAD) return true;
  return http->in == KW_IN_END ? http->n_input < KW_HTTP_AHEAD : !http->is_paused;
}

/* }====== */

/* {====== The end ====== */

void kw_http_note_why(kw_http *http, const char *format, ...) {
  va_list args;
  if (http->why[0] != 0) return;
  va_start(args, format);
  vsnprintf(http->why, sizeof http->why, format, args);
  va_end(args);
}

void kw_http_finish(kw_http *http) {
  http->is_over = true;
}

void kw_http_linger(kw_http *http) {
  http->is_lingering = !http->has_eof && http->options->linger_ms > 0;
  http->end_deadline = http->now + http->options->linger_ms;
  kw_http_finish(http);
}

void kw_http_end_without_memory(kw_http *http) {
  kw_http_note_why(http, "there is not enough memory");
  kw_http_finish(http);
}

void kw_http_settle(kw_http *http) {
  if (!http->is_over) return;
  if (http->is_open) kw_http_close_exchange(http, http->why);
  kw_account_credit(&http->account, http->cap_input);
  kw_free(http->input);
  http->input = NULL;
  http->n_input = http->cap_input = 0;
}

void kw_http_end(kw_http *http, const char *why) {
  http->is_lingering = false;
  if (!http->is_over) {
    kw_http_note_why(http, "%s", why);
    kw_http_finish(http);
  }
  kw_http_settle(http);
}

void kw_http_drain(kw_http *http, int64_t ms, int64_t now) {
  http->now = now;
  if (http->is_over) return;
  http->is_draining = true;
  http->end_deadline = now + ms;
  if (kw_http_is_idle(http)) kw_http_end(http, "the server is shutting down");
}

/* }====== */

/* {====== State ====== */

bool kw_http_is_idle(const kw_http *http) {
  return !http->is_over && !http->is_open && http->in == KW_IN_HEAD && http->n_input == 0;
}

bool kw_http_is_done(const kw_http *http) {
  return http->is_over && !http->is_lingering;
}

const char *kw_http_why(const kw_http *http) {
  return http->why;
}

kw_account *kw_http_account(kw_http *http) {
  return &http->account;
}

/* }====== */
