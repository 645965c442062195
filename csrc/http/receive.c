/* SPDX-License-Identifier: MIT
 *
 * receive: messages that arrive: heads, bodies, and the end of the peer's bytes.
 *
 * Bytes are parsed where they are fed. Only what cannot be used yet is copied: a part of a head, and what follows while
 * the owner pauses or has not answered.
 */
#include "http/state.h"

#include "base/mem.h"

/* {====== Input that waits ====== */

static bool keep(kw_http *http, kw_slice bytes) {
  size_t before = http->cap_input;
  if (!kw_account_ask(&http->account, bytes.len) ||
      !kw_reserve(&http->input, &http->cap_input, http->n_input + bytes.len, 1))
    return false;
  kw_account_resize(&http->account, before, http->cap_input);
  memcpy(http->input + http->n_input, bytes.data, bytes.len);
  http->n_input += bytes.len;
  return true;
}

/* Removes the first `n` bytes. */
static void drop(kw_http *http, size_t n) {
  size_t before = http->cap_input;
  if (n == 0) return;
  http->n_input -= n;
  if (http->n_input > 0) {
    memmove(http->input, http->input + n, http->n_input);
    kw_shrink(&http->input, &http->cap_input, http->n_input, 1);
  } else {
    kw_free(http->input);
    http->input = NULL;
    http->cap_input = 0;
  }
  kw_account_resize(&http->account, before, http->cap_input);
}

static void skip(kw_slice *rest, size_t n) {
  *rest = kw_slice_of(rest->data + n, rest->len - n);
}

/* }====== */

/* {====== The end of messages ====== */

/* Both messages are complete. */
static void next(kw_http *http) {
  bool is_last =
      !http->keeps_alive || http->is_draining || http->n_exchanges >= http->options->max_requests;
  if (is_last) kw_http_finish(http);
  if (!is_last) kw_http_reset(http);
}

static bool is_complete(const kw_http *http) {
  if (!http->is_open) return false;
  if (!http->options->is_client || http->in == KW_IN_RAW) return http->sends == KW_SENDS_END;
  return http->in == KW_IN_END && http->sends != KW_SENDS_RAW;
}

/* A server may answer before the request is complete. The rest of a short body is then dropped. A client that has not
 * sent all of a request cannot use the connection again. */
static void end_exchange(kw_http *http) {
  bool is_short = http->sends == KW_SENDS_BODY && http->left != 0;
  bool is_early = http->options->is_client && (is_short || http->out.len > 0);
  kw_http_close_exchange(http, NULL);
  if (is_early) {
    kw_chain_drop(&http->out);
    kw_http_note_why(http, "the server answered before the request was complete");
    kw_http_finish(http);
  } else if (http->in != KW_IN_BODY && http->in != KW_IN_TRAILERS) {
    next(http);
  } else if (!http->keeps_alive || kw_http_has_long_rest(http)) {
    kw_http_linger(http);
  }
}

/* The incoming message is complete. A server's owner that has answered needs no more of it. */
static void end_message(kw_http *http, const kw_http_field *trailers, size_t n) {
  bool is_wanted = http->options->is_client || http->sends != KW_SENDS_END;
  http->in = KW_IN_END;
  if (!http->is_open) {
    next(http);
  } else if (is_wanted) {
    http->hooks->on_end(&http->exchange, trailers, n, http->ctx);
  }
}

/* }====== */

/* {====== Heads ====== */

static void set_body(kw_http *http, const kw_head *head, int64_t length) {
  http->body = (kw_body){.kind = head->is_chunked ? KW_BODY_CHUNKED
                                 : length < 0     ? KW_BODY_UNTIL_CLOSE
                                                  : KW_BODY_LENGTH,
                         .left = length < 0 ? 0 : (uint64_t)length};
  http->in = KW_IN_BODY;
}

/* Refuses the message if so many bytes are more than the owner takes. */
static void check_body(kw_http *http, uint64_t n) {
  if (n > http->exchange.max_body)
    kw_send_refusal(http, (kw_refusal){413, "the body is too large"});
}

/* Checks the length of a body, after the owner had the head. */
static void check_length(kw_http *http) {
  bool is_wanted = http->options->is_client || http->sends != KW_SENDS_END;
  if (!http->is_over && http->in == KW_IN_BODY && is_wanted) check_body(http, http->body.left);
}

static void begin_request(kw_http *http, kw_head *head) {
  kw_http_request *request = &head->request;
  const char *scheme = http->options->is_tls ? "https" : "http";
  if (request->scheme.len == 0) request->scheme = kw_slice_text(scheme);
  http->is_open = true;
  http->is_head = kw_slice_is(request->method, "HEAD");
  http->is_http10 = head->minor == 0;
  http->expects = head->expects;
  http->may_upgrade = head->upgrade.len > 0;
  http->keeps_alive = !head->closes;
  http->exchange.max_body = http->options->max_body;
  if (http->is_gone) http->gone_since = http->now;
  set_body(http, head, request->length);
  http->hooks->on_request(&http->exchange, request, http->ctx);
  check_length(http);
}

static void begin_interim(kw_http *http, const kw_http_answer *answer) {
  if (++http->n_interim > KW_HTTP_INTERIM) {
    kw_send_refusal(http, (kw_refusal){400, "there are too many interim answers"});
    return;
  }
  http->search = (kw_head_search){0};
  http->head_since = KW_HTTP_NEVER;
  http->hooks->on_answer(&http->exchange, answer, http->ctx);
}

/* Returns false, with the answer refused, if the server may not switch to another protocol now. */
static bool switch_protocol(kw_http *http) {
  bool is_allowed = http->may_upgrade && http->sends == KW_SENDS_END;
  if (is_allowed) {
    http->in = KW_IN_RAW;
    http->sends = KW_SENDS_RAW;
    http->left = -1;
    http->is_chunked = http->keeps_alive = false;
  } else {
    kw_send_refusal(http, (kw_refusal){400, "status 101 answers no offer of another protocol"});
  }
  return is_allowed;
}

static void begin_answer(kw_http *http, kw_head *head) {
  kw_http_answer *answer = &head->answer;
  int status = answer->status;
  if (http->is_head || status == 204 || status == 304 || status < 200) {
    head->is_chunked = false;
    answer->length = 0;
  }
  if (status < 200 && status != 101) {
    begin_interim(http, answer);
    return;
  }
  set_body(http, head, answer->length);
  http->keeps_alive = !head->closes && http->body.kind != KW_BODY_UNTIL_CLOSE;
  if (status == 101 && !switch_protocol(http)) return;
  http->hooks->on_answer(&http->exchange, answer, http->ctx);
  check_length(http);
}

/* }====== */

/* {====== Bytes ====== */

/* Skips one empty line before a request. Returns false if more bytes are needed. */
static bool skip_line(kw_http *http, kw_slice *rest) {
  if (http->options->is_client || http->has_skipped_line || rest->len == 0) return rest->len > 0;
  if (rest->data[0] != '\r' || (rest->len > 1 && rest->data[1] != '\n')) return true;
  if (rest->len > 1) {
    http->has_skipped_line = true;
    skip(rest, 2);
  }
  return rest->len > 1;
}

/* Finds the end of a head or of trailers. Returns its length; or 0: it is not complete, or refused. */
static size_t find_end(kw_http *http, kw_slice rest) {
  size_t len;
  kw_refusal refusal =
      kw_head_find(&http->search, rest, http->options->max_line, http->options->max_head, &len);
  if (refusal.status != 0) kw_send_refusal(http, refusal);
  return len;
}

static bool parse_head(kw_http *http, kw_slice bytes) {
  kw_head head;
  bool is_client = http->options->is_client;
  kw_refusal refusal =
      is_client ? kw_head_parse_answer(bytes, &head) : kw_head_parse_request(bytes, &head);
  if (refusal.status != 0) {
    kw_send_refusal(http, refusal);
  } else if (is_client) {
    begin_answer(http, &head);
  } else {
    begin_request(http, &head);
  }
  if (!is_client && http->hooks->is_turn_over != NULL)
    http->is_turn_over = http->hooks->is_turn_over(http->ctx);
  return true;
}

static bool take_head(kw_http *http, kw_slice *rest) {
  size_t len;
  if (http->is_turn_over || (!http->options->is_client && kw_http_is_full(http))) return false;
  if (rest->len > 0 && http->options->is_client && !http->is_open) {
    kw_http_note_why(http, "the server sent bytes that answer no request");
    kw_http_finish(http);
    return false;
  }
  if (rest->len > 0) http->exchange.fate = KW_FATE_ANSWERED;
  if (!skip_line(http, rest)) return false;
  if (http->head_since == KW_HTTP_NEVER) http->head_since = http->now;
  if ((len = find_end(http, *rest)) == 0) return false;
  kw_slice head = kw_slice_of(rest->data, len);
  skip(rest, len);
  return parse_head(http, head);
}

static bool take_piece(kw_http *http, kw_slice piece) {
  http->n_body += piece.len;
  if (http->is_open) {
    check_body(http, http->n_body);
    if (!http->is_over) http->hooks->on_body(&http->exchange, piece, http->ctx);
  } else if ((http->n_dropped += piece.len) > KW_HTTP_DROPPED) {
    kw_http_linger(http);
  }
  return true;
}

static bool take_body(kw_http *http, kw_slice *rest) {
  kw_slice piece;
  if (http->is_paused) return false;
  if (http->expects && http->sends == KW_SENDS_HEAD && rest->len == 0) kw_send_continue(http);
  http->expects = false;
  switch (kw_body_next(&http->body, rest, &piece)) {
    case KW_BODY_MORE: return false;
    case KW_BODY_PIECE: return take_piece(http, piece);
    case KW_BODY_TRAILERS:
      http->in = KW_IN_TRAILERS;
      http->search = (kw_head_search){.line_number = 1};
      return true;
    case KW_BODY_END: end_message(http, NULL, 0); return true;
    case KW_BODY_BAD: kw_send_refusal(http, (kw_refusal){400, "a chunk is not valid"}); break;
  }
  return true;
}

static bool take_trailers(kw_http *http, kw_slice *rest) {
  size_t len;
  kw_head head;
  if (http->is_paused || (len = find_end(http, *rest)) == 0) return false;
  kw_refusal refusal = kw_head_parse_trailers(kw_slice_of(rest->data, len), &head);
  skip(rest, len);
  if (refusal.status != 0) {
    kw_send_refusal(http, refusal);
  } else {
    end_message(http, head.fields, head.n_fields);
  }
  return true;
}

static bool take_raw(kw_http *http, kw_slice *rest) {
  kw_slice bytes = *rest;
  if (http->is_paused || bytes.len == 0) return false;
  skip(rest, bytes.len);
  http->hooks->on_body(&http->exchange, bytes, http->ctx);
  return true;
}

/* Does one thing that can be done now. Returns false if there is none. */
static bool advance(kw_http *http, kw_slice *rest) {
  if (http->is_over) return false;
  if (is_complete(http)) {
    end_exchange(http);
    return true;
  }
  switch (http->in) {
    case KW_IN_HEAD: return take_head(http, rest);
    case KW_IN_BODY: return take_body(http, rest);
    case KW_IN_TRAILERS: return take_trailers(http, rest);
    case KW_IN_RAW: return take_raw(http, rest);
    case KW_IN_END: break;
  }
  return false;
}

/* }====== */

/* {====== The end of the peer's bytes ====== */

static const char *peer_of(const kw_http *http) {
  return http->options->is_client ? "server" : "client";
}

static void note_short_body(kw_http *http) {
  if (http->in == KW_IN_BODY && http->body.kind == KW_BODY_LENGTH) {
    kw_http_note_why(http, "the %s closed the connection after %llu of %llu bytes of the body",
                     peer_of(http), (unsigned long long)http->n_body,
                     (unsigned long long)(http->n_body + http->body.left));
  } else if (http->is_cut) {
    kw_http_note_why(http, "the connection was cut within the body, after %llu bytes",
                     (unsigned long long)http->n_body);
  } else {
    kw_http_note_why(http, "the %s closed the connection within the body, after %llu bytes",
                     peer_of(http), (unsigned long long)http->n_body);
  }
}

static void note_no_head(kw_http *http, bool is_partial) {
  if (is_partial) {
    kw_http_note_why(http, "the %s closed the connection within a head", peer_of(http));
  } else if (http->is_open) {
    kw_http_note_why(http, "the server closed the connection without an answer");
  } else {
    kw_http_note_why(http, "the %s closed the connection", peer_of(http));
  }
}

static void note_gone(kw_http *http) {
  if (http->options->is_client || http->knows_gone || !http->is_open) return;
  http->knows_gone = true;
  if (http->hooks->on_gone != NULL) http->hooks->on_gone(&http->exchange, http->ctx);
}

/* The peer has closed its side, and all that can be taken was taken. Returns true if more can be done. */
static bool take_end(kw_http *http, kw_slice rest) {
  bool is_client = http->options->is_client;
  if (http->in == KW_IN_END) {
    note_gone(http);
    return is_complete(http);
  }
  if (http->is_paused || http->is_turn_over || (!is_client && kw_http_is_full(http))) return false;
  bool ends_here =
      http->in == KW_IN_RAW || (http->in == KW_IN_BODY && http->body.kind == KW_BODY_UNTIL_CLOSE);
  if (ends_here && !http->is_cut) {
    end_message(http, NULL, 0);
    return true;
  }
  if (http->in == KW_IN_HEAD) note_no_head(http, rest.len > 0);
  if (http->in != KW_IN_HEAD) note_short_body(http);
  kw_http_finish(http);
  return false;
}

/* }====== */

void kw_receive(kw_http *http, kw_slice bytes) {
  bool is_kept = http->n_input > 0;
  assert(!http->is_receiving);
  http->is_receiving = true;
  if (http->last_received == KW_HTTP_NEVER) http->last_received = http->now;
  if (is_kept && bytes.len > 0 && !keep(http, bytes)) kw_http_end_without_memory(http);
  kw_slice rest = is_kept ? kw_slice_of(http->input, http->n_input) : bytes;
  do {
    while (advance(http, &rest)) {
    }
  } while (!http->is_over && http->has_eof && take_end(http, rest));
  if (is_kept && !http->is_over) drop(http, http->n_input - rest.len);
  if (!is_kept && !http->is_over && rest.len > 0 && !keep(http, rest))
    kw_http_end_without_memory(http);
  if (http->last_wrote == KW_HTTP_NEVER) http->last_wrote = http->now;
  http->is_receiving = false;
  kw_http_settle(http);
}
