/* SPDX-License-Identifier: MIT
 *
 * timers: the times of a connection. Only a time that the peer is responsible for is measured: none while the owner of
 * an exchange pauses or has not answered, except for a client that may be gone.
 */
#include "http/state.h"

static int64_t after(int64_t since, int64_t ms) {
  return since == KW_HTTP_NEVER || ms == 0 ? KW_HTTP_NEVER : since + ms;
}

static int64_t stall_due(const kw_http *http) {
  return http->out.len == 0 ? KW_HTTP_NEVER : after(http->last_wrote, http->options->stall_ms);
}

/* Returns until when the owner must have read or sent something, if the client has closed its side. */
static int64_t gone_due(const kw_http *http) {
  int64_t since = http->gone_since;
  if (http->out.len > 0 || since == KW_HTTP_NEVER) return KW_HTTP_NEVER;
  if (http->last_wrote > since) since = http->last_wrote;
  if (http->last_received > since) since = http->last_received;
  return after(since, http->options->gone_ms);
}

/* Returns until when the peer must have sent something. A client's owner measures the time up to an answer. */
static int64_t input_due(const kw_http *http) {
  const kw_http_options *options = http->options;
  bool is_new = !options->is_client && http->n_exchanges == 0;
  if (http->in == KW_IN_BODY || http->in == KW_IN_TRAILERS)
    return http->is_paused ? gone_due(http) : after(http->last_received, options->body_ms);
  if (http->in != KW_IN_HEAD) return gone_due(http);
  if (http->head_since != KW_HTTP_NEVER) return after(http->head_since, options->head_ms);
  if (http->is_open || http->out.len > 0) return KW_HTTP_NEVER;
  return after(http->idle_since, is_new ? options->first_byte_ms : options->idle_ms);
}

int64_t kw_http_deadline(const kw_http *http) {
  int64_t due = stall_due(http), input = input_due(http);
  if (!http->is_over && http->is_turn_over) return http->now;
  if ((!http->is_over || http->is_lingering) && http->end_deadline < due) due = http->end_deadline;
  return !http->is_over && input < due ? input : due;
}

static void end_for(kw_http *http, const char *why) {
  kw_http_note_why(http, "%s", why);
  kw_http_finish(http);
}

/* The peer has not sent in time what it has to send; or the owner has not, and the peer may be gone. */
static void time_out(kw_http *http) {
  static const kw_refusal gone = {
      503, "the client has closed its side, and the answer did not come in time"};
  bool is_idle = http->in == KW_IN_HEAD && http->head_since == KW_HTTP_NEVER;
  const char *text = http->in == KW_IN_HEAD ? "the head did not arrive in time"
                                            : "the body did not arrive in time";
  if (http->gone_since != KW_HTTP_NEVER && (http->is_paused || http->in == KW_IN_END)) {
    kw_send_refusal(http, gone);
  } else if (is_idle) {
    end_for(http, "the connection was idle for too long");
  } else if (http->options->is_client) {
    end_for(http, text);
  } else {
    kw_send_refusal(http, (kw_refusal){408, text});
  }
}

void kw_http_step(kw_http *http, int64_t now) {
  http->now = now;
  http->is_turn_over = false;
  if (now >= stall_due(http)) {
    kw_chain_drop(&http->out);
    kw_http_end(http, "the peer does not read");
  }
  if (http->is_over) {
    if (now >= http->end_deadline) http->is_lingering = false;
    return;
  }
  if (now >= http->end_deadline) end_for(http, "the exchange did not end in time");
  if (!http->is_over && now >= input_due(http)) time_out(http);
  kw_receive(http, (kw_slice){0});
}
