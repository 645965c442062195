/* SPDX-License-Identifier: MIT
 *
 * fault: the invariants of an HTTP/1.1 connection between two calls, checked in probe builds.
 *
 *   - The account is charged for what the connection holds, and an idle connection holds no buffers.
 *   - A connection that has ended has no exchange and no input.
 *   - Input that waits is bounded, and waits for something that will come: bytes, the socket, the owner or a time.
 */
#include "http/state.h"
#include "probe/checks.h"

/* More than what a feed brings at once in tests. */
#define MOST_FED (1 << 20)

static const char *memory_fault(const kw_http *http) {
  size_t charge = sizeof *http + http->cap_input + kw_chain_charge(&http->out);
  if (http->account.held != charge) return "a connection holds more or less than is charged";
  if ((http->n_input == 0) != (http->input == NULL)) return "a connection has an empty buffer";
  if (http->n_input > http->options->max_head + KW_HTTP_AHEAD + MOST_FED)
    return "too much input waits";
  return http->out.len > 0 || http->out.first == NULL ? NULL : "a connection has an empty piece";
}

static const char *exchange_fault(const kw_http *http) {
  bool is_client = http->options->is_client;
  if (!http->is_open && (http->is_paused || http->wants_room || http->is_chunked))
    return "no exchange is open, but one is paused or waits";
  if (!http->is_open && http->in == KW_IN_HEAD && http->sends != KW_SENDS_HEAD)
    return "there is an answer without a request";
  if (!http->is_open && (http->in == KW_IN_RAW || http->in == KW_IN_END))
    return "a message is complete, but the next one is not expected";
  if (http->is_open && !is_client && http->in == KW_IN_HEAD) return "an exchange has no request";
  if (http->is_open && !is_client && http->sends == KW_SENDS_HEAD && http->in == KW_IN_RAW)
    return "a protocol was switched without an answer";
  return NULL;
}

static const char *wait_fault(const kw_http *http) {
  bool waits_for_owner = http->is_open && (http->is_paused || http->in == KW_IN_END);
  bool waits_for_socket = kw_http_is_full(http);
  if (http->is_turn_over || waits_for_owner || waits_for_socket) return NULL;
  if (!kw_http_wants_bytes(http)) return "a connection does not read, and waits for nothing";
  if (http->in == KW_IN_BODY && http->n_input > 0) return "a part of a body waits";
  if (http->in == KW_IN_HEAD && http->search.at < http->n_input && http->n_input > 1)
    return "a part of a head was not searched";
  return NULL;
}

const char *kw_http_fault(const kw_http *http) {
  const char *fault = memory_fault(http);
  if (fault != NULL) return fault;
  if (http->is_over)
    return http->is_open || http->input != NULL ? "the end has left something" : NULL;
  fault = exchange_fault(http);
  return fault == NULL ? wait_fault(http) : fault;
}
